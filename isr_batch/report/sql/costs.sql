SELECT
  cluster_id,
  rule,
  CAST(sum(spurious) AS BIGINT) AS mistakes,
  round(sum(under_min_isr_seconds), 1) AS under_min_isr_s,
  round(sum(high_watermark_stalled_seconds)) AS high_watermark_stalled_s,
  max(loss_records_max) AS records_at_risk
FROM rule_scores
WHERE event_date IS NULL AND topic IS NULL
GROUP BY cluster_id, rule
ORDER BY cluster_id, mistakes, rule

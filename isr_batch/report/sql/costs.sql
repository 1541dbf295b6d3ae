WITH totals AS (
  SELECT
    rule,
    sum(spurious) AS mistakes,
    round(sum(under_min_isr_seconds), 1) AS under_min_isr_s,
    round(sum(high_watermark_stalled_seconds)) AS high_watermark_stalled_s,
    max(loss_records_max) AS records_at_risk
  FROM rule_scores
  WHERE event_date IS NULL AND topic IS NULL
  GROUP BY rule
)
SELECT
  array_join(array_sort(collect_list(rule)), ', ') AS rules,
  mistakes,
  under_min_isr_s,
  high_watermark_stalled_s,
  records_at_risk
FROM totals
GROUP BY ALL
ORDER BY mistakes, rules

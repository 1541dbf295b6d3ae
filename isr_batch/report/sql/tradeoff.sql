SELECT
  cluster_id,
  rule,
  lag_time_ms(params_json) / 1000 AS lag_time_s,
  detection_ms_p99 / 1000 AS detection_s,
  spurious,
  mistakes_per_partition_day AS mistakes,
  mistakes_per_partition_day_low AS low,
  mistakes_per_partition_day_high AS high
FROM rule_scores
WHERE event_date IS NULL AND topic IS NULL AND detection_ms_p99 IS NOT NULL AND mistakes_per_partition_day_high > 0
ORDER BY cluster_id, detection_s, mistakes, lag_time_s, rule

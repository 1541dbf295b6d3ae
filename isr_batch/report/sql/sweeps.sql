SELECT
  cluster_id,
  concat(sweep, ': ', topic_class, ' topics') AS place,
  rule,
  params_json,
  replica_lag_time_max_ms / 1000 AS lag_time_s,
  detection_ms_p99 / 1000 AS detection_s,
  spurious,
  mistakes_per_follower_day AS mistakes,
  mistakes_per_follower_day_low AS low,
  mistakes_per_follower_day_high AS high
FROM sweep_scores
WHERE detection_ms_p99 IS NOT NULL AND mistakes_per_follower_day_high > 0
ORDER BY cluster_id, place, rule, lag_time_s

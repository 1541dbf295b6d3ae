SELECT
  concat(sweep, ': ', cluster_id, ', ', topic_class, ' topics') AS place,
  rule,
  map_filter(
    from_json(params_json, 'MAP<STRING, STRING>'), (name, value) -> name <> 'replica_lag_time_max_ms'
  ) AS other_params,
  replica_lag_time_max_ms / 1000 AS lag_time_s,
  detection_ms_p99 / 1000 AS detection_s,
  spurious,
  mistakes_per_follower_day AS mistakes,
  mistakes_per_follower_day_low AS low,
  mistakes_per_follower_day_high AS high
FROM sweep_scores
WHERE detection_ms_p99 IS NOT NULL AND mistakes_per_follower_day_high > 0
ORDER BY place, rule, lag_time_s

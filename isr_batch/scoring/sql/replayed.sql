-- Changes by the rule that each leader ran, with the lag time and min ISR that it ran with.
SELECT
  cluster_id, topic, partition_id, leader_id, replica_id, kind,
  leader_epoch, unix_micros(change_time) AS at_us, last_caught_up_time_ms,
  follower_log_end_offset, leader_log_end_offset, high_watermark, rule, params_json,
  time_error_ms AS uncertain_ms,
  -- An earlier comparison's result is not an input of the next one.
  CASE WHEN depends_on <> 'not_logged' THEN depends_on END AS depends_on,
  row_number() OVER (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind ORDER BY change_time, leader_epoch
  ) AS number
FROM {isr_changes} AS changes
JOIN {parameters} AS parameters USING (params_json)
JOIN (
  SELECT DISTINCT
    cluster_id, topic, partition_id, leader_epoch, leader_id, replica_lag_time_max_ms, min_insync_replicas, ran AS rule
  FROM {own_terms}
) AS own USING (
  cluster_id, topic, partition_id, leader_epoch, leader_id, rule, replica_lag_time_max_ms, min_insync_replicas
)
WHERE made_by = 'rule'

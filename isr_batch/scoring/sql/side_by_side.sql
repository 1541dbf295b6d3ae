-- All changes: matched, only logged (missing), or only replayed (extra).
WITH logged AS (
  SELECT logged.*, logged_number, replayed_number, time_error_ms
  FROM {logged} AS logged LEFT JOIN {pairs} AS pairs
  ON logged.cluster_id = pairs.cluster_id AND logged.topic = pairs.topic AND logged.partition_id = pairs.partition_id
    AND logged.leader_id = pairs.leader_id AND logged.replica_id = pairs.replica_id AND logged.kind = pairs.kind
    AND logged.number = pairs.logged_number
)
SELECT
  coalesce(logged.cluster_id, replayed.cluster_id) AS cluster_id,
  coalesce(logged.topic, replayed.topic) AS topic,
  coalesce(logged.partition_id, replayed.partition_id) AS partition_id,
  coalesce(logged.leader_epoch, replayed.leader_epoch) AS leader_epoch,
  coalesce(logged.leader_id, replayed.leader_id) AS leader_id,
  coalesce(logged.replica_id, replayed.replica_id) AS replica_id,
  coalesce(logged.kind, replayed.kind) AS kind,
  CASE WHEN replayed.number IS NULL THEN 'missing' WHEN logged.number IS NULL THEN 'extra' ELSE 'matched' END AS status,
  rule, params_json, depends_on, uncertain_ms, time_error_ms,
  coalesce(logged.at_us, replayed.at_us) AS at_us,
  logged.at_us AS observed_us,
  replayed.at_us AS replayed_us,
  replayed.last_caught_up_time_ms - logged.last_caught_up_time_ms AS last_caught_up_error_ms,
  logged.follower_log_end_offset AS observed_follower_log_end_offset,
  replayed.follower_log_end_offset AS replayed_follower_log_end_offset,
  logged.leader_log_end_offset AS observed_leader_log_end_offset,
  replayed.leader_log_end_offset AS replayed_leader_log_end_offset,
  logged.high_watermark AS observed_high_watermark,
  replayed.high_watermark AS replayed_high_watermark
FROM logged FULL JOIN {replayed} AS replayed
ON logged.cluster_id = replayed.cluster_id AND logged.topic = replayed.topic
  AND logged.partition_id = replayed.partition_id AND logged.leader_id = replayed.leader_id
  AND logged.replica_id = replayed.replica_id AND logged.kind = replayed.kind
  AND logged.replayed_number = replayed.number

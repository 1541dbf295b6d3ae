-- Summary of a day's fetches of each follower from a leader in a partition, and of the leader's appends.
WITH followers AS (
  -- If several fetches arrived at once, the one with the least offset is the first.
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id,
    min($first) AS first, max(unix_micros(completed_time)) AS last_us, count(*) AS fetches
  FROM {fetch_log} AS fetch_log WHERE error_code = 0 AND $wanted
  GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id
)
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, 0 AS span_number, replica_id,
  timestamp_micros(first.arrival_us) AS first_time, timestamp_micros(last_us) AS last_time,
  first.fetch_offset AS first_offset, fetches
FROM followers
UNION ALL
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, 0 AS span_number, leader_id AS replica_id,
  min(append_time) AS first_time, max(append_time) AS last_time, CAST(NULL AS BIGINT) AS first_offset,
  count(*) AS fetches
FROM {append_log} AS append_log WHERE $wanted
GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id

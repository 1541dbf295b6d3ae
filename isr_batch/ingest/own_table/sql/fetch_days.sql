-- What the fetches of some days say of each follower of a leader in a partition, and the leader's appends.
WITH fetches AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, event_date, replica_id,
    unix_micros(arrival_time) AS arrival_us, unix_micros(handled_time) AS handled_us,
    unix_micros(completed_time) AS completed_us, fetch_offset
  FROM {fetch_log} AS fetch_log WHERE error_code = 0 AND $days AND $clusters
), moved AS (
  -- Several leaders, or epochs, serve the partition on this day.
  SELECT cluster_id, topic, partition_id, event_date, 1 AS has_moved FROM fetches
  GROUP BY cluster_id, topic, partition_id, event_date
  HAVING min(leader_id) < max(leader_id) OR min(leader_epoch) < max(leader_epoch)
), placed AS (
  SELECT fetches.*, row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id, event_date ORDER BY handled_us, leader_id, leader_epoch
    ) AS place
  FROM fetches JOIN moved USING (cluster_id, topic, partition_id, event_date)
), begun AS (
  -- A span ends at a gap in which another leader has rows. Without the gap, clocks that differ would end it.
  SELECT *, CASE
      WHEN handled_us - lag(handled_us) OVER (
        PARTITION BY cluster_id, topic, partition_id, event_date, leader_id, leader_epoch ORDER BY place
      ) > $gap_us AND place - lag(place) OVER (
        PARTITION BY cluster_id, topic, partition_id, event_date, leader_id, leader_epoch ORDER BY place
      ) > 1 THEN 1 ELSE 0 END AS begins
  FROM placed
), spans AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, event_date, replica_id, arrival_us, completed_us,
    fetch_offset, CAST(sum(begins) OVER (
      PARTITION BY cluster_id, topic, partition_id, event_date, leader_id, leader_epoch ORDER BY place
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS INT) AS span_number
  FROM begun
  UNION ALL
  SELECT fetches.cluster_id, fetches.topic, fetches.partition_id, leader_epoch, leader_id, fetches.event_date,
    replica_id, arrival_us, completed_us, fetch_offset, 0 AS span_number
  FROM fetches LEFT JOIN moved USING (cluster_id, topic, partition_id, event_date)
  WHERE has_moved IS NULL
), followers AS (
  -- Of fetches that arrived at once, the one with the least offset is the first.
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, event_date, span_number, replica_id,
    min($first) AS first, max(completed_us) AS last_us, count(*) AS fetches
  FROM spans
  GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id, event_date, span_number, replica_id
)
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, span_number, replica_id,
  timestamp_micros(first.arrival_us) AS first_time, timestamp_micros(last_us) AS last_time,
  first.fetch_offset AS first_offset, fetches, event_date
FROM followers
UNION ALL
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, 0 AS span_number, leader_id AS replica_id,
  min(append_time) AS first_time, max(append_time) AS last_time, CAST(NULL AS BIGINT) AS first_offset,
  count(*) AS fetches, event_date
FROM {append_log} AS append_log WHERE $days AND $clusters
GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id, event_date

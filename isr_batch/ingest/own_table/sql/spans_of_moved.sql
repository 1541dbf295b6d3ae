-- The same for partitions that several leaders, or leader epochs, served on the day: for each span of one separately.
WITH fetches AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id,
    unix_micros(arrival_time) AS arrival_us, unix_micros(handled_time) AS handled_us,
    unix_micros(completed_time) AS completed_us, fetch_offset
  FROM {fetch_log} AS fetch_log JOIN {moved} AS moved USING (cluster_id, topic, partition_id)
  WHERE error_code = 0 AND $wanted
), placed AS (
  SELECT *, row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id ORDER BY handled_us, leader_id, leader_epoch
    ) AS place
  FROM fetches
), begun AS (
  -- A span ends at a gap in which another leader has rows. Without the gap, clocks that differ would end it.
  SELECT *, CASE
      WHEN handled_us - lag(handled_us) OVER (
        PARTITION BY cluster_id, topic, partition_id, leader_id, leader_epoch ORDER BY place
      ) > $gap_us AND place - lag(place) OVER (
        PARTITION BY cluster_id, topic, partition_id, leader_id, leader_epoch ORDER BY place
      ) > 1 THEN 1 ELSE 0 END AS begins
  FROM placed
), spans AS (
  SELECT *, CAST(sum(begins) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, leader_epoch ORDER BY place
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS INT) AS span_number
  FROM begun
), followers AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, span_number, replica_id,
    min($first) AS first, max(completed_us) AS last_us, count(*) AS fetches
  FROM spans
  GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id, span_number, replica_id
)
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, span_number, replica_id,
  timestamp_micros(first.arrival_us) AS first_time, timestamp_micros(last_us) AS last_time,
  first.fetch_offset AS first_offset, fetches
FROM followers

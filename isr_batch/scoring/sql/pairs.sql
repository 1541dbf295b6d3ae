-- Pairs of a logged and a replayed change (by their numbers) that are each other's nearest, at most a check period and a second
-- apart; then the same for the changes that are left. An expand is logged when its ISR write is answered, which may be at any later
-- time if the leader is late with its work.
WITH reach AS (
  SELECT cluster_id, leader_id, max(replica_lag_time_max_ms / checks_per_lag_time) + 1000 AS reach_ms
  FROM {own_terms} GROUP BY cluster_id, leader_id
), near AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, kind,
    logged.number AS logged_number, replayed.number AS replayed_number,
    (replayed.at_us - logged.at_us) / 1000 AS time_error_ms, reach_ms,
    late.from_us IS NOT NULL AND kind = 'expand' AND replayed.at_us <= logged.at_us AS was_late
  FROM {logged} AS logged
  JOIN {replayed} AS replayed USING (cluster_id, topic, partition_id, leader_id, replica_id, kind)
  JOIN reach USING (cluster_id, leader_id)
  LEFT JOIN (SELECT cluster_id AS of_cluster, leader_id AS of_leader, from_us, until_us FROM {late_spans}) AS late
  ON of_cluster = logged.cluster_id AND of_leader = logged.leader_id
    AND replayed.at_us >= late.from_us AND logged.at_us <= late.until_us + $late_for_us
), candidates AS (
  SELECT * FROM near WHERE abs(time_error_ms) <= reach_ms OR was_late
), ranked AS (
  SELECT *,
    row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number
      ORDER BY abs(time_error_ms), replayed_number
    ) AS place_of_replayed,
    row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind, replayed_number
      ORDER BY abs(time_error_ms), logged_number
    ) AS place_of_logged
  FROM candidates
), nearest AS (
  SELECT cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number, replayed_number, time_error_ms
  FROM ranked WHERE place_of_replayed = 1 AND place_of_logged = 1
), rest AS (
  SELECT candidates.*
  FROM candidates
  LEFT JOIN (SELECT cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number, 1 AS has_replayed FROM nearest) AS logged
    USING (cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number)
  LEFT JOIN (SELECT cluster_id, topic, partition_id, leader_id, replica_id, kind, replayed_number, 1 AS has_logged FROM nearest) AS replayed
    USING (cluster_id, topic, partition_id, leader_id, replica_id, kind, replayed_number)
  WHERE has_replayed IS NULL AND has_logged IS NULL
), ranked_rest AS (
  SELECT *,
    row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number
      ORDER BY abs(time_error_ms), replayed_number
    ) AS place_of_replayed,
    row_number() OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind, replayed_number
      ORDER BY abs(time_error_ms), logged_number
    ) AS place_of_logged
  FROM rest
)
SELECT * FROM nearest
UNION ALL
SELECT cluster_id, topic, partition_id, leader_id, replica_id, kind, logged_number, replayed_number, time_error_ms
FROM ranked_rest WHERE place_of_replayed = 1 AND place_of_logged = 1

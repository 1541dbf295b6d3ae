-- New rows of late_checks. A check is moved to the leader's next check with a line or, if that is too late, to the time at which
-- the leader was awake again. Too late is after the period in which the leader was late; for a check that was moved before, it is
-- after the limit set then. A check that dropped another follower of the partition according to a line ran on time. After the last
-- line of a server.log, an absent line proves nothing.
WITH server_logs AS (
  SELECT cluster_id, broker_id AS leader_id, max(unix_micros(until_time)) AS last_line_us
  FROM {coverage} WHERE log = 'server' GROUP BY cluster_id, broker_id
), refuted AS (
  SELECT
    cluster_id, topic, partition_id, leader_epoch, leader_id, replayed_us AS due_us,
    max(uncertain_ms) AS uncertain_ms, array_sort(collect_list(replica_id)) AS replica_ids
  FROM {doubted} LEFT JOIN server_logs USING (cluster_id, leader_id)
  WHERE status = 'extra' AND kind = 'shrink' AND replayed_us <= coalesce(last_line_us, replayed_us)
  GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id, replayed_us
), ran AS (
  SELECT DISTINCT cluster_id, topic, partition_id, leader_id, replayed_us AS due_us, 1 AS has_line
  FROM {doubted} WHERE status = 'matched' AND kind = 'shrink'
), known AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, unix_micros(due_time) AS due_us, unix_micros(ran_time) AS ran_us,
    unix_micros(latest_time) AS latest_us
  FROM {late_checks}
), moved AS (
  SELECT cluster_id, topic, partition_id, leader_id, ran_us AS due_us, max(latest_us) AS latest_us
  FROM known GROUP BY cluster_id, topic, partition_id, leader_id, ran_us
), late AS (
  SELECT cluster_id, leader_id, due_us, max(until_us) AS until_us
  FROM (SELECT DISTINCT cluster_id, leader_id, due_us FROM refuted) AS asked
  JOIN {late_spans} AS spans USING (cluster_id, leader_id)
  WHERE due_us BETWEEN from_us AND until_us + $late_for_us
  GROUP BY cluster_id, leader_id, due_us
), bounded AS (
  SELECT refuted.*,
    coalesce(latest_us, greatest(uncertain_until_us, coalesce(until_us + $late_for_us, 0))) AS latest_us,
    coalesce(latest_us, greatest(uncertain_until_us, coalesce(until_us + $awake_us, 0))) AS awake_us
  FROM (SELECT *, due_us + 1000 * coalesce(uncertain_ms, 0) AS uncertain_until_us FROM refuted) AS refuted
  LEFT JOIN late USING (cluster_id, leader_id, due_us)
  LEFT JOIN moved USING (cluster_id, topic, partition_id, leader_id, due_us)
  LEFT JOIN ran USING (cluster_id, topic, partition_id, leader_id, due_us)
  LEFT JOIN (SELECT DISTINCT cluster_id, topic, partition_id, leader_id, due_us, 1 AS is_known FROM known) AS seen
    USING (cluster_id, topic, partition_id, leader_id, due_us)
  WHERE has_line IS NULL AND is_known IS NULL
), checks AS (
  SELECT asked.cluster_id, leader_id, due_us, min(unix_micros(end_time)) AS next_us
  FROM (SELECT DISTINCT cluster_id, leader_id, due_us FROM bounded) AS asked
  JOIN {broker_events} AS events
  ON events.cluster_id = asked.cluster_id AND broker_id = leader_id AND kind = 'check'
    AND unix_micros(end_time) > due_us + $least_us
  GROUP BY asked.cluster_id, leader_id, due_us
)
SELECT
  cluster_id, topic, partition_id, leader_epoch, leader_id, timestamp_micros(due_us) AS due_time,
  timestamp_micros(CASE WHEN next_us <= latest_us THEN next_us ELSE awake_us END) AS ran_time,
  timestamp_micros(latest_us) AS latest_time, replica_ids, CAST(timestamp_micros(due_us) AS DATE) AS event_date
FROM bounded LEFT JOIN checks USING (cluster_id, leader_id, due_us)
WHERE CASE WHEN next_us <= latest_us THEN next_us ELSE awake_us END > due_us + $least_us

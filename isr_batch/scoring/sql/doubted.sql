-- All changes. The status of a change without a counterpart is unknown if no log covers its time, if the log began too short a time
-- before, or if its day was not replayed. doubt is the reason.
WITH alone AS (
  SELECT DISTINCT cluster_id, topic, partition_id, leader_id, at_us FROM {side_by_side} WHERE status <> 'matched'
), spans AS (
  SELECT
    cluster_id, broker_id AS leader_id, unix_micros(until_time) AS until_us,
    CASE WHEN begins_mid_term THEN unix_micros(from_time) ELSE -9223372036854775807 END AS from_us
  FROM {coverage}
  WHERE log = 'request'
), reaches AS (
  SELECT
    cluster_id, leader_id, at_us,
    max(CASE WHEN at_us BETWEEN from_us AND until_us THEN 1 ELSE 0 END) AS inside,
    max(CASE WHEN at_us BETWEEN from_us AND until_us AND at_us > until_us - 1000 * $in_flight_ms THEN 1 ELSE 0 END)
      AS at_end
  FROM (SELECT DISTINCT cluster_id, leader_id, at_us FROM alone) AS asked JOIN spans USING (cluster_id, leader_id)
  GROUP BY cluster_id, leader_id, at_us
), begun AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, unix_micros(start_time) AS from_us,
    unix_micros(start_time) + 1000 * (replica_lag_time_max_ms + replica_lag_time_max_ms / checks_per_lag_time + 1)
      AS warm_us
  FROM {own_terms}
  WHERE begins_mid_term
), warm AS (
  SELECT DISTINCT cluster_id, topic, partition_id, leader_id, at_us, 1 AS is_warm
  FROM alone JOIN begun USING (cluster_id, topic, partition_id, leader_id)
  WHERE at_us BETWEEN from_us AND warm_us
), server_logs AS (
  SELECT cluster_id, broker_id AS leader_id, min(unix_micros(from_time)) AS server_from_us
  FROM {coverage} WHERE log = 'server' GROUP BY cluster_id, broker_id
), recorded AS (
  -- Who changes an ISR is in the metadata log, and since 2.8 in the leader's state-change.log (broker_id) as well.
  SELECT DISTINCT cluster_id, broker_id AS noted_by FROM {controller_records} WHERE kind IN ('partition', 'noted')
), silent_about AS (
  SELECT cluster_id, leader_id, at_us, 1 AS nothing_tells
  FROM (SELECT DISTINCT cluster_id, leader_id, at_us FROM alone) AS asked
  LEFT JOIN server_logs USING (cluster_id, leader_id)
  LEFT JOIN recorded USING (cluster_id)
  GROUP BY cluster_id, leader_id, at_us
  HAVING max(CASE WHEN at_us >= server_from_us OR (recorded.cluster_id IS NOT NULL
    AND coalesce(noted_by, leader_id) = leader_id) THEN 1 ELSE 0 END) = 0
), reach AS (
  SELECT cluster_id, leader_id, max(replica_lag_time_max_ms / checks_per_lag_time) + 1000 AS reach_ms
  FROM {own_terms} GROUP BY cluster_id, leader_id
), removed AS (
  -- The ISR lost the replica within a period of the check and a second, and only the leader's server.log shows whether by
  -- this change.
  SELECT DISTINCT
    extra.cluster_id, extra.topic, extra.partition_id, extra.leader_id, extra.replica_id, extra.at_us, 1 AS is_removed
  FROM {side_by_side} AS extra
  JOIN {observed_isr_changes} AS removals USING (cluster_id, topic, partition_id, leader_id, replica_id, kind)
  JOIN reach USING (cluster_id, leader_id)
  LEFT JOIN server_logs USING (cluster_id, leader_id)
  LEFT JOIN (SELECT DISTINCT cluster_id, 1 AS has_records FROM {controller_records} WHERE kind = 'partition') AS decided
    USING (cluster_id)
  WHERE status = 'extra' AND kind = 'shrink' AND made_by <> 'leader' AND has_records IS NULL
    AND NOT coalesce(at_us >= server_from_us, false)
    AND unix_micros(change_time) BETWEEN at_us - 100000 AND at_us + 1000 * reach_ms
), logged AS (
  -- A cluster that has no coverage at all does not come from broker logs, and its tables are taken as complete.
  SELECT DISTINCT cluster_id, 0 AS vouched FROM {coverage}
), replayed_rules AS (
  SELECT DISTINCT rule AS ran FROM {replayed_days}
), done AS (
  SELECT DISTINCT rule AS ran, event_date, 1 AS is_done FROM {replayed_days}
), undone AS (
  -- The days on which the leader's rule has not been replayed, if it was on others.
  SELECT DISTINCT cluster_id, leader_id, at_us, 1 AS is_undone
  FROM (SELECT DISTINCT cluster_id, leader_id, at_us, CAST(timestamp_micros(at_us) AS DATE) AS event_date FROM alone)
    AS asked
  JOIN {leaders} AS leaders USING (cluster_id, leader_id)
  JOIN replayed_rules USING (ran)
  LEFT JOIN done USING (ran, event_date)
  WHERE is_done IS NULL
), told AS (
  SELECT all_.*,
    CASE
      WHEN status = 'matched' THEN NULL
      WHEN coalesce(inside, vouched, 1) = 0 THEN $outside
      WHEN is_warm = 1 THEN $warm_up
      WHEN at_end = 1 THEN $at_the_end
      WHEN status = 'missing' AND is_undone = 1 THEN $undone
      WHEN status = 'extra' AND vouched = 0 AND coalesce(nothing_tells, is_removed, 0) = 1 THEN $no_server_log
    END AS doubt
  FROM {side_by_side} AS all_
  LEFT JOIN reaches USING (cluster_id, leader_id, at_us)
  LEFT JOIN warm USING (cluster_id, topic, partition_id, leader_id, at_us)
  LEFT JOIN silent_about USING (cluster_id, leader_id, at_us)
  LEFT JOIN removed USING (cluster_id, topic, partition_id, leader_id, replica_id, at_us)
  LEFT JOIN logged USING (cluster_id)
  LEFT JOIN undone USING (cluster_id, leader_id, at_us)
)
SELECT
  cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, kind,
  CASE WHEN doubt IS NULL THEN status ELSE 'unknown' END AS status, doubt,
  coalesce(rule, ran, 'unknown') AS rule, coalesce(params_json, '{{}}') AS params_json, depends_on, uncertain_ms,
  time_error_ms, at_us, observed_us, replayed_us, last_caught_up_error_ms,
  observed_follower_log_end_offset, replayed_follower_log_end_offset, observed_leader_log_end_offset,
  replayed_leader_log_end_offset, observed_high_watermark, replayed_high_watermark
FROM told LEFT JOIN {leaders} AS leaders USING (cluster_id, leader_id)

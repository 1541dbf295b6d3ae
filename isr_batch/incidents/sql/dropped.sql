-- Followers that left an ISR according to the brokers' logs, each with the verdict on the same shrink of their replayed
-- rule; for clusters without broker logs, the shrinks of the rule. reassigned: the controller took the replica out of the
-- partition's assignment, or gave it a new one without it. suspect, suspect_broker, strength: by the lines of server.log.
WITH judged AS (
  SELECT v.*, c.observed_time
  FROM replay_check AS c
  JOIN shrink_verdicts AS v ON v.change_time = c.replayed_time
    AND (v.cluster_id, v.topic, v.partition_id, v.leader_epoch, v.leader_id, v.replica_id, v.rule, v.params_json)
    = (c.cluster_id, c.topic, c.partition_id, c.leader_epoch, c.leader_id, c.replica_id, c.rule, c.params_json)
  WHERE c.kind = 'shrink'
),
logged AS (
  SELECT
    o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id, o.change_time, o.made_by,
    CASE WHEN o.made_by = 'controller' THEN 'excluded' ELSE coalesce(j.verdict, 'unknown') END AS verdict,
    CASE WHEN o.made_by = 'controller' THEN 'controller' ELSE coalesce(j.primary_cause, 'unknown') END AS cause,
    j.restored_time, coalesce(j.lag_ms, epoch_ms(o.change_time) - o.last_caught_up_time_ms) AS lag_ms,
    j.leader_held_ms, j.leader_silent_ms, j.rule,
    j.params_json, j.change_time AS replayed_time, j.certainty, o.source_file, o.source_line,
    o.made_by = 'controller' AND coalesce(NOT list_contains(t.assigned, o.replica_id), false) AS reassigned
  FROM observed_isr_changes AS o
  LEFT JOIN (SELECT DISTINCT ON ($key) $key, assigned FROM leader_epochs ORDER BY ALL) AS t USING ($key)
  LEFT JOIN judged AS j ON j.observed_time = o.change_time AND o.made_by = 'leader'
    AND (j.cluster_id, j.topic, j.partition_id, j.leader_id, j.replica_id)
    = (o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id)
  WHERE o.kind = 'shrink'
),
replayed AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, change_time, made_by, verdict, primary_cause AS cause,
    restored_time, lag_ms, leader_held_ms, leader_silent_ms, rule, params_json, change_time AS replayed_time, certainty, NULL AS source_file,
    NULL AS source_line, false AS reassigned
  FROM shrink_verdicts
  WHERE rule = $rule AND cluster_id NOT IN (SELECT cluster_id FROM brokers_logs)
),
every AS (
  SELECT *, true AS logged FROM logged
  UNION ALL
  SELECT *, false AS logged FROM replayed
)
SELECT every.*, e.suspect, e.suspect_broker, e.strength, e.spurious AS looks_spurious
FROM every
LEFT JOIN (
  SELECT DISTINCT ON (cluster_id, topic, partition_id, leader_id, replica_id, change_time) *
  FROM shrink_evidence ORDER BY ALL
) AS e ON every.logged
  AND (e.cluster_id, e.topic, e.partition_id, e.leader_id, e.replica_id, e.change_time)
  = (every.cluster_id, every.topic, every.partition_id, every.leader_id, every.replica_id, every.change_time)
ORDER BY every.cluster_id, every.change_time, every.topic, every.partition_id, every.replica_id

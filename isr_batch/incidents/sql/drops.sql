-- Followers that left an ISR: as the brokers logged it, each with the verdict on the same shrink of their replayed rule; of
-- clusters without logs of brokers, as the rule would have it. fault_id: the broker that the verdict points at; incident: those
-- of one broker with at most a lag time, or the time since the follower was caught up, between two of them.
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
    j.restored_time, coalesce(j.lag_ms, epoch_ms(o.change_time) - o.last_caught_up_time_ms) AS lag_ms, j.rule,
    j.params_json, j.change_time AS replayed_time, j.certainty, o.source_file, o.source_line
  FROM observed_isr_changes AS o
  LEFT JOIN judged AS j ON j.observed_time = o.change_time AND o.made_by = 'leader'
    AND (j.cluster_id, j.topic, j.partition_id, j.leader_id, j.replica_id)
    = (o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id)
  WHERE o.kind = 'shrink'
),
replayed AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, change_time, made_by, verdict, primary_cause AS cause,
    restored_time, lag_ms, rule, params_json, change_time AS replayed_time, certainty, NULL AS source_file,
    NULL AS source_line
  FROM shrink_verdicts
  WHERE rule = $rule AND cluster_id NOT IN (SELECT cluster_id FROM brokers_logs)
),
every AS (
  SELECT *, true AS logged FROM logged
  UNION ALL
  SELECT *, false AS logged FROM replayed
),
suspected AS (
  SELECT every.*, e.suspect, e.suspect_broker
  FROM every
  LEFT JOIN (
    SELECT DISTINCT ON (cluster_id, topic, partition_id, leader_id, replica_id, change_time) *
    FROM shrink_evidence ORDER BY ALL
  ) AS e ON every.logged AND every.verdict = 'unknown'
    AND (e.cluster_id, e.topic, e.partition_id, e.leader_id, e.replica_id, e.change_time)
    = (every.cluster_id, every.topic, every.partition_id, every.leader_id, every.replica_id, every.change_time)
),
lag_times AS (
  SELECT cluster_id, max(replica_lag_time_max_ms) AS lag_time_ms FROM leader_epochs GROUP BY cluster_id
),
-- Who stops is dropped from partitions where it lacks nothing as well: no fault of their leader.
near AS (
  SELECT s.*, lag_time_ms, least(
    epoch_ms(change_time) - epoch_ms(max(change_time) FILTER (verdict = 'genuine') OVER until_then),
    epoch_ms(min(change_time) FILTER (verdict = 'genuine') OVER from_then) - epoch_ms(change_time)
  ) AS from_genuine_ms
  FROM suspected AS s LEFT JOIN lag_times USING (cluster_id)
  WINDOW
    until_then AS (PARTITION BY cluster_id, replica_id ORDER BY change_time),
    from_then AS (PARTITION BY cluster_id, replica_id ORDER BY change_time DESC)
),
blamed AS (
  SELECT *, CASE
    WHEN verdict = 'unknown' THEN suspect_broker
    WHEN verdict = 'spurious' AND (cause = 'slow_leader' OR coalesce(from_genuine_ms > lag_time_ms, true)) THEN leader_id
    ELSE replica_id
  END AS fault_id
  FROM near
),
stepped AS (
  SELECT blamed.*, coalesce(
    epoch_ms(change_time) - greatest(lag_time_ms, lag_ms) > epoch_ms(lag(change_time) OVER of_broker), true
  ) AS first
  FROM blamed
  WINDOW of_broker AS (PARTITION BY cluster_id, fault_id ORDER BY change_time)
)
SELECT
  cluster_id, topic, partition_id, leader_id, replica_id, epoch_us(change_time) AS change_us, made_by, verdict, cause,
  epoch_us(restored_time) AS restored_us, lag_ms, rule, params_json, epoch_us(replayed_time) AS replayed_us, certainty,
  suspect, fault_id, source_file, source_line,
  CAST(sum(CAST(first AS INTEGER)) OVER (PARTITION BY cluster_id, fault_id ORDER BY change_time) AS INTEGER) AS incident
FROM stepped
ORDER BY cluster_id, change_us, topic, partition_id, replica_id

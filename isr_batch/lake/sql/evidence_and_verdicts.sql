-- Shrinks by both kinds of evidence side by side: server.log alone, and the verdict of the replay of the brokers' own rule; `known_by` names the kinds that exist. According to server.log, only a lag time above `lag_ms` would have kept the replica; according to the replay, `avoiding_lag_time_ms` is enough whenever the checks run (null where the log or the leader's term ends before the follower caught up).
WITH own AS (
  SELECT shrink_verdicts.*, row_number() OVER (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, change_time ORDER BY params_json
  ) AS nth
  FROM shrink_verdicts
  SEMI JOIN (SELECT DISTINCT cluster_id, rule FROM replay_check) USING (cluster_id, rule)
), caught_up AS (
  SELECT
    cluster_id, topic, partition_id, leader_epoch, rule, params_json, replica_id, last_caught_up_time_ms,
    lead(min(unix_millis(time))) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_epoch, rule, params_json, replica_id
      ORDER BY last_caught_up_time_ms
    ) AS next_time_ms
  FROM replica_changes
  SEMI JOIN (SELECT DISTINCT cluster_id, rule FROM replay_check) USING (cluster_id, rule)
  WHERE last_caught_up_time_ms IS NOT NULL
  GROUP BY cluster_id, topic, partition_id, leader_epoch, rule, params_json, replica_id, last_caught_up_time_ms
), judged AS (
  SELECT own.*, next_time_ms - own.last_caught_up_time_ms AS avoiding_lag_time_ms
  FROM own
  LEFT JOIN caught_up USING (
    cluster_id, topic, partition_id, leader_epoch, rule, params_json, replica_id, last_caught_up_time_ms
  )
  WHERE nth = 1
)
SELECT
  coalesce(e.cluster_id, v.cluster_id) AS cluster_id,
  coalesce(e.topic, v.topic) AS topic,
  coalesce(e.partition_id, v.partition_id) AS partition_id,
  coalesce(e.leader_id, v.leader_id) AS leader_id,
  coalesce(e.replica_id, v.replica_id) AS replica_id,
  coalesce(e.change_time, v.change_time) AS change_time,
  CASE WHEN v.topic IS NULL THEN 'server.log' WHEN e.topic IS NULL THEN 'replay' ELSE 'both' END AS known_by,
  e.suspect,
  e.strength,
  e.spurious AS spurious_by_lines,
  v.verdict,
  v.primary_cause,
  e.lag_ms,
  v.true_lag_ms,
  v.avoiding_lag_time_ms,
  e.reason
FROM shrink_evidence AS e
FULL OUTER JOIN judged AS v
  ON e.cluster_id = v.cluster_id AND e.topic = v.topic AND e.partition_id = v.partition_id
  AND e.leader_id = v.leader_id AND e.replica_id = v.replica_id
  AND abs(unix_millis(e.change_time) - unix_millis(v.change_time)) <= 1000

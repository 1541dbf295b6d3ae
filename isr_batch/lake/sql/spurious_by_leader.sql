-- Spurious shrinks by leader, with the median time that the leader held the followers' fetches, and that it was silent.
SELECT
  cluster_id,
  leader_id,
  rule,
  params_json,
  count(*) AS spurious,
  count_if(primary_cause = 'slow_leader') AS slow_leader,
  count(DISTINCT struct(topic, partition_id)) AS partitions,
  percentile(leader_held_ms, 0.5) AS leader_held_ms_p50,
  percentile(leader_silent_ms, 0.5) AS leader_silent_ms_p50
FROM shrink_verdicts
SEMI JOIN replayed_days USING (rule, event_date)
WHERE verdict = 'spurious'
GROUP BY cluster_id, leader_id, rule, params_json

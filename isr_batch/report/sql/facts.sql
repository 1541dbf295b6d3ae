WITH shrinks AS (
  SELECT * FROM (VALUES :shrinks)
    AS shown(id, cluster_id, topic, partition_id, rule, params_json, change_us, observed_us, from_us, until_us)
)
SELECT
  id,
  v.leader_id,
  v.replica_id,
  v.leader_log_end_offset,
  v.follower_log_end_offset,
  v.lag_ms,
  v.true_lag_ms,
  v.leader_held_ms,
  v.leader_silent_ms,
  v.verdict,
  v.primary_cause,
  v.depends_on,
  v.time_error_ms,
  unix_micros(v.change_time) AS change_us,
  unix_micros(v.restored_time) AS restored_us,
  o.source_file,
  o.source_line
FROM shrinks
JOIN shrink_verdicts AS v ON v.cluster_id = shrinks.cluster_id AND v.topic = shrinks.topic
  AND v.partition_id = shrinks.partition_id AND v.rule = shrinks.rule AND v.params_json = shrinks.params_json
  AND unix_micros(v.change_time) = change_us
LEFT JOIN observed_isr_changes AS o ON o.cluster_id = v.cluster_id AND o.topic = v.topic
  AND o.partition_id = v.partition_id AND o.leader_id = v.leader_id AND o.replica_id = v.replica_id
  AND o.kind = 'shrink' AND o.made_by = 'leader' AND unix_micros(o.change_time) = observed_us
ORDER BY id, v.replica_id

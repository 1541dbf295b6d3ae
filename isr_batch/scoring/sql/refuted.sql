-- Replayed changes that are not certain: changes of the brokers' own rule that the brokers did not log, and changes by other rules
-- at the same check or fetch.
SELECT DISTINCT
  cluster_id, topic, partition_id, changes.leader_epoch, leader_id, changes.rule, changes.params_json, replica_id, kind,
  change_time, 'possible' AS certainty, 'not_logged' AS depends_on
FROM {isr_changes} AS changes
JOIN {replay_check} AS compared USING (cluster_id, topic, partition_id, leader_id, replica_id, kind)
WHERE
  status = 'extra' AND made_by = 'rule' AND changes.depends_on IS NULL
  AND abs(unix_micros(change_time) - unix_micros(replayed_time)) <= 1000

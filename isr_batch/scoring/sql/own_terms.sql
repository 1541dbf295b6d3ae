-- Terms, each with the rule that its leader ran.
SELECT
  cluster_id, leader_id, topic, partition_id, leader_epoch, start_time, begins_mid_term, replica_lag_time_max_ms,
  min_insync_replicas, ran, checks_per_lag_time
FROM {terms} AS terms JOIN {leaders} AS leaders USING (cluster_id, leader_id)

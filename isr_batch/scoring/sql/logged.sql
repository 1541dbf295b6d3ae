-- Changes that the leaders logged. A cluster without a known release, such as a fleet under a proposal, is left out, and so
-- are changes of observers.
SELECT
  cluster_id, topic, partition_id, leader_id, replica_id, kind,
  leader_epoch, unix_micros(change_time) AS at_us, last_caught_up_time_ms,
  follower_log_end_offset, leader_log_end_offset, high_watermark,
  row_number() OVER (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, kind ORDER BY change_time, leader_epoch
  ) AS number
FROM {observed_isr_changes}
ANTI JOIN {of_observers} USING (cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id)
WHERE made_by = 'leader' AND cluster_id IN (SELECT cluster_id FROM {leaders})

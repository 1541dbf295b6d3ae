-- Drops by a leader that held the follower's fetches, since the follower was last caught up, for longer than it was silent.
SELECT
  row_number() OVER (ORDER BY cluster_id, change_time, topic, partition_id, replica_id) AS number, cluster_id, topic, partition_id, leader_id, replica_id,
  epoch_us(change_time) - 1000 * lag_ms AS from_us, epoch_us(change_time) AS until_us,
  1000 * (leader_held_ms + leader_silent_ms) AS accounted_us
FROM dropped
WHERE cause = 'slow_leader' AND lag_ms > 0 AND leader_held_ms > leader_silent_ms
ORDER BY number

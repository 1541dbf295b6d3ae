-- Logged shrinks that are not replayed, and the time in which a fetch or an append may have come before or after.
SELECT DISTINCT
  cluster_id, topic, partition_id, leader_id, replica_id, at_us,
  at_us - 1000 * $race_ms AS from_us, at_us + 1000 * $race_ms AS until_us
FROM {doubted}
WHERE status = 'missing' AND kind = 'shrink'

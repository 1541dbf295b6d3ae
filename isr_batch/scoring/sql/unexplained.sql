-- Logged shrinks that were not replayed, each with the period in which the order of a fetch or append and the shrink is unknown.
SELECT DISTINCT
  cluster_id, topic, partition_id, leader_id, replica_id, at_us,
  at_us - 1000 * $race_ms AS from_us, at_us + 1000 * $race_ms AS until_us
FROM {doubted}
WHERE status = 'missing' AND kind = 'shrink'

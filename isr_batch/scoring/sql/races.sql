-- Logged shrinks that were not replayed, but may depend on an order that the log does not show, because a fetch of the follower or
-- an append happened at the same moment. This proves nothing about expands: every expand happens on a fetch.
WITH fetched AS (
  SELECT DISTINCT cluster_id, topic, partition_id, leader_id, replica_id, at_us, 1 AS by_fetch
  FROM {fetches}
  WHERE handled_us <= until_us AND processed_us >= from_us
), appended AS (
  SELECT DISTINCT cluster_id, topic, partition_id, leader_id, replica_id, at_us, 1 AS by_append
  FROM {appends}
)
SELECT
  cluster_id, topic, partition_id, leader_id, replica_id, at_us,
  CASE
    WHEN by_append IS NULL THEN 'a fetch of the replica'
    WHEN by_fetch IS NULL THEN 'an append'
    ELSE 'a fetch of the replica and an append'
  END AS what
FROM fetched FULL JOIN appended USING (cluster_id, topic, partition_id, leader_id, replica_id, at_us)

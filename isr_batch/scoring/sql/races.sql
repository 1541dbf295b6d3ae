-- A logged shrink that is not replayed depends on an order that the log does not have if a fetch of the follower or an append
-- is of the same moment. Every expand happens on a fetch, so this proves nothing about expands.
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

-- Partitions with the most drops of healthy followers, each with one judged drop as an example.
SELECT
  cluster_id, topic, partition_id,
  count_if(verdict = 'spurious') AS spurious,
  count(*) AS drops,
  first(change_us ORDER BY verdict <> 'spurious', change_us, replica_id) AS example_us,
  first(rule ORDER BY verdict <> 'spurious', change_us, replica_id) AS rule
FROM drops
WHERE rule IS NOT NULL
GROUP BY ALL
ORDER BY spurious DESC, drops DESC, cluster_id, topic, partition_id
LIMIT $most

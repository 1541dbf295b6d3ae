-- Drops by leader, dropped follower and verdict.
SELECT cluster_id, leader_id, replica_id, verdict, count(*) AS drops
FROM drops
WHERE made_by NOT IN ('controller', 'unknown')
GROUP BY ALL
ORDER BY ALL

-- Elections of a new leader: how many partitions each broker began to lead, by second.
SELECT cluster_id, leader_id AS broker_id, min(epoch_us(start_time)) AS at_us, count(*) AS partitions
FROM leader_epochs
WHERE previous_leader_id <> leader_id AND NOT coalesce(begins_mid_term, false)
GROUP BY cluster_id, leader_id, date_trunc('second', start_time)
ORDER BY ALL

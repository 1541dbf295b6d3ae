-- Drops by broker and time slot: those that it made as the leader, and those in which it was dropped.
WITH sides AS (
  SELECT *, leader_id AS broker_id, 'drops' AS side FROM drops WHERE made_by <> 'controller'
  UNION ALL
  SELECT *, replica_id AS broker_id, 'dropped' AS side FROM drops
)
SELECT
  cluster_id, broker_id, side, verdict,
  CAST(floor((change_us - first_us) / slot_us) AS INTEGER) AS slot,
  count(*) AS drops,
  min(change_us) AS first_drop_us
FROM sides
JOIN (
  SELECT cluster_id, min(first_us) AS first_us, greatest(max(last_us) - min(first_us), 1) / $slots AS slot_us
  FROM clusters GROUP BY cluster_id
) USING (cluster_id)
GROUP BY ALL
ORDER BY ALL

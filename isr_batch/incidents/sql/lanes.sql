-- Drops by broker and time slot: those that the broker made as leader, and those of the broker itself. Each row has the incident of
-- its first drop.
WITH sides AS (
  SELECT *, leader_id AS broker_id, 'drops' AS side FROM drops WHERE made_by NOT IN ('controller', 'unknown')
  UNION ALL
  SELECT *, replica_id AS broker_id, 'dropped' AS side FROM drops
)
SELECT
  cluster_id, broker_id, side, verdict,
  CAST(floor((change_us - first_us) / slot_us) AS INTEGER) AS slot,
  count(*) AS drops,
  first(fault_id ORDER BY change_us, fault_id, incident) AS fault_id,
  first(incident ORDER BY change_us, fault_id, incident) AS incident
FROM sides
JOIN (
  SELECT cluster_id, min(first_us) AS first_us, greatest(max(last_us) - min(first_us), 1) / $slots AS slot_us
  FROM clusters GROUP BY cluster_id
) USING (cluster_id)
GROUP BY ALL
ORDER BY ALL

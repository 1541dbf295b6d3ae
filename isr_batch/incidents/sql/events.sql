-- Silences, starts, stops and fencings of brokers, by time slot.
SELECT
  cluster_id, broker_id, kind,
  epoch_us(min(event_time)) AS from_us,
  epoch_us(max(end_time)) AS until_us,
  count(*) AS events
FROM broker_events
JOIN (
  SELECT cluster_id, min(first_us) AS first_us, greatest(max(last_us) - min(first_us), 1) / $slots AS slot_us
  FROM clusters GROUP BY cluster_id
) USING (cluster_id)
WHERE kind IN ('silent', 'started', 'fenced', 'shutting_down', 'stopping')
GROUP BY cluster_id, broker_id, kind, floor((epoch_us(event_time) - first_us) / slot_us)
ORDER BY ALL

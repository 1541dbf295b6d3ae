-- For each broker that the controller removed from ISRs, without a shutdown or a reassignment: the period in which the broker made
-- its last fetch, and two partitions of each leader that it followed then. started_us: when the broker started again, if that was
-- before its removal.
WITH removed AS (
  SELECT cluster_id, fault_id, incident, min(least(change_us, coalesce(earliest_us, change_us))) AS until_us
  FROM drops WHERE verdict = 'excluded' AND NOT reassigned
  GROUP BY ALL
),
killed AS (
  SELECT r.*, (
    SELECT max(epoch_us(e.event_time)) FROM broker_events AS e
    WHERE e.kind = 'started' AND e.cluster_id = r.cluster_id AND e.broker_id = r.fault_id
      AND epoch_us(e.event_time) BETWEEN r.until_us - $reach_us AND r.until_us
      AND NOT EXISTS (
        FROM observed_isr_changes AS o
        WHERE o.kind = 'expand' AND o.cluster_id = r.cluster_id AND o.replica_id = r.fault_id
          AND epoch_us(o.change_time) BETWEEN epoch_us(e.event_time) AND r.until_us
      )
  ) AS started_us
  FROM removed AS r
  WHERE NOT EXISTS (
    FROM broker_events AS e
    WHERE e.kind IN ('shutting_down', 'stopping') AND e.cluster_id = r.cluster_id AND e.broker_id = r.fault_id
      AND epoch_us(e.event_time) BETWEEN r.until_us - $stop_us AND r.until_us + 1000000
  )
),
followed AS (
  SELECT
    k.*, t.leader_id, [min({'topic': t.topic, 'partition_id': t.partition_id}), max({'topic': t.topic, 'partition_id': t.partition_id})] AS partitions
  FROM killed AS k
  -- Up to 3.6 a removal ends the term.
  JOIN leader_epochs AS t ON t.cluster_id = k.cluster_id AND t.leader_id <> k.fault_id AND list_contains(t.assigned, k.fault_id)
    AND epoch_us(t.start_time) <= coalesce(k.started_us, k.until_us) - 1000000
    AND epoch_us(t.end_time) >= coalesce(k.started_us, k.until_us) - 1000000
  GROUP BY ALL
)
SELECT
  cluster_id, partition.topic AS topic, partition.partition_id AS partition_id, leader_id, fault_id AS replica_id, fault_id, incident,
  started_us, coalesce(started_us, until_us) - $reach_us AS from_us, until_us
FROM (SELECT DISTINCT * EXCLUDE (partitions), unnest(partitions) AS partition FROM followed)
ORDER BY ALL

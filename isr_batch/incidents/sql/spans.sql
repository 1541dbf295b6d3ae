-- Periods and partitions whose fetches show which broker was at fault: fetches of the dropped follower from its leader, of this
-- leader's other followers, and of the follower from its other leaders, if a request log covers the period. The equally long time
-- before the period is included. Leaders that were silent in the period are left out. A follower fetches all partitions of a leader
-- at once, so one would do; two are read in case one was deleted and no log shows that.
WITH pairs AS (
  SELECT window_number, 'dropped' AS side, leader_id, replica_id, partition FROM windows
  UNION ALL
  SELECT w.window_number, 'of_leader', t.leader_id, unnest(t.assigned), {'topic': t.topic, 'partition_id': t.partition_id}
  FROM windows AS w
  JOIN leader_epochs AS t ON t.cluster_id = w.cluster_id AND t.leader_id = w.leader_id
    AND epoch_us(t.start_time) <= w.from_us AND epoch_us(t.end_time) >= w.until_us
  UNION ALL
  SELECT w.window_number, 'of_follower', t.leader_id, w.replica_id, {'topic': t.topic, 'partition_id': t.partition_id}
  FROM windows AS w
  JOIN leader_epochs AS t ON t.cluster_id = w.cluster_id AND t.leader_id <> w.leader_id AND t.leader_id <> w.replica_id
    AND list_contains(t.assigned, w.replica_id)
    AND epoch_us(t.start_time) <= w.from_us AND epoch_us(t.end_time) >= w.until_us
),
chosen AS (
  SELECT
    w.cluster_id, [min(p.partition), max(p.partition)] AS partitions, p.leader_id, p.replica_id,
    w.from_us - (w.until_us - w.from_us) AS from_us, w.until_us, w.from_us AS since_us, w.window_number, p.side
  FROM pairs AS p
  JOIN windows AS w USING (window_number)
  WHERE (p.side = 'dropped' OR p.side = 'of_follower' OR p.replica_id NOT IN (w.leader_id, w.replica_id))
    AND (
      w.cluster_id NOT IN (SELECT cluster_id FROM coverage WHERE log = 'request')
      OR EXISTS (
        FROM coverage AS c
        WHERE c.log = 'request' AND c.cluster_id = w.cluster_id AND c.broker_id = p.leader_id
          AND epoch_us(c.from_time) <= w.from_us AND epoch_us(c.until_time) >= w.until_us
      )
    )
    AND NOT EXISTS (
      FROM broker_events AS e
      WHERE e.kind = 'silent' AND e.cluster_id = w.cluster_id AND e.broker_id = p.leader_id
        AND least(epoch_us(e.end_time), w.until_us) - greatest(epoch_us(e.event_time), w.from_us) > $least * (w.until_us - w.from_us)
    )
  GROUP BY ALL
),
named AS (
  SELECT DISTINCT * REPLACE (unnest(partitions) AS partitions) FROM chosen
)
SELECT cluster_id, partitions.topic AS topic, partitions.partition_id AS partition_id, * EXCLUDE (cluster_id, partitions)
FROM named
ORDER BY ALL

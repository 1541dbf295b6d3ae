-- ISR changes that brokers made to listed observers, except observers that were in the ISR when the leader's term began, which are replayed as any other replica. No rule of Kafka makes these changes, so they are in no incident and not compared with a replay.
SELECT changes.*
FROM observed_isr_changes AS changes
SEMI JOIN (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, isr_at_start, explode(observers) AS replica_id
  FROM leader_epochs
) AS terms
  ON changes.cluster_id = terms.cluster_id AND changes.topic = terms.topic
  AND changes.partition_id = terms.partition_id AND changes.leader_epoch = terms.leader_epoch
  AND changes.leader_id = terms.leader_id AND changes.replica_id = terms.replica_id
  AND NOT coalesce(array_contains(terms.isr_at_start, terms.replica_id), false)

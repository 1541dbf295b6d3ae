-- Values that the replay takes from log lines (times, and the order within a millisecond), each with the largest correction and the line that it is taken from.
SELECT
  cluster_id, broker_id AS leader_id, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition_id,
  CAST(NULL AS INT) AS replica_id, 'check_time' AS kind, event_time AS from_time, end_time AS until_time,
  (unix_micros(end_time) - unix_micros(event_time)) / 1000 AS by_at_most_ms,
  'a check was due, and printed its first line' AS what,
  CAST(NULL AS STRING) AS source_file, CAST(NULL AS BIGINT) AS source_line
FROM broker_events
WHERE kind = 'check'
UNION ALL
SELECT
  cluster_id, leader_id, topic, partition_id, CAST(NULL AS INT), 'check_time', due_time, ran_time,
  (unix_micros(latest_time) - unix_micros(due_time)) / 1000,
  'a check was due that would have dropped somebody, and no line says so: it ran later',
  CAST(NULL AS STRING), CAST(NULL AS BIGINT)
FROM late_checks
UNION ALL
SELECT
  cluster_id, leader_id, topic, partition_id, replica_id, 'event_order', change_time, change_time, 0.999,
  'the check came after the append that the line shows, and before a fetch that shows the replica at the log end',
  source_file, source_line
FROM observed_isr_changes
WHERE kind = 'shrink' AND made_by = 'leader' AND source_line IS NOT NULL
UNION ALL
SELECT
  cluster_id, leader_id, topic, partition_id, replica_id, 'isr_write', change_time, answered_time,
  (unix_micros(answered_time) - unix_micros(change_time)) / 1000,
  'the ISR write that the line begins, and its answer', source_file, source_line
FROM observed_isr_changes
WHERE answered_time IS NOT NULL

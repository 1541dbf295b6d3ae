-- Rows of replay_check. A replayed change contains what it depends on; a logged shrink that was not replayed may be from a race.
-- No rule makes the changes of observers.
SELECT
  cluster_id, topic, partition_id, leader_epoch, leader_id, rule, params_json, replica_id, kind, status,
  timestamp_micros(observed_us) AS observed_time,
  timestamp_micros(replayed_us) AS replayed_time,
  CAST(time_error_ms AS DOUBLE) AS time_error_ms, last_caught_up_error_ms,
  observed_follower_log_end_offset, replayed_follower_log_end_offset, observed_leader_log_end_offset,
  replayed_leader_log_end_offset, observed_high_watermark, replayed_high_watermark,
  coalesce(
    doubt,
    CASE WHEN status = 'extra' THEN 'possible: it depends on ' || words END,
    CASE WHEN status = 'missing' AND kind = 'shrink' THEN 'race: ' || what || ' within $race_ms ms of the change' END
  ) AS note,
  CAST(timestamp_micros(at_us) AS DATE) AS event_date
FROM {doubted} AS doubted
LEFT JOIN {races} AS races USING (cluster_id, topic, partition_id, leader_id, replica_id, at_us)
LEFT JOIN {words} AS words USING (depends_on)
UNION ALL
SELECT
  cluster_id, topic, partition_id, leader_epoch, leader_id, ran, '{{}}', replica_id, kind, 'observer', change_time, NULL, NULL, NULL,
  follower_log_end_offset, NULL, leader_log_end_offset, NULL, high_watermark, NULL,
  'the replica was listed as an observer and not in the ISR when the term began', CAST(change_time AS DATE)
FROM {of_observers} AS of_observers JOIN {leaders} AS leaders USING (cluster_id, leader_id)
WHERE made_by = 'leader'

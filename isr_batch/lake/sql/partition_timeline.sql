-- A replica set's state under a rule, from this instant until its next row: a row of `partition_states` for each rule run that shares it.
SELECT
  s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, r.rule, r.params_json, s.time,
  s.leader_log_end_offset, s.high_watermark, s.isr, s.event_date
FROM partition_states AS s
JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1

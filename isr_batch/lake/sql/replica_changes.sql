-- A follower's state under a rule where its log end offset, its membership, or its last catching up while it was behind changed: a row of `replica_states` for each rule run that shares it.
SELECT
  s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, r.rule, r.params_json, s.replica_id, s.time,
  s.follower_log_end_offset, s.lag_messages, s.last_caught_up_time_ms, s.in_isr, s.event_date
FROM replica_states AS s
JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1

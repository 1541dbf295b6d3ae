-- A follower's state under a rule, from this instant until its next row: what a row of `replica_states` says for each run of a rule that shares it.
SELECT
  s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, r.rule, r.params_json, s.replica_id, s.time,
  s.follower_log_end_offset,
  CASE
    WHEN s.last_caught_up_time_ms > 0 AND s.lag_messages = 0 THEN 0
    -- A request that the follower's next one overtook was handled later than this instant.
    WHEN s.last_caught_up_time_ms > 0
      THEN greatest(0, CAST(floor(unix_micros(s.time) / 1000) AS BIGINT) - s.last_caught_up_time_ms)
  END AS lag_ms,
  s.lag_messages, s.last_caught_up_time_ms, s.in_isr, s.event_date
FROM replica_states AS s
JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1

-- Each cluster: the time of its terms, and how many ISR changes brokers and replay agree on; and the rule of most of them.
SELECT
  t.cluster_id,
  epoch_us(min(t.start_time)) AS first_us,
  epoch_us(max(t.end_time)) AS last_us,
  max(t.replica_lag_time_max_ms) AS lag_time_ms,
  (SELECT count_if(c.status = 'matched') FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS matched,
  (SELECT count_if(c.status IN ('matched', 'missing', 'extra')) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id)
    AS changes,
  (SELECT mode(c.rule ORDER BY c.rule) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS rule,
  t.cluster_id IN (SELECT cluster_id FROM brokers_logs) AS logged
FROM leader_epochs AS t
GROUP BY t.cluster_id
ORDER BY t.cluster_id

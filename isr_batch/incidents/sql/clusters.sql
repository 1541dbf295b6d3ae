-- Each cluster: the time of its terms, and how many ISR changes brokers and replay agree on; and the rule of most of them.
-- unlogged: leaders of which no log tells whom they dropped.
WITH unlogged AS (
  SELECT cluster_id, list(DISTINCT broker_id ORDER BY broker_id) AS unlogged
  FROM coverage AS r
  WHERE log = 'request'
    AND NOT EXISTS (FROM coverage AS s WHERE s.log = 'server' AND (s.cluster_id, s.broker_id) = (r.cluster_id, r.broker_id))
    AND NOT EXISTS (
      FROM controller_records AS c WHERE c.cluster_id = r.cluster_id
        AND (c.kind = 'partition' OR (c.kind = 'noted' AND c.broker_id = r.broker_id))
    )
  GROUP BY cluster_id
)
SELECT
  t.cluster_id,
  epoch_us(min(t.start_time)) AS first_us,
  epoch_us(max(t.end_time)) AS last_us,
  max(t.replica_lag_time_max_ms) AS lag_time_ms,
  (SELECT count_if(c.status = 'matched') FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS matched,
  (SELECT count_if(c.status IN ('matched', 'missing', 'extra')) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id)
    AS changes,
  (SELECT mode(c.rule ORDER BY c.rule) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS rule,
  t.cluster_id IN (SELECT cluster_id FROM brokers_logs) AS logged,
  any_value(u.unlogged) AS unlogged,
  max(t.replica_lag_time_max_ms) FILTER (t.lag_time_source = 'default') AS assumed_lag_time_ms,
  max(t.broker_version) FILTER (t.broker_version_source = 'inferred') AS least_release
FROM leader_epochs AS t
LEFT JOIN unlogged AS u ON u.cluster_id = t.cluster_id
GROUP BY t.cluster_id
ORDER BY t.cluster_id

-- Each cluster: the period of its terms, on how many ISR changes replay and brokers agree, and the rule of most of its ISR changes.
-- unlogged: leaders whose logs do not show which followers they dropped. Drops that cannot be judged are counted in before_requests
-- (before the leader's request log begins, at requests_from_us), after_requests (after it ends, at requests_until_us) and
-- without_requests (the leader has no request log).
-- min_isr_changes: settings of min.insync.replicas that differ from the one before.
-- unseen: brokers with replicas whose server.log is missing, although other brokers have one.
-- of_observers: changes that the brokers made to listed observers, which are in no other count.
-- refused_files: files of logs that were refused as a whole.
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
),
unseen AS (
  SELECT cluster_id, list(DISTINCT broker_id ORDER BY broker_id) AS unseen
  FROM (SELECT cluster_id, unnest(assigned) AS broker_id FROM leader_epochs)
  SEMI JOIN (FROM coverage WHERE log = 'server') USING (cluster_id)
  ANTI JOIN (FROM coverage WHERE log = 'server') USING (cluster_id, broker_id)
  GROUP BY cluster_id
),
requests AS (
  SELECT cluster_id, broker_id, min(epoch_us(from_time)) AS from_us, max(epoch_us(until_time)) AS until_us
  FROM coverage WHERE log = 'request' GROUP BY ALL
),
unjudged AS (
  SELECT
    d.cluster_id,
    count_if(d.change_us < r.from_us) AS before_requests, min(r.from_us) FILTER (d.change_us < r.from_us) AS requests_from_us,
    count_if(d.change_us > r.until_us) AS after_requests, max(r.until_us) FILTER (d.change_us > r.until_us) AS requests_until_us,
    count_if(r.broker_id IS NULL) AS without_requests
  FROM drops AS d
  LEFT JOIN requests AS r ON r.cluster_id = d.cluster_id AND r.broker_id = d.leader_id
  WHERE d.verdict = 'unknown' AND d.made_by <> 'unknown' AND d.cluster_id IN (SELECT cluster_id FROM requests)
  GROUP BY ALL
),
min_isr AS (
  SELECT cluster_id, list({'topic': topic, 'value': value, 'at_us': epoch_us(record_time)} ORDER BY record_time, topic) AS changes
  FROM (
    SELECT *, lag(value) OVER (PARTITION BY cluster_id, topic ORDER BY record_time, record_offset) AS before
    FROM controller_records WHERE kind = 'min_isr' AND value IS NOT NULL
  )
  WHERE value <> before
  GROUP BY cluster_id
)
SELECT
  t.cluster_id,
  any_value(i.changes) AS min_isr_changes,
  epoch_us(min(t.start_time)) AS first_us,
  epoch_us(max(t.end_time)) AS last_us,
  max(t.replica_lag_time_max_ms) AS lag_time_ms,
  (SELECT count_if(c.status = 'matched') FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS matched,
  (SELECT count_if(c.status IN ('matched', 'missing', 'extra')) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id)
    AS changes,
  (SELECT mode(c.rule ORDER BY c.rule) FROM replay_check AS c WHERE c.cluster_id = t.cluster_id) AS rule,
  t.cluster_id IN (SELECT cluster_id FROM brokers_logs) AS logged,
  (SELECT count(*) FROM of_observers AS o WHERE o.cluster_id = t.cluster_id) AS of_observers,
  any_value(u.unlogged) AS unlogged,
  any_value(n.unseen) AS unseen,
  (SELECT count(DISTINCT q.source_file) FROM quarantine AS q
    WHERE q.cluster_id = t.cluster_id AND q.source_line IS NULL AND NOT q.rows_kept) AS refused_files,
  (SELECT count(*) FROM drops AS d WHERE d.cluster_id = t.cluster_id AND d.made_by = 'unknown') AS unknown_makers,
  (SELECT count(*) FROM drops AS d WHERE d.cluster_id = t.cluster_id AND d.attributed) AS attributed,
  any_value(before_requests) AS before_requests, any_value(requests_from_us) AS requests_from_us,
  any_value(after_requests) AS after_requests, any_value(requests_until_us) AS requests_until_us,
  any_value(without_requests) AS without_requests,
  max(t.replica_lag_time_max_ms) FILTER (t.lag_time_source = 'default') AS assumed_lag_time_ms,
  max(t.broker_version) FILTER (t.broker_version_source = 'inferred') AS least_release,
  bool_or(m.cluster_id IS NOT NULL) AS of_table,
  any_value(m.min_insync_replicas) FILTER (NOT m.min_isr_is_given) AS assumed_min_isr,
  bool_or(m.cluster_id IS NOT NULL AND t.broker_version IS NULL) AS release_unknown,
  bool_or(len(list_filter(json_extract_string(m.mapped, '$.fetches[*]'), lambda name: ends_with(name, '_time'))) = 1)
    AS has_one_instant
FROM leader_epochs AS t
LEFT JOIN mapped_clusters AS m ON m.cluster_id = t.cluster_id
LEFT JOIN unlogged AS u ON u.cluster_id = t.cluster_id
LEFT JOIN unseen AS n ON n.cluster_id = t.cluster_id
LEFT JOIN unjudged AS j ON j.cluster_id = t.cluster_id
LEFT JOIN min_isr AS i ON i.cluster_id = t.cluster_id
GROUP BY t.cluster_id
ORDER BY t.cluster_id

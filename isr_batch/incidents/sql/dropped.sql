-- Followers that left an ISR according to the brokers' logs, each with the replay's verdict on the same shrink under the brokers' own
-- rule. For clusters without broker logs, the shrinks that the rule made in the replay.
-- verdict: genuine also if a slow leader dropped the follower, or dropped it although it lacked nothing, after the follower had been
-- silent, or had not fetched from another leader, for longer than the lag time.
-- made_by: controller, leader, or unknown if the logs do not show it. They do not if no metadata log and no election, stop or fencing
-- of a broker shows that the controller removed the replica, and the leader's server.log does not cover that time (or has a line
-- about an ISR that could not be read). Then made_by is leader, and attributed is true, if the replay makes the same shrink just
-- before.
-- reassigned: the controller removed the replica, and the partition's assignment does not contain it afterwards. Without a metadata
-- log, the assignment may just lack replicas that were not seen, so the broker must also lead some partition at that time.
-- suspect, suspect_broker, strength, looks_spurious: the evidence in server.log.
WITH gone AS (
  SELECT cluster_id, broker_id AS replica_id, NULL AS leader_id, event_time AS from_time, end_time AS until_time
  FROM broker_events WHERE kind = 'silent'
  UNION ALL
  SELECT cluster_id, replica_id, leader_id, change_time - to_milliseconds(lag_ms), greatest(change_time, restored_time)
  FROM shrink_verdicts WHERE rule = $rule AND primary_cause = 'follower_stopped'
),
verdicts AS (
  SELECT v.* EXCLUDE (was_silent)
    REPLACE (if(was_silent, 'genuine', verdict) AS verdict, if(was_silent, 'follower_stopped', primary_cause) AS primary_cause)
  FROM (
    SELECT v.*, v.primary_cause IN ('slow_leader', 'caught_up') AND EXISTS (
      FROM gone AS g
      JOIN (SELECT cluster_id, max(replica_lag_time_max_ms) AS lag_time_ms FROM leader_epochs GROUP BY ALL) AS t USING (cluster_id)
      WHERE (g.cluster_id, g.replica_id) = (v.cluster_id, v.replica_id) AND g.leader_id IS DISTINCT FROM v.leader_id
        AND g.until_time >= v.change_time AND g.from_time < v.change_time - to_milliseconds(t.lag_time_ms)
    ) AS was_silent
    FROM shrink_verdicts AS v
  ) AS v
),
server AS (
  SELECT cluster_id, broker_id, min(from_time) AS from_time, max(until_time) AS until_time
  FROM coverage WHERE log = 'server' GROUP BY ALL
),
observed AS (
  SELECT
    o.*, o.made_by <> 'leader'
      AND o.cluster_id NOT IN (SELECT cluster_id FROM mapped_clusters)
      AND if(o.cluster_id IN (SELECT cluster_id FROM controller_records WHERE kind = 'partition'), o.made_by = 'unknown',
      if(s.broker_id IS NOT NULL, EXISTS (
        FROM shrink_evidence AS e
        WHERE e.made_by = 'unknown' AND (e.cluster_id, e.topic, e.partition_id, e.replica_id)
          = (o.cluster_id, o.topic, o.partition_id, o.replica_id)
          AND e.change_time BETWEEN o.change_time - INTERVAL 1 second AND o.change_time + INTERVAL 1 second
      ), NOT EXISTS (
        FROM leader_epochs AS t
        WHERE t.cluster_id = o.cluster_id
          AND o.change_time BETWEEN t.start_time - INTERVAL 1 second AND t.start_time + INTERVAL 1 second
          -- Up to 3.6 a change of the ISR begins a term, too, with the same leader.
          AND t.previous_leader_id IS DISTINCT FROM t.leader_id
          AND ((t.topic, t.partition_id) = (o.topic, o.partition_id) OR t.previous_leader_id = o.replica_id)
      )
      AND NOT EXISTS (
        FROM broker_events AS e
        WHERE e.kind IN ('fenced', 'shutting_down', 'stopping') AND e.cluster_id = o.cluster_id AND e.broker_id = o.replica_id
          AND o.change_time BETWEEN e.event_time - INTERVAL 1 second AND e.event_time + INTERVAL 1 minute
      ))) AS is_unsure
  FROM observed_isr_changes AS o
  LEFT JOIN server AS s ON s.cluster_id = o.cluster_id AND s.broker_id = o.leader_id
    AND o.change_time BETWEEN s.from_time AND s.until_time
  WHERE o.kind = 'shrink'
),
judged AS (
  SELECT v.*, c.observed_time
  FROM replay_check AS c
  JOIN verdicts AS v ON v.change_time = c.replayed_time
    AND (v.cluster_id, v.topic, v.partition_id, v.leader_epoch, v.leader_id, v.replica_id, v.rule, v.params_json)
    = (c.cluster_id, c.topic, c.partition_id, c.leader_epoch, c.leader_id, c.replica_id, c.rule, c.params_json)
  WHERE c.kind = 'shrink'
  UNION ALL
  -- Brokers note a removal up to some hundred milliseconds after its leader has decided on it; when its checks are due may be
  -- unknown, or known as well as that. A follower that is overdue at one check is so at the next.
  SELECT v.*, o.change_time AS observed_time
  FROM observed AS o
  JOIN (SELECT cluster_id, max(replica_lag_time_max_ms) // 2 + 1000 AS reach_ms FROM leader_epochs GROUP BY ALL) USING (cluster_id)
  JOIN verdicts AS v ON v.rule = $rule AND v.made_by = 'rule'
    AND epoch_ms(o.change_time) - epoch_ms(v.change_time) BETWEEN -100 AND reach_ms
    AND (v.cluster_id, v.topic, v.partition_id, v.leader_id, v.replica_id)
    = (o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id)
  SEMI JOIN replay_check AS c ON (c.cluster_id, c.rule, c.params_json) = (v.cluster_id, v.rule, v.params_json)
  WHERE o.is_unsure
  QUALIFY row_number() OVER (
    PARTITION BY o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id, o.change_time ORDER BY v.change_time DESC
  ) = 1
),
logged AS (
  SELECT
    o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id, o.change_time, o.earliest_time,
    CASE WHEN NOT o.is_unsure THEN if(o.made_by = 'leader', 'leader', 'controller') WHEN j.verdict IS NULL THEN 'unknown' ELSE 'leader' END AS made_by,
    CASE WHEN o.made_by <> 'leader' AND NOT o.is_unsure THEN 'excluded' ELSE coalesce(j.verdict, 'unknown') END AS verdict,
    CASE WHEN o.made_by <> 'leader' AND NOT o.is_unsure THEN 'controller' ELSE coalesce(j.primary_cause, 'unknown') END AS cause,
    j.restored_time, coalesce(j.lag_ms, epoch_ms(o.change_time) - o.last_caught_up_time_ms) AS lag_ms,
    j.leader_held_ms, j.leader_silent_ms, j.rule,
    j.params_json, j.change_time AS replayed_time, j.certainty, o.source_file, o.source_line,
    o.made_by <> 'leader' AND NOT o.is_unsure AND coalesce(NOT list_contains(t.assigned, o.replica_id), false) AND (
      o.cluster_id IN (SELECT cluster_id FROM controller_records WHERE kind = 'partition')
      OR o.cluster_id IN (SELECT cluster_id FROM mapped_clusters)
      OR EXISTS (
        FROM leader_epochs AS l
        WHERE l.cluster_id = o.cluster_id AND l.leader_id = o.replica_id
          AND o.change_time BETWEEN l.start_time AND l.end_time - INTERVAL 1 second
      )
    ) AS reassigned,
    o.is_unsure AND j.verdict IS NOT NULL AS attributed
  FROM observed AS o
  LEFT JOIN (SELECT DISTINCT ON ($key) $key, assigned FROM leader_epochs ORDER BY ALL) AS t USING ($key)
  LEFT JOIN judged AS j ON j.observed_time = o.change_time AND (o.made_by = 'leader' OR o.is_unsure)
    AND (j.cluster_id, j.topic, j.partition_id, j.leader_id, j.replica_id)
    = (o.cluster_id, o.topic, o.partition_id, o.leader_id, o.replica_id)
),
replayed AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, change_time, NULL AS earliest_time, made_by, verdict, primary_cause AS cause,
    restored_time, lag_ms, leader_held_ms, leader_silent_ms, rule, params_json, change_time AS replayed_time, certainty, NULL AS source_file,
    NULL AS source_line, false AS reassigned, false AS attributed
  FROM verdicts
  WHERE rule = $rule AND cluster_id NOT IN (SELECT cluster_id FROM brokers_logs)
),
every AS (
  SELECT *, true AS logged FROM logged
  UNION ALL
  SELECT *, false AS logged FROM replayed
)
SELECT every.*, e.suspect, e.suspect_broker, e.strength, e.spurious AS looks_spurious
FROM every
LEFT JOIN (
  SELECT DISTINCT ON (cluster_id, topic, partition_id, leader_id, replica_id, change_time) *
  FROM shrink_evidence ORDER BY ALL
) AS e ON every.logged
  AND (e.cluster_id, e.topic, e.partition_id, e.leader_id, e.replica_id, e.change_time)
  = (every.cluster_id, every.topic, every.partition_id, every.leader_id, every.replica_id, every.change_time)
ORDER BY every.cluster_id, every.change_time, every.topic, every.partition_id, every.replica_id

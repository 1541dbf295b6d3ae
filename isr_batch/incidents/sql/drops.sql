-- Followers that left an ISR, from `dropped`, each with the broker at fault (fault_id) and how the fetches around the drop show it
-- (who: leader, follower or link; null if they do not). If they do not, fault_id comes from the fetches around the leader's other
-- drops, else from log lines, else from the verdict. It is null if they leave it open and another broker's server.log is missing.
-- incident: number of the incident. Its drops point at the same broker, and each comes at most a lag time after the one before (or
-- at most the time since the follower was caught up, if that is longer).
WITH found AS (
  SELECT d.*, w.who, coalesce(w.served, false) AS served
  FROM dropped AS d
  LEFT JOIN who AS w ON d.verdict IN ('genuine', 'spurious') AND d.cause <> 'slow_leader'
    AND (d.cluster_id, d.leader_id, d.replica_id) = (w.cluster_id, w.leader_id, w.replica_id)
    AND epoch_us(d.change_time) BETWEEN w.first_us AND w.last_us
),
-- Kafka's defaults are 10 and 30 s. Where one is assumed, drops further apart than the shorter are of two incidents.
lag_times AS (
  SELECT
    cluster_id,
    least(max(replica_lag_time_max_ms), if(bool_or(coalesce(lag_time_source = 'default', false)), 10000, NULL)) AS lag_time_ms
  FROM leader_epochs GROUP BY cluster_id
),
-- A follower that stood still itself does not show that its leader was out of reach.
stood_still AS (
  SELECT d.cluster_id, d.leader_id, d.replica_id, d.change_time
  FROM (SELECT cluster_id, leader_id, replica_id, change_time, max(lag_ms) AS lag_ms FROM dropped WHERE lag_ms > 0 GROUP BY ALL) AS d
  JOIN broker_events AS e ON e.kind = 'silent' AND e.cluster_id = d.cluster_id AND e.broker_id = d.replica_id
    AND e.event_time < d.change_time AND e.end_time > d.change_time - to_milliseconds(d.lag_ms)
  GROUP BY ALL
  HAVING 2 * sum(epoch_ms(least(e.end_time, d.change_time)) - epoch_ms(greatest(e.event_time, d.change_time - to_milliseconds(d.lag_ms))))
    > any_value(d.lag_ms)
),
-- Clusters in which server.log of a broker is missing, so that weak evidence against a follower or its link needs the fetches.
unseen AS (
  SELECT DISTINCT cluster_id
  FROM (SELECT cluster_id, unnest(assigned) AS broker_id FROM leader_epochs)
  SEMI JOIN (FROM coverage WHERE log = 'server') USING (cluster_id)
  ANTI JOIN (FROM coverage WHERE log = 'server') USING (cluster_id, broker_id)
),
-- The other followers of a check, and those of them that did not stand still.
together AS (
  SELECT
    f.*, s.change_time IS NOT NULL AS still, lag_time_ms,
    suspect = 'unknown' OR (suspect = 'link_or_follower' AND strength = 'weak' AND cluster_id IN (FROM unseen)) AS doubtful,
    list(replica_id) OVER of_check AS dropped_then,
    list(replica_id) FILTER (s.change_time IS NULL) OVER of_check AS moving_then,
    least(
      epoch_ms(change_time) - epoch_ms(max(change_time) FILTER (who = 'leader') OVER of_leader_until_then),
      epoch_ms(min(change_time) FILTER (who = 'leader') OVER of_leader_from_then) - epoch_ms(change_time)
    ) AS from_unreachable_ms
  FROM found AS f
  LEFT JOIN stood_still AS s USING (cluster_id, leader_id, replica_id, change_time)
  LEFT JOIN lag_times USING (cluster_id)
  WINDOW
    of_check AS (PARTITION BY cluster_id, leader_id ORDER BY epoch_ms(change_time) RANGE BETWEEN 500 PRECEDING AND 500 FOLLOWING),
    of_leader_until_then AS (PARTITION BY cluster_id, leader_id ORDER BY change_time),
    of_leader_from_then AS (PARTITION BY cluster_id, leader_id ORDER BY change_time DESC)
),
genuine AS (
  SELECT * EXCLUDE (still, dropped_then, moving_then, from_unreachable_ms), CASE
    WHEN verdict <> 'genuine' THEN NULL
    WHEN who IS NOT NULL THEN if(who = 'leader', leader_id, replica_id)
    WHEN still THEN replica_id
    WHEN from_unreachable_ms <= lag_time_ms THEN leader_id
    WHEN doubtful THEN if(served, replica_id, NULL)
    WHEN suspect = 'leader' AND len(list_distinct(dropped_then)) > 1 AND len(list_filter(moving_then, lambda id: id <> replica_id)) = 0 THEN replica_id
    WHEN strength <> 'none' THEN coalesce(suspect_broker, replica_id)
    ELSE replica_id
  END AS genuine_fault_id
  FROM together
),
-- A follower that stops is also dropped where it lacks nothing: not the leader's fault, unless the leader is unreachable.
near AS (
  SELECT
    g.*,
    least(
      epoch_ms(change_time) - epoch_ms(max(change_time) FILTER (verdict = 'genuine') OVER until_then),
      epoch_ms(min(change_time) FILTER (verdict = 'genuine') OVER from_then) - epoch_ms(change_time)
    ) AS from_genuine_ms,
    least(
      epoch_ms(change_time) - epoch_ms(max(change_time) FILTER (genuine_fault_id = leader_id) OVER of_pair_until_then),
      epoch_ms(min(change_time) FILTER (genuine_fault_id = leader_id) OVER of_pair_from_then) - epoch_ms(change_time)
    ) AS from_unreached_ms
  FROM genuine AS g
  WINDOW
    until_then AS (PARTITION BY cluster_id, replica_id ORDER BY change_time),
    from_then AS (PARTITION BY cluster_id, replica_id ORDER BY change_time DESC),
    of_pair_until_then AS (PARTITION BY cluster_id, leader_id, replica_id ORDER BY change_time),
    of_pair_from_then AS (PARTITION BY cluster_id, leader_id, replica_id ORDER BY change_time DESC)
),
blamed AS (
  SELECT *, CASE
    WHEN verdict = 'unknown' THEN suspect_broker
    WHEN verdict = 'genuine' THEN genuine_fault_id
    WHEN verdict = 'excluded' THEN replica_id
    WHEN cause = 'slow_leader' OR who = 'leader' THEN leader_id
    WHEN who IS NOT NULL OR cause = 'answer_not_delivered' THEN replica_id
    WHEN coalesce(from_genuine_ms > lag_time_ms, true) OR from_unreached_ms <= lag_time_ms THEN leader_id
    WHEN doubtful AND NOT served THEN NULL
    ELSE replica_id
  END AS fault_id
  FROM near
),
stepped AS (
  SELECT blamed.*, coalesce(
    epoch_ms(change_time) - greatest(lag_time_ms, lag_ms) > epoch_ms(lag(change_time) OVER of_broker), true
  ) AS first
  FROM blamed
  WINDOW of_broker AS (PARTITION BY cluster_id, fault_id ORDER BY change_time)
)
SELECT
  cluster_id, topic, partition_id, leader_id, replica_id, epoch_us(change_time) AS change_us,
  epoch_us(earliest_time) AS earliest_us, made_by, verdict, cause,
  epoch_us(restored_time) AS restored_us, lag_ms, rule, params_json, epoch_us(replayed_time) AS replayed_us, certainty,
  suspect, looks_spurious, reassigned, attributed, who, fault_id,
  CASE
    WHEN verdict = 'excluded' THEN 'controller'
    WHEN who = 'link' OR (who IS NULL AND cause = 'answer_not_delivered') THEN 'link'
    WHEN fault_id = leader_id THEN 'leader'
    WHEN fault_id = replica_id THEN 'follower'
  END AS points_at, source_file, source_line,
  CAST(sum(CAST(first AS INTEGER)) OVER (PARTITION BY cluster_id, fault_id ORDER BY change_time) AS INTEGER) AS incident
FROM stepped
ORDER BY cluster_id, change_us, topic, partition_id, replica_id

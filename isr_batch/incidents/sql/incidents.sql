-- Incidents: drops that point at the same broker and are near in time, with this broker's silences, and what else happened to it.
-- Genuine drops are of three kinds. unreached: the broker, as leader, dropped followers whose fetches did not reach it. linked: the
-- broker's fetches did not reach one leader, but reached others. stopped: all other genuine drops of the broker.
WITH grouped AS (
  SELECT
    cluster_id, fault_id, incident,
    min(change_us) AS first_us,
    min(change_us) FILTER (verdict = 'excluded') AS removed_us,
    max(change_us) AS last_us,
    coalesce(min(begun_us) FILTER (earliest_us IS NULL), min(begun_us)) AS since_us,
    bool_and(earliest_us IS NOT NULL) AS late, min(earliest_us) AS earliest_us,
    if(count(*) FILTER (cause <> 'unknown' AND restored_us IS NULL) = 0, max(restored_us), NULL) AS restored_us,
    count_if(verdict = 'spurious') AS spurious,
    count_if(cause = 'answer_not_delivered') AS undelivered,
    list_sort(list(DISTINCT leader_id) FILTER (cause = 'answer_not_delivered')) AS undelivered_by,
    list_sort(list(DISTINCT replica_id) FILTER (cause = 'answer_not_delivered')) AS undelivered_to,
    count_if(verdict = 'spurious' AND replica_id = fault_id AND cause <> 'answer_not_delivered') AS spurious_of_stopped,
    count_if(verdict = 'genuine') AS genuine,
    count_if(verdict = 'excluded') AS excluded,
    count_if(reassigned) AS reassigned,
    count_if(verdict = 'unknown') AS unknown,
    count(DISTINCT (topic, partition_id)) AS partitions,
    count_if(verdict = 'genuine' AND leader_id = fault_id) AS unreached,
    count_if(verdict = 'genuine' AND who = 'link') AS linked,
    count_if(verdict = 'genuine' AND replica_id = fault_id AND who IS DISTINCT FROM 'link') AS stopped,
    list_sort(list(DISTINCT replica_id) FILTER (verdict = 'genuine' AND leader_id = fault_id)) AS cut_off,
    len(list_distinct(list(replica_id) FILTER (verdict = 'genuine' AND leader_id = fault_id)))
      = len(list_distinct(list(replica_id) FILTER (verdict = 'genuine' AND leader_id = fault_id AND who = 'leader'))) AS cut_off_went_on,
    count_if(verdict = 'genuine' AND leader_id = fault_id AND who IS NULL AND suspect = 'leader') > 0 AS cut_off_by_lines,
    list_sort(list(DISTINCT leader_id) FILTER (verdict = 'genuine' AND who = 'link')) AS linked_to,
    bool_and(coalesce(who = 'follower', false)) FILTER (verdict = 'genuine' AND replica_id = fault_id) AS stopped_everywhere,
    list_sort(list(DISTINCT leader_id) FILTER (verdict = 'genuine' AND replica_id = fault_id)) AS dropped_by,
    list_sort(list(DISTINCT replica_id) FILTER (verdict = 'spurious' AND leader_id = fault_id AND cause <> 'answer_not_delivered'))
      AS healthy,
    coalesce(list_sort(list(DISTINCT leader_id) FILTER (made_by = 'leader')), []) AS droppers,
    list_sort(list(DISTINCT replica_id)) AS replicas,
    mode(cause) FILTER (verdict = 'spurious' AND leader_id = fault_id AND cause <> 'answer_not_delivered') AS spurious_cause,
    mode(cause) FILTER (verdict = 'genuine' AND replica_id = fault_id) AS genuine_cause,
    if(count_if(verdict = 'unknown' AND suspect <> 'link_or_follower') = 0, 'link_or_follower', NULL) AS suspect,
    count_if(verdict = 'unknown' AND looks_spurious = 'strong') AS look_spurious,
    max(lag_ms) FILTER (verdict = 'spurious') AS healthy_lag_ms,
    first(topic ORDER BY verdict <> 'spurious', rule IS NULL, change_us, topic, partition_id) AS topic,
    first(partition_id ORDER BY verdict <> 'spurious', rule IS NULL, change_us, topic, partition_id) AS partition_id,
    first(rule ORDER BY verdict <> 'spurious', rule IS NULL, change_us, topic, partition_id) AS rule,
    first(change_us ORDER BY verdict <> 'spurious', rule IS NULL, change_us, topic, partition_id) AS example_us
  FROM (SELECT *, coalesce(replayed_us, change_us) - 1000 * coalesce(lag_ms, 0) AS begun_us FROM drops)
  GROUP BY ALL
),
-- When a stopped follower was back with each leader that had dropped it.
back AS (
  SELECT
    cluster_id, fault_id, incident, leader_id,
    if(count_if(restored_us IS NULL) = 0, max(restored_us), NULL) AS back_us
  FROM drops
  WHERE verdict = 'genuine' AND replica_id = fault_id
  GROUP BY ALL
),
-- Where one leader had it back more than a lag time after all others.
late AS (
  SELECT cluster_id, fault_id, incident, leader_id AS late_leader, back_us AS late_us, others_us
  FROM (
    SELECT
      *, lead(back_us) OVER of_incident AS others_us,
      row_number() OVER of_incident AS nth, count_if(back_us IS NULL) OVER (PARTITION BY cluster_id, fault_id, incident) AS out
    FROM back
    WINDOW of_incident AS (PARTITION BY cluster_id, fault_id, incident ORDER BY back_us DESC, leader_id)
  )
  JOIN (SELECT cluster_id, max(replica_lag_time_max_ms) AS lag_time_ms FROM leader_epochs GROUP BY ALL) USING (cluster_id)
  WHERE nth = 1 AND out = 0 AND back_us - others_us > 1000 * lag_time_ms
),
-- A broker that is short of CPU is silent again and again: silences at most a second apart belong together.
spells AS (
  SELECT
    cluster_id, broker_id, spell, max(end_us - from_us) // 1000 AS silent_ms, count(*) AS silences, sum(end_us - from_us)::BIGINT AS silent_us,
    min(from_us) AS silent_from_us, max(end_us) AS silent_until_us
  FROM (
    SELECT *, count_if(first) OVER of_broker AS spell
    FROM (
      SELECT
        cluster_id, broker_id, epoch_us(event_time) AS from_us, epoch_us(end_time) AS end_us,
        coalesce(epoch_us(event_time) - lag(epoch_us(end_time)) OVER (PARTITION BY cluster_id, broker_id ORDER BY event_time, end_time) > 1000000, true)
          AS first
      FROM broker_events WHERE kind = 'silent'
    )
    WINDOW of_broker AS (PARTITION BY cluster_id, broker_id ORDER BY from_us, end_us)
  )
  GROUP BY ALL
),
silences AS (
  SELECT
    g.cluster_id, g.fault_id, g.incident, max(silent_ms) AS silent_ms, sum(silences)::BIGINT AS silences, sum(silent_us)::BIGINT AS silent_us,
    min(silent_from_us) AS silent_from_us, max(silent_until_us) AS silent_until_us
  FROM grouped AS g
  JOIN spells AS s ON s.cluster_id = g.cluster_id AND s.broker_id = g.fault_id
    AND s.silent_from_us <= g.last_us AND s.silent_until_us >= g.since_us
  GROUP BY ALL
)
SELECT
  row_number() OVER (ORDER BY g.cluster_id, first_us, g.fault_id, g.incident) AS number,
  g.* REPLACE (least(g.since_us, coalesce(silent_from_us, seen_us, g.since_us)) AS since_us), if(silent_us IS NULL, seen_us, NULL) AS seen_us, late_leader, late_us, others_us,
  silent_ms, silent_us, silences, silent_from_us, silent_until_us,
  (
    SELECT list_sort(list(DISTINCT e.kind)) FROM broker_events AS e
    WHERE e.kind IN ('fenced', 'shutting_down', 'stopping', 'started') AND e.cluster_id = g.cluster_id AND e.broker_id = g.fault_id
      AND epoch_us(e.event_time) BETWEEN least(g.first_us, g.earliest_us) - if(e.kind = 'stopping', 10000000, 1000000) AND g.last_us + 1000000
  ) AS events,
  (
    SELECT list_sort(list(DISTINCT t.leader_id)) FROM leader_epochs AS t
    WHERE t.cluster_id = g.cluster_id AND list_contains(t.assigned, g.fault_id) AND t.leader_id <> g.fault_id
      AND epoch_us(t.start_time) <= g.first_us AND epoch_us(t.end_time) >= g.first_us
  ) AS leaders
FROM grouped AS g
LEFT JOIN silences ON silences.cluster_id = g.cluster_id AND silences.fault_id = g.fault_id AND silences.incident = g.incident
LEFT JOIN last_seen AS l ON l.cluster_id = g.cluster_id AND l.fault_id = g.fault_id AND l.incident = g.incident
LEFT JOIN late ON late.cluster_id = g.cluster_id AND late.fault_id = g.fault_id AND late.incident = g.incident
ORDER BY number

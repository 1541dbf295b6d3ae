WITH states AS (
  SELECT 'offset' AS lane, line, unix_micros(time) AS at_us, CAST(value AS DOUBLE) AS value FROM partition_timeline
  LATERAL VIEW explode(map('leader', leader_log_end_offset, 'high watermark', high_watermark)) AS line, value
  WHERE :here AND :run
  UNION ALL
  SELECT lane, concat('broker ', replica_id), unix_micros(time), value FROM (
    -- Where the follower has caught up, the lag just before is larger than the lag in the row.
    SELECT *, greatest(
      lag_ms, unix_millis(time) - lag(if(last_caught_up_time_ms > 0, last_caught_up_time_ms, null)) OVER follower
    ) / 1000 AS lag_s
    FROM replica_timeline
    -- Who followed in an earlier term may lead in this one.
    WHERE :here AND :run AND leader_epoch >= coalesce(
      (SELECT max(leader_epoch) FROM leader_epochs WHERE :whose AND start_time <= timestamp_micros(:from_us)), 0
    )
    WINDOW follower AS (PARTITION BY leader_epoch, replica_id ORDER BY time)
  )
  LATERAL VIEW explode(map('offset', CAST(follower_log_end_offset AS DOUBLE), 'lag', lag_s)) AS lane, value
  WHERE value >= 0
),
-- Of each of 240 slots the last offset and the largest lag; the offset from before the picture is that of slot -1.
slots AS (
  SELECT
    lane,
    line,
    if(lane = 'lag', max_by(at_us, value), max(at_us)) AS at_us,
    if(lane = 'lag', max(value), max_by(value, at_us)) AS value
  FROM states
  WHERE at_us < :until_us AND (lane = 'offset' OR at_us >= :from_us)
  GROUP BY lane, line, greatest(-1, floor(240 * (at_us - :from_us) / (:until_us - :from_us)))
),
changes AS (
  SELECT
    *,
    lead(change_time) OVER follower AS next_time,
    lag(kind) OVER follower AS kind_before
  FROM (
    SELECT
      rule, replica_id, kind, change_time, params_json, concat(leader_epoch, ' ', leader_id) AS term, null AS made_by
    FROM isr_changes WHERE :here AND kind IN ('shrink', 'expand')
    UNION ALL
    SELECT 'the brokers', replica_id, kind, change_time, '', '', made_by FROM observed_isr_changes WHERE :here
  )
  WINDOW follower AS (PARTITION BY rule, params_json, term, replica_id ORDER BY change_time)
),
terms AS (
  SELECT concat(leader_epoch, ' ', leader_id) AS term, start_time, end_time FROM leader_epochs WHERE :whose
),
-- Who is out when a term ends is in or out of the next one as the log says; and so is who comes back without having left.
away AS (
  SELECT rule, replica_id, params_json, made_by, change_time, unix_micros(change_time) AS from_us,
    coalesce(unix_micros(coalesce(next_time, end_time)), :until_us) AS until_us
  FROM changes LEFT JOIN terms ON changes.term = terms.term AND change_time BETWEEN start_time AND end_time
  WHERE kind = 'shrink'
  UNION ALL
  SELECT rule, replica_id, params_json, made_by, null, coalesce(unix_micros(start_time), :from_us),
    unix_micros(change_time)
  FROM changes LEFT JOIN terms ON changes.term = terms.term AND change_time BETWEEN start_time AND end_time
  WHERE kind = 'expand' AND kind_before IS NULL
),
trouble AS (
  SELECT concat('broker ', broker_id, ' silent') AS line, 'silent' AS cause, event_time AS from_time, end_time AS until_time
  FROM broker_events WHERE cluster_id = :cluster AND kind = 'silent'
  UNION ALL
  SELECT concat('broker ', broker_id, ': ', what), 'planted', from_time, until_time
  FROM planted_faults WHERE cluster_id = :cluster AND topic IN (:topic, '')
  UNION ALL
  -- Before the first stretch of a broker's request log that begins in mid-term, in its holes, and after the last.
  SELECT concat('broker ', broker_id, ': no request log'), 'no log', from_time, until_time FROM (
    SELECT
      broker_id, until_time AS from_time,
      coalesce(lead(from_time) OVER broker, timestamp_micros(:until_us)) AS until_time
    FROM coverage WHERE cluster_id = :cluster AND log = 'request'
    WINDOW broker AS (PARTITION BY broker_id ORDER BY from_time)
    UNION ALL
    SELECT broker_id, timestamp_micros(:from_us), min(from_time)
    FROM coverage WHERE cluster_id = :cluster AND log = 'request'
    GROUP BY broker_id HAVING min_by(begins_mid_term, from_time)
  )
)
SELECT lane, line, null AS follower, null AS cause, greatest(at_us, :from_us) / 1000 AS from_ms, null AS until_ms, value
FROM slots
UNION ALL
SELECT 'trouble', line, null, cause, greatest(unix_micros(from_time), :from_us) / 1000,
  least(unix_micros(until_time), :until_us) / 1000, null
FROM trouble
WHERE unix_micros(from_time) < :until_us AND unix_micros(until_time) > :from_us
UNION ALL
SELECT 'away', rule, replica_id,
  coalesce(primary_cause, if(rule = 'the brokers', if(away.made_by = 'controller', 'controller', 'as logged'), 'unknown')),
  greatest(from_us, :from_us) / 1000, least(until_us, :until_us) / 1000, null
FROM away LEFT JOIN (SELECT * FROM shrink_verdicts WHERE :here) USING (rule, replica_id, params_json, change_time)
WHERE from_us < :until_us AND until_us > :from_us
ORDER BY lane, line, follower, from_ms

WITH shrinks AS (
  SELECT * FROM (VALUES :shrinks)
    AS shown(id, cluster_id, topic, partition_id, rule, params_json, change_us, observed_us, from_us, until_us)
),
terms AS (
  SELECT
    id, from_us, until_us, concat(leader_epoch, ' ', leader_id) AS term, leader_epoch, leader_id,
    unix_micros(start_time) AS start_us, unix_micros(end_time) AS end_us
  FROM shrinks JOIN leader_epochs USING (cluster_id, topic, partition_id)
),
-- A follower of an earlier term may lead in this one.
first_terms AS (
  SELECT id, max(leader_epoch) AS first_epoch FROM terms WHERE start_us <= from_us GROUP BY id
),
leaders AS (
  SELECT id, from_us, until_us, unix_micros(time) AS at_us, leader_log_end_offset, high_watermark
  FROM shrinks
  JOIN (SELECT * FROM partition_timeline WHERE rule IN (:rules)) USING (cluster_id, topic, partition_id, rule, params_json)
  WHERE unix_micros(time) < until_us
),
followers AS (
  SELECT
    id, from_us, until_us, concat('broker ', replica_id) AS line, unix_micros(time) AS at_us,
    follower_log_end_offset,
    -- Where a follower that was behind has caught up, the lag just before is larger than the lag in the row.
    greatest(
      lag_ms, if(
        lag(lag_ms) OVER (PARTITION BY id, leader_epoch, replica_id ORDER BY time) > 0,
        unix_millis(time) - lag(last_caught_up_time_ms) OVER (PARTITION BY id, leader_epoch, replica_id ORDER BY time),
        0
      )
    ) / 1000 AS lag_s
  FROM shrinks
  JOIN (
    SELECT *, CASE
        WHEN last_caught_up_time_ms > 0 AND lag_messages = 0 THEN 0
        WHEN last_caught_up_time_ms > 0 THEN greatest(0, unix_millis(time) - last_caught_up_time_ms)
      END AS lag_ms
    FROM replica_changes WHERE rule IN (:rules)
  ) USING (cluster_id, topic, partition_id, rule, params_json)
  LEFT JOIN first_terms USING (id)
  WHERE leader_epoch >= coalesce(first_epoch, 0) AND unix_micros(time) < until_us
),
-- Under some rules the lag grows between two fetches even if the follower lacks nothing. A run of fetches from before the
-- picture counts with its last one only.
runs_of_fetches AS (
  SELECT
    id, from_us, until_us, leader_epoch, leader_id, replica_id, later_by, unix_micros(handled_time) AS first_us,
    unix_micros(last_handled_time) AS last_us, unix_micros(last_handled_time) >= from_us AS apart,
    explode(sequence(0, if(unix_micros(last_handled_time) >= from_us, run_length - 1, 0))) AS n
  FROM fetch_log
  JOIN shrinks USING (cluster_id, topic, partition_id)
  JOIN (SELECT DISTINCT rule, params_json, event_date FROM rule_runs WHERE no_lag_while = 'never' AND rule IN (:rules))
    USING (rule, params_json, event_date)
  WHERE error_code IN (0, -2) AND unix_micros(handled_time) < until_us
),
fetched AS (
  SELECT
    id, from_us, until_us, leader_epoch, leader_id, replica_id,
    if(apart, first_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 4), 0)) OVER (
      PARTITION BY id, leader_epoch, leader_id, replica_id, first_us ORDER BY n
    ) AS BIGINT), last_us) AS at_us
  FROM runs_of_fetches
),
since_fetches AS (
  SELECT
    id, from_us, until_us, line, at_us, least(coalesce(next_us, end_us, until_us), until_us) AS next_us
  FROM (
    SELECT
      *, concat('broker ', replica_id) AS line,
      lead(at_us) OVER (PARTITION BY id, leader_epoch, leader_id, replica_id ORDER BY at_us) AS next_us
    FROM fetched
  )
  LEFT JOIN (
    SELECT id, leader_epoch, leader_id, max(end_us) AS end_us FROM terms GROUP BY id, leader_epoch, leader_id
  ) USING (id, leader_epoch, leader_id)
  LEFT JOIN first_terms USING (id)
  WHERE leader_epoch >= coalesce(first_epoch, 0)
),
states AS (
  SELECT id, from_us, until_us, 'offset' AS lane, 'leader' AS line, at_us, CAST(leader_log_end_offset AS DOUBLE) AS value
  FROM leaders
  UNION ALL
  SELECT id, from_us, until_us, 'offset', 'high watermark', at_us, CAST(high_watermark AS DOUBLE) FROM leaders
  UNION ALL
  SELECT id, from_us, until_us, 'offset', line, at_us, CAST(follower_log_end_offset AS DOUBLE) FROM followers
  UNION ALL
  SELECT id, from_us, until_us, 'lag', line, at_us, lag_s FROM followers WHERE at_us >= from_us
  UNION ALL
  SELECT id, from_us, until_us, 'lag', line, next_us, (next_us - at_us) / 1e6
  FROM since_fetches WHERE next_us > greatest(at_us, from_us)
  UNION ALL
  -- A state that lasted for no time has no row, but its shrink has one.
  SELECT id, from_us, until_us, 'lag', concat('broker ', replica_id), unix_micros(change_time), lag_ms / 1000
  FROM shrinks JOIN shrink_verdicts USING (cluster_id, topic, partition_id, rule, params_json)
  WHERE unix_micros(change_time) BETWEEN from_us AND until_us
),
-- The last offset and the largest lag for each of 160 slots; slot -1 has the offset from before the picture. It is null
-- from the end of a timeline on.
slots AS (
  SELECT
    id,
    lane,
    line,
    greatest(if(lane = 'lag', max_by(at_us, value), max(at_us)), min(from_us)) AS from_us,
    if(lane = 'lag', max(value), max_by(value, at_us)) AS value
  FROM states
  WHERE value >= 0 OR value IS NULL AND lane = 'offset'
  GROUP BY id, lane, line, greatest(-1, CAST(floor(160 * (at_us - from_us) / (until_us - from_us)) AS BIGINT))
),
changes AS (
  SELECT
    *,
    lead(change_us) OVER (PARTITION BY id, rule, params_json, term, replica_id ORDER BY change_us) AS next_us,
    lag(kind) OVER (PARTITION BY id, rule, params_json, term, replica_id ORDER BY change_us) AS kind_before
  FROM (
    SELECT
      id, s.from_us, s.until_us, c.rule, c.params_json, replica_id, kind, unix_micros(change_time) AS change_us,
      concat(leader_epoch, ' ', leader_id) AS term, CAST(NULL AS STRING) AS made_by
    FROM shrinks AS s JOIN isr_changes AS c
      ON c.cluster_id = s.cluster_id AND c.topic = s.topic AND c.partition_id = s.partition_id
    WHERE kind IN ('shrink', 'expand') AND lag_time_ms(c.params_json) = lag_time_ms(s.params_json)
    UNION ALL
    SELECT
      id, s.from_us, s.until_us, 'the brokers', '', replica_id, kind, unix_micros(change_time), '', made_by
    FROM shrinks AS s JOIN observed_isr_changes AS c
      ON c.cluster_id = s.cluster_id AND c.topic = s.topic AND c.partition_id = s.partition_id
  )
),
placed AS (
  SELECT changes.*, start_us, end_us
  FROM changes LEFT JOIN terms
    ON terms.id = changes.id AND terms.term = changes.term AND change_us BETWEEN start_us AND end_us
),
-- A replica that is out when a term ends is in or out of the next one by the log, as is one that comes back without leaving.
away AS (
  SELECT
    id, rule, params_json, replica_id, made_by, change_us, change_us AS out_us,
    coalesce(next_us, end_us, until_us) AS back_us, from_us, until_us
  FROM placed WHERE kind = 'shrink'
  UNION ALL
  SELECT
    id, rule, params_json, replica_id, made_by, CAST(NULL AS BIGINT), coalesce(start_us, from_us), change_us, from_us,
    until_us
  FROM placed WHERE kind = 'expand' AND kind_before IS NULL
),
verdicts AS (
  SELECT
    id, v.rule, v.params_json, v.replica_id, unix_micros(v.change_time) AS change_us, verdict, primary_cause
  FROM shrinks AS s JOIN shrink_verdicts AS v
    ON v.cluster_id = s.cluster_id AND v.topic = s.topic AND v.partition_id = s.partition_id
),
silent AS (
  SELECT
    id, from_us, until_us, concat('broker ', broker_id, ' silent') AS line, 'silent' AS what,
    unix_micros(event_time) AS out_us, unix_micros(end_time) AS back_us
  FROM shrinks JOIN broker_events USING (cluster_id)
  WHERE kind = 'silent'
),
planted AS (
  SELECT
    id, from_us, until_us, concat('broker ', broker_id, ': ', what) AS line, 'planted' AS what,
    unix_micros(from_time) AS out_us, unix_micros(until_time) AS back_us
  FROM shrinks AS s JOIN planted_faults AS p ON p.cluster_id = s.cluster_id AND p.topic IN (s.topic, '')
),
-- Before the first stretch of a broker's request log that begins in mid-term, in its gaps, and after the last.
holes AS (
  SELECT
    cluster_id, broker_id, unix_micros(until_time) AS out_us,
    lead(unix_micros(from_time)) OVER (PARTITION BY cluster_id, broker_id ORDER BY from_time) AS back_us
  FROM coverage WHERE log = 'request'
  UNION ALL
  SELECT cluster_id, broker_id, 0, min(unix_micros(from_time))
  FROM coverage WHERE log = 'request'
  GROUP BY cluster_id, broker_id HAVING min_by(begins_mid_term, from_time)
),
-- The phases of each fetch of the dropped followers in the leader. Those thinner than a pixel or so are left out.
dropped AS (
  SELECT DISTINCT id, v.replica_id
  FROM shrinks AS s JOIN shrink_verdicts AS v
    ON v.cluster_id = s.cluster_id AND v.topic = s.topic AND v.partition_id = s.partition_id AND v.rule = s.rule
    AND v.params_json = s.params_json AND unix_micros(v.change_time) = s.change_us
),
fetches_near AS (
  SELECT
    id, from_us, until_us, leader_epoch, leader_id, replica_id, later_by, unix_micros(arrival_time) AS arrival_us,
    unix_micros(handled_time) AS handled_us, unix_micros(processed_time) AS processed_us,
    unix_micros(released_time) AS released_us, unix_micros(completed_time) AS completed_us,
    explode(sequence(0, run_length - 1)) AS n
  FROM fetch_log
  JOIN shrinks USING (cluster_id, topic, partition_id)
  JOIN dropped USING (id, replica_id)
  WHERE unix_micros(arrival_time) < until_us AND unix_micros(last_handled_time) > 2 * from_us - until_us
),
fetch_times AS (
  SELECT
    id, from_us, until_us, replica_id,
    arrival_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 5), 0)) OVER run AS BIGINT) AS arrival_us,
    handled_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 4), 0)) OVER run AS BIGINT) AS handled_us,
    processed_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 3), 0)) OVER run AS BIGINT) AS processed_us,
    released_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 2), 0)) OVER run AS BIGINT) AS released_us,
    completed_us + CAST(sum(if(n > 0, element_at(later_by, 6 * n - 1), 0)) OVER run AS BIGINT) AS completed_us
  FROM fetches_near
  WINDOW run AS (PARTITION BY id, leader_epoch, leader_id, replica_id, arrival_us, handled_us ORDER BY n)
),
phases AS (
  SELECT
    id, from_us, until_us, replica_id, phase,
    CASE phase WHEN 1 THEN arrival_us WHEN 2 THEN handled_us WHEN 3 THEN processed_us ELSE released_us END AS out_us,
    CASE phase WHEN 1 THEN handled_us WHEN 2 THEN processed_us WHEN 3 THEN released_us ELSE completed_us END AS back_us
  FROM (SELECT *, explode(sequence(1, 4)) AS phase FROM fetch_times)
),
unlogged AS (
  SELECT
    id, from_us, until_us, concat('broker ', broker_id, ': no request log') AS line, 'no log' AS what, out_us,
    coalesce(back_us, until_us) AS back_us
  FROM shrinks JOIN holes USING (cluster_id)
)
SELECT
  id, lane, line, CAST(NULL AS INT) AS follower, CAST(NULL AS STRING) AS verdict, CAST(NULL AS STRING) AS cause,
  from_us, CAST(NULL AS BIGINT) AS until_us, value
FROM slots
UNION ALL
SELECT
  id, 'trouble', line, CAST(NULL AS INT), what, CAST(NULL AS STRING), greatest(out_us, from_us), least(back_us, until_us),
  CAST(NULL AS DOUBLE)
FROM (SELECT * FROM silent UNION ALL SELECT * FROM planted UNION ALL SELECT * FROM unlogged)
WHERE out_us < until_us AND back_us > from_us
UNION ALL
SELECT
  id, 'away', rule, replica_id,
  coalesce(verdict, if(made_by = 'controller', 'excluded', if(rule = 'the brokers', 'logged', 'unknown'))),
  coalesce(primary_cause, if(rule = 'the brokers', 'as logged', 'unknown')),
  greatest(out_us, from_us), least(back_us, until_us), CAST(NULL AS DOUBLE)
FROM away LEFT JOIN verdicts USING (id, rule, params_json, replica_id, change_us)
WHERE out_us < until_us AND back_us > from_us
UNION ALL
SELECT
  id, 'fetch', concat('fetches of ', replica_id), replica_id,
  CASE phase WHEN 1 THEN 'queue' WHEN 2 THEN 'work' WHEN 3 THEN 'wait' ELSE 'overdue or sent' END,
  CAST(NULL AS STRING), greatest(out_us, from_us), least(back_us, until_us), CAST(NULL AS DOUBLE)
FROM phases
WHERE out_us < until_us AND back_us > from_us AND 500 * (back_us - out_us) >= until_us - from_us
ORDER BY id, lane, line, follower, from_us

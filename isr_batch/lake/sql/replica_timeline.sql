-- A follower's state under a rule, from this instant until its next row: rows of `replica_states`, the log end in `partition_states`, and the fetches of `fetch_log` that found a follower at the log end, which no rule changes. Filter by a rule or a partition: each state, log end and fetch has one row per rule run.
WITH states AS (
  SELECT
    s.cluster_id, s.topic, s.partition_id, s.leader_id, s.replica_id, r.rule, r.params_json, r.no_lag_while,
    s.leader_epoch, unix_micros(s.time) AS at_us, s.nth, s.follower_log_end_offset, s.lag_messages,
    s.last_caught_up_time_ms, s.in_isr,
    -- The last row of an instant holds.
    row_number() OVER (
      PARTITION BY s.cluster_id, s.topic, s.partition_id, s.leader_id, s.replica_id, r.rule, r.params_json, s.time
      ORDER BY s.leader_epoch DESC, s.nth DESC
    ) AS place,
    min(unix_micros(s.time)) OVER (
      PARTITION BY s.cluster_id, s.topic, s.partition_id, s.leader_id, s.replica_id, r.rule, r.params_json,
        s.leader_epoch
    ) AS begun_us
  FROM replica_states AS s
  JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1
),
ends AS (
  SELECT
    s.cluster_id, s.topic, s.partition_id, s.leader_id, f.replica_id, r.rule, r.params_json,
    unix_micros(s.time) AS at_us, s.leader_log_end_offset, s.high_watermark, s.acknowledged_offset,
    row_number() OVER (
      PARTITION BY s.cluster_id, s.topic, s.partition_id, s.leader_id, f.replica_id, r.rule, r.params_json, s.time
      ORDER BY s.leader_epoch DESC, s.leader_log_end_offset DESC, s.high_watermark DESC, s.acknowledged_offset DESC
    ) AS place
  FROM partition_states AS s
  JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1
  JOIN (SELECT DISTINCT cluster_id, topic, partition_id, leader_id, replica_id FROM replica_states) AS f
    ON f.cluster_id = s.cluster_id AND f.topic = s.topic AND f.partition_id = s.partition_id
    AND f.leader_id = s.leader_id
),
-- Single fetches, as in view `fetches`: each with its delay after the one before it.
singly AS (SELECT *, explode(sequence(0, run_length - 1)) AS n FROM fetch_log),
steps AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, event_date, error_code, fetch_offset, leader_log_end_offset,
    source_file, source_line, arrival_time, handled_time, processed_time, completed_time, n,
    CASE WHEN n > 0 THEN element_at(later_by, 6 * n - 5) ELSE 0 END AS arrival_step,
    CASE WHEN n > 0 THEN element_at(later_by, 6 * n - 4) ELSE 0 END AS handled_step,
    CASE WHEN n > 0 THEN element_at(later_by, 6 * n - 3) ELSE 0 END AS processed_step,
    CASE WHEN n > 0 THEN element_at(later_by, 6 * n - 1) ELSE 0 END AS completed_step
  FROM singly
),
fetched AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, event_date, error_code, fetch_offset, leader_log_end_offset,
    unix_micros(arrival_time) + CAST(sum(arrival_step) OVER of_run AS BIGINT) AS arrival_us,
    unix_micros(handled_time) + CAST(sum(handled_step) OVER of_run AS BIGINT) AS handled_us,
    unix_micros(processed_time) + CAST(sum(processed_step) OVER of_run AS BIGINT) AS processed_us,
    unix_micros(completed_time) + CAST(sum(completed_step) OVER of_run AS BIGINT) AS completed_us
  FROM steps
  WINDOW of_run AS (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, arrival_time, source_file, source_line
    ORDER BY n
  )
),
-- A fetch over an older connection of the follower is over when it fetches again. Equal times are in the replay's order.
overtaken AS (
  SELECT *, lead(arrival_us) OVER (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id
    ORDER BY
      arrival_us, handled_us, coalesce(fetch_offset, -1), error_code, coalesce(leader_log_end_offset, -1), processed_us,
      completed_us
  ) AS next_us
  FROM fetched
),
events AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, at_us, 'state' AS what, begun_us,
    leader_epoch, nth, no_lag_while, follower_log_end_offset, lag_messages, last_caught_up_time_ms, in_isr,
    CAST(NULL AS BIGINT) AS leader_log_end_offset, CAST(NULL AS BIGINT) AS high_watermark,
    CAST(NULL AS BIGINT) AS acknowledged_offset, CAST(NULL AS BIGINT) AS arrival_us, CAST(NULL AS BIGINT) AS fetch_ms
  FROM states WHERE place = 1
  UNION ALL
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, at_us, 'end', NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    leader_log_end_offset, high_watermark, acknowledged_offset, NULL, NULL
  FROM ends WHERE place = 1
  UNION ALL
  -- When a rule records a fetch, and the new lastCaughtUpTimeMs if the fetch is from the log end.
  SELECT
    f.cluster_id, f.topic, f.partition_id, f.leader_id, f.replica_id, r.rule, r.params_json,
    least(
      f.next_us,
      CASE r.caught_up_by WHEN 'arrival' THEN f.arrival_us WHEN 'completed' THEN f.completed_us ELSE f.processed_us END
    ),
    'fetch', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f.arrival_us,
    CAST(floor(
      CASE r.caught_up_by
        WHEN 'arrival' THEN f.arrival_us
        WHEN 'completed' THEN least(f.next_us, f.completed_us)
        WHEN 'processed' THEN f.processed_us
        ELSE f.handled_us
      END / 1000
    ) AS BIGINT)
  FROM overtaken AS f
  JOIN (
    SELECT DISTINCT s.cluster_id, s.topic, s.partition_id, s.leader_id, s.replica_id, r.rule, r.params_json
    FROM (
      SELECT DISTINCT cluster_id, topic, partition_id, leader_id, replica_id, event_date, run_set, runs
      FROM replica_states
    ) AS s
    JOIN rule_runs AS r ON r.event_date = s.event_date AND r.run_set = s.run_set AND (s.runs >> r.run) & 1 = 1
  ) AS k
    ON k.cluster_id = f.cluster_id AND k.topic = f.topic AND k.partition_id = f.partition_id
    AND k.leader_id = f.leader_id AND k.replica_id = f.replica_id
  JOIN (SELECT DISTINCT event_date, rule, params_json, caught_up_by FROM rule_runs) AS r
    ON r.event_date = f.event_date AND r.rule = k.rule AND r.params_json = k.params_json
  WHERE f.error_code IN (0, -2)
),
so_far AS (
  SELECT
    *,
    max(CASE WHEN what = 'state' THEN at_us END) OVER up_to_now AS state_us,
    max(CASE WHEN what = 'end' THEN at_us END) OVER up_to_now AS end_us,
    max(begun_us) OVER up_to_now AS term_us,
    max(fetch_ms) OVER up_to_now AS latest_ms
  FROM events
  WINDOW up_to_now AS (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json ORDER BY at_us
  )
),
filled AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, at_us,
    max(leader_epoch) OVER of_state AS leader_epoch,
    max(no_lag_while) OVER of_state AS no_lag_while,
    max(follower_log_end_offset) OVER of_state AS follower_end,
    max(lag_messages) OVER of_state AS messages,
    max(last_caught_up_time_ms) OVER of_state AS stored_ms,
    max(in_isr) OVER of_state AS in_isr,
    -- The first row of a span around a shrink (nth = -1) does not say what fetches before it did.
    max(CASE WHEN nth = -1 THEN latest_ms END) OVER of_state AS before_ms,
    max(CASE WHEN what = 'fetch' AND at_us > state_us AND arrival_us >= term_us THEN fetch_ms END) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, state_us ORDER BY at_us
    ) AS since_ms,
    max(leader_log_end_offset) OVER of_end AS leader_end,
    max(high_watermark) OVER of_end AS high_watermark,
    max(acknowledged_offset) OVER of_end AS acknowledged_offset
  FROM so_far
  WHERE state_us IS NOT NULL OR what = 'end'
  WINDOW
    of_state AS (
      PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, state_us
    ),
    of_end AS (PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, end_us)
),
known AS (
  SELECT
    cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json, at_us, leader_epoch, in_isr,
    follower_end,
    CASE WHEN follower_end < 0 THEN NULL ELSE coalesce(leader_end - follower_end, messages) END AS lag_messages,
    -- While it is at the log end, all its fetches since then have found it there.
    CASE WHEN coalesce(leader_end = follower_end, messages = 0) THEN greatest(stored_ms, before_ms, since_ms)
      ELSE stored_ms END AS last_caught_up_time_ms,
    CASE no_lag_while
      WHEN 'never' THEN CASE WHEN stored_ms IS NOT NULL THEN false END
      -- Without any of these, its position is not known yet, or (without a time) nothing is.
      WHEN 'at log end'
        THEN coalesce(leader_end = follower_end, messages = 0, CASE WHEN stored_ms IS NOT NULL THEN false END)
      WHEN 'lacks nothing'
        THEN coalesce(
          greatest(follower_end, 0) >= leader_end, messages = 0, CASE WHEN stored_ms IS NOT NULL THEN false END
        )
      WHEN 'at high watermark' THEN follower_end = high_watermark
      WHEN 'has all acknowledged' THEN follower_end >= greatest(acknowledged_offset, high_watermark)
    END AS has_no_lag
  FROM filled
  WHERE leader_epoch IS NOT NULL
),
changed AS (
  SELECT
    *,
    lag(at_us) OVER before IS NULL
      OR lag(leader_epoch) OVER before IS DISTINCT FROM leader_epoch
      OR lag(in_isr) OVER before IS DISTINCT FROM in_isr
      OR lag(follower_end) OVER before IS DISTINCT FROM follower_end
      OR lag(lag_messages) OVER before IS DISTINCT FROM lag_messages
      OR lag(last_caught_up_time_ms) OVER before IS DISTINCT FROM last_caught_up_time_ms
      OR lag(has_no_lag) OVER before IS DISTINCT FROM has_no_lag AS is_new
  FROM known
  WINDOW before AS (
    PARTITION BY cluster_id, topic, partition_id, leader_id, replica_id, rule, params_json ORDER BY at_us
  )
)
SELECT
  cluster_id, topic, partition_id, leader_epoch, leader_id, rule, params_json, replica_id,
  timestamp_micros(at_us) AS time,
  follower_end AS follower_log_end_offset,
  CASE
    WHEN has_no_lag THEN 0
    -- A request that the follower's next one overtook was handled later than this instant.
    WHEN NOT has_no_lag AND last_caught_up_time_ms > 0
      THEN greatest(0, CAST(floor(at_us / 1000) AS BIGINT) - last_caught_up_time_ms)
  END AS lag_ms,
  NOT has_no_lag AND last_caught_up_time_ms > 0 AS lag_grows,
  CASE
    WHEN NOT has_no_lag AND last_caught_up_time_ms > 0 THEN timestamp_micros(
      (last_caught_up_time_ms + CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT) + 1) * 1000
    )
  END AS pseudo_isr_until,
  lag_messages, last_caught_up_time_ms, in_isr,
  -- The day in UTC, also in sessions of another time zone.
  DATE '1970-01-01' + CAST((at_us - at_us % 86400000000) / 86400000000 AS INT) AS event_date
FROM changed
WHERE is_new

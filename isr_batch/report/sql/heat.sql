WITH own AS (SELECT * FROM (VALUES :own) AS ran(cluster_id, rule)),
span AS (
  SELECT
    cluster_id,
    unix_millis(min(start_time)) AS first_ms,
    (unix_millis(max(end_time)) - unix_millis(min(start_time)) + 1) / 96 AS wide_ms
  FROM leader_epochs GROUP BY cluster_id
),
-- Under some rules the lag grows between two fetches even if the follower lacks nothing. Fetches say since when; a run of
-- them is taken apart where two are a tenth of the lag time apart, which is the lowest colour.
runs_of_fetches AS (
  SELECT *, explode(sequence(0, if(apart, run_length - 1, 0))) AS n
  FROM (
    SELECT
      cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, params_json, later_by, run_length,
      unix_micros(handled_time) AS first_us, unix_micros(last_handled_time) AS last_us,
      coalesce(array_max(later_by) >= 100 * lag_time_ms(params_json), false) AS apart
    FROM fetch_log
    JOIN own USING (cluster_id)
    JOIN (SELECT DISTINCT rule, params_json, event_date FROM rule_runs WHERE no_lag_while = 'never' AND rule IN (:rules))
      USING (rule, event_date)
    WHERE error_code IN (0, -2)
  )
),
fetched AS (
  SELECT
    cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, params_json,
    first_us + later_us AS first_us, if(apart, first_us + later_us, last_us) AS last_us
  FROM (
    SELECT *, CAST(sum(if(n > 0, element_at(later_by, 6 * n - 4), 0)) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, params_json, first_us ORDER BY n
    ) AS BIGINT) AS later_us
    FROM runs_of_fetches
  )
),
since_fetches AS (
  SELECT
    cluster_id, leader_id, replica_id, params_json, CAST(floor(last_us / 1000) AS BIGINT) AS at_ms,
    CAST(floor(coalesce(lead(first_us) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, params_json ORDER BY last_us
    ), end_us, last_us) / 1000) AS BIGINT) AS next_ms
  FROM fetched LEFT JOIN (
    SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, max(unix_micros(end_time)) AS end_us
    FROM leader_epochs GROUP BY cluster_id, topic, partition_id, leader_epoch, leader_id
  ) USING (cluster_id, topic, partition_id, leader_epoch, leader_id)
),
-- A state lasts until the next one.
states AS (
  SELECT
    cluster_id,
    leader_id,
    replica_id,
    params_json,
    last_caught_up_time_ms,
    lag_ms,
    unix_millis(time) AS at_ms,
    unix_millis(lead(time, 1, time) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, params_json ORDER BY time
    )) AS next_ms
  FROM (
    SELECT *, CASE
        WHEN last_caught_up_time_ms > 0 AND lag_messages = 0 THEN 0
        WHEN last_caught_up_time_ms > 0 THEN greatest(0, unix_millis(time) - last_caught_up_time_ms)
      END AS lag_ms
    FROM replica_changes WHERE rule IN (:rules)
  ) JOIN own USING (cluster_id, rule)
  UNION ALL
  SELECT cluster_id, leader_id, replica_id, params_json, at_ms, next_ms - at_ms, at_ms, next_ms
  FROM since_fetches WHERE next_ms >= at_ms
),
exploded AS (
  SELECT
    *,
    explode(sequence(
      CAST(floor((at_ms - first_ms) / wide_ms) AS BIGINT), CAST(floor((next_ms - first_ms) / wide_ms) AS BIGINT)
    )) AS cell
  FROM states JOIN span USING (cluster_id)
  WHERE lag_ms IS NOT NULL
),
cells AS (
  SELECT
    cluster_id,
    leader_id,
    replica_id,
    params_json,
    first_ms,
    wide_ms,
    cell,
    max(if(
      lag_ms > 0, least(next_ms, CAST(floor(first_ms + (cell + 1) * wide_ms) AS BIGINT)) - last_caught_up_time_ms, lag_ms
    )) AS age_ms
  FROM exploded
  GROUP BY cluster_id, leader_id, replica_id, params_json, first_ms, wide_ms, cell
),
ranked AS (
  SELECT *, dense_rank() OVER (PARTITION BY cluster_id ORDER BY worst_ms DESC, leader_id, replica_id) AS place
  FROM (SELECT *, max(age_ms) OVER (PARTITION BY cluster_id, leader_id, replica_id) AS worst_ms FROM cells)
)
SELECT
  cluster_id,
  concat('broker ', replica_id, ' of leader ', leader_id) AS follower,
  CAST(round(first_ms + cell * wide_ms) AS BIGINT) AS from_ms,
  CAST(round(first_ms + (cell + 1) * wide_ms) AS BIGINT) AS until_ms,
  max(age_ms) / 1000 AS age_s,
  floor(1000 * max(age_ms / lag_time_ms(params_json))) / 1000 AS lag_times
FROM ranked
WHERE place <= 24
GROUP BY cluster_id, leader_id, replica_id, first_ms, wide_ms, cell
ORDER BY cluster_id, follower, from_ms

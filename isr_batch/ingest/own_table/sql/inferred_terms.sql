-- Terms of leaders without a table of them, inferred from each day's fetches.
WITH days AS (
  SELECT *, dense_rank() OVER (ORDER BY cluster_id, topic, partition_id, leader_epoch, leader_id) AS set_no,
    dense_rank() OVER (ORDER BY cluster_id, topic, partition_id) AS partition_no
  FROM fetch_days
    JOIN (SELECT cluster_id, replica_lag_time_max_ms AS lag_time_ms FROM clusters WHERE NOT has_epochs)
    USING (cluster_id)
    JOIN observing USING (cluster_id, topic, partition_id)
), leader_days AS (
  SELECT cluster_id, leader_id, event_date, min(first_time) AS first_time, max(last_time) AS last_time
  FROM fetch_days GROUP BY ALL
), after_holes AS (
  SELECT *, first_time - max(last_time) OVER (
      PARTITION BY cluster_id, leader_id ORDER BY event_date ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) > to_microseconds($hole_us) AS is_after_hole
  FROM leader_days
), stretches AS (
  -- Days of a leader without a gap in all its partitions, in which its state would be unknown.
  SELECT *, count(*) FILTER (is_after_hole) OVER (PARTITION BY cluster_id, leader_id ORDER BY event_date) AS stretch
  FROM after_holes
), log_ends AS (
  -- A term lasts until its leader's last row of any partition: if it ended with the partition's own last fetch, a
  -- follower that stops alone would never be missed.
  SELECT cluster_id, leader_id, stretch, max(last_time) AS log_ends_time FROM stretches GROUP BY ALL
), spans AS (
  SELECT set_no, partition_no, leader_id, event_date, span_number, stretch, min(days.first_time) AS first_time,
    max(days.last_time) AS last_time
  FROM days JOIN stretches USING (cluster_id, leader_id, event_date) WHERE replica_id <> leader_id GROUP BY ALL
), after_others AS (
  SELECT *, max(last_time) OVER (own ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS own_last_time,
    max(last_time) OVER (anybodys ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS any_last_time,
    lag(leader_id) OVER (anybodys) AS former_leader_id
  FROM spans
  WINDOW own AS (PARTITION BY set_no, stretch ORDER BY first_time, event_date, span_number),
    anybodys AS (PARTITION BY partition_no ORDER BY first_time, set_no, event_date, span_number)
), runs AS (
  -- A span goes on with the leader's one before it, unless another leader has a row in the gap.
  SELECT *, first_time - own_last_time <= to_microseconds($gap_us) OR any_last_time <= own_last_time AS goes_on,
    count(*) FILTER (NOT coalesce(goes_on, false)) OVER (PARTITION BY set_no ORDER BY first_time, event_date, span_number)
      AS run
  FROM after_others
), followers AS (
  SELECT set_no, run, replica_id, runs.first_time AS span_time, days.first_time, first_offset
  FROM days JOIN runs USING (set_no, event_date, span_number) WHERE replica_id <> days.leader_id
), members AS (
  SELECT set_no, run, replica_id, min(span_time) AS since_time FROM followers GROUP BY ALL
), terms AS (
  -- A follower that comes on a later day begins a term on that day: that of the days before must not depend on it.
  SELECT DISTINCT set_no, run, since_time AS start_time,
    lead(since_time) OVER (PARTITION BY set_no, run ORDER BY since_time) AS next_of_run
  FROM (SELECT DISTINCT set_no, run, since_time FROM members)
), came AS (
  SELECT set_no, run, start_time, replica_id, min(first_time) AS first_time, arg_min(first_offset, first_time) AS held
  FROM terms JOIN followers USING (set_no, run)
  WHERE span_time >= start_time AND (next_of_run IS NULL OR span_time < next_of_run) GROUP BY ALL
), assigned AS (
  -- All of the run so far; a follower that came within a lag time is assumed to be in the ISR, unless it observes.
  SELECT set_no, run, start_time, list(replica_id ORDER BY replica_id) AS followers,
    list(held ORDER BY replica_id) AS held,
    list(replica_id ORDER BY replica_id) FILTER (is_early AND NOT observes) AS isr,
    min(held) FILTER (is_early AND NOT observes) AS least_offset, max(held) FILTER (is_early) AS most_offset
  FROM (
    SELECT terms.set_no, terms.run, terms.start_time, replica_id, held, list_contains(listed, replica_id) AS observes,
      coalesce(first_time <= terms.start_time + to_milliseconds(lag_time_ms), false) AS is_early
    FROM terms JOIN members USING (set_no, run) LEFT JOIN came USING (set_no, run, start_time, replica_id)
      JOIN (SELECT DISTINCT set_no, lag_time_ms, listed FROM days) USING (set_no)
    WHERE since_time <= terms.start_time
  ) GROUP BY ALL
), sets AS (
  SELECT DISTINCT set_no, partition_no, cluster_id, topic, partition_id, leader_epoch, leader_id, lag_time_ms FROM days
), begun AS (
  SELECT set_no, run, stretch, first_time AS start_time, coalesce(goes_on, false) AS is_cut, former_leader_id,
    -- A partition that another leader served until just before begins here.
    is_cut OR coalesce(first_time - any_last_time > to_milliseconds(lag_time_ms), true) AS begins_mid_term
  FROM runs JOIN sets USING (set_no)
), whole AS (
  SELECT *, lead(start_time) OVER (PARTITION BY partition_no ORDER BY start_time, set_no) AS next_time
  FROM assigned JOIN sets USING (set_no) JOIN begun USING (set_no, run, start_time)
    JOIN log_ends USING (cluster_id, leader_id, stretch)
)
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, start_time,
  greatest(start_time, least(coalesce(next_time, log_ends_time), log_ends_time)) AS end_time, begins_mid_term,
  coalesce(next_time > log_ends_time, true) AS ends_mid_term, 'inferred' AS term_source,
  CASE WHEN begins_mid_term THEN most_offset ELSE least_offset END AS start_offset,
  least_offset AS start_high_watermark, 'inferred' AS start_offset_source,
  list_prepend(leader_id, followers) AS assigned, 'fetches' AS assigned_source,
  CASE WHEN begins_mid_term THEN list_prepend(most_offset, held) END AS held_at_start,
  list_prepend(leader_id, coalesce(isr, [])) AS isr_at_start, 'inferred' AS isr_source,
  list_filter(list_prepend(leader_id, followers), lambda replica: list_contains(listed, replica)) AS observers,
  CASE WHEN is_cut THEN leader_id WHEN NOT begins_mid_term THEN former_leader_id END AS previous_leader_id,
  replica_lag_time_max_ms, lag_time_source, min_insync_replicas, broker_version,
  CASE WHEN broker_version IS NOT NULL THEN 'given' END AS broker_version_source,
  0 AS check_origin_ms, 'unknown' AS check_origin_source, CAST(start_time AS DATE) AS event_date
FROM whole JOIN clusters USING (cluster_id) JOIN observing USING (cluster_id, topic, partition_id)

-- Terms of leaders from a table of them, completed from each day's fetches.
WITH every AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, min(first_time) AS first_time,
    max(last_time) AS last_time, arg_min(first_offset, first_time) AS first_offset
  FROM fetch_days WHERE replica_id <> leader_id GROUP BY ALL
), followers AS (
  SELECT every.*, list_contains(listed, replica_id) AS observes FROM every JOIN observing USING (cluster_id, topic, partition_id)
), seen AS (
  SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, max(last_time) AS last_time,
    min(first_offset) FILTER (NOT observes) AS first_offset, list(replica_id ORDER BY replica_id) AS followers
  FROM followers GROUP BY ALL
), log_ends AS (
  SELECT cluster_id, leader_id, max(last_time) AS log_ends_time FROM fetch_days GROUP BY ALL
), terms AS (
  SELECT given_terms.*, lead(start_time) OVER partitions AS next_time, lag(leader_id) OVER partitions AS former_leader_id,
    -- A topic that was deleted and made again has the same epochs: its fetches are not of the term before.
    lead(start_time) OVER (
      PARTITION BY cluster_id, topic, partition_id, leader_epoch, leader_id ORDER BY start_time
    ) AS again_time
  FROM given_terms
  WINDOW partitions AS (PARTITION BY cluster_id, topic, partition_id ORDER BY start_time, leader_epoch)
)
SELECT cluster_id, topic, partition_id, leader_epoch, leader_id, start_time,
  coalesce(end_time, greatest(start_time, CASE WHEN last_time > again_time THEN again_time ELSE last_time END,
    least(coalesce(next_time, log_ends_time), log_ends_time)))
    AS end_time,
  'logged' AS term_source,
  coalesce(terms.start_offset, first_offset, 0) AS start_offset,
  coalesce(terms.start_high_watermark, least(coalesce(terms.start_offset, first_offset, 0), first_offset))
    AS start_high_watermark,
  coalesce(terms.assigned, list_prepend(leader_id, coalesce(followers, []))) AS assigned,
  coalesce(terms.isr_at_start, list_filter(
    coalesce(terms.assigned, list_prepend(leader_id, coalesce(followers, []))),
    lambda replica: replica = leader_id OR NOT list_contains(listed, replica)
  )) AS isr_at_start,
  list_filter(
    coalesce(terms.assigned, list_prepend(leader_id, coalesce(followers, []))), lambda replica: list_contains(listed, replica)
  ) AS observers,
  CASE WHEN has_previous THEN terms.previous_leader_id ELSE former_leader_id END AS previous_leader_id,
  coalesce(terms.replica_lag_time_max_ms, clusters.replica_lag_time_max_ms) AS replica_lag_time_max_ms,
  CASE WHEN terms.replica_lag_time_max_ms IS NOT NULL THEN 'given' ELSE lag_time_source END AS lag_time_source,
  coalesce(terms.min_insync_replicas, clusters.min_insync_replicas) AS min_insync_replicas,
  coalesce(terms.broker_version, clusters.broker_version) AS broker_version,
  CASE WHEN coalesce(terms.broker_version, clusters.broker_version) IS NOT NULL THEN 'given' END
    AS broker_version_source,
  coalesce(check_origin_ms, 0) AS check_origin_ms, isr_write_ms, metadata_delay_ms,
  coalesce(check_origin_source, CASE WHEN check_origin_ms IS NOT NULL THEN 'given' END, 'unknown')
    AS check_origin_source,
  CAST(start_time AS DATE) AS event_date
FROM terms JOIN clusters USING (cluster_id) JOIN observing USING (cluster_id, topic, partition_id)
LEFT JOIN seen USING (cluster_id, topic, partition_id, leader_epoch, leader_id)
LEFT JOIN log_ends USING (cluster_id, leader_id)
WHERE has_epochs

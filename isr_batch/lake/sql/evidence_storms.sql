-- Storms according to server.log alone: which leaders dropped which followers at about the same time, the suspected broker, and when the last follower was back. whole_after_source: whether whole_after_ms is exact or at_most (an upper bound).
SELECT
  cluster_id,
  storm_time,
  max(change_time) AS last_time,
  count(*) AS replicas,
  count(DISTINCT struct(topic, partition_id)) AS partitions,
  array_sort(collect_set(leader_id)) AS leaders,
  array_sort(collect_set(replica_id)) AS followers,
  mode(suspect_broker) AS suspect_broker,
  array_sort(collect_set(suspect)) AS suspects,
  count_if(strength = 'strong') AS strong,
  count_if(spurious <> 'none') AS spurious,
  timestamp_millis(min(last_caught_up_time_ms)) AS since_time,
  max(records_behind) AS records_behind_max,
  max(lag_ms) AS lag_ms_max,
  count_if(under_min_isr) AS under_min_isr,
  CASE WHEN count_if(returned_ms IS NULL AND coalesce(write_outcome, '') <> 'failed') = 0
    THEN max(unix_millis(change_time) + returned_ms) - unix_millis(storm_time) END AS whole_after_ms,
  CASE WHEN count_if(returned_ms IS NULL AND coalesce(write_outcome, '') <> 'failed') > 0 OR count(returned_ms) = 0 THEN NULL
    WHEN count_if(returned_source = 'at_most') > 0 THEN 'at_most' ELSE 'exact' END AS whole_after_source
FROM shrink_evidence
WHERE storm_time IS NOT NULL
GROUP BY cluster_id, storm_time

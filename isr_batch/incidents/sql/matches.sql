-- Comparison of the replay with the brokers' logs: ISR changes by cluster, leader and kind of change.
SELECT
  cluster_id, kind, leader_id,
  count_if(status = 'matched') AS matched,
  count_if(status = 'missing') AS missing,
  count_if(status = 'extra') AS extra,
  count_if(status = 'unknown') AS unknown,
  count_if(status <> 'matched' AND note LIKE 'race%') AS races,
  count_if(status = 'matched' AND abs(time_error_ms) <= 100) AS within_100_ms,
  if(
    count(last_caught_up_error_ms) FILTER (status = 'matched') > 0,
    count_if(status = 'matched' AND abs(last_caught_up_error_ms) <= 2), NULL
  ) AS caught_up_within_2_ms,
  if(count(equal) FILTER (status = 'matched') > 0, count_if(status = 'matched' AND equal), NULL) AS offsets_equal
FROM (
  SELECT *, observed_follower_log_end_offset = replayed_follower_log_end_offset
    AND observed_leader_log_end_offset = replayed_leader_log_end_offset
    AND observed_high_watermark = replayed_high_watermark AS equal
  FROM replay_check WHERE status <> 'observer'
)
GROUP BY ALL
ORDER BY cluster_id, kind, leader_id

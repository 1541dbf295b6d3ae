-- replay_check counted by cluster, leader and kind of change. Counts about figures that no broker logged are null.
SELECT
  cluster_id, leader_id, kind,
  count(CASE WHEN status = 'matched' THEN 1 END) AS matched,
  count(CASE WHEN status = 'missing' THEN 1 END) AS missing,
  count(CASE WHEN status = 'extra' THEN 1 END) AS extra,
  count(CASE WHEN status = 'unknown' THEN 1 END) AS unknown,
  count(CASE WHEN status = 'observer' THEN 1 END) AS of_observers,
  count(CASE WHEN status IN ('missing', 'extra', 'unknown') AND (note LIKE 'race%' OR note LIKE 'possible%') THEN 1 END) AS races,
  count(CASE WHEN status = 'matched' AND abs(time_error_ms) <= $close_ms THEN 1 END) AS within_100_ms,
  CASE WHEN count(caught_up_error_ms) > 0 THEN count(CASE WHEN caught_up_error_ms <= $near_ms THEN 1 END) END
    AS caught_up_within_1_ms,
  CASE WHEN count(caught_up_error_ms) > 0 THEN count(CASE WHEN caught_up_error_ms <= 2 * $near_ms THEN 1 END) END
    AS caught_up_within_2_ms,
  CASE WHEN count(equal) > 0 THEN count(CASE WHEN equal THEN 1 END) END AS offsets_equal
FROM (
  SELECT *,
    CASE WHEN status = 'matched' THEN abs(last_caught_up_error_ms) END AS caught_up_error_ms,
    CASE WHEN status = 'matched' THEN
      observed_follower_log_end_offset = replayed_follower_log_end_offset
      AND observed_leader_log_end_offset = replayed_leader_log_end_offset
      AND observed_high_watermark = replayed_high_watermark
    END AS equal
  FROM {replay_check}
) AS checked
GROUP BY cluster_id, leader_id, kind
ORDER BY cluster_id, kind, leader_id

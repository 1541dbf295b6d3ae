-- Cost of a leader's death under each rule: microseconds per day, summed over partitions; no row if every ISR was complete.
SELECT
  cluster_id,
  event_date,
  rule,
  params_json,
  sum(CASE WHEN alone THEN us ELSE 0 END) AS leader_alone_us,
  sum(CASE WHEN alone AND heir_id IS NOT NULL THEN us ELSE 0 END) AS leader_alone_with_heir_us,
  sum(CASE WHEN offline_if_leader_dies THEN us ELSE 0 END) AS offline_if_leader_dies_us,
  sum(CASE WHEN offline_if_leader_dies IS NULL THEN us ELSE 0 END) AS unknown_us,
  sum(CASE WHEN size(elr) > 0 THEN us ELSE 0 END) AS elr_members_us,
  sum(CASE WHEN heir_if_on IS NULL AND elr_if_on IS NOT NULL THEN us ELSE 0 END) AS offline_with_elr_us,
  sum(CASE WHEN heir_if_off IS NULL THEN us ELSE 0 END) AS offline_without_elr_us,
  max(lost_records_max) AS lost_if_leader_dies_records_max,
  max_by(lost_time, lost_records_max) AS lost_if_leader_dies_time,
  sum(elr_below_high_watermark) AS elr_below_high_watermark
FROM (
  SELECT *, size(isr) = 1 AS alone, unix_micros(until_time) - unix_micros(from_time) AS us
  FROM eligible_leaders
)
GROUP BY cluster_id, event_date, rule, params_json

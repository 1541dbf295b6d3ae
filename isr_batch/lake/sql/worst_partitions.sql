-- Partitions by the time that spurious shrinks kept followers out of the ISR; that time leaves out shrinks after which the log does not show the follower's return.
SELECT
  cluster_id,
  topic,
  partition_id,
  rule,
  params_json,
  count(*) AS spurious,
  count_if(restored_time IS NULL) AS not_restored,
  sum(CAST(floor((unix_micros(restored_time) - unix_micros(change_time)) / 1000) AS BIGINT)) AS out_of_isr_ms,
  mode() WITHIN GROUP (ORDER BY primary_cause) AS usual_cause,
  min(change_time) AS first_time,
  max(change_time) AS last_time
FROM shrink_verdicts
SEMI JOIN replayed_days USING (rule, event_date)
WHERE verdict = 'spurious'
GROUP BY cluster_id, topic, partition_id, rule, params_json
ORDER BY spurious DESC, out_of_isr_ms DESC

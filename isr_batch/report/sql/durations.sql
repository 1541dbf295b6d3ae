WITH mistakes AS (
  SELECT
    rule,
    out_of_isr_ms(change_time, restored_time) AS lasts_ms,
    timestampdiff(MILLISECOND, lag(change_time) OVER (
      PARTITION BY cluster_id, topic, partition_id, replica_id, rule, params_json ORDER BY change_time
    ), change_time) AS after_ms
  FROM shrink_verdicts WHERE verdict = 'spurious'
),
measured AS (
  SELECT rule, 'it lasts' AS what, lasts_ms / 1000 AS seconds FROM mistakes WHERE lasts_ms IS NOT NULL
  UNION ALL
  SELECT rule, 'since the one before, of the same follower', after_ms / 1000 FROM mistakes WHERE after_ms IS NOT NULL
)
SELECT
  rule,
  what,
  count(*) AS mistakes,
  min(seconds) AS least,
  percentile(seconds, 0.25) AS quarter,
  percentile(seconds, 0.5) AS median,
  percentile(seconds, 0.75) AS three_quarters,
  max(seconds) AS most
FROM measured
GROUP BY rule, what
ORDER BY what, rule

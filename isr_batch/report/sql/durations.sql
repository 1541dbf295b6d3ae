WITH mistakes AS (
  SELECT
    cluster_id,
    rule,
    unix_millis(restored_time) - unix_millis(change_time) AS lasts_ms,
    unix_millis(change_time) - unix_millis(lag(change_time) OVER (
      PARTITION BY cluster_id, topic, partition_id, replica_id, rule, params_json ORDER BY change_time
    )) AS after_ms
  FROM shrink_verdicts WHERE verdict = 'spurious'
),
measured AS (
  SELECT cluster_id, rule, 'it lasts' AS what, lasts_ms / 1000 AS seconds FROM mistakes WHERE lasts_ms IS NOT NULL
  UNION ALL
  SELECT cluster_id, rule, 'since the one before, of the same follower', after_ms / 1000
  FROM mistakes WHERE after_ms IS NOT NULL
)
SELECT
  cluster_id,
  rule,
  what,
  count(*) AS mistakes,
  min(seconds) AS least,
  percentile(seconds, 0.25) AS quarter,
  percentile(seconds, 0.5) AS median,
  percentile(seconds, 0.75) AS three_quarters,
  max(seconds) AS most
FROM measured
GROUP BY cluster_id, rule, what
ORDER BY cluster_id, what, rule

WITH shrinks AS (
  SELECT cluster_id, rule, primary_cause AS cause, unix_millis(change_time) AS change_ms FROM shrink_verdicts
  UNION ALL
  SELECT cluster_id, 'the brokers', if(made_by = 'controller', 'controller', 'as logged'), unix_millis(change_time)
  FROM observed_isr_changes WHERE kind = 'shrink'
),
span AS (
  SELECT cluster_id, min(change_ms) AS first_ms, greatest(CAST(ceil((max(change_ms) - min(change_ms)) / 300) AS BIGINT), 1) AS wide_ms
  FROM shrinks GROUP BY cluster_id
)
SELECT
  cluster_id,
  rule,
  cause,
  first_ms + CAST(floor((change_ms - first_ms) / wide_ms) AS BIGINT) * wide_ms AS at_ms,
  count(*) AS shrinks
FROM shrinks JOIN span USING (cluster_id)
GROUP BY ALL
ORDER BY ALL

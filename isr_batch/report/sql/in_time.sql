WITH shrinks AS (
  SELECT cluster_id, rule, primary_cause AS cause, change_time FROM shrink_verdicts
  UNION ALL
  SELECT cluster_id, 'the brokers', if(made_by = 'controller', 'controller', 'as logged'), change_time
  FROM observed_isr_changes WHERE kind = 'shrink'
),
span AS (
  SELECT cluster_id, min(unix_millis(change_time)) AS first_ms, max(unix_millis(change_time)) AS last_ms
  FROM shrinks GROUP BY cluster_id
)
SELECT
  cluster_id,
  rule,
  cause,
  first_ms + floor((unix_millis(change_time) - first_ms) / greatest((last_ms - first_ms) / 300, 1))
    * greatest((last_ms - first_ms) / 300, 1) AS at_ms,
  count(*) AS shrinks
FROM shrinks JOIN span USING (cluster_id)
GROUP BY ALL
ORDER BY ALL

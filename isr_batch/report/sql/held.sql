WITH own AS (SELECT * FROM (VALUES :own) AS ran(cluster_id, rule))
SELECT
  cluster_id,
  primary_cause AS cause,
  lag_time_ms(params_json) / 1000 AS lag_time_s,
  round(lag_ms / 1000, 1) AS lag_s,
  round((leader_held_ms + leader_silent_ms) / 1000, 1) AS held_s,
  count(*) AS shrinks
FROM shrink_verdicts JOIN own USING (cluster_id, rule)
WHERE made_by = 'rule' AND lag_ms IS NOT NULL AND leader_held_ms IS NOT NULL AND leader_silent_ms IS NOT NULL
GROUP BY ALL
ORDER BY ALL

SELECT cluster_id, rule, primary_cause AS cause, count(*) AS shrinks
FROM shrink_verdicts
GROUP BY cluster_id, rule, primary_cause
ORDER BY cluster_id, rule, cause

SELECT rule, primary_cause AS cause, count(*) AS shrinks
FROM shrink_verdicts
GROUP BY rule, primary_cause
ORDER BY rule, cause

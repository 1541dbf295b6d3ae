SELECT cluster_id, makes, makes_not, count(*) AS shrinks
FROM (
  SELECT cluster_id, makes, explode(rules_against) AS makes_not
  FROM (SELECT cluster_id, rules_against, explode(rules_for) AS makes FROM rule_disagreements)
)
GROUP BY cluster_id, makes, makes_not
ORDER BY cluster_id, makes, makes_not

SELECT makes, makes_not, count(*) AS shrinks
FROM rule_disagreements
LATERAL VIEW explode(rules_for) AS makes
LATERAL VIEW explode(rules_against) AS makes_not
GROUP BY makes, makes_not
ORDER BY makes, makes_not

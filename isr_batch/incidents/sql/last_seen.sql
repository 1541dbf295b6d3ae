-- When a broker that the controller removed was last seen: at its last fetch, or at the end of its request log. A broker that
-- was seen until a second before its removal has no row, because followers fetch at least every half second.
WITH spans AS (
  SELECT DISTINCT cluster_id, fault_id, incident, started_us, from_us, until_us FROM removed_spans
),
signs AS (
  SELECT cluster_id, fault_id, incident, arrival_us AS at_us FROM fetches
  UNION ALL
  SELECT s.cluster_id, s.fault_id, s.incident, epoch_us(t.end_time)
  FROM spans AS s
  JOIN leader_epochs AS t ON t.cluster_id = s.cluster_id AND t.leader_id = s.fault_id
  SEMI JOIN coverage AS c ON c.log = 'request' AND c.cluster_id = s.cluster_id AND c.broker_id = s.fault_id
    AND t.end_time BETWEEN c.from_time AND c.until_time
),
last AS (
  SELECT
    s.*, max(at_us) FILTER (at_us < started_us) AS before_start_us, max(at_us) FILTER (at_us < until_us) AS before_removal_us
  FROM spans AS s
  JOIN signs AS g ON (g.cluster_id, g.fault_id, g.incident) = (s.cluster_id, s.fault_id, s.incident) AND g.at_us BETWEEN s.from_us AND s.until_us
  GROUP BY ALL
)
SELECT cluster_id, fault_id, incident, coalesce(before_start_us, before_removal_us) AS seen_us
FROM last
WHERE before_start_us IS NOT NULL OR before_removal_us < until_us - 1000000

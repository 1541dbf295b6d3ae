-- The rule that each leader ran, according to its release.
SELECT cluster_id, leader_id, ran, checks_per_lag_time
FROM (SELECT cluster_id, leader_id, max(broker_version) AS version FROM {terms} GROUP BY cluster_id, leader_id) AS newest
JOIN {releases} AS releases USING (version)

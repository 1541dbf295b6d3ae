-- Periods in which a leader was late with its work: a silence, or several silences with short times in between.
WITH silent AS (
  SELECT
    cluster_id, broker_id AS leader_id, unix_micros(event_time) AS from_us, unix_micros(end_time) AS until_us,
    max(unix_micros(end_time)) OVER (
      PARTITION BY cluster_id, broker_id ORDER BY event_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before_us
  FROM {broker_events}
  WHERE kind = 'silent'
), numbered AS (
  SELECT *,
    sum(CASE WHEN from_us - before_us <= $late_for_us THEN 0 ELSE 1 END) OVER (
      PARTITION BY cluster_id, leader_id ORDER BY from_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS span
  FROM silent
)
SELECT cluster_id, leader_id, min(from_us) AS from_us, max(until_us) AS until_us
FROM numbered GROUP BY cluster_id, leader_id, span

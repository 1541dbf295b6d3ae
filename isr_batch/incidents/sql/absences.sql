-- How absent a follower was from a leader: the share of a window, and of the equally long time before it, in which none of the
-- follower's fetches was at the leader, neither in progress nor waiting. A fetch does not count while its response is due but not
-- sent. Fetches of a partition do not overlap, except if a response is still under way when the next fetch arrives.
WITH parts AS (
  SELECT s.*, phase,
    CASE phase WHEN 'before' THEN s.from_us ELSE s.since_us END AS begin_us,
    CASE phase WHEN 'before' THEN s.since_us ELSE s.until_us END AS end_us
  FROM spans AS s, (SELECT unnest(['before', 'within']) AS phase)
),
clipped AS (
  SELECT
    p.window_number, p.side, p.leader_id, p.replica_id, p.phase,
    greatest(f.arrival_us, p.begin_us) AS from_us, least(f.released_us, p.end_us) AS until_us
  FROM parts AS p
  JOIN fetches AS f ON (f.window_number, f.side, f.leader_id, f.replica_id) = (p.window_number, p.side, p.leader_id, p.replica_id)
    AND f.arrival_us <= p.end_us AND f.released_us >= p.begin_us
),
present AS (
  SELECT window_number, side, leader_id, replica_id, phase, sum(greatest(0, until_us - greatest(from_us, coalesce(reached_us, from_us)))) AS us
  FROM (
    SELECT *, max(until_us) OVER (
      PARTITION BY window_number, side, leader_id, replica_id, phase ORDER BY from_us, until_us
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_us
    FROM clipped
  )
  GROUP BY ALL
)
SELECT
  window_number, side, leader_id, replica_id,
  max(1 - coalesce(us, 0) / (end_us - begin_us)) FILTER (phase = 'within') AS absent,
  max(1 - coalesce(us, 0) / (end_us - begin_us)) FILTER (phase = 'before') AS absent_before
FROM parts LEFT JOIN present USING (window_number, side, leader_id, replica_id, phase)
GROUP BY ALL
ORDER BY ALL

-- Who kept a follower from its leader, judged by which other fetches were absent too. Those of the leader's other followers: the
-- leader (or its network). Those of the follower at its other leaders: the follower (or its network). Neither: the link between the
-- two. The result is null if the follower fetched all the time, if both are true, or if the follower's other fetches are unknown.
-- served: whether most of the leader's other followers fetched.
WITH own AS (
  SELECT window_number, absent FROM absences WHERE side = 'dropped' AND absent >= $least
),
shares AS (
  SELECT
    window_number,
    avg(CAST(a.absent >= greatest($least, own.absent / 3) AS INTEGER)) FILTER (side = 'of_leader') AS of_leader,
    avg(CAST(a.absent >= greatest($least, own.absent / 3) AS INTEGER)) FILTER (side = 'of_follower') AS of_follower
  FROM own
  LEFT JOIN absences AS a USING (window_number)
  -- A follower that had been gone before proves nothing.
  WHERE a.side <> 'dropped' AND a.absent_before < $gone
  GROUP BY window_number
)
SELECT w.*, coalesce(of_leader <= 0.5, false) AS served, CASE
  WHEN of_leader > 0.5 AND of_leader > of_follower THEN 'leader'
  WHEN of_follower > 0.5 AND of_follower > coalesce(of_leader, 0) THEN 'follower'
  WHEN of_leader <= 0.5 AND of_follower <= 0.5 THEN 'link'
END AS who
FROM windows AS w
LEFT JOIN shares USING (window_number)
ORDER BY window_number

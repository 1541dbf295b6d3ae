-- For all drops of one follower that a leader made at one check (first_us to last_us): the period (from_us to until_us) whose fetches
-- show which broker was at fault. It begins when the follower was last caught up, and lasts at most three lag times. Drops that the
-- replay could not judge, and those with the cause slow_leader, have no row.
WITH asked AS (
  SELECT
    d.*, epoch_us(change_time) AS change_us, 1000 * lag_time_ms AS lag_time_us,
    epoch_us(change_time) - 1000 * coalesce(lag_ms, lag_time_ms) AS caught_up_us
  FROM dropped AS d
  JOIN (SELECT cluster_id, max(replica_lag_time_max_ms) AS lag_time_ms FROM leader_epochs GROUP BY ALL) USING (cluster_id)
  WHERE verdict IN ('genuine', 'spurious') AND cause <> 'slow_leader'
),
numbered AS (
  SELECT *, sum(CAST(first AS INTEGER)) OVER (PARTITION BY cluster_id, leader_id, replica_id ORDER BY change_us) AS number
  FROM (
    SELECT *, coalesce(change_us - lag(change_us) OVER of_pair > $check_us, true) AS first
    FROM asked WINDOW of_pair AS (PARTITION BY cluster_id, leader_id, replica_id ORDER BY change_us)
  )
)
SELECT
  row_number() OVER (ORDER BY cluster_id, min(change_us), leader_id, replica_id) AS window_number,
  cluster_id, leader_id, replica_id, min({'topic': topic, 'partition_id': partition_id}) AS partition, min(change_us) AS first_us, max(change_us) AS last_us,
  min(caught_up_us) AS from_us, least(max(change_us), min(caught_up_us) + 3 * any_value(lag_time_us)) AS until_us
FROM numbered
GROUP BY cluster_id, leader_id, replica_id, number
HAVING until_us > from_us
ORDER BY window_number

-- `dropped`, in which the cause slow_leader is replaced with answer_not_delivered if the leader, during most of the time for which
-- it is to blame, was not silent, and its responses were due but not sent. `isr-batch explain` says the same of one shrink.
WITH due AS (
  SELECT number, greatest(f.released_us, s.from_us) AS from_us, least(f.completed_us, s.until_us) AS until_us, s.cluster_id, s.leader_id
  FROM held_spans AS s JOIN fetches AS f USING (number)
  WHERE least(f.completed_us, s.until_us) > greatest(f.released_us, s.from_us)
),
silent AS (
  SELECT d.number, sum(least(d.until_us, epoch_us(e.end_time)) - greatest(d.from_us, epoch_us(e.event_time))) AS us
  FROM due AS d
  JOIN broker_events AS e ON e.kind = 'silent' AND e.cluster_id = d.cluster_id AND e.broker_id = d.leader_id
    AND epoch_us(e.event_time) < d.until_us AND epoch_us(e.end_time) > d.from_us
  GROUP BY number
),
undelivered AS (
  SELECT s.*
  FROM held_spans AS s
  JOIN (SELECT number, sum(until_us - from_us) AS us FROM due GROUP BY number) AS d USING (number)
  LEFT JOIN silent USING (number)
  WHERE 2 * (d.us - coalesce(silent.us, 0)) > s.accounted_us
)
SELECT d.* REPLACE (if(u.number IS NULL, d.cause, 'answer_not_delivered') AS cause)
FROM dropped AS d
LEFT JOIN undelivered AS u ON d.cause = 'slow_leader' AND epoch_us(d.change_time) = u.until_us
  AND (d.cluster_id, d.topic, d.partition_id, d.leader_id, d.replica_id) = (u.cluster_id, u.topic, u.partition_id, u.leader_id, u.replica_id)
ORDER BY d.cluster_id, d.change_time, d.topic, d.partition_id, d.replica_id

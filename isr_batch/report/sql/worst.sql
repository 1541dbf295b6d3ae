WITH suffered AS (
  SELECT
    cluster_id,
    leader_id,
    topic,
    partition_id,
    count_if(verdict = 'spurious') AS spurious,
    count(*) AS shrinks,
    max_by(
      struct(params_json, change_time, restored_time, last_caught_up_time_ms, primary_cause),
      struct(verdict = 'spurious', out_of_isr_ms(change_time, restored_time), change_time)
    ) AS longest
  FROM shrink_verdicts
  WHERE rule = :rule AND made_by = 'rule'
  GROUP BY ALL
),
-- One of each leader: its partitions mostly suffer together.
ranked AS (
  SELECT *, row_number() OVER (
    PARTITION BY cluster_id, leader_id ORDER BY spurious DESC, shrinks DESC, topic, partition_id
  ) AS place
  FROM suffered
)
SELECT
  cluster_id,
  topic,
  partition_id,
  leader_id,
  spurious,
  shrinks,
  longest.params_json,
  lag_time_ms(longest.params_json) AS lag_time_ms,
  longest.primary_cause,
  unix_micros(longest.change_time) AS change_us,
  unix_micros(longest.restored_time) AS restored_us,
  1000 * longest.last_caught_up_time_ms AS caught_up_us
FROM ranked
WHERE place = 1
ORDER BY spurious DESC, shrinks DESC, cluster_id, topic, partition_id
LIMIT 3

-- Days of a cluster whose input changed after they were last replayed, and when it changed.
WITH changed AS (
  SELECT cluster_id, event_date, max(changed_time) AS changed_time
  FROM ingested_files
  LATERAL VIEW explode(days) AS event_date, changed_time
  GROUP BY cluster_id, event_date
),
done AS (
  SELECT
    coalesce(to_date(nullif(split(window, '[.][.]')[0], '')), DATE'0001-01-01') AS first_day,
    coalesce(to_date(nullif(split(window, '[.][.]')[1], '')), DATE'9999-12-31') AS before_day,
    -- A run ingests first, and replays what it has just ingested.
    CASE WHEN command = 'run' THEN timestampadd(MICROSECOND, CAST(seconds * 1000000 AS BIGINT), started_time)
    ELSE started_time END AS replayed_time
  FROM (SELECT coalesce(window, '..') AS window, command, seconds, started_time FROM run_log
        WHERE status = 'done' AND command IN ('run', 'replay'))
)
SELECT changed.cluster_id, changed.event_date, changed.changed_time
FROM changed
LEFT ANTI JOIN done
  ON done.first_day <= changed.event_date AND changed.event_date < done.before_day
  AND done.replayed_time >= changed.changed_time

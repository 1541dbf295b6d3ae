-- Days of a cluster whose log files, or those of an earlier day, changed after the day was last replayed, and when they changed.
WITH changed AS (
  SELECT cluster_id, event_date, max(max(changed_time)) OVER (PARTITION BY cluster_id ORDER BY event_date) AS changed_time
  FROM ingested_files
  LATERAL VIEW explode(days) AS event_date, changed_time
  GROUP BY cluster_id, event_date
),
done AS (
  SELECT
    coalesce(to_date(nullif(split(window, '[.][.]')[0], '')), DATE'0001-01-01') AS first_day,
    coalesce(to_date(nullif(split(window, '[.][.]')[1], '')), DATE'9999-12-31') AS before_day,
    -- A run ingests first, and replays what it has just ingested.
    CASE WHEN command LIKE 'run%' THEN timestampadd(MICROSECOND, CAST(seconds * 1000000 AS BIGINT), started_time)
    ELSE started_time END AS replayed_time
  FROM (SELECT coalesce(window, '..') AS window, command, seconds, started_time FROM run_log
        WHERE status = 'done' AND (command IN ('replay', 'backfill') OR command LIKE 'run%'))
)
SELECT changed.cluster_id, changed.event_date, changed.changed_time
FROM changed
LEFT ANTI JOIN done
  ON done.first_day <= changed.event_date AND changed.event_date < done.before_day
  AND done.replayed_time >= changed.changed_time

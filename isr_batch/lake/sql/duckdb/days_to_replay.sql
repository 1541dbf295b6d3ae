-- Days of a cluster whose log files, or those of an earlier day, changed after the day was last replayed, and when they changed.
WITH days AS (
  SELECT cluster_id, unnest(map_entries(days)) AS day FROM ingested_files
),
changed AS (
  SELECT cluster_id, day.key AS event_date,
    make_timestamp(max(max(epoch_us(day.value))) OVER (PARTITION BY cluster_id ORDER BY day.key)) AS changed_time
  FROM days
  GROUP BY cluster_id, day.key
),
done AS (
  SELECT
    coalesce(CAST(nullif(split_part(coalesce("window", '..'), '..', 1), '') AS DATE), DATE '0001-01-01') AS first_day,
    coalesce(CAST(nullif(split_part(coalesce("window", '..'), '..', 2), '') AS DATE), DATE '9999-12-31') AS before_day,
    -- A run ingests first, and replays what it has just ingested.
    CASE WHEN command LIKE 'run%' THEN make_timestamp(epoch_us(started_time) + CAST(floor(seconds * 1000000) AS BIGINT))
    ELSE started_time END AS replayed_time
  FROM run_log
  WHERE status = 'done' AND (command IN ('replay', 'backfill') OR command LIKE 'run%')
)
SELECT changed.cluster_id, changed.event_date, changed.changed_time
FROM changed
WHERE NOT EXISTS (
  SELECT 1 FROM done
  WHERE done.first_day <= changed.event_date AND changed.event_date < done.before_day
  AND done.replayed_time >= changed.changed_time
)

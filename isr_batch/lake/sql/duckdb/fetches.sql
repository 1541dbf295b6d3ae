-- One row per fetch; runs of identical fetches are expanded.
WITH runs AS (SELECT row_number() OVER () AS run, * FROM fetch_log),
singly AS (
  SELECT
    *,
    -- By how much a fetch is later than the one before it in its run; a negative index would count from the end.
    CASE WHEN n > 0 THEN later_by[6 * n - 5] ELSE 0 END AS arrival_us,
    CASE WHEN n > 0 THEN later_by[6 * n - 4] ELSE 0 END AS handled_us,
    CASE WHEN n > 0 THEN later_by[6 * n - 3] ELSE 0 END AS processed_us,
    CASE WHEN n > 0 THEN later_by[6 * n - 2] ELSE 0 END AS released_us,
    CASE WHEN n > 0 THEN later_by[6 * n - 1] ELSE 0 END AS completed_us,
    CASE WHEN n > 0 THEN later_by[6 * n] ELSE 0 END AS lines
  FROM (SELECT *, unnest(range(run_length)) AS n FROM runs)
)
SELECT
  cluster_id,
  topic,
  partition_id,
  leader_epoch,
  leader_id,
  replica_id,
  make_timestamp(epoch_us(arrival_time) + CAST(sum(arrival_us) OVER of_run AS BIGINT)) AS arrival_time,
  make_timestamp(epoch_us(handled_time) + CAST(sum(handled_us) OVER of_run AS BIGINT)) AS handled_time,
  make_timestamp(epoch_us(processed_time) + CAST(sum(processed_us) OVER of_run AS BIGINT)) AS processed_time,
  make_timestamp(epoch_us(released_time) + CAST(sum(released_us) OVER of_run AS BIGINT)) AS released_time,
  make_timestamp(epoch_us(completed_time) + CAST(sum(completed_us) OVER of_run AS BIGINT)) AS completed_time,
  fetch_offset,
  leader_log_end_offset,
  leader_leo_source,
  high_watermark,
  error_code,
  source_file,
  source_line + CAST(sum(lines) OVER of_run AS BIGINT) AS source_line,
  event_date
FROM singly
WINDOW of_run AS (PARTITION BY run ORDER BY n)

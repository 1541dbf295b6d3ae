-- One row per fetch; runs of identical fetches are expanded.
SELECT
  cluster_id,
  topic,
  partition_id,
  leader_epoch,
  leader_id,
  replica_id,
  timestamp_micros(unix_micros(arrival_time) + later.arrival_us) AS arrival_time,
  timestamp_micros(unix_micros(handled_time) + later.handled_us) AS handled_time,
  timestamp_micros(unix_micros(processed_time) + later.processed_us) AS processed_time,
  timestamp_micros(unix_micros(released_time) + later.released_us) AS released_time,
  timestamp_micros(unix_micros(completed_time) + later.completed_us) AS completed_time,
  fetch_offset,
  leader_log_end_offset,
  leader_leo_source,
  high_watermark,
  error_code,
  source_file,
  source_line + later.lines AS source_line,
  event_date
FROM fetch_log
-- In pieces of 128 fetches: an array is copied for each fetch that is added to it.
LATERAL VIEW explode(flatten(aggregate(
  slice(sequence(0, (run_length + 126) DIV 128), 2, run_length),
  array(array(named_struct('arrival_us', 0L, 'handled_us', 0L, 'processed_us', 0L, 'released_us', 0L, 'completed_us', 0L, 'lines', 0L))),
  (pieces, piece) -> concat(pieces, array(slice(aggregate(
    sequence(128 * piece - 127, least(128 * piece, run_length - 1)),
    array(element_at(element_at(pieces, -1), -1)),
    (fetches, i) -> concat(fetches, array(named_struct(
      'arrival_us', element_at(fetches, -1).arrival_us + get(later_by, 6 * i - 6),
      'handled_us', element_at(fetches, -1).handled_us + get(later_by, 6 * i - 5),
      'processed_us', element_at(fetches, -1).processed_us + get(later_by, 6 * i - 4),
      'released_us', element_at(fetches, -1).released_us + get(later_by, 6 * i - 3),
      'completed_us', element_at(fetches, -1).completed_us + get(later_by, 6 * i - 2),
      'lines', element_at(fetches, -1).lines + get(later_by, 6 * i - 1)
    )))
  ), 2, 128)))
))) AS later

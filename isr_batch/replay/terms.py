"""Join the parts of a leader's term (the time of one leader epoch) whose log was ingested in several parts."""

from typing import Final

from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.leaders import LEADER_EPOCHS

TOUCHING_MS = 1_000
"""Two parts are joined if the first request of the later one comes at most this many ms after the last request of the
earlier one. Followers fetch at least twice a second."""

_KEY: Final = ", ".join(SET_KEY)
_OTHERS: Final = ", ".join(
    name for name in LEADER_EPOCHS.column_names if name not in {*SET_KEY, "end_time", "ends_mid_term"}
)
JOINED: Final = f"""
WITH marked AS (
  SELECT *, CASE
    WHEN begins_mid_term AND coalesce(assigned_source, '') <> 'fetches'
      AND start_time <= lag(end_time) OVER (PARTITION BY {_KEY} ORDER BY start_time)
      + INTERVAL {TOUCHING_MS} MILLISECONDS
    THEN 0 ELSE 1 END AS begins
  FROM {{leader_epochs}}
), numbered AS (
  SELECT *, sum(begins) OVER (
    PARTITION BY {_KEY} ORDER BY start_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS number
  FROM marked
), whole AS (
  SELECT {_KEY}, {_OTHERS},
    max(end_time) OVER (PARTITION BY {_KEY}, number) AS end_time,
    last_value(ends_mid_term) OVER (
      PARTITION BY {_KEY}, number ORDER BY start_time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS ends_mid_term,
    row_number() OVER (PARTITION BY {_KEY}, number ORDER BY start_time) AS place
  FROM numbered
)
SELECT {_KEY}, {_OTHERS}, end_time, ends_mid_term FROM whole WHERE place = 1
"""
"""SQL, for DuckDB and Spark, that returns ``leader_epochs`` with one row per term.

A log that is ingested each night continues the log of the night before. If a row begins in mid-term when another row of
the same leader and epoch ends, both rows are one term. Terms from a user's own table are already complete."""

"""Limits that decide between this process and Spark: this process does work up to the limit, Spark does larger work."""

from isr_batch.memory import memory_bytes

# Limits in bytes of data files
REWRITTEN_BYTES = 64 << 20
"""Size of the files that a replacement of rows must rewrite because they also have other rows (`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""Size of the tables that a query holds in memory (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""Size of a table on S3 that is searched for the rows of one partition (`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""Size of a table that one query reads (`lake_sql`). Spark can read a larger table without holding it all in memory."""
MAINTAINED_BYTES = 4 << 30
"""Size of a table that is maintained (`maintain`)."""
PASSED_BYTES = 1 << 20
"""Size of a table that this process reads and passes to Spark. Spark itself would need half a second and many
requests."""
PACKED_BYTES = 256 << 20
"""Size of fetches and appends that are packed into segments. Spark takes seconds to plan that, even for few rows."""
ABSENCE_BYTES = 64 << 20
"""Size of a fetch log that is searched for absences of followers, which takes ten seconds per five million rows. A
larger log is not searched at all."""

# Limits in rows and events
REPLAYED_EVENTS = 20_000_000
"""Number of fetches and appends that are replayed. At the limit, this process takes 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Number of events in a window up to which complete timelines are written by default: about 2 GB with 22 rules."""
RESULT_ROWS = 300_000
"""Number of result rows of a replay that this process writes, unless workers write them."""
TASK_ROWS = 5_000
"""Number of result rows up to which a worker sends them to the driver, instead of writing a file."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""Size of the log text that an ingest reads. It needs up to twice that much memory. On two cores, Spark would take
nearly three times as long."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""Number of fetches in a user's own table that an ingest reads. At some 250 bytes each, they take an eighth of the
memory."""
COLLECTED_ROWS = 200_000
"""Number of rows of a table up to which the driver collects and commits them. Executors write larger results."""
SPREAD_ROWS = 20_000
"""The same as `COLLECTED_ROWS`, for tables that workers can write. It is lower, because workers write fast, but not
zero, because each worker adds a small file."""
ANSWER_ROWS = 20_000
"""Number of rows in a query's result up to which the driver collects them at once. A larger result stays in packets,
which Spark scans again at each use."""
QUARANTINE_ROWS = 50_000
"""Number of refused lines up to which the driver collects them. Each may have `RAW_CHARACTERS` characters of text."""

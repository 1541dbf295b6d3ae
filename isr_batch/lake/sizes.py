"""Limits that decide between this process and Spark: work up to the limit is done here, larger work by Spark."""

from isr_batch.memory import memory_bytes

# Limits in bytes of data files
REWRITTEN_BYTES = 64 << 20
"""Bytes of files that a replacement of rows has to rewrite because they also have other rows (`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""Bytes of the tables that a query holds in memory (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""Bytes of a table on S3 that is searched for the rows of one partition (`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""Bytes of a table that one query reads (`lake_sql`); Spark need not hold a larger table in memory at once."""
MAINTAINED_BYTES = 4 << 30
"""Bytes of a table that is maintained (`maintain`)."""
PASSED_BYTES = 1 << 20
"""Bytes of a table that this process reads and passes to Spark; Spark would need half a second and many requests."""
PACKED_BYTES = 256 << 20
"""Bytes of fetches and appends that are packed into segments; Spark takes seconds to plan that, however few they are.
"""
ABSENCE_BYTES = 64 << 20
"""Bytes of a fetch log that is searched for absences of followers, at ten seconds per five million rows. A larger one
is not searched at all."""

# Limits in rows and events
REPLAYED_EVENTS = 20_000_000
"""Number of fetches and appends that are replayed; at the limit, this process takes 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Number of events in a window up to which complete timelines are written by default: about 2 GB with 22 rules."""
RESULT_ROWS = 300_000
"""Number of a replay's result rows that this process writes, unless workers write them."""
TASK_ROWS = 5_000
"""Number of result rows up to which a worker sends them to the driver, instead of writing a file."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""Bytes of log text that an ingest reads; it needs up to twice that much memory. On two cores, Spark would take nearly
three times as long."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""Number of fetches of a user's own table that an ingest reads: at some 250 bytes each, an eighth of the memory."""
COLLECTED_ROWS = 200_000
"""Number of a table's rows up to which the driver collects and commits them; executors write larger results."""
SPREAD_ROWS = 20_000
"""The same as `COLLECTED_ROWS` for tables that workers can write: lower, since workers write fast, but not zero, since
each worker adds a small file."""
ANSWER_ROWS = 20_000
"""Number of rows of a query's result up to which the driver collects them at once. A larger result stays in packets,
which Spark scans again at each use."""
QUARANTINE_ROWS = 50_000
"""Number of refused lines up to which the driver collects them; each may have `RAW_CHARACTERS` characters of text."""

"""Size limits for the choice of an engine: up to the limit this process does the work, above it Spark."""

from isr_batch.memory import memory_bytes

# Limits in bytes of data files
REWRITTEN_BYTES = 64 << 20
"""Size of the files that a replacement has to rewrite, because they have other rows as well (`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""Size of the tables that a query holds in memory (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""Size of a table on S3 in which the rows of one partition are searched (`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""Size of a table that one query reads (`lake_sql`); Spark need not hold a larger table in memory at once."""
MAINTAINED_BYTES = 4 << 30
"""Size of a table that is compacted and cleaned (`maintain`)."""
PASSED_BYTES = 1 << 20
"""Size of a table that this process reads and passes to Spark, which would need half a second and many requests for
it."""
PACKED_BYTES = 256 << 20
"""Size of the fetches and appends that are packed into segments; Spark takes seconds to plan that, however few they
are."""
ABSENCE_BYTES = 64 << 20
"""Size of a fetch log that is searched for absences of followers, which takes ten seconds per five million rows; a
larger one is not searched at all."""

# Limits in rows and events
REPLAYED_EVENTS = 20_000_000
"""Number of fetches and appends that this process replays; at the limit, that takes 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Events of a window up to which complete timelines are written by default: about 2 GB with 22 rules."""
RESULT_ROWS = 300_000
"""Number of a replay's result rows that this process writes for Spark, unless workers write them."""
TASK_ROWS = 5_000
"""Number of result rows that a worker sends to the driver, instead of writing them to a file."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""Size of the log text that an ingest reads in this process, with up to twice that much memory; on two cores, Spark
would take nearly three times as long."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""Number of fetches from a user's own table that an ingest reads in this process: at some 250 bytes each, an eighth of
the memory."""
COLLECTED_ROWS = 200_000
"""Number of rows of a table that the driver collects from Spark and commits; executors write larger results."""
SPREAD_ROWS = 20_000
"""The same as `COLLECTED_ROWS` for tables that workers can write; low, since workers write fast, but not zero, since
each adds a small file."""
ANSWER_ROWS = 20_000
"""Number of rows of a query's result that the driver collects at once; a larger result stays in packets, all of them
scanned by Spark again at each use."""
QUARANTINE_ROWS = 50_000
"""Number of refused lines that the driver collects; each may have `RAW_CHARACTERS` characters of text."""

"""Size limits, one per decision: up to the limit, this process does the work; above it, Spark."""

from isr_batch.memory import memory_bytes

# Limits in bytes of data files
REWRITTEN_BYTES = 64 << 20
"""Size of files with rows to replace and other rows, which have to be rewritten (`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""Size of the tables that a query holds in memory (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""Size of a table on S3 in which the rows of one partition are searched (`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""Size of a table that one query reads (`lake_sql`); Spark need not hold a larger table in memory at once."""
MAINTAINED_BYTES = 4 << 30
"""Size of a table that is compacted and cleaned (`maintain`)."""
PASSED_BYTES = 1 << 20
"""Size of a table that this process reads for Spark, which would need half a second and many requests to load it."""
PACKED_BYTES = 256 << 20
"""Size of fetches and appends to pack; Spark takes seconds to plan the job, however few rows there are."""
ABSENCE_BYTES = 64 << 20
"""A fetch log that is searched for absences, at ten seconds per five million rows; a larger one is not searched."""

# Limits in rows and events
REPLAYED_EVENTS = 20_000_000
"""Number of fetches and appends to replay; at the limit this takes 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Events of a window up to which complete timelines are written by default: about 2 GB with 22 rules."""
RESULT_ROWS = 300_000
"""Number of result rows from Spark that this process writes, unless workers write them."""
TASK_ROWS = 5_000
"""Rows of results that a worker sends to the driver instead of writing a file."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""Bytes of log text. An ingest in this process takes up to twice that much memory; Spark, on two cores, would take
nearly three times as long."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""Fetches of users' own tables: at some 250 bytes per fetch, as many as fit into an eighth of the memory."""
COLLECTED_ROWS = 200_000
"""Number of rows of a table that the driver collects from Spark and commits; executors write larger results."""
SPREAD_ROWS = 20_000
"""The same limit for rows that workers could write, because each worker would add a small file."""
ANSWER_ROWS = 20_000
"""Rows of a result that are collected at once; for a result that stays in the packets, Spark scans all packets again at
each use."""
QUARANTINE_ROWS = 50_000
"""Refused lines that the driver collects; each may have `RAW_CHARACTERS` characters of text."""

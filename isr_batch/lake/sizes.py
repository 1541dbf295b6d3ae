"""Limits on the size of work. Up to a limit, this process does the work itself; Spark does larger work."""

from isr_batch.memory import memory_bytes

# Limits in bytes of data files
REWRITTEN_BYTES = 64 << 20
"""For replacing rows of a table: total size of the files that also contain other rows, and therefore must be rewritten
(`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""For a query that holds its tables in memory: total size of these tables (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""For a query about one partition: size of the fetch log, if it is not in a local folder
(`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""For a query that reads a whole table (`lake_sql`): size of the table. Spark need not hold a larger one in memory."""
MAINTAINED_BYTES = 4 << 30
"""For merging and deleting a table's files (`maintain`): size of the table."""
PASSED_BYTES = 1 << 20
"""For a table in a Spark query: up to this size, this process reads the table and passes the rows to Spark, which would
need half a second and many requests to read it."""
PACKED_BYTES = 256 << 20
"""For packing fetches and appends into segments: their size. Spark takes seconds to plan it, even for few rows."""
ABSENCE_BYTES = 64 << 20
"""For finding periods in which a follower did not fetch: size of the fetch log. The search takes ten seconds per five
million rows. A larger log is not searched at all."""

# Limits in rows and events
REPLAYED_EVENTS = 20_000_000
"""For a replay: number of fetches and appends. At the limit, this process needs 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Up to this number of events in the window, complete timelines are written by default. With 22 rules, they then need
about 2 GB."""
RESULT_ROWS = 300_000
"""For writing the results of a replay: number of rows, unless workers write them."""
TASK_ROWS = 5_000
"""Up to this number of result rows, a worker sends them to the driver instead of writing a file."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""For an ingest of logs: size of their text in bytes. It needs 1.1 to 3.4 times as much memory. On two cores, Spark
takes more than twice the CPU time per line."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""For an ingest of a user's own table: number of fetches. At some 250 bytes each, they take an eighth of the memory."""
COLLECTED_ROWS = 200_000
"""Up to this number of rows for a table, the driver collects the rows and commits them; otherwise executors write
them."""
SPREAD_ROWS = 20_000
"""The same limit as `COLLECTED_ROWS`, for tables that Python workers can write without the JVM. It is lower, because
workers write fast, but not zero, because each worker adds a small file."""
ANSWER_ROWS = 20_000
"""Up to this number of rows, the driver collects a result at once. A larger result stays in packets (rows that contain
many rows as Arrow bytes), which Spark scans again at each use."""
QUARANTINE_ROWS = 50_000
"""Up to this number of refused lines, the driver collects them. Each may have up to `RAW_CHARACTERS` characters."""

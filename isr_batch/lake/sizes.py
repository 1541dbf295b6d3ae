"""Sizes that decide where work is done, one per decision: in this process below the size, in Spark above it."""

from isr_batch.memory import memory_bytes

# Bytes of data files
REWRITTEN_BYTES = 64 << 20
"""Files that have both rows to be replaced and others: they are read and written here (`small_tables`)."""
QUERIED_BYTES = 64 << 20
"""Tables that a query holds in memory (`engines.engine_for`)."""
S3_BYTES = 256 << 20
"""Table on S3 in which one partition's rows are looked for (`engines.engine_for_a_partition`)."""
READ_BYTES = 512 << 20
"""Table that one question reads (`lake_sql`); of a larger one Spark does not need the memory at once."""
MAINTAINED_BYTES = 4 << 30
"""Table that is compacted and cleaned here (`maintain`)."""
PASSED_BYTES = 1 << 20
"""Table whose rows are passed to Spark: loading it would take Spark half a second, and many requests."""
PACKED_BYTES = 256 << 20
"""Fetches and appends that are packed here: Spark takes seconds to plan it, however few the rows are."""
ABSENCE_BYTES = 64 << 20
"""Log in which absences are looked for: five million rows take ten seconds each time. In a larger one lines decide."""

# Rows and events
REPLAYED_EVENTS = 20_000_000
"""Fetches and appends that this process replays, in 15 to 25 s and 1.3 GB."""
TIMELINE_EVENTS = 50_000_000
"""Events of a window whose timelines are all written by default: about 2 GB with 22 rules."""
RESULT_ROWS = 300_000
"""Rows of Spark's results that this process writes, unless workers do."""
TASK_ROWS = 5_000
"""Rows of results that a worker leaves to the driver."""

# Ingest
LOG_BYTES = min(2 << 30, memory_bytes() // 8)
"""Log text. It takes up to twice as much memory; in Spark, on two cores, nearly three times as long."""
OWN_ROWS = min(8_000_000, memory_bytes() // (8 * 250))
"""Fetches of users' own tables, with some 250 bytes each, of an eighth of the machine's memory."""
COLLECTED_ROWS = 200_000
"""Rows of a table that the driver collects from Spark and commits itself; more are written by the executors."""
SPREAD_ROWS = 20_000
"""The same for rows that workers could write; each would add a small file."""
ANSWER_ROWS = 20_000
"""Rows of an answer that are collected at once: Spark scans all packets again for each answer that stays in them."""
QUARANTINE_ROWS = 50_000
"""Refused lines that the driver takes; they may have `RAW_CHARACTERS` characters of text each."""

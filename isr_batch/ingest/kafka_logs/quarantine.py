"""Make the rows of table quarantine: refused lines and files, and doubtful lines that are used nevertheless."""

from collections.abc import Sequence

import pyarrow as pa

from isr_batch.broker_lines.kinds import GC, METADATA, SERVER, STATE_CHANGE
from isr_batch.broker_lines.unread import unreadable_lines
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query
from isr_batch.ingest.folder.broker_ids import Refused
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.ingest.requests.request_log import FILE, REFUSED
from isr_batch.lake import sizes
from isr_batch.lake.arrow_sql import ArrowSql

ROWS = pa.schema([
    ("source_file", pa.string()), ("source_line", pa.int64()), ("reason", pa.string()), ("detail", pa.string()),
    ("raw", pa.string()), ("rows_kept", pa.bool_()),
])  # fmt: skip


def refused_folders(refused: Sequence[Refused]) -> pa.Table:
    """Return rows of quarantine (`ROWS`) for the files that were refused when the folder was listed."""
    rows = [
        {"source_file": each.source_file, "reason": each.reason, "detail": each.detail, "rows_kept": False}
        for each in refused
    ]
    return pa.Table.from_pylist(rows, ROWS)


def refused_lines(sql: ArrowSql, lines: LinesOfInterest) -> pa.Table:
    """Return rows of quarantine for the refused lines of all logs except request logs.

    The columns are those of `ROWS`, and ``log``, the kind of log.
    """
    return sql(
        f"""
        WITH refused AS (
            SELECT '{SERVER}' AS log, source_file, source_line, problem AS reason, detail FROM server
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{STATE_CHANGE}' AS log, source_file, source_line, problem AS reason, detail FROM state_changes
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{GC}' AS log, source_file, source_line, problem AS reason, detail FROM of_jvms
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{METADATA}' AS log, source_file, source_line, problem AS reason, detail, raw FROM records
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{METADATA}' AS log, source_file, source_line, 'malformed metadata record' AS reason, detail, raw
            FROM records WHERE malformed
            UNION ALL BY NAME SELECT * FROM unreadable
        )
        SELECT log, source_file, source_line, reason, detail, raw, coalesce(rows_kept, false) AS rows_kept
        FROM refused
        """,
        server=lines.server,
        state_changes=lines.state_changes,
        of_jvms=lines.of_jvms,
        records=lines.records,
        unreadable=unreadable_lines(sql, lines.server, lines.state_changes),
    ).cast(pa.schema([pa.field("log", pa.string()), *ROWS]))


REFUSED_REQUESTS = Query(
    f"""
    SELECT source_file, source_line, reason, detail, raw, false AS rows_kept FROM rows
    WHERE kind IN ('{REFUSED}', '{FILE}')
    """,
    ROWS,
)
"""Query that selects the refused lines and files of request logs, as rows of quarantine."""


def quarantine(engine: Engine, known: pa.Table, refused: Rows, doubtful: Sequence[Rows]) -> Rows:
    """Return the rows of table quarantine for all logs.

    Parameters
    ----------
    engine : Engine
    known : pa.Table
        Rows about all logs except request logs, with the columns of `ROWS`.
    refused : Rows
        Result of the query `REFUSED_REQUESTS` on the requests.
    doubtful : sequence of Rows
        Doubtful requests, which are used in the input tables nevertheless, with the columns of
        `isr_batch.ingest.requests.fetch_log.DOUBTFUL`.

    Returns
    -------
    Rows
        An Arrow table, unless more than `sizes.QUARANTINE_ROWS` rows are about request logs.
    """
    kept = "SELECT source_file, source_line, reason, detail, CAST(NULL AS VARCHAR) AS raw, true AS rows_kept FROM rows"
    # The rows are stored, so that counting them before they are written does not compute them twice.
    rows = engine.keep(engine.union(refused, *(engine.sql(part, kept, ROWS) for part in doubtful)))
    if engine.count(rows) > sizes.QUARANTINE_ROWS:
        return engine.union(known, rows)
    return pa.concat_tables([known, engine.collect(rows).cast(ROWS)])

"""Build table quarantine: refused lines and files, and lines whose rows are doubtful."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import server_log
from isr_batch.ingest.kafka_logs.broker_ids import Refused
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.ingest.kafka_logs.request_log import FILE, REFUSED
from isr_batch.ingest.log_files.kinds import METADATA, SERVER, STATE_CHANGE
from isr_batch.lake.arrow_sql import ArrowSql

MOST_ROWS = 50_000
"""Rows that the driver takes; they may have `request_log.RAW_CHARACTERS` characters of text each."""

ROWS = pa.schema([
    ("source_file", pa.string()), ("source_line", pa.int64()), ("reason", pa.string()), ("detail", pa.string()),
    ("raw", pa.string()), ("rows_kept", pa.bool_()),
])  # fmt: skip


def refused_folders(refused: Sequence[Refused]) -> pa.Table:
    """Make rows, as `ROWS`, of what was refused when the folder was listed."""
    rows = [
        {"source_file": each.source_file, "reason": each.reason, "detail": each.detail, "rows_kept": False}
        for each in refused
    ]
    return pa.Table.from_pylist(rows, ROWS)


def refused_lines(sql: ArrowSql, lines: LinesOfInterest) -> pa.Table:
    """Make rows, as `ROWS` and ``log``, of what was refused of server.log, state-change.log and the metadata log."""
    return sql(
        f"""
        WITH refused AS (
            SELECT '{SERVER}' AS log, source_file, source_line, problem AS reason, detail FROM server
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{STATE_CHANGE}' AS log, source_file, source_line, problem AS reason, detail FROM state_changes
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{METADATA}' AS log, source_file, source_line, problem AS reason, detail, raw FROM records
            WHERE problem IS NOT NULL
            UNION ALL BY NAME
            SELECT '{METADATA}' AS log, source_file, source_line, 'malformed metadata record' AS reason, detail, raw
            FROM records WHERE malformed
            UNION ALL BY NAME SELECT * FROM unreadable
        )
        SELECT log, source_file, source_line, reason, detail, raw, false AS rows_kept FROM refused
        """,
        server=lines.server,
        state_changes=lines.state_changes,
        records=lines.records,
        unreadable=server_log.unreadable_lines(sql, lines.server, lines.state_changes),
    ).cast(pa.schema([pa.field("log", pa.string()), *ROWS]))


def quarantine(known: pa.Table, requests: DataFrame, doubtful: Sequence[DataFrame]) -> pa.Table | DataFrame:
    """Complete the rows with those that are in Spark.

    Parameters
    ----------
    known : pa.Table
        As `ROWS`.
    requests : DataFrame
        As `isr_batch.ingest.kafka_logs.request_log.read_requests` gives them.
    doubtful : sequence of DataFrame
        Lines whose rows are kept: source_file, source_line, reason and detail.

    Returns
    -------
    pa.Table or DataFrame
        A Spark frame if there are more than `MOST_ROWS`.
    """
    refused = requests.where(F.col("kind").isin(REFUSED, FILE)).withColumn("rows_kept", F.lit(False))
    rows = refused.select(*ROWS.names)
    for part in doubtful:
        kept = part.withColumns({"raw": F.lit(None).cast("string"), "rows_kept": F.lit(True)})
        rows = rows.unionAll(kept.select(*ROWS.names))
    few = rows.limit(MOST_ROWS + 1).toArrow()
    if few.num_rows <= MOST_ROWS:
        return pa.concat_tables([known, few.cast(ROWS)])
    # Once: the rows are counted before they are written.
    return requests.sparkSession.createDataFrame(known).unionAll(rows).localCheckpoint()

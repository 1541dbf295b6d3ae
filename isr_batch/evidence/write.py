"""Write and read table shrink_evidence."""

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import functions as F

from isr_batch.evidence.lines import FoundLines
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE


def write_evidence(small: SmallTables, cluster_id: str, evidence: pa.Table, found: FoundLines) -> int:
    """Put the evidence in place of what there is of the same leaders and the time of these logs.

    Parameters
    ----------
    small : SmallTables
        Of the lake.
    cluster_id : str
    evidence : pa.Table
        Rows of that cluster, as `isr_batch.evidence.table.evidence_rows` gives them.
    found : FoundLines
        What the rows were made of; its ``span_us`` is the time of the logs.

    Returns
    -------
    int
        Number of rows written.
    """
    if not found.span_us:
        return 0
    first = min(first for first, _ in found.span_us.values())
    last = max(last for _, last in found.span_us.values())
    leaders = sorted({*found.span_us, *evidence["leader_id"].to_pylist()})
    covered = (
        f"cluster_id = {sql_literal(cluster_id)} AND leader_id IN ({', '.join(map(str, leaders))}) "
        f"AND change_time BETWEEN TIMESTAMP'{_text(first)}' AND TIMESTAMP'{_text(last)}'"
    )
    if small.takes(SHRINK_EVIDENCE):
        return small.replace(SHRINK_EVIDENCE, evidence, covered)
    return small.lake.replace(SHRINK_EVIDENCE, small.lake.spark.createDataFrame(evidence), covered)


def read_evidence(lake: Lake, cluster_id: str) -> pa.Table:
    """Read the evidence of a cluster, in the order of time; empty where there is none."""
    rows = lake.read(SHRINK_EVIDENCE.name).where(F.col("cluster_id") == cluster_id)
    return rows.orderBy("change_time", "source_file", "source_line", "replica_id").toArrow()


def _text(us: int) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}.{us % 1_000_000:06}"

"""Lines of server.log as the table that the evidence is found in."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.evidence.find_lines import LINES, find_lines
from isr_batch.evidence.lines import FoundLines
from isr_batch.lake.arrow_sql import ArrowSql

SERVER_LOG_ONLY = Path(__file__).parent / "golden" / "server-log-only"
"""server.log of two brokers of release 4.1.0: one that was silent, then one that another dropped."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 11, 21, 16, 0, tzinfo=UTC)


def stamp_us(line: str) -> int | None:
    """Time (us since 1970) of a line in Kafka's default layout; None for lines that do not begin with a timestamp."""
    if not line.startswith("["):
        return None
    return (datetime.strptime(line[1:24] + "+0000", "%Y-%m-%d %H:%M:%S,%f%z") - EPOCH) // timedelta(microseconds=1)


def as_table(lines: Iterable[tuple[int, str, int, str]]) -> pa.Table:
    """Make a table of log lines from tuples (broker, file, line number, text)."""
    rows = [(*line[:3], stamp_us(line[3]), line[3]) for line in lines]
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5, schema=LINES)


def of_folder(folder: Path) -> pa.Table:
    """Read the lines of every server.log below a folder."""
    return as_table(
        (int(path.parent.name[-1]), f"{path.parent.name}/{path.name}", number, line)
        for path in sorted(folder.glob("*/server.log"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
    )


def of_brokers(**logs: Sequence[tuple[float, str]]) -> pa.Table:
    """Lines by broker (``b1``, ``b2``, ...), each as (seconds after the start, text without time)."""
    return as_table(
        (int(broker[1:]), f"{broker}/server.log", number, f"[{time_of(at)}] INFO {text} (kafka.cluster.Partition)")
        for broker, lines in logs.items()
        for number, (at, text) in enumerate(lines, 1)
    )


def time_of(seconds: float) -> str:
    """Time that is ``seconds`` after `START`, as log4j prints it in Kafka's default layout."""
    return f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S,%f}"[:-3]


def epoch_ms(seconds: float) -> int:
    """Milliseconds since 1970 at ``seconds`` after `START`, as Kafka prints lastCaughtUpTimeMs."""
    return (START - EPOCH) // timedelta(milliseconds=1) + round(seconds * 1000)


@cache
def _sql() -> ArrowSql:
    return log_sql()


def found_in(lines: pa.Table) -> FoundLines:
    """Find shrinks and other evidence in lines of server.log and state-change.log."""
    return find_lines(_sql(), lines)


def evidence_table(lines: pa.Table, cluster_id: str) -> pa.Table:
    """Rows of table shrink_evidence, from lines of server.log and state-change.log."""
    return evidence_rows(found_in(lines), cluster_id)

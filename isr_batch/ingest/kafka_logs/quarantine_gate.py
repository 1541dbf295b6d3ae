"""Raise an error if too many log lines are refused. `run` checks this after its ingest, `look` without an ingest."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import QualityGateError
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.lines import ranges_of
from isr_batch.ingest.folder.log_folder import KINDS, REQUEST, LogFolder
from isr_batch.ingest.kafka_logs.lines_of_interest import read_lines_of_interest
from isr_batch.ingest.kafka_logs.quarantine import REFUSED_REQUESTS, ROWS, refused_lines
from isr_batch.ingest.kafka_logs.read import survey_logs
from isr_batch.ingest.log_files.content import text_bytes
from isr_batch.ingest.requests.request_log import REFUSED, REQUESTS, read_requests_of_ranges
from isr_batch.lake import sizes
from isr_batch.phrases import count_of

_SHOWN: Final = 300
"""Maximum number of characters of a refused line that an error message quotes."""


def require_few_refused(read: int, refused: int, rows: Sequence[Mapping[str, Any]], most: float) -> None:
    """Raise an error if too large a share of lines was refused.

    Parameters
    ----------
    read, refused : int
        Number of lines that were read, and number of these that were refused.
    rows : sequence of mapping
        Rows of quarantine: source_file, source_line, reason, detail, raw, rows_kept.
    most : float
        The largest share of lines that may be refused, from 0 to 1.

    Raises
    ------
    QualityGateError
        If the share is larger. The message shows the most frequent reason and the first line that was refused for it.
    """
    ratio = refused / max(read, 1)
    if ratio <= most:
        return
    lines = sorted(
        (row for row in rows if not row["rows_kept"] and row["source_line"] is not None),
        key=lambda row: (row["source_file"], row["source_line"]),
    )
    reasons = Counter(row["reason"] for row in lines)
    reason, times = reasons.most_common(1)[0] if lines else ("rows that no table accepts", 0)
    first = next((row for row in lines if row["reason"] == reason), None)
    text = (first["raw"] or first["detail"] or "")[:_SHOWN] if first else ""
    where = (
        f" ({count_of(times, 'line')}), first {first['source_file']}:{first['source_line']} ({text})" if first else ""
    )
    raise QualityGateError(
        f"{refused} of {read} lines or rows are in quarantine ({ratio:.2%}, the limit is {most:.2%}): {reason}{where}",
        "compare that line with those in docs/getting-logs.md. If a program has shortened or rewritten it, copy the "
        "broker's own file; or allow more with ingest.max_quarantine_ratio. Table quarantine has all of them",
    )


def require_few_refused_in_folder(folder: Path, found: LogFolder, most: float) -> str | None:
    """Parse all lines as an ingest does, without writing. Raise an error if too large a share would be refused.

    Returns
    -------
    str or None
        A warning that the logs are too large to be checked here; None if they were checked.

    Raises
    ------
    QualityGateError
        If the share of refused lines is larger than ``most`` (`require_few_refused`).
    """
    if text_bytes(folder) > sizes.LOG_BYTES:
        return f"The logs have more than {sizes.LOG_BYTES >> 20:,} MiB: only `run` counts the lines that it refuses."
    with log_sql() as sql:
        engine = Here(sql)
        surveyed = survey_logs(engine, folder, listed=found)
        requests = engine.over(ranges_of(surveyed.of_kind(REQUEST)), _refused_requests_of_ranges, REQUESTS)
        others = refused_lines(sql, read_lines_of_interest(engine, sql, surveyed))
        rows = [*engine.sql(requests, *REFUSED_REQUESTS).to_pylist(), *others.select(ROWS.names).to_pylist()]
    read = sum(file.held.lines for file in surveyed.files if file.held and file.kind in KINDS)
    refused = sum(row["source_line"] is not None and not row["rows_kept"] for row in rows)
    require_few_refused(read, refused, rows, most)
    return None


def _refused_requests_of_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse ranges of request logs, and yield the refused lines. The batches are rows of `ranges_of`."""
    for parsed in read_requests_of_ranges(batches):
        yield parsed.filter(pc.equal(parsed["kind"], REFUSED))

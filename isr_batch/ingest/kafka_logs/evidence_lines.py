"""Find the lines of server.log and state-change.log from which table shrink_evidence is derived."""

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE
from isr_batch.evidence.find_lines import LINES, find_lines
from isr_batch.evidence.lines import FoundLines
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.lake.arrow_sql import ArrowSql


def find_evidence(sql: ArrowSql, read: LinesOfInterest, every: LinesOfInterest | None = None) -> FoundLines:
    """Return the lines that show why replicas were dropped from the ISR. Refused lines are ignored.

    Parameters
    ----------
    sql : ArrowSql
    read : LinesOfInterest
        Lines of interest in the folder's logs.
    every : LinesOfInterest, optional
        These lines together with the stored lines of earlier logs. By default, only ``read`` is searched.
    """
    lines = [
        table.filter(pc.is_valid(table["message"])).select(LINES.names).cast(LINES)
        for table in ((every or read).server, (every or read).state_changes)
    ]
    spans = [table.group_by("broker_id").aggregate([("stamp_us", "min"), ("stamp_us", "max")]) for table in lines]
    span_us: dict[int, tuple[int, int]] = {}
    for broker_id, first_us, last_us in (
        *((row["broker_id"], row["stamp_us_min"], row["stamp_us_max"]) for rows in spans for row in rows.to_pylist()),
        *((file["broker_id"], file["first_us"], file["last_us"]) for file in read.files.to_pylist()
          if file["kind"] in (SERVER, STATE_CHANGE)),
    ):  # fmt: skip
        _widen_evidence_span(span_us, broker_id, first_us, last_us)
    found = find_lines(sql, pa.concat_tables(lines), span_us)
    found.settings |= read.settings
    found.server_us = {}
    for file in (every or read).files.to_pylist():
        if file["kind"] == SERVER and file["informs"]:
            _widen_evidence_span(found.server_us, file["broker_id"], file["first_us"], file["last_us"])
    return found


def _widen_evidence_span(
    spans_us: dict[int, tuple[int, int]], broker_id: int, first_us: int | None, last_us: int | None
) -> None:
    """Extend a broker's period in ``spans_us``, in place, so that it includes the given times.

    If one is None, do nothing.
    """
    if first_us is None or last_us is None:
        return
    first, last = spans_us.get(broker_id, (first_us, last_us))
    spans_us[broker_id] = min(first, first_us), max(last, last_us)

"""The lines of server.log and state-change.log that are evidence about shrinks: those that the tables are made of."""

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.evidence.line_forms import LINES, find_line_forms
from isr_batch.evidence.lines import FoundLines
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.ingest.log_files.kinds import SERVER, STATE_CHANGE


def find_evidence(read: LinesOfInterest) -> FoundLines:
    """Find the evidence in what an ingest has read; lines that it has refused are none."""
    lines = [
        table.filter(pc.is_valid(table["message"])).select(LINES.names).cast(LINES)
        for table in (read.server, read.state_changes)
    ]
    span_us: dict[int, tuple[int, int]] = {}
    for file in read.files.to_pylist():
        if file["kind"] in (SERVER, STATE_CHANGE) and file["first_us"] is not None:
            first_us, last_us = span_us.get(file["broker_id"], (file["first_us"], file["last_us"]))
            span_us[file["broker_id"]] = min(first_us, file["first_us"]), max(last_us, file["last_us"])
    found = find_line_forms(pa.concat_tables(lines), span_us)
    found.settings |= read.settings
    found.server_us = {}
    for file in read.files.to_pylist():
        if file["kind"] == SERVER and file["informs"] and file["first_us"] is not None:
            first_us, last_us = found.server_us.get(file["broker_id"], (file["first_us"], file["last_us"]))
            found.server_us[file["broker_id"]] = min(first_us, file["first_us"]), max(last_us, file["last_us"])
    return found

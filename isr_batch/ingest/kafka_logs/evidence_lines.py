"""Read the lines of server.log and state-change.log that are evidence about shrinks, without Spark."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.evidence.forms import LINES, OF_INTEREST
from isr_batch.ingest.kafka_logs.lines import lines_of_file, selection_of
from isr_batch.ingest.kafka_logs.log_folder import SERVER, STATE_CHANGE, LogFile

_STAMP = r"^\[(?P<second>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})[,.](?P<ms>\d{3})\]"


def evidence_lines(files: Iterable[LogFile]) -> pa.Table:
    """Read the lines of interest, and the first and last line with a time of each file.

    Parameters
    ----------
    files : iterable of LogFile
        Files of other logs are passed over.

    Returns
    -------
    pa.Table
        Columns of `isr_batch.evidence.forms.LINES`.
    """
    tables = [LINES.empty_table()]
    for file in files:
        if file.kind in (SERVER, STATE_CHANGE) and file.broker_id is not None:
            tables += _of_file(file)
    return pa.concat_tables(tables)


def _of_file(file: LogFile) -> Iterable[pa.Table]:
    for batch in lines_of_file(file.path, file.name, file.broker_id, selected=selection_of(file)):
        text = batch["value"]
        stamped = pc.fill_null(pc.starts_with(text, "["), False)
        first, last = pc.index(stamped, True).as_py(), len(text) - 1 - pc.index(stamped[::-1], True).as_py()
        numbers = pa.array(range(len(text)))
        wanted = pc.fill_null(pc.match_substring_regex(text, OF_INTEREST), False)
        ends = pc.is_in(numbers, pa.array([first, last], pa.int64()))
        kept = batch.filter(pc.or_(wanted, pc.and_(stamped, ends)))
        yield pa.table(
            [kept["broker_id"], kept["source_file"], kept["source_line"], _stamps_us(kept["value"]), kept["value"]],
            schema=LINES,
        )


def _stamps_us(text: pa.Array) -> pa.Array:
    """Read the times; null where a line has none."""
    parts = pc.extract_regex(text, _STAMP)
    seconds = pc.strptime(pc.struct_field(parts, "second"), "%Y-%m-%d %H:%M:%S", "us", error_is_null=True)
    ms = pc.cast(pc.struct_field(parts, "ms"), pa.int64())
    return pc.add(seconds.cast(pa.int64()), pc.multiply(ms, 1000))

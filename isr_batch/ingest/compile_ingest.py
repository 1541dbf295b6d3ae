"""Compile the functions of an ingest. `make setup` does this; without it, the first ingest compiles them.

``python -m isr_batch.ingest.compile_ingest``
"""

import pyarrow as pa

from isr_batch.broker_lines.kinds import REQUEST, LogKindFinder
from isr_batch.ingest.folder.lines import LINES
from isr_batch.ingest.requests.request_log import parse_requests
from udfs.request_log import unpacked


def compile_ingest() -> None:
    """Read zero lines, so that the functions are compiled for the argument types of an ingest."""
    LogKindFinder(REQUEST).all_requests(b"")
    unpacked.unpacked_fetches(parse_requests(pa.RecordBatch.from_pylist([], LINES)).column("partitions"))


if __name__ == "__main__":
    compile_ingest()

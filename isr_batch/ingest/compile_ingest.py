"""Compile the numba functions of an ingest ahead of time (`make setup`), so that the first ingest need not do so.

``python -m isr_batch.ingest.compile_ingest``
"""

import pyarrow as pa

from isr_batch.broker_lines.kinds import REQUEST, LogKindFinder
from isr_batch.ingest.engine.kernels import load_kernels
from isr_batch.ingest.folder.lines import LINES
from isr_batch.ingest.requests.request_log import REQUESTS, parse_requests
from udfs.batches.partitions_read import REQUEST_COLUMNS, partitions_read
from udfs.request_log import unpacked


def compile_ingest() -> None:
    """Compile the numba functions of an ingest by calling each with minimal input."""
    load_kernels()
    LogKindFinder(REQUEST).all_requests(b"")
    unpacked.unpacked_fetches(parse_requests(pa.RecordBatch.from_pylist([], LINES)).column("partitions"))
    types = {field.name: field.type for field in REQUESTS}
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in REQUEST_COLUMNS])
    fetch = dict.fromkeys(REQUEST_COLUMNS, 0) | {"source_file": "", "partitions": None}
    list(partitions_read(iter([pa.RecordBatch.from_pylist([fetch], schema)])))


if __name__ == "__main__":
    compile_ingest()

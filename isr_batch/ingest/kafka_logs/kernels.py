"""The compiled functions of an ingest, loaded from disk in each process that calls them.

``python -m isr_batch.ingest.kafka_logs.kernels`` compiles them, which the first ingest would else do (`make setup`).
"""

from functools import lru_cache

import pyarrow as pa

from isr_batch.numba_cache import keep_compiled
from udfs.kernel.fetch_sessions import read_session_partitions
from udfs.request_log import cut, pieces, requests, unpacked


@lru_cache(maxsize=1)
def load_kernels() -> None:
    """Let this process load their machine code, and save what it compiles."""
    entries = (
        cut.count_requests, cut.cut_lines, requests.read_requests_into_columns, pieces.count_pieces,
        pieces.unpack_pieces,
        read_session_partitions,
    )  # fmt: skip
    keep_compiled(entries)


def compile_ingest() -> None:
    """Read zero lines, so that the functions are compiled for the argument types of an ingest."""
    from isr_batch.ingest.kafka_logs.lines import LINES
    from isr_batch.ingest.kafka_logs.request_log import parse_requests
    from isr_batch.ingest.log_files.kinds import REQUEST, LogKindFinder

    LogKindFinder(REQUEST).all_requests(b"")
    unpacked.unpacked_fetches(parse_requests(pa.RecordBatch.from_pylist([], LINES)).column("partitions"))


if __name__ == "__main__":
    compile_ingest()

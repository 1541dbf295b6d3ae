"""The compiled functions of an ingest, loaded from disk in each process that calls them.

``python -m isr_batch.ingest.kafka_logs.kernels`` compiles them, which the first ingest would else do (`make setup`).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import pyarrow as pa

from isr_batch.compiled import digest_of, keep_compiled
from udfs.kernel.fetch_sessions import read_partitions
from udfs.request_log import cut, pieces, requests, unpacked

OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@lru_cache(maxsize=1)
def load_kernels() -> None:
    """Let this process load their machine code, and save what it compiles."""
    keep_compiled((cut.cut_lines, requests.read_requests, pieces.count_pieces, pieces.unpack), digest_of("request_log"))
    keep_compiled((read_partitions,), digest_of())


def with_kernels(function: OfBatches) -> OfBatches:
    """Make a function for `mapInArrow` that loads them first."""
    return partial(_with_kernels, function)


def _with_kernels(function: OfBatches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    load_kernels()
    return function(batches)


def compile_ingest() -> None:
    """Read no lines, so that the functions are compiled for what an ingest gives them."""
    from isr_batch.ingest.kafka_logs.lines import LINES
    from isr_batch.ingest.kafka_logs.request_log import parse_requests

    unpacked.fetches(parse_requests(pa.RecordBatch.from_pylist([], LINES)).column("partitions"))


if __name__ == "__main__":
    compile_ingest()

"""Load the numba functions of an ingest from disk, in each process that calls them.

`isr_batch.ingest.compile_ingest` compiles them (`make setup`). If that module has not run, the first ingest compiles
them.
"""

import gc
from functools import lru_cache

from isr_batch.numba_cache import keep_compiled_by_numba
from udfs.kernel.fetch_sessions import read_session_partitions
from udfs.request_log import cut, pieces, requests

ENTRIES = (
    cut.count_requests, cut.cut_lines, requests.read_requests_into_columns, pieces.count_pieces, pieces.unpack_pieces,
    read_session_partitions,
)  # fmt: skip


@lru_cache(maxsize=1)
def load_kernels() -> None:
    """Load the machine code of `ENTRIES` from disk into this process.

    If it is not there, numba compiles and saves it.
    """
    keep_compiled_by_numba(ENTRIES)


def begin_task() -> None:
    """Load the kernels in a Spark task, and shorten the garbage collection that PySpark does after the task.

    A collection visits all objects of all modules, which takes 60 ms, and an ingest has tens of tasks. So all
    objects that exist now are exempted from collections. They include no garbage, as it was collected after the
    worker's previous task.
    """
    load_kernels()
    gc.freeze()

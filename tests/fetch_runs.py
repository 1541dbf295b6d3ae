"""Take runs of identical fetches (several in one row) apart, independently of the product."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

OWN = ("arrival_us", "handled_us", "processed_us", "released_us", "completed_us", "source_line")


def singly(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield one row per fetch from the batches of `udfs.batches.partitions_read.partitions_read`."""
    for batch in batches:
        for row in batch.to_pylist():
            numbers = [0] * len(OWN) + (row["later_by"] or [])
            assert len(numbers) == len(OWN) * row["run_length"]
            for n in range(row["run_length"]):
                row |= {name: row[name] + more for name, more in zip(OWN, numbers[len(OWN) * n :], strict=False)}
                yield dict(row)

"""Log files as lines, with their numbers: a task a file, a block at a time."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from isr_batch.kafka_logs.files import LogFile

BLOCK_BYTES = 4 << 20

LINES = "broker_id INT, source_file STRING, source_line BIGINT, value STRING, problem STRING, detail STRING"
"""A line, or (``problem`` not null, the line null) what is wrong with the whole file."""

_SCHEMA = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("value", pa.string()),
    ("problem", pa.string()), ("detail", pa.string()),
])  # fmt: skip


def read_lines(spark: SparkSession, files: list[LogFile]) -> DataFrame:
    """Read the lines of all files; columns as in `LINES`.

    A file that ends early or is not text gives the lines before that, and a row with ``problem``.
    """
    if not files:
        return spark.createDataFrame([], LINES)
    listed = spark.createDataFrame(
        [(number, file.broker_id, file.name, file.path) for number, file in enumerate(files)],
        "number INT, broker_id INT, name STRING, path STRING",
    )
    return listed.repartitionById(len(files), "number").mapInArrow(_lines_of_files, LINES)


def _lines_of_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.to_pylist():
            yield from lines_of_file(file["path"], file["name"], file["broker_id"])


def lines_of_file(
    path: str, name: str, broker_id: int | None, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Give the lines of one file, numbered from 1, and a row for what is wrong with it."""
    number = 1
    blocks = _Blocks(path, block_bytes)
    for block in blocks:
        values = pc.split_pattern(pa.array([block.decode("utf-8", "replace")]), "\n").flatten()
        numbers = pa.array(np.arange(number, number + len(values)))
        yield _batch(broker_id, name, numbers, values)
        number += len(values)
    if blocks.problem:
        nothing = pa.nulls(1, pa.int64()), pa.nulls(1, pa.string())
        yield _batch(broker_id, name, *nothing, pa.array([blocks.problem]), pa.array([blocks.detail], pa.string()))


def _batch(broker_id: int | None, name: str, *columns: pa.Array) -> pa.RecordBatch:
    """Complete a batch in the order of `LINES`; problem and detail may be left out."""
    rows = len(columns[0])
    same = pa.repeat(pa.scalar(broker_id, pa.int32()), rows), pa.repeat(pa.scalar(name), rows)
    missing = [pa.nulls(rows, pa.string())] * (len(_SCHEMA) - len(same) - len(columns))
    return pa.RecordBatch.from_arrays([*same, *columns, *missing], schema=_SCHEMA)


class _Blocks:
    """Whole lines of a file, about a block at a time, without the newline of the last; then what went wrong."""

    def __init__(self, path: str, block_bytes: int) -> None:
        self.path = path
        self.block_bytes = block_bytes
        self.problem: str | None = None
        self.detail: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        pending = bytearray()
        size = 0
        for chunk in self._chunks():
            if not size and b"\0" in chunk:
                self.problem, self.detail = "binary file", "a zero byte near its start"
                return
            size += len(chunk)
            pending += chunk
            if len(pending) >= self.block_bytes and (cut := pending.rfind(b"\n")) >= 0:
                yield bytes(pending[:cut])
                del pending[: cut + 1]
        if pending.endswith(b"\n"):
            del pending[-1:]
            yield bytes(pending)
        elif pending:
            yield bytes(pending)
        elif not size and not self.problem:
            self.problem, self.detail = "empty file", None

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self._open() as stream:
                # read1 hands over what a damaged file still gave before it raises; read would lose it.
                while chunk := stream.read1(1 << 20):  # type: ignore[attr-defined]
                    yield chunk
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.problem, self.detail = "truncated or corrupt gzip file", str(error)
        except OSError as error:
            self.problem, self.detail = "unreadable file", error.strerror

    def _open(self) -> BinaryIO:
        # Both have read1, which no common type of the two has.
        return gzip.open(self.path) if self.path.endswith(".gz") else Path(self.path).open("rb")  # type: ignore[return-value]

"""Read log files as numbered lines: one task per compressed file or range of an uncompressed one, block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from isr_batch.ingest.kafka_logs.file_content import BadFileError, Fingerprint, chunks, fingerprint
from isr_batch.ingest.kafka_logs.log_folder import LogFile

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 8 << 20
"""A fetch of 4,000 partitions, as many as a broker may lead, is a line of 2 MB."""

HEAD_BYTES = 200
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

LINES = "broker_id INT, source_file STRING, source_line BIGINT, value STRING, problem STRING, detail STRING"
"""Columns of a line. ``problem`` says why a line, or (source_line null) a whole file, could not be read."""

_SCHEMA = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("value", pa.string()),
    ("problem", pa.string()), ("detail", pa.string()),
])  # fmt: skip
_LOOKED_AT = (
    "number INT, size_bytes BIGINT, content_bytes BIGINT, content_hash STRING, lines BIGINT, "
    "cut_offsets ARRAY<BIGINT>, cut_lines ARRAY<BIGINT>, beginnings ARRAY<STRING>"
)
_LOOKED_AT_SCHEMA = pa.schema([
    ("number", pa.int32()), ("size_bytes", pa.int64()), ("content_bytes", pa.int64()), ("content_hash", pa.string()),
    ("lines", pa.int64()), ("cut_offsets", pa.list_(pa.int64())), ("cut_lines", pa.list_(pa.int64())),
    ("beginnings", pa.list_(pa.string())),
])  # fmt: skip


class FileRange(NamedTuple):
    """A byte range of a file, from the start of one line to the end of another; ``end`` None is the end of the file."""

    start: int = 0
    end: int | None = None
    first_line: int = 1


WHOLE = FileRange()


def look_at(spark: SparkSession, files: list[LogFile], beginnings: list[list[int]]) -> list[LogFile]:
    """Compute the fingerprints of all files, each with hashes of the prefixes whose lengths are asked for."""
    if not files:
        return []
    listed = spark.createDataFrame(
        [(n, file.path, lengths) for n, (file, lengths) in enumerate(zip(files, beginnings, strict=True))],
        "number INT, path STRING, beginnings ARRAY<BIGINT>",
    )
    found = listed.repartitionById(len(files), "number").mapInArrow(_fingerprints, _LOOKED_AT).collect()
    of = {
        row["number"]: Fingerprint(
            row["size_bytes"], row["content_bytes"], row["content_hash"], row["lines"],
            tuple(zip(row["cut_offsets"], row["cut_lines"], strict=True)), frozenset(row["beginnings"]),
        )
        for row in found
    }  # fmt: skip
    return [replace(file, held=of[n]) for n, file in enumerate(files)]


def _fingerprints(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.to_pylist():
            held = fingerprint(file["path"], file["beginnings"])
            row = {
                "number": file["number"], "size_bytes": held.size_bytes, "content_bytes": held.content_bytes,
                "content_hash": held.content_hash, "lines": held.lines,
                "cut_offsets": [offset for offset, _ in held.cuts], "cut_lines": [line for _, line in held.cuts],
                "beginnings": sorted(held.beginnings),
            }  # fmt: skip
            yield pa.RecordBatch.from_pylist([row], schema=_LOOKED_AT_SCHEMA)


def read_lines(spark: SparkSession, files: list[LogFile]) -> DataFrame:
    """Read the lines of all files, up to the size in their fingerprints; columns as in `LINES`.

    A damaged or binary file yields the lines before the damage, and a row with ``problem``.
    """
    return of_ranges(spark, files, lines_of_ranges, LINES)


def of_ranges(
    spark: SparkSession,
    files: list[LogFile],
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: str,
) -> DataFrame:
    """Give what a function for `mapInArrow` makes of the files' ranges, which `lines_of_ranges` reads."""
    parts = [
        (number, file.broker_id, file.name, file.path, *part)
        for number, (file, part) in enumerate((file, part) for file in files for part in _ranges(file))
    ]
    if not parts:
        return spark.createDataFrame([], columns)
    listed = spark.createDataFrame(
        parts,
        "number INT, broker_id INT, name STRING, path STRING, start BIGINT, end BIGINT, first_line BIGINT",
    )
    return listed.repartitionById(len(parts), "number").mapInArrow(read, columns)


def _ranges(file: LogFile) -> Iterator[FileRange]:
    assert file.held is not None
    ends = [offset for offset, _ in file.held.cuts[1:]]
    for (offset, line), end in zip(file.held.cuts, [*ends, file.held.size_bytes], strict=True):
        yield FileRange(offset, end, line)


def lines_of_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the lines of ranges, as `of_ranges` lists them."""
    for batch in batches:
        for part in batch.to_pylist():
            yield from lines_of_file(
                part["path"], part["name"], part["broker_id"], FileRange(part["start"], part["end"], part["first_line"])
            )  # fmt: skip


@dataclass(frozen=True)
class LongLine:
    """A line above the size limit: its first bytes, and its length in bytes."""

    head: bytes
    size: int


def lines_of_file(
    path: str, name: str, broker_id: int | None, part: FileRange = WHOLE, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield the numbered lines of a file or of a range of it, and a row for each problem."""
    number = part.first_line
    try:
        for block in _whole_lines(chunks(path, part.start, part.end), block_bytes):
            if isinstance(block, LongLine):
                head = block.head.decode("utf-8", "replace").replace("\0", "\ufffd")
                detail = f"{block.size} bytes, begins with {head}"
                yield _problem(broker_id, name, number, "line too long", detail)
                number += 1
                continue
            values = _split(block.removeprefix(BYTE_ORDER_MARK) if number == 1 else block)
            yield _batch(broker_id, name, pa.array(np.arange(number, number + len(values))), values)
            number += len(values)
        if number == 1:
            yield _problem(broker_id, name, None, "empty file", None)
    except BadFileError as bad:
        yield _problem(broker_id, name, None, bad.reason, bad.detail)


def _split(block: bytes) -> pa.Array:
    values = pc.split_pattern(pa.array([block.decode("utf-8", "replace")]), "\n").flatten()
    return pc.utf8_rtrim(values, "\r") if b"\r" in block else values


def _problem(broker_id: int | None, name: str, line: int | None, problem: str, detail: str | None) -> pa.RecordBatch:
    number = pa.array([line], pa.int64())
    return _batch(
        broker_id, name, number, pa.nulls(1, pa.string()), pa.array([problem]), pa.array([detail], pa.string())
    )


def _batch(broker_id: int | None, name: str, *columns: pa.Array) -> pa.RecordBatch:
    """Complete a batch in the order of `LINES`; problem and detail may be left out."""
    rows = len(columns[0])
    same = pa.repeat(pa.scalar(broker_id, pa.int32()), rows), pa.repeat(pa.scalar(name), rows)
    missing = [pa.nulls(rows, pa.string())] * (len(_SCHEMA) - len(same) - len(columns))
    return pa.RecordBatch.from_arrays([*same, *columns, *missing], schema=_SCHEMA)


def _whole_lines(stream: Iterator[bytes], block_bytes: int) -> Iterator[bytes | LongLine]:
    """Split into blocks of whole lines, without the last newline; of a line that is too long only the head is kept.

    Raises
    ------
    BadFileError
        After all lines that came before the damage.
    """
    pending = bytearray()
    head, skipped = b"", 0  # of the long line that is being passed over
    bad: BadFileError | None = None
    try:
        for chunk in stream:
            pending += chunk
            if skipped or len(pending) > MAX_LINE_BYTES:
                cut = pending.find(b"\n")
                if cut < 0 or cut + skipped > MAX_LINE_BYTES:
                    head = head or bytes(pending[:HEAD_BYTES])
                    skipped += len(pending) if cut < 0 else cut
                    if cut < 0:
                        pending.clear()
                        continue
                    yield LongLine(head, skipped)
                    head, skipped = b"", 0
                    del pending[: cut + 1]
            if len(pending) >= block_bytes and (cut := pending.rfind(b"\n")) >= 0:
                yield bytes(pending[:cut])
                del pending[: cut + 1]
    except BadFileError as error:
        bad = error
    if skipped:
        yield LongLine(head, skipped)
    elif pending:
        yield bytes(pending.removesuffix(b"\n"))
    if bad:
        raise bad

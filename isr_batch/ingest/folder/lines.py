"""Read log files as numbered lines. An uncompressed file is divided into ranges, so that several tasks can read it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.kinds import BROKER_KINDS, REQUEST, Codes, LogKindFinder
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.folder.log_folder import LogFile, with_lines
from isr_batch.ingest.log_files.content import (
    Fingerprint,
    Fingerprinter,
    content_chunks,
    fingerprint,
)
from isr_batch.ingest.log_files.layout_converter import LayoutConverter, LinesInKafkasLayout
from isr_batch.ingest.log_files.layouts import KAFKAS_OWN, Layout
from isr_batch.ingest.log_files.limits import BadFileError
from udfs.arrow_types import arrow_columns

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 8 << 20
"""Longer lines are refused. A fetch of 4,000 partitions, the most that a broker should lead, is a line of 2 MB."""

HEAD_BYTES = 200
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

LINES = arrow_columns(
    "broker_id INT, source_file STRING, source_line BIGINT, value STRING, problem STRING, detail STRING"
)
"""Schema of lines. ``problem`` is the reason why a line could not be read. In the row for a whole file that could not
be read, ``source_line`` is null."""

_LOGGED = LINES.append(pa.field("log", pa.string()))
_FILES = arrow_columns(
    "number INT, path STRING, beginnings ARRAY<BIGINT>, layout STRING, default STRING, source STRING"
)
_LOOKED_AT = arrow_columns(
    "number INT, size_bytes BIGINT, content_bytes BIGINT, content_hash STRING, lines BIGINT, "
    "cut_offsets ARRAY<BIGINT>, cut_lines ARRAY<BIGINT>, beginnings ARRAY<STRING>, first_hashes ARRAY<BIGINT>, "
    "counts ARRAY<BIGINT>"
)
_PARTS = arrow_columns(
    "broker_id INT, name STRING, path STRING, start BIGINT, end BIGINT, first_line BIGINT, "
    "layout STRING, default STRING, kind STRING, alone BOOLEAN, source STRING, first BOOLEAN"
)


class FileRange(NamedTuple):
    """A byte range of a file that contains whole lines. If ``end`` is None, it extends to the end of the file."""

    start: int = 0
    end: int | None = None
    first_line: int = 1


WHOLE = FileRange()


class Selection(NamedTuple):
    """Which lines of a file to read, and the layout of the file.

    Attributes
    ----------
    layout : Layout
    default : str
        Kind of log of the lines that do not show theirs.
    kind : str or None
        Kind of log whose lines are read; None for all kinds.
    source : str or None
        Container or host whose lines are read; None for all lines.
    first : bool
        Whether to report problems of the whole file.
    """

    layout: Layout = KAFKAS_OWN
    default: str = REQUEST
    kind: str | None = None
    source: str | None = None
    first: bool = True


@dataclass(frozen=True)
class LongLine:
    """A line longer than MAX_LINE_BYTES, which is refused.

    Attributes
    ----------
    head : bytes
        The first HEAD_BYTES of the line.
    size : int
        Length of the line in bytes.
    number : int
        Line number.
    """

    head: bytes
    size: int
    number: int = 0


def fingerprint_files(engine: Engine, files: list[LogFile], beginnings: list[list[int]]) -> list[LogFile]:
    """Compute the fingerprints of files, and divide files with lines of several logs by kind of log.

    Parameters
    ----------
    engine : Engine
    files : list of LogFile
    beginnings : list of list of int
        For each file, lengths in bytes. The fingerprint contains a hash of the file's first bytes for each length.

    Returns
    -------
    list of LogFile
        The files with fingerprints. A file with lines of several logs is listed once per kind of log, with the number
        of lines of that kind.
    """
    if not files:
        return []
    listed = _table_of_lines(
        _FILES,
        [(n, file.path, lengths, file.layout.to_text(), file.default, file.source)
         for n, (file, lengths) in enumerate(zip(files, beginnings, strict=True))],
    )  # fmt: skip
    found = engine.collect(engine.over(listed, _fingerprints_of_files, _LOOKED_AT)).to_pylist()
    of = {
        row["number"]: Fingerprint(
            row["size_bytes"], row["content_bytes"], row["content_hash"], row["lines"],
            tuple(zip(row["cut_offsets"], row["cut_lines"], strict=True)), frozenset(row["beginnings"]),
            tuple(row["first_hashes"]),
        )
        for row in found
    }  # fmt: skip
    counted = {
        (files[row["number"]].path, files[row["number"]].source): Counter(
            dict(zip(BROKER_KINDS, row["counts"], strict=True))
        )
        for row in found if files[row["number"]].kind in BROKER_KINDS
    }  # fmt: skip
    return with_lines([replace(file, held=of[n]) for n, file in enumerate(files)], counted)


def _fingerprints_of_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.to_pylist():
            held, counts = count_lines(
                file["path"], file["beginnings"],
                Selection(Layout.from_text(file["layout"]), file["default"], None, file["source"]),
            )  # fmt: skip
            row = {
                "number": file["number"], "size_bytes": held.size_bytes, "content_bytes": held.content_bytes,
                "content_hash": held.content_hash, "lines": held.lines,
                "cut_offsets": [offset for offset, _ in held.cuts], "cut_lines": [line for _, line in held.cuts],
                "beginnings": sorted(held.beginnings), "first_hashes": held.first_hashes,
                "counts": [counts[kind] for kind in BROKER_KINDS],
            }  # fmt: skip
            yield pa.RecordBatch.from_pylist([row], schema=_LOOKED_AT)


def count_lines(path: str, beginnings: Sequence[int], selected: Selection) -> tuple[Fingerprint, Counter[str]]:
    """Return the fingerprint of a file and the number of its lines by kind of log, both computed in one pass."""
    taken = Fingerprinter(path, beginnings)
    counts: Counter[str] = Counter()
    if selected.default not in BROKER_KINDS:
        return fingerprint(path, beginnings), counts
    if selected.layout.unchanged and selected.source is None:
        found: Iterator[Codes | None] = _codes_of_blocks(
            _whole_lines(taken.watch(), BLOCK_BYTES), LogKindFinder(selected.default)
        )
    else:
        found = (codes for _, codes in _lines_of_stream(taken.watch(), selected, 1, BLOCK_BYTES, is_mixed=True))
    for codes in found:
        if codes is not None:
            numbers = np.bincount(codes, minlength=len(BROKER_KINDS)).tolist()
            counts.update(dict(zip(BROKER_KINDS, numbers, strict=True)))
    return taken.fingerprint(), counts


def _codes_of_blocks(blocks: Iterator[bytes | LongLine], kinds: LogKindFinder) -> Iterator[Codes]:
    try:
        for block in blocks:
            if isinstance(block, LongLine):
                yield kinds.codes(pa.array([block.head.decode("utf-8", "replace")]))
            else:
                codes = kinds.all_requests(block)
                yield codes if codes is not None else kinds.codes(_split_into_lines(block))
    except BadFileError:
        pass  # reported when the lines are read


def read_lines(engine: Engine, files: list[LogFile]) -> Rows:
    """Read the lines of files, with the columns of `LINES` and, as ``log``, the kind of log.

    Each file is read up to the size in its fingerprint, because the file may be growing. A damaged or binary file
    yields the lines before the damage, and a row that reports it in ``problem``.
    """
    return engine.over(ranges_of(files), lines_of_ranges, _LOGGED)


def ranges_of(files: list[LogFile]) -> pa.Table:
    """Divide files into ranges that separate tasks can read, as input for `lines_of_ranges`."""
    return _table_of_lines(_PARTS, [
        (file.broker_id, file.name, file.path, *part, file.layout.to_text(), file.default, file.kind, file.alone,
         file.source, file.first)
        for file in files for part in _ranges_of_file(file)
    ])  # fmt: skip


def _table_of_lines(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _ranges_of_file(file: LogFile) -> Iterator[FileRange]:
    """Yield the ranges of a file that separate tasks can read.

    A file in another layout than Kafka's has only one.
    """
    assert file.held is not None
    if not file.layout.unchanged:  # a line may be split into parts, or depend on the line before it
        yield FileRange(0, file.held.size_bytes)
        return
    ends = [offset for offset, _ in file.held.cuts[1:]]
    for (offset, line), end in zip(file.held.cuts, [*ends, file.held.size_bytes], strict=True):
        yield FileRange(offset, end, line)


def lines_of_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the lines in ranges of files, with the columns of `LINES` and ``log``.

    The batches are rows of `ranges_of`.
    """
    for batch in batches:
        for part in batch.to_pylist():
            selected = Selection(
                Layout.from_text(part["layout"]), part["default"], None if part["alone"] else part["kind"],
                part["source"], part["first"],
            )  # fmt: skip
            bounds = FileRange(part["start"], part["end"], part["first_line"])
            for lines in lines_of_file(part["path"], part["name"], part["broker_id"], bounds, selected=selected):
                log = pa.repeat(pa.scalar(part["kind"]), lines.num_rows)
                yield pa.RecordBatch.from_arrays([*lines.columns, log], names=[*lines.schema.names, "log"])


def lines_of_file(  # noqa: PLR0913 a file, and how it is read
    path: str,
    name: str,
    broker_id: int | None,
    part: FileRange = WHOLE,
    *,
    block_bytes: int = BLOCK_BYTES,
    selected: Selection = Selection(),  # noqa: B008 frozen
) -> Iterator[pa.RecordBatch]:
    """Yield the selected lines of a file or a range of it, in Kafka's own layout, and a row for each problem.

    The columns are those of `LINES`.
    """
    wanted = None if selected.kind is None else BROKER_KINDS.index(selected.kind)
    empty = part.first_line == 1
    stream = content_chunks(path, part.start, part.end)
    for found, codes in _lines_of_stream(stream, selected, part.first_line, block_bytes, is_mixed=wanted is not None):
        if isinstance(found, BadFileError):
            if selected.first:
                yield _line_with_problem(broker_id, name, None, found.reason, found.detail)
            empty = False
            continue
        empty = False
        if isinstance(found, LongLine):
            if codes is None or codes[0] == wanted:
                head = found.head.decode("utf-8", "replace").replace("\0", "\ufffd")
                detail = f"{found.size} bytes, begins with {head}"
                yield _line_with_problem(broker_id, name, found.number, "line too long", detail)
            continue
        values, numbers = found.values, pa.array(found.numbers)
        if wanted is not None and codes is not None and not (codes == wanted).all():
            mask = pa.array(codes == wanted)
            values, numbers = values.filter(mask), numbers.filter(mask)
        if len(values):
            yield _batch_of_lines(broker_id, name, numbers, values)
    if empty and selected.first:
        yield _line_with_problem(broker_id, name, None, "empty file", None)


def _lines_of_stream(
    stream: Iterator[bytes], selected: Selection, first_line: int, block_bytes: int, *, is_mixed: bool
) -> Iterator[tuple[LinesInKafkasLayout | LongLine | BadFileError, Codes | None]]:
    """Convert the selected lines of a stream to Kafka's own layout, and yield them in blocks.

    Yields
    ------
    LinesInKafkasLayout, LongLine or BadFileError
        A block of lines, a line that is too long, or, as the last element, the damage that stopped reading.
    array or None
        Code of the kind of log of each line; None unless ``is_mixed`` is true.
    """
    converter = LayoutConverter(selected.layout, selected.source)
    kinds = LogKindFinder(selected.default) if is_mixed else None
    number, bad = first_line, None

    def sort(lines: LinesInKafkasLayout) -> tuple[LinesInKafkasLayout, Codes | None]:
        """Return the lines and, if ``is_mixed`` is true, the code of the kind of log of each line."""
        return lines, kinds.codes(lines.values) if kinds else None

    try:
        for block in _whole_lines(stream, block_bytes):
            if isinstance(block, LongLine):
                mark = pa.array([block.head.decode("utf-8", "replace")])
                own = converter.convert(mark, np.array([number])).values  # empty if it is another source's line
                if len(own):
                    yield replace(block, number=number), kinds.codes(own) if kinds else None
                number += 1
                continue
            values = _split_into_lines(block.removeprefix(BYTE_ORDER_MARK) if number == 1 else block)
            numbers = np.arange(number, number + len(values))
            number += len(values)
            yield sort(converter.convert(values, numbers))
    except BadFileError as error:
        bad = error
    rest = converter.rest()
    if len(rest.values):
        yield sort(rest)
    if bad:
        yield bad, None


def _split_into_lines(block: bytes) -> pa.Array:
    text = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(block)], np.int32)), pa.py_buffer(block)]
    )
    try:
        whole = text.cast(pa.string())
    except pa.ArrowInvalid:  # some bytes are not UTF-8
        whole = pa.array([block.decode("utf-8", "replace")])
    values = pc.split_pattern(whole, "\n").flatten()
    return pc.utf8_rtrim(values, "\r") if b"\r" in block else values


def _line_with_problem(
    broker_id: int | None, name: str, line: int | None, problem: str, detail: str | None
) -> pa.RecordBatch:
    number = pa.array([line], pa.int64())
    return _batch_of_lines(
        broker_id, name, number, pa.nulls(1, pa.string()), pa.array([problem]), pa.array([detail], pa.string())
    )


def _batch_of_lines(broker_id: int | None, name: str, *columns: pa.Array) -> pa.RecordBatch:
    rows = len(columns[0])
    same = pa.repeat(pa.scalar(broker_id, pa.int32()), rows), pa.repeat(pa.scalar(name), rows)
    missing = [pa.nulls(rows, pa.string())] * (len(LINES) - len(same) - len(columns))
    return pa.RecordBatch.from_arrays([*same, *columns, *missing], schema=LINES)


def _whole_lines(stream: Iterator[bytes], block_bytes: int) -> Iterator[bytes | LongLine]:
    """Split a stream into blocks of whole lines, each without its last newline.

    Yield a line that is too long as `LongLine`.

    Raises
    ------
    BadFileError
        If the stream is damaged, after all lines before the damage have been yielded.
    """
    pending: list[bytes] = []  # joined only once per block, because copying costs as much as all else
    size = 0
    head, skipped = b"", 0  # of the line that is too long and being skipped
    bad: BadFileError | None = None
    try:
        for chunk in stream:
            pending.append(chunk)
            size += len(chunk)
            if skipped or size > MAX_LINE_BYTES:
                held = b"".join(pending)
                cut = held.find(b"\n")
                if cut < 0 or cut + skipped > MAX_LINE_BYTES:
                    head = head or held[:HEAD_BYTES]
                    skipped += size if cut < 0 else cut
                    if cut < 0:
                        pending, size = [], 0
                        continue
                    yield LongLine(head, skipped)
                    head, skipped = b"", 0
                    held = held[cut + 1 :]
                pending, size = [held], len(held)
            if size >= block_bytes and (cut := pending[-1].rfind(b"\n")) >= 0:
                last = pending.pop()
                yield b"".join([*pending, memoryview(last)[:cut]])
                pending, size = [last[cut + 1 :]], len(last) - cut - 1
    except BadFileError as error:
        bad = error
    if skipped:
        yield LongLine(head, skipped)
    elif size:
        yield b"".join(pending).removesuffix(b"\n")
    if bad:
        raise bad

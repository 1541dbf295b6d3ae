"""Parse request logs, which contain one line per completed request: JSON since Kafka 2.8, other text before.

All times are in microseconds since 1970. The timestamp of a line is the completion of the request. The other times are
computed from it by subtracting the logged durations.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.log_sql import RAW_CHARACTERS
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query
from isr_batch.ingest.engine.kernels import load_kernels
from isr_batch.ingest.folder import lines
from isr_batch.ingest.folder.log_folder import LogFile
from isr_batch.ingest.requests.leader_and_isr import LEADER_AND_ISR, are_leader_and_isr
from isr_batch.ingest.requests.request_log_text import request_text_as_json
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.batches.partitions_read import REQUEST_COLUMNS
from udfs.batches.sessions import INSTANTS
from udfs.request_log import cut, json_line
from udfs.request_log import requests as scan
from udfs.request_log.fields import FIRST_US, LAST_US, MARK, NULL
from udfs.request_log.unpacked import unescaped

FOLLOWER_FETCH, OTHER_FETCH, PRODUCE, OTHER = "follower fetch", "other fetch", "produce", "other"
BLANK, REFUSED, FILE = "blank", "refused", "file"

_LINE_KEY, _SAME_LINE = ("line_hash", "broker_id"), ("broker_id", "completed_us")
DUPLICATE = "duplicate line"
UNKNOWN_VERSION = "API version not known here"

REQUESTS = pa.schema([
    ("kind", pa.string()), ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()),
    *((name, pa.int64()) for name in INSTANTS),
    ("replica_id", pa.int32()), ("asked_session", pa.int32()), ("session_epoch", pa.int32()),
    ("given_session", pa.int32()), ("error_code", pa.int32()), ("api_version", pa.int32()),
    ("correlation_id", pa.int64()), ("client_id", pa.string()), ("acks", pa.int32()), ("partitions", pa.binary()),
    ("reason", pa.string()), ("detail", pa.string()), ("raw", pa.string()), ("line_hash", pa.int64()),
])  # fmt: skip
"""Schema of parsed lines of request logs. ``kind`` is one of the constants above. For requests, ``arrival_us <=
handled_us <= processed_us <= released_us <= completed_us``, and ``answered_us`` is the time at which the broker began
to send the response. ``partitions`` of follower fetches and produce requests is in the binary form of
`udfs.request_log.pieces`. ``reason``, ``detail`` and ``raw`` describe refused lines. For LeaderAndIsr requests, ``raw``
is the whole line. ``line_hash`` is the XXH64 hash of the line."""


def _request_columns(names: Sequence[str]) -> pa.Schema:
    return pa.schema([REQUESTS.field(name) for name in names])


_OUTCOMES = (
    FOLLOWER_FETCH, OTHER_FETCH, PRODUCE, OTHER, "no readable time stamp", "time out of range", "malformed JSON",
    "truncated line", "two requests in one line", "request without api key or durations", UNKNOWN_VERSION,
    "values out of range", "offset or partition out of range",
)  # fmt: skip
"""Possible outcomes of parsing a line. `udfs.request_log.requests` numbers them in this order."""

_NO_REQUEST, _BLANK, _TEXT, _LEADER_AND_ISR, _FILE, _PROBLEM = range(scan.OUTCOMES, scan.OUTCOMES + 6)
_REASONS = (*_OUTCOMES, "not a line of the request log", None, "text request of an unknown form", None, None, None)


Ints = npt.NDArray[np.int64]


def read_requests(engine: Engine, files: list[LogFile]) -> Rows:
    """Parse request logs. The result contains one row per line and per damaged file, with the columns of `REQUESTS`."""
    return engine.over(lines.ranges_of(files), read_requests_of_ranges, REQUESTS)


def read_requests_of_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse the lines in ranges of request logs, and yield them as rows with the columns of `REQUESTS`.

    The batches are rows of `isr_batch.ingest.folder.lines.ranges_of`.
    """
    for block in lines.lines_of_ranges(batches):
        yield parse_requests(block)


def parse_requests(block: pa.RecordBatch) -> pa.RecordBatch:
    """Parse each line of a block into a row with the columns of `REQUESTS`.

    Parameters
    ----------
    block : RecordBatch
        Lines, with the columns of `isr_batch.ingest.folder.lines.LINES`.
    """
    load_kernels()
    return _RequestBlock(block).rows()


def request_stamps_and_hashes(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the timestamp of each log line (null if it has none), and the XXH64 hash of each line, as two arrays.

    Timestamps are in microseconds since 1970.
    """
    load_kernels()
    found = cut.room_for_cut_lines(len(text))
    cut.cut_lines(*_bytes_of_lines(text), found)
    return _known_request_numbers(found.stamp_us), pa.array(found.line_hash)


class _RequestBlock:
    """A parsed block of lines. ``codes`` (int64) contains the outcome of each line, as an index into ``reasons``."""

    def __init__(self, block: pa.RecordBatch) -> None:
        self.block = block
        self.text, edges = _bytes_of_lines(block.column("value"))
        self.cut = cut.room_for_cut_lines(block.num_rows)
        cut.cut_lines(self.text, edges, self.cut)
        self.begins = np.where(self.cut.line_class == cut.JSON, self.cut.begin, -1)
        self.ends = edges[1:].astype(np.int64)
        self.codes = np.where(self.cut.line_class == cut.BLANK, _BLANK, _NO_REQUEST)
        self.reasons: list[str | None] = list(_REASONS)
        is_text = self.cut.line_class == cut.TEXT
        if is_text.any():
            self.text = np.frombuffer(self._with_texts_as_json(self.text.tobytes()), np.uint8)
        is_read = self.begins >= 0
        sizes = (self.ends - self.begins)[is_read]
        self.read = scan.room_for_requests(block.num_rows, int(sizes.sum()))
        room = json_line.room_for_json_line(int(sizes.max(initial=0)))
        scan.read_requests_into_columns(self.text, self.begins, self.ends, is_text, self.cut.stamp_us, room, self.read)
        self.codes[is_read] = self.read.outcome[is_read]
        unreadable = (self.codes == scan.MALFORMED) | (self.codes == scan.TRUNCATED)
        self.codes[is_text & is_read & unreadable] = _TEXT

    def _with_texts_as_json(self, whole: bytes) -> bytes:
        """Convert lines of releases before 2.8 to JSON. Return the block's bytes, ``whole``, followed by this JSON.

        ``begins`` and ``ends`` are changed so that the JSON is parsed instead of the lines.
        """
        parts, size = [whole], len(whole)
        for i in np.flatnonzero(self.cut.line_class == cut.TEXT):
            body = whole[self.cut.begin[i] : self.ends[i]]
            as_json, problem = request_text_as_json(body.decode())
            if problem is None:
                parts.append(as_json.encode() + (MARK if MARK in body else b""))
                self.begins[i], self.ends[i] = size, size + len(parts[-1])
                size += len(parts[-1])
            elif self.cut.stamp_us[i] == NULL:
                self.codes[i] = scan.NO_STAMP
            elif not FIRST_US <= self.cut.stamp_us[i] <= LAST_US:
                self.codes[i] = scan.TIME
            else:
                self.codes[i] = len(self.reasons)
                self.reasons.append(problem)
        return b"".join(parts)

    def rows(self) -> pa.RecordBatch:
        """Return the parsed rows, with the columns of `REQUESTS`."""
        block, out, value, problem = self.block, self.read, self.block.column("value"), self.block.column("problem")
        if problem.null_count < len(problem):
            of_file = np.asarray(pc.is_null(block.column("source_line")))
            self.codes = np.where(pc.is_valid(problem), np.where(of_file, _FILE, _PROBLEM), self.codes)
        others = np.flatnonzero(self.codes == scan.OTHER)
        self.codes[others[np.asarray(are_leader_and_isr(value.take(pa.array(others))))]] = _LEADER_AND_ISR
        kinds = [*_OUTCOMES[: scan.OTHER + 1], *[REFUSED] * (len(self.reasons) - scan.OTHER - 1)]
        kinds[_BLANK], kinds[_LEADER_AND_ISR], kinds[_FILE] = BLANK, LEADER_AND_ISR, FILE
        reasons = [*[None] * (scan.OTHER + 1), *self.reasons[scan.OTHER + 1 :]]
        code = pa.array(self.codes)
        unusable = np.isin(kinds, (BLANK, REFUSED, FILE))[self.codes]
        shown = (self.codes == _LEADER_AND_ISR) | np.isin(kinds, REFUSED)[self.codes]
        texts = value.filter(pa.array(shown))
        is_whole = pa.array(self.codes[shown] == _LEADER_AND_ISR)
        texts = pc.if_else(is_whole, texts, pc.utf8_slice_codeunits(texts, 0, RAW_CHARACTERS))
        version = np.where(self.codes == scan.VERSION, NULL, out.api_version)
        columns = {
            "kind": pa.array(kinds).take(code),
            **{name: block.column(name) for name in ("broker_id", "source_file", "source_line")},
            **{name: _known_request_numbers(getattr(out, name)) for name in INSTANTS},
            "replica_id": pa.array(_request_numbers_or(out.replica_id, -1)),
            "asked_session": _known_request_numbers(out.asked_session),
            "session_epoch": pa.array(_request_numbers_or(out.session_epoch, -1)),
            "given_session": _known_request_numbers(out.given_session),
            "error_code": pa.array(_request_numbers_or(out.error_code, 0)),
            "api_version": _known_request_numbers(version),
            "correlation_id": _known_request_numbers(out.correlation_id),
            "client_id": _client_ids_of_requests(self.text, out.client),
            "acks": _known_request_numbers(out.acks),
            "partitions": self._pieces(),
            "reason": pc.coalesce(problem, pa.array(reasons, pa.string()).take(code)),
            "detail": pc.coalesce(block.column("detail"), self._versions()),
            "raw": _scattered_values(texts, shown),
            "line_hash": pa.array(self.cut.line_hash, mask=unusable),
        }
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in REQUESTS], schema=REQUESTS)

    def _pieces(self) -> pa.Array:
        """Return ``partitions`` of each line; null unless it is a follower's fetch or a produce request."""
        edges = np.concatenate([[0], self.read.piece_end]).astype(np.int32)
        there = pa.array((self.codes == scan.FOLLOWER_FETCH) | (self.codes == scan.PRODUCE))
        # Copied, so that the larger array, which was allocated for all lines, can be freed.
        data = self.read.pieces[: edges[-1]].copy()
        buffers = [there.buffers()[1], pa.py_buffer(edges), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(self.codes), buffers)

    def _versions(self) -> pa.Array:
        """Return API and version, as text, for each request in an unsupported version; null for other lines."""
        unknown = self.codes == scan.VERSION
        pairs = zip(self.read.api_key[unknown], self.read.api_version[unknown], strict=True)
        texts = [f"API {key}, version {version}" for key, version in pairs]
        return _scattered_values(pa.array(texts, pa.string()), unknown)


def _bytes_of_lines(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the bytes of all strings, concatenated, and the offsets of their ends, preceded by 0. A null has no bytes.

    The array of bytes is always read-only, because numba would compile its functions again for a writable array.
    """
    _valid, edges, text = values.buffers()
    at = np.frombuffer(edges, np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(memoryview(text or b"").toreadonly(), np.uint8)
    return data[at[0] : at[-1]], at - at[0]


def _request_numbers_or(numbers: Ints, instead: int) -> Ints:
    """Replace missing numbers with ``instead``."""
    return np.where(numbers == NULL, instead, numbers)


def _known_request_numbers(numbers: Ints) -> pa.Array:
    """Convert numbers to an Arrow array. Missing numbers become null."""
    return pa.array(numbers, mask=numbers == NULL)


def _scattered_values(some: pa.Array, where: npt.NDArray[np.bool_]) -> pa.Array:
    """Return an array for all rows: the values in ``some`` for the rows in mask ``where``, null for other rows."""
    return some.take(pa.array(np.cumsum(where) - 1, mask=~where))


def _client_ids_of_requests(text: npt.NDArray[np.uint8], client: Ints) -> pa.Array:
    """Return the client id of each line; null if it has none. ``client`` contains its begin and end in ``text``."""
    there = client[:, 0] != NULL
    begins, ends = client[there].T
    edges = np.concatenate([[0], np.cumsum(ends - begins)])
    where = np.repeat(begins - edges[:-1], ends - begins) + np.arange(edges[-1])
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(text[where])]
    return _scattered_values(unescaped(pa.Array.from_buffers(pa.string(), len(begins), buffers)), there)


_FETCHED = _request_columns(
    [*(name for name in REQUEST_COLUMNS if name != "session"), "client_id", "asked_session", "given_session"]
)
FETCHES = Query(f"SELECT {', '.join(_FETCHED.names)} FROM rows WHERE kind = '{FOLLOWER_FETCH}'", _FETCHED)
"""Query that selects the followers' fetches in parsed request logs."""
HASHES = Query(
    f"SELECT {', '.join(('line_hash', *_SAME_LINE))} FROM rows WHERE line_hash IS NOT NULL",
    _request_columns(("line_hash", *_SAME_LINE)),
)
"""Query that selects the columns by which `refuse_duplicate_requests` recognises duplicates."""


def refuse_duplicate_requests(engine: Engine, requests: Rows, hashes: Rows) -> Rows | None:
    """Mark all but the first of equal lines as refused. Equal lines occur in overlapping copies, or with two appenders.

    Returns the changed rows of ``requests``.

    A line contains the connection, the correlation id and milliseconds. Lines with equal text therefore describe the
    same request.

    Parameters
    ----------
    engine : Engine
    requests : Rows
        Parsed request logs.
    hashes : Rows
        Result of the query `HASHES`.

    Returns
    -------
    Rows or None
        None if there are no duplicates.
    """
    repeated = engine.by_key(_LINE_KEY, _repeated_request_lines, _request_columns(_LINE_KEY), lines=hashes)
    if not engine.count(repeated):
        return None
    requests = engine.keep(requests)
    unhashed = engine.sql(requests, "SELECT * FROM rows WHERE line_hash IS NULL", REQUESTS)
    lines_ = engine.sql(requests, "SELECT * FROM rows WHERE line_hash IS NOT NULL", REQUESTS)
    return engine.union(unhashed, engine.by_key(_LINE_KEY, _refuse_copies_of_requests, REQUESTS, lines=lines_))


def _repeated_request_lines(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    same = ", ".join(("line_hash", *_SAME_LINE))
    return sql(f"SELECT line_hash, broker_id FROM lines GROUP BY {same} HAVING count(*) > 1", lines=lines)


def _refuse_copies_of_requests(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    return sql(
        f"""
        SELECT * EXCLUDE (place, first_file, first_line) REPLACE (
            CASE WHEN place > 1 THEN '{REFUSED}' ELSE kind END AS kind,
            CASE WHEN place > 1 THEN '{DUPLICATE}' ELSE reason END AS reason,
            CASE WHEN place > 1 THEN printf('as line %d of %s', first_line, first_file) ELSE detail END AS detail)
        FROM (
            SELECT *, row_number() OVER same AS place, first_value(source_file) OVER same AS first_file,
                first_value(source_line) OVER same AS first_line
            FROM lines
            WINDOW same AS (PARTITION BY {", ".join(("line_hash", *_SAME_LINE))} ORDER BY source_file, source_line))
        """,
        lines=lines,
    )

"""Find all partitions for which each fetch request read the log, by tracking fetch sessions over Arrow batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrow_types import arrow_columns, int64_array
from udfs.batches.fetch_runs import compressed_to_runs, requests_for_runs
from udfs.batches.sessions import Members, missing_session_requests, session_requests_in_turn, with_session_members
from udfs.kernel.fetch_sessions import (
    NEVER_FELL,
    NOT_ANSWERED,
    SessionCache,
    SessionFetches,
    SessionRequests,
    empty_session_cache,
    read_session_partitions,
    room_for_session_fetches,
)
from udfs.records import SENT_FROM_UNKNOWN
from udfs.request_log import unpacked

UNKNOWN_OFFSET = -1
"""Stands for the fetch offset of a partition that its session contained before the log began. The offset is unknown
until a request lists the partition."""

ROWS_OUT = 100_000

KEPT = (
    "broker_id", "replica_id", "arrival_us", "handled_us", "processed_us", "released_us", "completed_us", "source_file",
    "source_line",
)  # fmt: skip
"""Columns of a request that are copied to the row of each partition that the request read."""

REQUEST_COLUMNS = (*KEPT, "answered_us", "session", "session_epoch", "error_code", "partitions")
"""Input columns of `partitions_read`, which describe a fetch request."""

READ_SCHEMA = arrow_columns(
    "broker_id INT, replica_id INT, arrival_us BIGINT, handled_us BIGINT, processed_us BIGINT, released_us BIGINT, "
    "completed_us BIGINT, source_file STRING, source_line BIGINT, topic STRING, partition_id INT, "
    "leader_epoch INT, fetch_offset BIGINT, error_code INT, high_watermark BIGINT, records_size BIGINT, "
    "fell_from BIGINT, run_length INT, later_by ARRAY<INT>, last_handled_us BIGINT, last_read_us BIGINT, "
    "last_waited_us BIGINT, reason STRING, detail STRING"
)
"""Schema of the output of `partitions_read`: one row per partition that a request read, or per run of identical
fetches."""

Ints = npt.NDArray[np.int64]


class _PartitionNumbers:
    """Assigns the numbers 0, 1, 2, ... to partitions. A partition's number is its index in the kernel's arrays."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.keys: Ints = np.empty(0, np.int64)
        self._sorted: Ints = np.empty(0, np.int64)
        self._order: Ints = np.empty(0, np.int64)

    def key(self, topics: pa.Array, partitions_per_topic: Ints, partitions: Ints) -> Ints:
        """Return an int64 key per partition: the topic's number in the upper 32 bits, the partition id in the lower."""
        encoded = pc.dictionary_encode(topics)
        codes = np.array(
            [self.topics.setdefault(t, len(self.topics)) for t in encoded.dictionary.to_pylist()], np.int64
        )
        per_topic = codes[encoded.indices.to_numpy(zero_copy_only=False)] if len(topics) else np.empty(0, np.int64)
        return (np.repeat(per_topic, partitions_per_topic) << 32) | partitions

    def number(self, keys: Ints) -> Ints:
        """Return the partition number for each key. Partitions that have none get the next free numbers."""
        new = np.unique(keys[~self._known(keys)])
        if len(new):
            self.keys = np.concatenate([self.keys, new])
            self._order = np.argsort(self.keys, kind="stable")
            self._sorted = self.keys[self._order]
        return self._order[np.searchsorted(self._sorted, keys)]

    def _known(self, keys: Ints) -> npt.NDArray[np.bool_]:
        """Return for each key whether its partition already has a number."""
        if not len(self._sorted):
            return np.zeros(len(keys), np.bool_)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return self._sorted[place] == keys


def _starts_of_lists(lengths: Ints) -> Ints:
    """Return where each list begins in the concatenation of all lists, and where the last list ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _grown_session_cache(cache: SessionCache, partitions: int) -> SessionCache:
    """Return the cache itself if it has room for ``partitions`` partition numbers, else a copy in larger arrays."""
    room = len(cache.members)
    if partitions <= room:
        return cache
    larger = empty_session_cache(max(partitions, 2 * room))
    new: npt.NDArray[Any]
    old: npt.NDArray[Any]
    for new, old in zip(larger, cache, strict=True):
        new[: len(old)] = old
    return larger


class _SessionReader:
    """Finds the partitions that fetch requests read. It keeps the state of the current session between batches."""

    def __init__(self) -> None:
        self.numbers = _PartitionNumbers()
        self.cache = empty_session_cache(0)
        self.session: tuple[int, int] | None = None

    def requests(self, batch: pa.RecordBatch) -> SessionRequests:
        """Convert a batch of fetch requests to the kernel's arrays, with partitions as numbers."""
        listed, gone, answered = lists = unpacked.unpacked_fetches(batch.column("partitions"))
        numbers = self.numbers
        keys = [numbers.key(each.topics, each.per_topic, each.numbers[:, 0]) for each in lists]
        number = numbers.number(np.concatenate(keys))
        edges = np.cumsum([len(k) for k in keys])
        return SessionRequests(
            clear=self._clear(batch),
            skip=int64_array(batch.column("error_code")) != 0,
            listed_start=_starts_of_lists(listed.per_request),
            listed=number[: edges[0]],
            leader_epoch=listed.numbers[:, 1].astype(np.int32),
            fetch_offset=np.ascontiguousarray(listed.numbers[:, 2]),
            forgotten_start=_starts_of_lists(gone.per_request),
            forgotten=number[edges[0] : edges[1]],
            answered_start=_starts_of_lists(answered.per_request),
            answered=number[edges[1] :],
            error=answered.numbers[:, 1].astype(np.int32),
            high_watermark=np.ascontiguousarray(answered.numbers[:, 2]),
            records_size=np.ascontiguousarray(answered.numbers[:, 3]),
        )

    def _clear(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return for each request whether the state must be cleared first: at a full fetch, or at another session."""
        broker = int64_array(batch.column("broker_id"))
        session = int64_array(batch.column("session"))
        clear = int64_array(batch.column("session_epoch")) <= 0
        clear[1:] |= (broker[1:] != broker[:-1]) | (session[1:] != session[:-1])
        clear[0] |= self.session != (int(broker[0]), int(session[0]))
        self.session = (int(broker[-1]), int(session[-1]))
        return clear

    def read(self, batch: pa.RecordBatch, rows_out: int) -> Iterator[pa.RecordBatch]:
        """Yield one row per partition that the requests of a batch read, in batches of at most ``rows_out`` fetches."""
        requests = self.requests(batch)
        self.cache = _grown_session_cache(self.cache, len(self.numbers.keys))
        asked = requests_for_runs(batch)
        topics = pa.array(list(self.numbers.topics), pa.string())
        out = room_for_session_fetches(max(rows_out, len(self.numbers.keys)))
        first = 0
        while first < batch.num_rows:
            first, filled = read_session_partitions(first, requests, self.cache, out)
            rows = SessionFetches._make(column[:filled] for column in out)
            sent = (rows.fetch_offset == UNKNOWN_OFFSET) & (rows.error == 0) & (rows.records_size > 0)
            rows = rows._replace(error=np.where(sent, SENT_FROM_UNKNOWN, rows.error).astype(np.int32))
            runs = compressed_to_runs(rows, asked)
            rows = SessionFetches._make(column[runs.first] for column in rows)
            keys = self.numbers.keys[rows.partition]
            request = pa.array(rows.request)
            yield pa.RecordBatch.from_pydict(
                {name: batch.column(name).take(request) for name in KEPT}
                | {
                    "topic": topics.take(pa.array(keys >> 32)),
                    "partition_id": pa.array((keys & 0xFFFF_FFFF).astype(np.int32)),
                    "leader_epoch": pa.array(rows.leader_epoch),
                    "fetch_offset": pa.array(rows.fetch_offset),
                    "error_code": pa.array(rows.error),
                    "high_watermark": pa.array(rows.high_watermark, mask=rows.high_watermark == NOT_ANSWERED),
                    "records_size": pa.array(rows.records_size),
                    "fell_from": pa.array(rows.fell_from, mask=rows.fell_from == NEVER_FELL),
                }
                | {name: column for name, column in runs._asdict().items() if name != "first"}
                | {name: pa.nulls(len(keys), pa.string()) for name in ("reason", "detail")}
            )


def partitions_read(batches: Iterator[pa.RecordBatch], rows_out: int = ROWS_OUT) -> Iterator[pa.RecordBatch]:
    """Yield one row per partition that a fetch request read. Rows that differ only in time become one row.

    See ``udfs.batches.fetch_runs``.

    Parameters
    ----------
    batches : record batches of requests
        The columns of `REQUEST_COLUMNS`: ``session`` (int64), ``session_epoch``, ``error_code`` (int32), ``partitions``
        (binary, `udfs.request_log.pieces`). Requests of a session are adjacent, in order of session epoch; a session
        may continue in the next batch.
    rows_out : int
        Maximum number of fetches per batch.

    Yields
    ------
    record batches
        Columns as in `READ_SCHEMA`. ``error_code`` is the error of the partition in the response (-1 for a diverging
        epoch). ``high_watermark`` is null if the response does not list the partition. ``fell_from`` is as in
        `udfs.kernel.fetch_sessions.SessionFetches`, and null if the offset did not fall. ``last_read_us`` is when the
        leader last read its log for the last fetch of the run. ``last_waited_us`` is when the last fetch of the run
        that waited for data was handled, or null if none waited. ``reason`` and ``detail`` are null.
    """
    reader = _SessionReader()
    for batch in batches:
        if batch.num_rows:
            yield from reader.read(batch, rows_out)


def sessions_read(batches: Iterator[pa.RecordBatch], members: Members) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `partitions_read`, and one row, with a ``reason``, where requests of a session are missing.

    Parameters
    ----------
    batches : record batches of requests
        As for `partitions_read`. Their times are first corrected by `udfs.batches.sessions.session_requests_in_turn`.
    members : mapping
        For each session that began before these batches: the partitions that it contained by then. The session's first
        request in these batches reads them too, even if it does not list them.
    """
    reader = _SessionReader()
    for batch in session_requests_in_turn(batches):
        gaps = missing_session_requests(batch, members)
        if gaps.num_rows:
            yield _gaps_as_read(gaps)
        yield from reader.read(with_session_members(batch, members), ROWS_OUT)


def _gaps_as_read(gaps: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows about gaps with all columns of `READ_SCHEMA`, in which columns that the rows lack are null."""
    return pa.RecordBatch.from_pydict(
        {
            field.name: gaps.column(field.name)
            if field.name in gaps.schema.names
            else pa.nulls(gaps.num_rows, field.type)
            for field in READ_SCHEMA
        }
    )

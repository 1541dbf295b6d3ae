"""Prepare the requests of fetch sessions: correct times, find missing requests, add partitions from before the log."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrow_types import arrow_columns, int64_array
from udfs.request_log import unpacked

STRETCH_OF_SESSION = 1 << 32
"""Added to the id of a fetch session at each gap in the log, so that the session's requests after the gap belong to a
different session id. It is larger than any id that Kafka assigns."""

INSTANTS = ("arrival_us", "handled_us", "processed_us", "released_us", "answered_us", "completed_us")
_ORDER = ("broker_id", "session", "session_epoch")

FIRST_REQUESTS = arrow_columns(
    "broker_id INT, session BIGINT, session_epoch INT, error_code INT, replica_id INT, client_id STRING, "
    "handled_us BIGINT"
)
"""Schema of the output of `first_session_requests`: the first logged request of each fetch session."""

Held = Sequence[tuple[Sequence[str], str, Sequence[tuple[int, int, int]]]]
Members = Mapping[tuple[int, int], Held]
"""For each (broker id, session id), the partitions that the fetch session contained before the log began.

Each topic has one entry with its ids, its name, and its partitions. A partition is given as (id, leader epoch, offset);
the last two are those of its last fetch, or -1 if unknown."""

Ints = npt.NDArray[np.int64]


def session_requests_in_turn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column ``previous_epoch`` to the requests, and correct the times of requests that were logged late.

    ``previous_epoch`` is the session epoch of the session's previous request, or null. A session has one request in
    flight. So if a request seems to complete after the next request of its session arrived, its line was logged late,
    by at least the difference. All its times are moved back by that much. This is only done if the next request is in
    the same file, because the rows of a file must not depend on when other files are read.
    """
    before: pa.RecordBatch | None = None
    with_rows = (batch for batch in batches if batch.num_rows)
    for batch, after in pairwise(itertools.chain(with_rows, [None])):
        assert batch is not None
        yield _requests_in_turn(batch, before, after)
        before = batch


def _requests_in_turn(
    batch: pa.RecordBatch, before: pa.RecordBatch | None, after: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return one batch as `session_requests_in_turn` yields it, given the batches before and after it, if any."""
    around = pa.Table.from_batches(
        [*([before.slice(before.num_rows - 1)] if before else []), batch, *([after.slice(0, 1)] if after else [])]
    )
    first = 1 if before else 0
    here = slice(first, first + batch.num_rows)
    broker, session, epoch, arrival = (int64_array(around.column(name)) for name in (*_ORDER, "arrival_us"))
    goes_on = np.append((broker[1:] == broker[:-1]) & (session[1:] == session[:-1]), False)
    late = np.maximum(int64_array(batch.column("completed_us")) - np.append(arrival[1:], 0)[here], 0)
    late[~(goes_on & (session > 0) & _same_file_follows(around.column("source_file")))[here]] = 0
    begins = ~np.append(False, goes_on[:-1])[here]
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {name: pa.array(int64_array(columns[name]) - late) for name in INSTANTS}
    columns["previous_epoch"] = pa.array(np.append(0, epoch[:-1])[here], mask=begins)
    return pa.RecordBatch.from_pydict(columns)


def _same_file_follows(files: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return for each request whether the next request is from the same file; False for the last request."""
    names = files.combine_chunks()
    return np.append(np.asarray(pc.equal(names[1:], names[:-1])), False)


def first_session_requests(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the first logged request of each fetch session, with the columns of `FIRST_REQUESTS`."""
    for batch in session_requests_in_turn(batches):
        yield batch.filter(pc.is_null(batch.column("previous_epoch"))).select(FIRST_REQUESTS.names)


def missing_session_requests(batch: pa.RecordBatch, members: Members = MappingProxyType({})) -> pa.RecordBatch:
    """Return those requests of a batch for which the previous request of their session is missing from the log.

    The columns ``reason`` (the kind of gap) and ``detail`` (a text that names the session) are added. A session's first
    request is not returned if ``members`` shows that the request before it is in logs that were read earlier.
    """
    went_on = {key for key, held in members.items() if any(epoch >= 0 for *_, own in held for _, epoch, _ in own)}
    epoch, previous = int64_array(batch.column("session_epoch")), int64_array(batch.column("previous_epoch"))
    begins = np.asarray(pc.is_null(batch.column("previous_epoch")))
    served = (int64_array(batch.column("error_code")) == 0) & (epoch > 0)
    keys = zip(
        int64_array(batch.column("broker_id")).tolist(), int64_array(batch.column("session")).tolist(), strict=True
    )
    known = begins & np.array([bool(went_on) and key in went_on for key in keys], np.bool_)
    gap = np.flatnonzero(served & ~known & (begins | (epoch > previous + 1)))
    rows = batch.take(pa.array(gap))
    details = [
        f"session {session % STRETCH_OF_SESSION} of broker {broker} with replica {replica}: epoch {number} after {last}"
        for session, broker, replica, number, last in zip(
            *(rows.column(name).to_pylist() for name in ("session", "broker_id", "replica_id", "session_epoch")),
            pc.fill_null(rows.column("previous_epoch").cast(pa.string()), "none").to_pylist(), strict=True,
        )
    ]  # fmt: skip
    reasons = np.where(begins[gap], "fetch session began before the log", "gap in fetch session")
    columns = {name: rows.column(name) for name in rows.schema.names}
    return pa.RecordBatch.from_pydict(
        columns | {"reason": pa.array(reasons.tolist(), pa.string()), "detail": pa.array(details, pa.string())}
    )


def with_session_members(batch: pa.RecordBatch, members: Members) -> pa.RecordBatch:
    """Add to each session's first logged request the partitions that the session contained before the log began."""
    if not members:
        return batch
    broker, session = int64_array(batch.column("broker_id")), int64_array(batch.column("session"))
    pieces = None
    for row in np.flatnonzero(pc.is_null(batch.column("previous_epoch"))):
        held = members.get((int(broker[row]), int(session[row])))
        if held:
            pieces = pieces or batch.column("partitions").to_pylist()
            pieces[row] = _piece_with_held(pieces[row], held)
    if not pieces:
        return batch
    return batch.set_column(batch.schema.get_field_index("partitions"), "partitions", pa.array(pieces, pa.binary()))


def _piece_with_held(piece: bytes, held: Held) -> bytes:
    """Return a request's packed partitions with the partitions ``held``, from before the log began, added in front."""
    asked, gone, answered = unpacked.unpacked_fetches(pa.array([piece]))
    # All requests of a session identify topics by id, or all by name. A request without partitions shows neither.
    by_id = any(each.is_id.any() for each in (asked, gone, answered)) or not (len(asked.is_id) or len(answered.is_id))
    topics = [(ids[0] if by_id and ids else topic, partitions) for ids, topic, partitions in held]
    return unpacked.with_topics_in_front(piece, topics, by_id=by_id)

"""Group fetches and appends into chunks of one replica set each, for Spark's shuffle by replica set.

A replica set is a partition on one leader. A shuffle is expensive per row and cheap per byte. Therefore the task that
reads events first groups them by replica set, some hundred events per chunk. A chunk is one row, in which each column
is a binary with 8 bytes per event. The receiving task sorts the events of all chunks of a replica set at once.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.batches.fetch_runs import one_row_a_fetch
from udfs.batches.results import SET_COLUMNS
from udfs.batches.set_order import set_changes
from udfs.records import APPEND, FETCH, NOBODY_WAITS, ROW_ORDER, UNKNOWN

KEY = (*SET_COLUMNS, "leader_epoch")
COLUMNS_OF_FETCHES = {
    "time_us": "arrival_time", "replica_id": "replica_id", "offset": "fetch_offset", "code": "error_code",
    "leader_log_end_offset": "leader_log_end_offset", "handled_us": "handled_time", "processed_us": "processed_time",
    "released_us": "released_time", "until_us": "completed_time",
}  # fmt: skip
"""For each column of ``udfs.records.Rows``, the column of ``fetch_log`` that contains its value. Column ``later_by``
is read in addition."""
COLUMNS_OF_APPENDS = {"time_us": "append_time", "offset": "log_end_offset", "code": "acks"}
"""For each column of ``udfs.records.Rows``, the column of ``append_log`` that contains its value. An append without a
log end offset was refused."""

NUMBERS = tuple(COLUMNS_OF_FETCHES)
PIECES = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition_id", pa.int32()),
        ("leader_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("kind", pa.int64()),
        ("first_us", pa.int64()),
        *((name, pa.binary()) for name in NUMBERS),
    ]
)
CHUNK_ROWS = 1 << 18
"""Number of events that a task collects before it groups them into chunks."""
PIECE_ROWS = 1 << 10
"""Maximum number of events in a chunk. It keeps the batches of chunks that Spark transfers small."""
PIECE_US = 600_000_000
"""No chunk extends across a multiple of this time (ten minutes, in microseconds), so that few chunks overlap even if
the table is unsorted."""

Ints = npt.NDArray[np.int64]


def event_chunks_of_fetches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group single fetches into chunks by replica set. Rows that store a run of equal fetches are expanded first.

    Memory is bounded by CHUNK_ROWS and one batch.

    Parameters
    ----------
    batches : iterator of RecordBatch
        Rows of ``fetch_log`` in any order, with KEY, COLUMNS_OF_FETCHES and ``later_by``. Times may have any unit;
        strings may be dictionaries.

    Yields
    ------
    RecordBatch
        Unsorted chunks with the schema PIECES; one batch per CHUNK_ROWS fetches.
    """
    events = (_events_as_numbers(batch, COLUMNS_OF_FETCHES, {"later_by": pa.list_(pa.int32())}) for batch in batches)
    yield from _chunks_of_events(one_row_a_fetch(events), FETCH)


def event_chunks_of_appends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group the accepted appends of ``append_log`` into chunks by replica set.

    The input has KEY and COLUMNS_OF_APPENDS; the output has the schema PIECES.
    """
    yield from _chunks_of_events(
        (_events_as_numbers(_accepted_appends(batch), COLUMNS_OF_APPENDS, {}) for batch in batches), APPEND
    )


def _accepted_appends(appends: pa.RecordBatch) -> pa.RecordBatch:
    """Drop refused appends, and set unknown ``acks`` to NOBODY_WAITS."""
    taken = appends.filter(appends.column("log_end_offset").is_valid())
    acks = taken.column("acks").cast(pa.int64()).fill_null(int(NOBODY_WAITS))
    return taken.set_column(taken.schema.get_field_index("acks"), "acks", acks)


def _events_as_numbers(
    batch: pa.RecordBatch, columns: Mapping[str, str], more: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """Convert rows of ``fetch_log`` or ``append_log`` to int64 columns, named as in ``udfs.records.Rows``.

    ``columns`` maps these names to the columns of the input. The columns KEY and ``more`` (with types) are kept.
    """
    numbers = [
        _numbers_of_column(batch.column(columns[name])) if name in columns else pa.repeat(UNKNOWN, batch.num_rows)
        for name in NUMBERS
    ]
    keys = [_dictionary_key(batch.column(name)) for name in KEY]
    others = [batch.column(name).cast(kind) for name, kind in more.items()]
    return pa.RecordBatch.from_arrays([*keys, *numbers, *others], [*KEY, *NUMBERS, *more])


def _numbers_of_column(column: pa.Array) -> pa.Array:
    """Convert a column to int64; timestamps become microseconds since the epoch, and nulls become UNKNOWN (-1)."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).view(pa.int64())
    column = column.cast(pa.int64())
    return column.fill_null(int(UNKNOWN)) if column.null_count else column


def _dictionary_key(column: pa.Array) -> pa.Array:
    """Dictionary-encode a text column; return other columns unchanged."""
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def _chunks_of_events(events: Iterator[pa.RecordBatch], kind: np.int64) -> Iterator[pa.RecordBatch]:
    """Collect batches of events until there are CHUNK_ROWS events, then yield these as a batch of chunks."""
    waiting: list[pa.RecordBatch] = []
    for batch in events:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= CHUNK_ROWS:
            yield _brought_together(waiting, kind)
            waiting = []
    if any(batch.num_rows for batch in waiting):
        yield _brought_together(waiting, kind)


def _brought_together(batches: list[pa.RecordBatch], kind: np.int64) -> pa.RecordBatch:
    """Group the events in these batches into chunks by replica set. Within a chunk, events keep their order."""
    rows = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    numbers = {name: np.asarray(rows.column(name)) for name in NUMBERS}
    period = pa.array(numbers["time_us"] // PIECE_US)
    groups = _groups_of_events([*(rows.column(name).combine_chunks() for name in KEY), period])
    # Numbers of 16 bits, which numpy sorts in a quarter of the time.
    order = np.argsort(groups.astype(np.uint16) if groups.max() < 1 << 16 else groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    starts = np.concatenate(
        [
            np.arange(first, end, PIECE_ROWS)
            for first, end in zip(begins, np.append(begins[1:], len(order)), strict=True)
        ]
    )
    edges = pa.py_buffer((np.append(starts, len(order)) * 8).astype(np.int32))
    keys = rows.select(KEY).take(pa.array(order[starts])).combine_chunks()
    return pa.RecordBatch.from_arrays(
        [
            *(keys.column(name).combine_chunks().cast(PIECES.field(name).type) for name in KEY),
            pa.repeat(kind, len(starts)),
            pa.array(np.minimum.reduceat(numbers["time_us"][order], starts)),
            *(
                pa.Array.from_buffers(pa.binary(), len(starts), [None, edges, pa.py_buffer(column[order])])
                for column in numbers.values()
            ),
        ],
        schema=PIECES,
    )


def _groups_of_events(columns: list[pa.Array]) -> Ints:
    """Number the distinct combinations of values in these columns from 0, and return the number for each row."""
    groups = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = np.asarray(column.indices if pa.types.is_dictionary(column.type) else column).astype(np.int64)
        values -= values.min()
        if values.any():
            # Both numbers fit in 32 bits: the columns are INT, and no timestamp is 2**32 periods away.
            both = pa.array(groups << 32 | values)
            groups = np.asarray(pc.dictionary_encode(both).indices).astype(np.int64)
    return groups


class Events(NamedTuple):
    """Unpacked fetches and appends of several replica sets, in arrays with one entry per event."""

    sets: pa.RecordBatch
    """One row per replica set, with SET_COLUMNS. ``columns["set"]`` has indices of these rows."""
    columns: dict[str, Ints]
    """Int64 arrays with one value per event: ``set`` (row of ``sets``), ``leader_epoch``, and the columns of
    ``udfs.records.Rows``."""

    def part(self, first: int, end: int) -> "Events":
        """Return the events from ``first`` to ``end`` (exclusive) without copying. ``sets`` stays complete.

        So the indices of ``sets`` in the column ``set`` remain valid.
        """
        return Events(self.sets, {name: column[first:end] for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(self.columns["set"])


def events_of(pieces: pa.RecordBatch) -> Events:
    """Unpack the events that ``pieces`` contains. It has the schema PIECES, and is sorted by replica set."""
    new = set_changes(pieces, SET_COLUMNS)
    new[:1] = True
    of_piece = {
        "set": np.cumsum(new) - 1,
        "leader_epoch": np.asarray(pieces.column("leader_epoch")),
        "kind": np.asarray(pieces.column("kind")),
    }
    sizes = np.asarray(pc.binary_length(pieces.column("time_us"))) // 8
    columns = {name: np.repeat(column, sizes).astype(np.int64) for name, column in of_piece.items()}
    return Events(
        pieces.select(SET_COLUMNS).take(pa.array(np.flatnonzero(new))),
        columns | {name: _numbers_of_binaries(pieces.column(name)) for name in NUMBERS},
    )


def _numbers_of_binaries(column: pa.Array) -> Ints:
    """Return the int64 numbers in all binaries of a column, concatenated, without copying."""
    _, edges, values = column.buffers()
    ends = np.frombuffer(edges, np.int32, len(column) + 1, 4 * column.offset)
    return np.frombuffer(values, np.int64)[ends[0] // 8 : ends[-1] // 8]


def sorted_events(events: Events) -> Events:
    """Return the events sorted by replica set, then by ROW_ORDER, then by leader epoch."""
    columns = events.columns
    order = np.lexsort((columns["time_us"], columns["set"]))
    # Only the few events of equal times have to be sorted by the other columns.
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for name in ("set", "time_us"):
        same &= np.diff(columns[name][order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    which = np.cumsum(~np.append(False, same))[tied]
    rows = order[tied]
    least_first = ("leader_epoch", *reversed(ROW_ORDER[1:]))
    order[tied] = rows[np.lexsort([*(columns[name][rows] for name in least_first), which])]
    return Events(events.sets, {name: column[order] for name, column in columns.items()})


def joined_events(earlier: Events, later: Events) -> Events:
    """Return ``earlier``, whose events all belong to the first replica set of ``later``, followed by ``later``."""
    columns = {name: np.concatenate([earlier.columns[name], column]) for name, column in later.columns.items()}
    columns["set"][: len(earlier)] = 0
    return Events(later.sets, columns)

"""Store a segment's quiet stretch as a binary next to its events, and read the binary in a replay.

In a quiet stretch no follower falls behind (``udfs.kernel.quiet``). A replay that skips it only needs the few rows
around it. The binary begins with `LAYOUT` and the CRC-32 of the rest. The rest is a compressed sequence of 8-byte
numbers:

- the record QUIET;
- four counts: latencies, rows before the stretch, latest fetches in it, rows after it;
- for each latency: BY_RECORD or BY_ARRIVAL, its bucket, and the number of appends;
- the columns of these rows.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.kernel.append_history import CAPACITY, AppendHistory
from udfs.kernel.doubts import LATE_FOR_US
from udfs.kernel.quiet import quiet_stretch_of
from udfs.records import FETCH, QUIET, Int64Array, Rows

LEAST_SHARE = 0.5
"""A quiet stretch is stored only if it contains at least this share of its segment's rows."""
_FIELDS = len(QUIET.names or ())
LAYOUT = zlib.crc32(repr((QUIET.names, Rows._fields, LATE_FOR_US)).encode()).to_bytes(4, "little")
"""First bytes of the binary: a hash of the field names of QUIET and ``Rows``, and of LATE_FOR_US. A binary that begins
with other bytes is ignored."""


class AroundQuiet(NamedTuple):
    """A segment's quiet stretch as it is stored: its effects on a replay, and the rows before and after it."""

    quiet: npt.NDArray[np.void]
    """One record of type QUIET: where the stretch begins and ends, and the largest delays in it to which a rule may
    react."""
    latencies: Int64Array
    """How long producers with acks=all waited in the stretch. Shape (n, 3): each row contains BY_RECORD or BY_ARRIVAL,
    a latency bucket, and the number of appends in it."""
    before: Rows
    latest: Rows
    """The last two fetches of each follower in the stretch, as in `udfs.kernel.quiet.QuietStretch`."""
    after: Rows


def packed_quiet(rows: Rows) -> bytes | None:
    """Find the rows of a segment that can be replayed in one step, and pack them; None if too few (LEAST_SHARE)."""
    found = quiet_stretch_of(rows)
    if found is None:
        return None
    first, end = int(found.quiet["first_row"][0]), int(found.quiet["end_row"][0])
    if end - first < LEAST_SHARE * len(rows.time_us):
        return None
    way, bucket = np.nonzero(found.latencies)
    latencies = np.stack([way, bucket, found.latencies[way, bucket]], axis=1)
    before, after = (Rows(*(column[part] for column in rows)) for part in (slice(0, first), slice(end, None)))
    around = [np.stack(each) for each in (before, found.latest, after)]
    sizes = np.array([len(latencies), *(each.shape[1] for each in around)])
    parts = (found.quiet.view(np.int64), sizes, latencies.ravel(), *(each.ravel() for each in around))
    data = zlib.compress(np.concatenate(parts).astype("<i8").tobytes(), 1)
    return LAYOUT + zlib.crc32(data).to_bytes(4, "little") + data


def unpacked_quiet(binary: bytes) -> AroundQuiet | None:
    """Unpack a binary from `packed_quiet`. Return None if a version with another layout packed it.

    Raises
    ------
    ValueError
        If the binary is damaged.
    """
    if binary[:4] != LAYOUT:
        return None
    if int.from_bytes(binary[4:8], "little") != zlib.crc32(binary[8:]):
        message = "the checksum of its quiet stretch differs"
        raise ValueError(message)
    numbers = np.frombuffer(zlib.decompress(binary[8:]), "<i8")
    at = _FIELDS + 4
    count, *sizes = numbers[_FIELDS:at].tolist()
    latencies = numbers[at : at + 3 * count].reshape(count, 3)
    at += 3 * count
    around = []
    for size in sizes:
        columns = numbers[at : at + size * len(Rows._fields)].reshape(len(Rows._fields), size)
        around.append(Rows(*columns))
        at += columns.size
    return AroundQuiet(numbers[:_FIELDS].view(QUIET), latencies, *around)


@dataclass(frozen=True)
class QuietRows:
    """An item of the replay's input that stands for the rows of a segment's quiet stretch, which stay packed.

    Parameters
    ----------
    of_set : tuple
        The replica set (a partition on one leader): values of SET_COLUMNS.
    around : AroundQuiet
    segment : callable
        Unpacks the segment that contains the stretch, and returns all its rows as a RecordBatch of the stream.
    """

    of_set: tuple[object, ...]
    around: AroundQuiet
    segment: Callable[[], pa.RecordBatch]

    def rows(self) -> pa.RecordBatch:
        """Unpack the segment, and return only the rows of the stretch."""
        first, end = int(self.around.quiet["first_row"][0]), int(self.around.quiet["end_row"][0])
        return self.segment().slice(first, end - first)

    @property
    def first_us(self) -> int:
        """Time of the first row of the stretch."""
        return int(self.around.quiet["from_us"][0])

    @property
    def until_us(self) -> int:
        """Time of the first row after the stretch. No row of the stretch is later."""
        return int(self.around.quiet["until_us"][0])


def kernel_rows(batch: pa.RecordBatch) -> Rows:
    """Convert a batch of the replay's input, one row per event, to the numpy arrays that the kernel reads."""
    return Rows(*(np.asarray(batch.column(name)) for name in Rows._fields))


def fetches_from_below(rows: Rows, passed: QuietRows) -> bool:
    """Whether a fetch in ``rows`` shows that a follower lost records after the quiet stretch that was skipped.

    The fetch offset is then below the log end that all followers had at the end of this stretch (``passed``).
    """
    offsets = rows.offset[(rows.kind == FETCH) & (rows.code == 0) & (rows.offset >= 0)]
    return bool(len(offsets)) and int(offsets.min()) < int(passed.around.quiet["log_end_at_end"][0])


def recall_appends(history: AppendHistory, passed: Iterable[QuietRows]) -> None:
    """Put the appends of quiet stretches that were skipped (``passed``) back into the history.

    When a stretch was skipped, all of its appends were merged into one.
    """
    first, end = history.used
    ends, times_us = history.log_end_offset[first:end].copy(), history.time_us[first:end].copy()
    for piece in passed:
        quiet = piece.around.quiet[0]
        places = np.flatnonzero((ends == quiet["log_end_at_end"]) & (times_us == quiet["first_append_us"]))
        # Copied, because Arrow's arrays are read-only, and numba would compile the function again for these.
        found = quiet_stretch_of(Rows(*map(np.array, kernel_rows(piece.segment()))))
        if len(places) and found:
            around = (slice(0, places[0]), slice(places[0] + 1, None))
            ends, times_us = (
                np.concatenate([column[around[0]], appends, column[around[1]]])
                for column, appends in zip((ends, times_us), found.appends.T, strict=True)
            )
    while len(ends) > CAPACITY:
        # The same merging of entries as in `remember_append`.
        ends, times_us = np.append(ends[1::2], ends[-1:])[: -(-len(ends) // 2)], times_us[::2]
    history.log_end_offset[: len(ends)], history.time_us[: len(ends)] = ends, times_us
    history.used[:] = 0, len(ends)

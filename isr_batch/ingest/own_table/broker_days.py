"""Summarise the fetches of each follower from each leader on a day: how frequent they are, and when they pause."""

from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SECOND_US: Final = 1_000_000
DAY_SECONDS: Final = 86_400
CADENCE_PERCENT: Final = 95

PAUSES: Final = pa.list_(pa.struct([("from_us", pa.int64()), ("until_us", pa.int64())]))
BROKER_DAYS: Final = pa.schema([
    ("leader_id", pa.int32()),
    ("replica_id", pa.int32()),
    ("event_date", pa.date32()),
    ("rows", pa.int64()),
    ("first_us", pa.int64()),
    ("last_us", pa.int64()),
    ("cadence_us", pa.int64()),  # 95th percentile of gaps between seconds with fetches; null if only one has fetches
    ("pauses", PAUSES),  # all gaps of a second or more, in chronological order
])  # fmt: skip

_NOT_YET, _NONE = np.int32(SECOND_US), np.int32(-1)


class FetchDay:
    """The fetches of one cluster on one UTC day. They can be added in any order.

    For each pair of leader and follower, only the times of the first and last fetch in each second are stored, which
    takes 0.7 MB.

    Parameters
    ----------
    day : date
    """

    def __init__(self, day: date) -> None:
        self._day = day
        self._from_us = (day - date(1970, 1, 1)).days * DAY_SECONDS * SECOND_US
        self._pairs: dict[int, int] = {}
        self._rows = np.zeros(0, np.int64)
        self._least = np.empty((0, DAY_SECONDS), np.int32)
        self._greatest = np.empty((0, DAY_SECONDS), np.int32)

    def add(
        self, leader_id: npt.NDArray[np.int32], replica_id: npt.NDArray[np.int32], handled_us: npt.NDArray[np.int64]
    ) -> None:
        """Add fetches. Raise `ValueError` if any fetch was not handled on this day.

        Parameters
        ----------
        leader_id, replica_id : int32 array
            Leader and follower of each fetch.
        handled_us : int64 array
            Time at which each fetch was handled, in microseconds since 1970.
        """
        second, rest_us = np.divmod(handled_us - self._from_us, SECOND_US)
        if len(second) and (second.min() < 0 or second.max() >= DAY_SECONDS):
            raise ValueError(f"a fetch that was not handled on {self._day}")
        key = pa.array(leader_id.astype(np.int64) << 32 | replica_id).dictionary_encode()
        numbers = np.array([self._pairs.setdefault(pair, len(self._pairs)) for pair in key.dictionary.to_pylist()], int)
        self._make_room()
        pair = numbers[key.indices.to_numpy()]
        place = pair * DAY_SECONDS + second
        rest_us = rest_us.astype(np.int32)
        np.minimum.at(self._least.reshape(-1), place, rest_us)
        np.maximum.at(self._greatest.reshape(-1), place, rest_us)
        self._rows += np.bincount(pair, minlength=len(self._rows))

    def _make_room(self) -> None:
        """Enlarge the arrays for pairs of leader and follower that are new."""
        more = len(self._pairs) - len(self._rows)
        if more:
            self._rows = np.append(self._rows, np.zeros(more, np.int64))
            self._least = np.append(self._least, np.full((more, DAY_SECONDS), _NOT_YET), axis=0)
            self._greatest = np.append(self._greatest, np.full((more, DAY_SECONDS), _NONE), axis=0)

    def broker_days(self) -> pa.Table:
        """Return one row per pair of leader and follower, sorted by both, with the columns of `BROKER_DAYS`."""
        rows = [self._pair_row(key, number) for key, number in sorted(self._pairs.items())]
        return pa.Table.from_pylist(rows, BROKER_DAYS)

    def _pair_row(self, key: int, number: int) -> dict[str, object]:
        """Return the row of `BROKER_DAYS` for pair ``number``, whose ``key`` is (leader id << 32) + follower id."""
        active = np.flatnonzero(self._greatest[number] > _NONE)
        second_us = self._from_us + active * SECOND_US
        first, last = second_us + self._least[number, active], second_us + self._greatest[number, active]
        gaps = first[1:] - last[:-1]
        cadence = np.percentile(gaps, CADENCE_PERCENT, method="lower") if len(gaps) else None
        paused = np.flatnonzero(gaps >= SECOND_US)
        return {
            "leader_id": key >> 32,
            "replica_id": key & 0xFFFFFFFF,
            "event_date": self._day,
            "rows": int(self._rows[number]),
            "first_us": int(first[0]),
            "last_us": int(last[-1]),
            "cadence_us": None if cadence is None else int(cadence),
            "pauses": [{"from_us": int(last[i]), "until_us": int(first[i + 1])} for i in paused],
        }

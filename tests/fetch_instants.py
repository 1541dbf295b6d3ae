"""Made-up instants of fetches for each pair of leader and follower, and the silences that an ingest finds in them."""

from collections.abc import Callable, Iterable
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from isr_batch.ingest.own_table.broker_days import DAY_SECONDS, SECOND_US, FetchDay
from isr_batch.ingest.own_table.silences import leader_silences

Instants = dict[tuple[int, int], npt.NDArray[np.float64]]
"""By leader and follower: seconds since the table begins."""
Gone = Callable[[int, int, npt.NDArray[np.float64]], npt.NDArray[np.bool_]]
"""Which fetches did not happen, by leader, follower and second."""
DAY = 20_000 * DAY_SECONDS
NOON = DAY + DAY_SECONDS // 2


def instants(brokers: int, seconds: int, every_s: float = 0.5, followers: int = 2, seed: int = 7) -> Instants:
    """Make instants of fetches (s): each broker leads, the next ones follow, every ``every_s`` plus up to half that."""
    rng = np.random.default_rng(seed)
    ticks = np.arange(0, seconds, every_s)
    return {
        (leader, (leader + step) % brokers + 1): ticks + rng.uniform(0, every_s / 2, len(ticks))
        for leader in range(1, brokers + 1)
        for step in range(followers)
        if (leader + step) % brokers + 1 != leader
    }


def without(fetches: Instants, *gone: Gone) -> Instants:
    for is_gone in gone:
        fetches = {pair: at[~is_gone(*pair, at)] for pair, at in fetches.items()}
    return {pair: at for pair, at in fetches.items() if len(at)}


def leader_pauses(broker: int, from_s: float, until_s: float) -> Gone:
    return lambda leader, _, at: (leader == broker) & (at >= from_s) & (at < until_s)


def follower_stops(broker: int, from_s: float, until_s: float) -> Gone:
    return lambda _, follower, at: (follower == broker) & (at >= from_s) & (at < until_s)


def days_of(fetches: Instants, begin_s: int = NOON, chunks: Iterable[slice] = (slice(None),)) -> pa.Table:
    """Summaries by broker and day of these fetches, added to `FetchDay` day by day and chunk by chunk."""
    leader, follower, at_us = columns(fetches, begin_s)
    day = at_us // (DAY_SECONDS * SECOND_US)
    found = []
    for number in np.unique(day):
        of_day = FetchDay(date(1970, 1, 1) + timedelta(days=int(number)))
        on_it = day == number
        for chunk in chunks:
            of_day.add(leader[on_it][chunk], follower[on_it][chunk], at_us[on_it][chunk])
        found.append(of_day.broker_days())
    return pa.concat_tables(found)


def columns(
    fetches: Instants, begin_s: int = NOON
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Turn the fetches into three columns: leader, follower, arrival (us since 1970)."""
    counts = [len(at) for at in fetches.values()]
    leader, follower = (np.repeat(np.array(side, np.int32), counts) for side in zip(*fetches, strict=True))
    seconds = np.concatenate(list(fetches.values()))
    return leader, follower, (begin_s * SECOND_US + np.round(seconds * SECOND_US)).astype(np.int64)


def terms_of(fetches: Instants, begin_s: int = NOON) -> pa.Table:
    """Make terms of each leader that last from its first fetch to its last."""
    ends = [(leader, at.min(), at.max()) for (leader, _), at in fetches.items()]
    return led(*((leader, first, last) for leader, first, last in ends), begin_s=begin_s)


def led(*terms: tuple[int, float, float], begin_s: int = NOON) -> pa.Table:
    leader, start_s, end_s = zip(*terms, strict=True)
    start_us, end_us = ((np.array(at) * SECOND_US).round() + begin_s * SECOND_US for at in (start_s, end_s))
    return pa.table(
        {
            "leader_id": pa.array(leader, pa.int32()),
            "start_us": start_us.astype(np.int64),
            "end_us": end_us.astype(np.int64),
        }
    )


def silences(fetches: Instants, terms: pa.Table | None = None, begin_s: int = NOON) -> list[tuple[str, int, int, int]]:
    """Silences found in these fetches: kind, broker, start and end in whole seconds after ``begin_s``."""
    found = leader_silences(days_of(fetches, begin_s), terms_of(fetches, begin_s) if terms is None else terms)
    return [
        (row["kind"], row["broker_id"], *(round(row[name] / SECOND_US) - begin_s for name in ("event_us", "end_us")))
        for row in found.to_pylist()
    ]

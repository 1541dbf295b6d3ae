"""A log to measure with: rows of many partitions in the kernel's own columns, the same for the same numbers.

Zipf rates, 40 % of the partitions idle, three replicas, long polls of 500 ms, and followers that now and then stall for
5 to 60 s, so that rules have something to decide. Followers fetch as Kafka's do: one fetch at a time, the next when
the answer is there. No broker falls silent or is fenced, no fetch fails: such rows are rare in real logs too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry
from udfs.records import APPEND, FETCH, Int64Array, Rows

CLUSTER = "benchmark"
START_US = 1_767_574_800_000_000  # 2026-01-05 01:00 UTC
START_OFFSET = 1000
LAG_TIME_MS = 30_000
BROKERS = 9
FOLLOWERS = 2
IDLE_SHARE = 0.4
LONG_POLL_US = 500_000
ROUND_TRIP_US = 640  # of a fetch that finds data: in the queue, read, written, and on the network
SICK, ORDINARY = 288.0, 4.0
"""Follower stalls per day: a cluster that gives rules much to decide, and one as most are."""
SECONDS_A_DAY = 86_400
ROWS_A_CHUNK = 2_000_000
ALONE_ROWS_A_SECOND = 1000.0

Shape = Literal["zipf", "half", "alone"]


@dataclass(frozen=True)
class Plan:
    """About ``rows`` rows of ``partitions`` partitions.

    Shapes: ``zipf``; ``half``, where one partition has half of all rows; ``alone``, where it has all.
    """

    rows: int
    partitions: int
    shape: Shape = "zipf"
    seed: int = 8
    stalls_a_day: float = SICK
    """Stalls per day of each follower."""

    @property
    def seconds(self) -> float:
        """How long the log is: an idle partition has four fetches a second whatever the others have."""
        if self.shape == "alone":
            return self.rows / ALONE_ROWS_A_SECOND
        return 0.1 * self.rows / self.partitions

    @property
    def end_us(self) -> int:
        """End of every leader's term."""
        return START_US + int(self.seconds * 1e6)


class Log(NamedTuple):
    """Whole partitions, one after the other; ``partitions[i]`` has the rows from ``starts[i]`` to ``starts[i + 1]``."""

    plan: Plan
    rows: Rows
    partitions: Int64Array
    starts: Int64Array


def log_of(plan: Plan) -> Log:
    """The whole log at once: 80 bytes a row."""
    chunks = list(chunks_of(plan))
    sizes = np.concatenate([np.diff(chunk.starts) for chunk in chunks])
    return Log(
        plan,
        Rows(*(np.concatenate(columns) for columns in zip(*(chunk.rows for chunk in chunks), strict=True))),
        np.concatenate([chunk.partitions for chunk in chunks]),
        np.concatenate([[0], np.cumsum(sizes)]),
    )


def chunks_of(plan: Plan) -> Iterator[Log]:
    """The log in pieces of whole partitions, of ROWS_A_CHUNK rows or one partition."""
    rates = append_rates(plan)
    waiting: list[Rows] = []
    first = 0
    for partition in range(len(rates)):
        waiting.append(rows_of(plan, partition, rates[partition]))
        if partition == len(rates) - 1 or sum(len(each.time_us) for each in waiting) >= ROWS_A_CHUNK:
            starts = np.concatenate([[0], np.cumsum([len(each.time_us) for each in waiting])])
            columns = zip(*waiting, strict=True)
            # A long partition is not held twice.
            rows = waiting[0] if len(waiting) == 1 else Rows(*(np.concatenate(column) for column in columns))
            waiting = []
            yield Log(plan, rows, np.arange(first, partition + 1), starts)
            first = partition + 1


def replicas_of(partition: int) -> list[int]:
    """Brokers that hold a partition, its leader first."""
    return [1 + (partition + place) % BROKERS for place in range(1 + FOLLOWERS)]


def places_of(partition: Int64Array, replica: Int64Array) -> Int64Array:
    """Places of these replicas in the assignments of these partitions; the leader's is 0."""
    return (replica - 1 - partition) % BROKERS


def term_of(plan: Plan, partition: int) -> dict[str, Any]:
    """The one term of a partition's leader, as ``udfs.batches.stream_columns.TERM_FIELDS`` has it."""
    replicas = replicas_of(partition)
    return {
        "leader_epoch": 0,
        "end_us": plan.end_us,
        "high_watermark": START_OFFSET,
        "assigned": replicas,
        "isr_at_start": replicas,
        "leader_is_new": True,
        "process_is_new": True,
        "replica_lag_time_max_ms": LAG_TIME_MS,
        "min_insync_replicas": 2,
        "check_origin_ms": START_US // 1000,
        "isr_write_ms": 4,
        "begins_mid_term": False,
        "ends_mid_term": False,
        "offsets_known": True,
        "phase_known": True,
        "isr_known": True,
        "held_known": True,
        "observers": None,
        "held_at_start": None,
    }


def append_rates(plan: Plan) -> npt.NDArray[np.float64]:
    """Appends a second of each partition, so that the log has about as many rows as it should."""
    if plan.shape == "alone":
        return _rate_for(np.ones(1), ALONE_ROWS_A_SECOND)
    if plan.shape == "half":
        hot = _rate_for(np.ones(1), plan.rows / 2 / plan.seconds)
        return np.concatenate([hot, _zipf(plan.partitions - 1, plan.rows / 2 / plan.seconds, plan.seed)])
    return _zipf(plan.partitions, plan.rows / plan.seconds, plan.seed)


def _zipf(partitions: int, rows_a_second: float, seed: int) -> npt.NDArray[np.float64]:
    idle = round(IDLE_SHARE * partitions)
    weights = np.concatenate([1.0 / np.arange(1, partitions - idle + 1), np.zeros(idle)])
    np.random.default_rng(seed).shuffle(weights)
    return _rate_for(weights, rows_a_second)


def _rate_for(weights: npt.NDArray[np.float64], rows_a_second: float) -> npt.NDArray[np.float64]:
    low, high = 0.0, rows_a_second
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _rows_a_second(weights * middle).sum() > rows_a_second else (middle, high)
    return weights * low


def _rows_a_second(rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Appends, and fetches: those that find nothing new wait for the next append, LONG_POLL_US at most."""
    poll, round_trip = LONG_POLL_US / 1e6, ROUND_TRIP_US / 1e6
    wait = np.where(rates > 0, -np.expm1(-rates * poll) / np.maximum(rates, 1e-9), poll)
    return rates + FOLLOWERS / (np.exp(-rates * round_trip) * wait + round_trip)


def rows_of(plan: Plan, partition: int, rate: float) -> Rows:
    """Rows of one partition, in order."""
    random = np.random.default_rng([plan.seed, partition])
    span_us = plan.end_us - START_US
    drawn = random.integers(1000, span_us, random.poisson(rate * plan.seconds))
    # Every kind of row has its own remainder by 4, so that no two rows are at one time.
    append_us = np.unique(START_US + (drawn | 3))
    ends = START_OFFSET + np.cumsum(random.integers(1, 20, len(append_us)))
    # A follower that lacks more than two seconds' worth takes several fetches to be back.
    most = max(40, int(2 * 10 * rate))
    room = int(2.2 * plan.seconds + len(append_us) + 10 * len(append_us) // most + 64)
    parts = [
        (append_us, APPEND, np.full(len(append_us), -1), ends, np.full(len(append_us), -1 if partition % 2 else 1)),
    ]
    instants = [np.full((len(append_us), 4), -1)]
    for place in range(FOLLOWERS):
        expected = plan.stalls_a_day * plan.seconds / SECONDS_A_DAY
        stalls = np.sort(random.integers(START_US, plan.end_us, random.poisson(expected)))
        stalls = np.stack([stalls, stalls + random.integers(5_000_000, 60_000_000, len(stalls))], axis=1)
        fetches = np.empty((room, 6), np.int64)
        found = follow(append_us, ends, stalls, random.integers(0, 200, 1021), most, place, plan.end_us, fetches)
        assert found < room
        fetches = fetches[:found]
        replica = np.full(found, replicas_of(partition)[1 + place])
        parts.append((fetches[:, 0], FETCH, replica, fetches[:, 5], np.zeros(found, np.int64)))
        instants.append(fetches[:, 1:5])
    time_us = np.concatenate([part[0] for part in parts])
    order = np.argsort(time_us, kind="stable")
    # One column after the other, so that few are held twice.
    columns = [np.concatenate([part[i] for part in parts])[order] for i in (2, 3, 4)]
    columns.append(np.full(len(order), -1))  # the log end is what the appends say
    columns.extend(np.concatenate([instant[:, i] for instant in instants])[order] for i in range(4))
    kinds = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    return Rows(time_us[order], kinds[order], *columns)


@entry
def follow(
    append_us: Int64Array,
    ends: Int64Array,
    stalls: Int64Array,
    delays: Int64Array,
    most: int,
    place: int,
    end_us: int,
    fetches: Int64Array,
) -> int:
    """Fetch as a follower does, from the first to the last fetch that is answered within the term.

    Writes arrival, handled, processed, released, completed, fetch offset; returns how many rows.
    """
    offset, appended, stall, row, drawn = START_OFFSET, 0, 0, 0, place
    now_us = START_US + 1000 + delays[place]
    while row < len(fetches):
        while stall < len(stalls) and stalls[stall, 1] <= now_us:
            stall += 1
        if stall < len(stalls) and stalls[stall, 0] <= now_us:
            now_us = stalls[stall, 1]
        now_us = (now_us | 3) + 1 + place
        drawn = (drawn + 1) % len(delays)
        delay_us = delays[drawn]
        handled_us = now_us + 20 + delay_us // 4
        processed_us = handled_us + 30 + delay_us // 2
        while appended < len(append_us) and append_us[appended] < handled_us:
            appended += 1
        log_end = ends[appended - 1] if appended else START_OFFSET
        released_us = processed_us
        if offset >= log_end:
            released_us = handled_us + LONG_POLL_US
            if appended < len(append_us) and append_us[appended] < released_us:
                released_us = max(processed_us, append_us[appended])
                while appended < len(append_us) and append_us[appended] <= released_us:
                    appended += 1
                log_end = ends[appended - 1]
        completed_us = released_us + 20 + delay_us // 4
        if completed_us >= end_us:
            break
        fetches[row, 0] = now_us
        fetches[row, 1] = handled_us
        fetches[row, 2] = processed_us
        fetches[row, 3] = released_us
        fetches[row, 4] = completed_us
        fetches[row, 5] = offset
        row += 1
        offset = min(log_end, offset + most)
        now_us = completed_us + 300 + delay_us
    return row

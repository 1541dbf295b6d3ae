"""How verdicts depend on their constants: each recorded shrink judged again from the fetches, with other constants.

This follows docs/verdicts.md and shares no code with the kernel, so it also checks the verdicts of the replay.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import INSTANTS
from udfs.records import LONG_AGO, NEVER_US

AS_THEY_ARE: Final = "as they are"
CONSTANTS: Final = {
    AS_THEY_ARE: (1.0, 0.1),
    "alive means a fetch within half the lag time": (0.5, 0.1),
    "alive means a fetch within twice the lag time": (2.0, 0.1),
    "ordinary work is up to a twentieth of the lag time": (1.0, 0.05),
    "ordinary work is up to a fifth of the lag time": (1.0, 0.2),
}
"""Shares of the lag time: a follower that fetched within the first is alive; less than the second is ordinary work."""
_TERM: Final = ("cluster_id", "topic", "partition_id", "leader_epoch", "leader_id")

Row = dict[str, Any]
Ints = npt.NDArray[np.int64]
Span = tuple[int, int]


class Follower(NamedTuple):
    """Fetches of a follower in a term, in order of arrival, as microseconds."""

    arrival: Ints
    handled: Ints
    processed: Ints
    released: Ints
    completed: Ints
    offset: Ints
    good: npt.NDArray[np.bool_]

    def between(self, from_us: int, until_us: int) -> "Follower":
        """Return the fetches that arrived in a span of time."""
        first, end = np.searchsorted(self.arrival, (from_us, until_us))
        return Follower._make(column[first:end] for column in self)


class Term(NamedTuple):
    """A leader's term: its log, its followers and its silences."""

    from_us: int
    start_offset: int
    append_us: Ints
    log_end: Ints
    acked_us: Ints
    acked: Ints
    followers: dict[int, Follower]
    silences: list[Span]

    def log_end_at(self, us: int) -> int:
        """Return the log end offset."""
        there = int(np.searchsorted(self.append_us, us, "right"))
        return int(self.log_end[there - 1]) if there else self.start_offset

    def position(self, replica: int, us: int) -> int:
        """Return where the follower's log ends, by its last good fetch; -1 if there was none."""
        if fetches := self.followers.get(replica):
            good = np.flatnonzero(fetches.good[: np.searchsorted(fetches.arrival, us, "right")])
            if len(good):
                return int(fetches.offset[good[-1]])
        return 0 if self.start_offset == 0 else -1

    def lacks_since(self, position: int) -> int | None:
        """Return when the first record was appended that a follower with this log end lacks."""
        first = int(np.searchsorted(self.log_end, position, "right"))
        return int(self.append_us[first]) if first < len(self.append_us) else None


def judged_again(lake: Lake, constants: Mapping[str, tuple[float, float]] = CONSTANTS) -> pa.Table:
    """Count the verdicts of each rule's shrinks with each of the constants, and those that the replay gave."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    terms = _terms(lake)
    for shrink in _shrinks(lake):
        of_epoch = terms[tuple(shrink[name] for name in _TERM)]
        term = next(term for term in reversed(of_epoch) if term.from_us <= shrink["us"])
        for name, (alive_within, ordinary) in constants.items():
            verdict = _verdict(term, shrink, alive_within, ordinary)
            counts[shrink["rule"], name, shrink["verdict"], verdict] += 1
    names = ("rule", "constants", "replayed", "judged", "shrinks")
    rows = [(*key, count) for key, count in sorted(counts.items())]
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _verdict(term: Term, shrink: Row, alive_within: float, ordinary: float) -> str:
    replica, now_us, lag_us = shrink["replica_id"], shrink["us"], shrink["lag_ms"] * 1000
    fetches = term.followers.get(replica)
    seen = int(np.searchsorted(fetches.arrival, now_us, "right")) if fetches else 0
    position = term.position(replica, now_us)
    since = term.lacks_since(position) if position >= term.start_offset else None
    lacks = position < term.start_offset or (since is not None and since <= now_us)
    if not lacks:
        return "spurious"
    if fetches is None or not seen or since is None:
        return "genuine"
    alive = fetches.arrival[seen - 1] > now_us - alive_within * lag_us
    if alive and now_us - since <= lag_us:
        return "spurious"
    caught = min(_caught_us(term, fetches, seen, now_us), int(fetches.arrival[seen - 1]))
    held_us = _length([*_inside(fetches, seen, now_us), *term.silences], caught, now_us)
    if held_us > ordinary * lag_us and now_us - caught - held_us <= lag_us:
        return "spurious"
    others = [each for each in shrink["isr_before"] if each not in {replica, shrink["leader_id"]}]
    safe = min([term.log_end_at(now_us), *(term.position(each, now_us) for each in others)])
    at_once = int(np.searchsorted(term.acked_us, now_us, "right"))
    acked = max(safe, shrink["high_watermark"] or 0, int(term.acked[at_once - 1]) if at_once else 0)
    return "spurious" if alive and acked <= position else "genuine"


def _caught_us(term: Term, fetches: Follower, seen: int, now_us: int) -> int:
    """Return when the follower last lacked nothing, or had all that the leader had at its fetch before."""
    good = np.flatnonzero(fetches.good[:seen])
    for later in range(len(good) - 1, -1, -1):
        i = good[later]
        arrival, offset = int(fetches.arrival[i]), int(fetches.offset[i])
        if offset >= term.log_end_at(arrival):
            return min(term.lacks_since(offset) or now_us, now_us)
        former = next((j for j in good[:later][::-1] if fetches.processed[j] <= arrival), None)
        if former is not None and offset >= term.log_end_at(int(fetches.handled[former])):
            return min(int(fetches.handled[former]), arrival)
    return int(fetches.arrival[0])


def _inside(fetches: Follower, seen: int, now_us: int) -> Iterator[Span]:
    """Yield the times in which the leader held a fetch, until the next one arrived."""
    for i in range(seen):
        replaced = int(fetches.arrival[i + 1]) if i + 1 < seen else now_us
        yield int(fetches.arrival[i]), min(int(fetches.processed[i]), replaced)
        yield int(fetches.released[i]), min(int(fetches.completed[i]), replaced)


def _length(spans: Sequence[Span], begin: int, end: int) -> int:
    """Length of the union of spans, within a range."""
    total, reached = 0, begin
    for first, last in sorted(spans):
        low, high = max(first, reached), min(last, end)
        if high > low:
            total += high - low
            reached = high
    return total


def _shrinks(lake: Lake) -> list[Row]:
    """List the shrinks that rules made and the replay judged."""
    with engine_for(lake, ("shrink_verdicts",)) as engine:
        text = f"""
            SELECT rule, {", ".join(_TERM)}, replica_id, isr_before, high_watermark, verdict,
              unix_micros(change_time) AS us,
              CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT) AS lag_ms
            FROM {{shrink_verdicts}} WHERE verdict IN ('spurious', 'genuine')
        """
        return engine.listed(engine(text, shrink_verdicts=engine.table("shrink_verdicts")))


def _terms(lake: Lake) -> dict[tuple[Any, ...], list[Term]]:
    """Read the terms that have shrinks, by leader epoch.

    An epoch has several terms if its topic was deleted and made again, which begins at epoch 0 with an empty log.
    """
    key = ", ".join(_TERM)
    names = ("shrink_verdicts", "fetch_log", "append_log", "leader_epochs", "broker_events")
    with engine_for(lake, names[:1]) as engine:
        tables = {name: engine.table(name) for name in names}
        shrunk = engine(f"SELECT DISTINCT {key} FROM {{shrink_verdicts}}", **tables)
        fetches = _single(engine.arrow(engine(f"""
            SELECT {key}, replica_id, fetch_offset, error_code, run_length, later_by,
              {", ".join(f"unix_micros({name}_time) AS {name}" for name in INSTANTS)}
            FROM {{fetch_log}} JOIN {{shrunk}} AS shrunk USING ({key}) ORDER BY {key}, replica_id, arrival
        """, shrunk=shrunk, **tables)))  # fmt: skip
        appends = engine.arrow(engine(f"""
            SELECT {key}, unix_micros(append_time) AS us, log_end_offset, acks
            FROM {{append_log}} JOIN {{shrunk}} AS shrunk USING ({key})
            WHERE log_end_offset IS NOT NULL ORDER BY {key}, us
        """, shrunk=shrunk, **tables)).to_pandas()  # fmt: skip
        begun = engine.listed(engine(f"""
            SELECT {key}, unix_micros(start_time) AS start_us, coalesce(begins_mid_term, false) AS goes_on,
              coalesce(start_offset, min(start_offset) OVER (PARTITION BY {key})) AS start_offset
            FROM {{leader_epochs}} JOIN {{shrunk}} AS shrunk USING ({key}) ORDER BY {key}, start_us
        """, shrunk=shrunk, **tables))  # fmt: skip
        silent = engine.listed(engine("""
            SELECT cluster_id, broker_id, unix_micros(event_time) AS from_us, unix_micros(end_time) AS until_us
            FROM {broker_events} WHERE kind = 'silent'
        """, **tables))  # fmt: skip
    silences: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for row in silent:
        silences[row["cluster_id"], row["broker_id"]].append((row["from_us"], row["until_us"]))
    logs = dict(list(appends.groupby(list(_TERM))))
    found: dict[tuple[Any, ...], list[Term]] = {}
    for whose, rows in groupby(begun, lambda row: tuple(row[name] for name in _TERM)):
        starts = [row for n, row in enumerate(rows) if n == 0 or not row["goes_on"]]
        edges = [int(LONG_AGO), *(row["start_us"] for row in starts[1:]), int(NEVER_US)]
        found[whose] = []
        for row, from_us, until_us in zip(starts, edges, edges[1:], strict=False):
            log = logs.get(whose, appends[:0])
            log = log[(log["us"] >= from_us) & (log["us"] < until_us)]
            acked = log[log["acks"] != -1]
            found[whose].append(Term(
                from_us, row["start_offset"],
                log["us"].to_numpy(), np.maximum.accumulate(log["log_end_offset"].to_numpy()),
                acked["us"].to_numpy(), np.maximum.accumulate(acked["log_end_offset"].to_numpy()),
                {replica: each.between(from_us, until_us) for replica, each in fetches[whose].items()},
                silences[row["cluster_id"], row["leader_id"]],
            ))  # fmt: skip
    return found


def _single(runs: pa.Table) -> dict[tuple[Any, ...], dict[int, Follower]]:
    """Take runs of fetches apart: later ones have their distances to the one before, as columns of ``fetch_log``."""
    lengths = runs["run_length"].to_numpy()
    starts = np.cumsum(lengths) - lengths
    steps = np.zeros((int(lengths.sum()), len(INSTANTS)), np.int64)
    later = np.ones(len(steps), np.bool_)
    later[starts] = False
    steps[later] = runs["later_by"].combine_chunks().flatten().to_numpy().reshape(-1, len(INSTANTS) + 1)[:, :-1]
    steps = np.cumsum(steps, axis=0)
    steps -= np.repeat(steps[starts], lengths, axis=0)
    given = np.column_stack([runs[name].to_numpy() for name in INSTANTS])
    instants = np.repeat(given, lengths, axis=0) + steps
    offsets = np.repeat(runs["fetch_offset"].to_numpy(), lengths)
    good = np.repeat(runs["error_code"].to_numpy() == 0, lengths)
    found: dict[tuple[Any, ...], dict[int, Follower]] = defaultdict(dict)
    rows = runs.select([*_TERM, "replica_id"]).to_pylist()
    first = 0
    for number, row in enumerate(rows):
        if number + 1 < len(rows) and rows[number + 1] == row:
            continue
        part = slice(int(starts[first]), int(starts[number] + lengths[number]))
        ordered = np.argsort(instants[part, 0], kind="stable")
        arrival, handled, processed, released, completed = instants[part][ordered].T
        whose = tuple(row[name] for name in _TERM)
        found[whose][row["replica_id"]] = Follower(
            arrival, handled, processed, released, completed, offsets[part][ordered], good[part][ordered]
        )  # fmt: skip
        first = number + 1
    return found

"""Select the timeline rows around shrinks (``--timelines around-shrinks``): what led to a shrink, and what followed.

A rule run is one rule with one set of parameters, and a term is the time of one leader epoch. A span begins one lag
time before any rule run drops a follower, and lasts while any rule run has a replica outside its ISR. Within a span,
rows are kept for all rule runs, because rules that kept the follower are as interesting as rules that dropped it. A
span begins with rows of the state at its start. It ends with a row without offsets and times: from then on, the rows
only say that every replica is in every ISR. Spans are cut at midnight, and the lag time before a shrink does not extend
across midnight. So the rows of a day only depend on the log up to the end of that day, whatever window is replayed.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from udfs.batches.results import KINDS, Identity
from udfs.kernel.ledger import DAY_US
from udfs.kernel.state import State
from udfs.kernel.timeline_rows import BITS
from udfs.records import (
    CHANGE_COLUMNS,
    NEVER_US,
    PARTITION_COLUMNS,
    REPLICA_COLUMNS,
    RUNS_A_ROW,
    SHRINK,
    UNKNOWN,
    Int64Array,
    KernelOutput,
)

TIMELINES: Final = ("replica", "partition")
_TIME: Final = {kind: KINDS[kind].index("time_us") for kind in (*TIMELINES, "change")}
_POSITION: Final = REPLICA_COLUMNS.index("position")
_ISR: Final = PARTITION_COLUMNS.index("isr")
_KIND: Final = CHANGE_COLUMNS.index("kind")
_STRETCH: Final = int(RUNS_A_ROW)
FROM_BEFORE: Final = -1
"""Value of ``nth`` in a timeline row at the start of a span that repeats an earlier state. Fetches between that state
and the span may have shown that the follower was caught up."""
_AT_ONCE: Final = 1 << 12
"""To find each rule run's last row, this number of rows at the end is searched first; more rows are searched only if
a rule run has no row among these."""

Rows = dict[str, Int64Array]
Span = tuple[int, int]
Chosen = dict[str, list[tuple[Int64Array, Identity]]]
Kept = tuple[str, Int64Array, Int64Array, list[Identity]]
"""Timeline rows to keep: (the timeline, ``replica`` or ``partition``; its rows; for each row the index of its
term in the list; the list of terms, each with its topic, partition, leader and leader epoch)."""


def shown_around_shrinks(state: State, since_us: int) -> Rows:
    """Return the state of a replay as timeline rows with the time ``since_us``.

    The dict has one row per rule run under ``partition``, and one per rule run and follower under ``replica``.
    """
    term = state.term[0]
    replica: list[tuple[int, ...]] = []
    partition: list[tuple[int, ...]] = []
    for run in range(int(term["runs"])):
        bit = run // _STRETCH << _STRETCH | 1 << run % _STRETCH
        place = int(state.leaders["group"][run]) if state.leaders["along"][run] else run
        leader = state.leaders[place]
        shown = (leader[f"shown_{name}"] for name in ("log_end_offset", "high_watermark", "isr", "acknowledged_offset"))
        partition.append((bit, since_us, *shown))
        for p in range(int(term["replicas"])):
            if p != term["leader"]:
                follower = state.followers[place, p]
                names = "log_end_offset", "lag_messages", "last_caught_up_time_ms", "in_isr"
                offset, *others = (follower[f"shown_{name}"] for name in names)
                replica.append((bit, p, since_us, offset, 0, *others))
    of = {"replica": replica, "partition": partition}
    return {kind: np.array(of[kind], np.int64).reshape(-1, len(KINDS[kind])) for kind in TIMELINES}


class AroundShrinks:
    """Selects the timeline rows around shrinks from the kernel's results, which it gets in chunks.

    Rows that a later shrink may need are held until the next chunk.
    """

    def __init__(self) -> None:
        self.terms: dict[int, _Term] = {}

    def go_on(self, identity: Identity, before: Rows) -> None:
        """Continue a term that began before the window. ``before`` is its state at the start of the window.

        The state is given as timeline rows (`shown_around_shrinks`).
        """
        self.terms[id(identity)] = _Term(identity, before)

    def kept(self, out: KernelOutput, marks: Sequence[tuple[Int64Array, Identity]], *, goes_on: bool) -> Iterator[Kept]:
        """Take the next chunk of the kernel's results, and yield the timeline rows that are now known to be kept.

        Parameters
        ----------
        out : KernelOutput
            The chunk.
        marks : sequence of (number of rows, term)
            One entry per term: the number of rows in each array of ``out`` up to the end of the term, and a dict that
            describes the term. See ``udfs.batches.results.named_results``; the dict also contains ``lag_times_us``,
            ``from_us`` and ``until_us``.
        goes_on : bool
            Whether the next chunk may contain more rows of the last term.
        """
        chosen: Chosen = {kind: [] for kind in TIMELINES}
        begin = np.zeros_like(out.filled)
        ends = [list(of_term)[-1] for _, of_term in groupby(marks, key=lambda mark: id(mark[1]))]
        for n, (end, identity) in enumerate(ends, 1):
            new = {kind: out[which][begin[which] : end[which]] for which, kind in enumerate(KINDS) if kind in _TIME}
            begin = end
            term = self.terms.pop(id(identity), None) or _Term(identity)
            if goes_on and n == len(ends):
                self.terms[id(identity)] = term
                term.choose(new, chosen, ended=False)
            else:
                term.choose(new, chosen, ended=True)
        for kind, some in chosen.items():
            parts = [(rows, identity) for rows, identity in some if len(rows)]
            if parts:
                sizes = [len(rows) for rows, _ in parts]
                together = np.concatenate([rows for rows, _ in parts])
                yield kind, together, np.repeat(np.arange(len(parts)), sizes), [identity for _, identity in parts]


class _Term:
    """One term of the replay. Its rows up to ``decided_us`` are already selected or dropped.

    ``held`` contains the rows after this time, which a later shrink may need. ``before`` contains the rows with the
    state at this time.
    """

    def __init__(self, identity: Identity, before: Rows | None = None) -> None:
        self.identity = identity
        self.held = {kind: np.empty((0, len(KINDS[kind])), np.int64) for kind in _TIME}
        self.before = before or {kind: self.held[kind] for kind in TIMELINES}
        self.decided_us = -int(NEVER_US)
        self.runs = len(identity["lag_times_us"])
        self.everybody = (1 << len(identity["assigned"])) - 1
        self.followers = [p for p, replica in enumerate(identity["assigned"]) if replica != identity["leader_id"]]

    def choose(self, rows: Rows, chosen: Chosen, *, ended: bool) -> None:
        """Add the next rows of the term, and append to ``chosen`` those around shrinks that are already decided.

        A row is decided once the spans of all shrinks that are still to come begin after it.
        """
        rows = {
            kind: np.concatenate([held, rows[kind]]) if len(held) else rows[kind] for kind, held in self.held.items()
        }
        until_us = int(self.identity["until_us"])
        if not ended:
            last_us = max((int(rows[kind][-1, _TIME[kind]]) for kind in TIMELINES if len(rows[kind])), default=0)
            # More rows of the last instant may follow, and a shrink is written after its instant.
            until_us = max(self.decided_us, last_us - 1 - int(self.identity["lag_times_us"].max()))
        spans = list(_spans_around_shrinks_by_day(self._spans(rows["partition"], rows["change"]), until_us))
        for kind in TIMELINES:
            chosen[kind] += self._choose(kind, rows[kind], spans, until_us)
            if not ended:
                decided = _rows_until(rows[kind], kind, until_us)
                self.before[kind] = self._in_effect(kind, self.before[kind], rows[kind][:decided])
                self.held[kind] = rows[kind][decided:].copy()
        shrinks = rows["change"]
        self.held["change"] = shrinks[shrinks[:, _TIME["change"]] > until_us]
        self.decided_us = until_us

    def _spans(self, states: Int64Array, changes: Int64Array) -> Iterator[Span]:
        """Yield begin and end of each span around the term's shrinks in chronological order, in microseconds.

        ``states`` are the term's held and new rows of the partition timeline, ``changes`` its held and new ISR changes.
        """
        parts = self.before["partition"], states
        shrinks = changes[changes[:, _KIND] == SHRINK]
        if not len(shrinks) and all((part[:, _ISR] == self.everybody).all() for part in parts):
            return
        at_us, lag_times_us = shrinks[:, _TIME["change"]], self.identity["lag_times_us"]
        begins, ends = [np.maximum(at_us - lag_times_us[shrinks[:, 0]], at_us // DAY_US * DAY_US)], [at_us]
        runs, isr, times_us = (
            np.concatenate([part[:, column] for part in parts]) for column in (0, _ISR, _TIME["partition"])
        )
        away = np.flatnonzero(isr != self.everybody)
        if len(away):
            for run in range(self.runs):
                if not _has_run_around_shrink(runs[away], run).any():
                    continue
                rows = away[0] + np.flatnonzero(_has_run_around_shrink(runs[away[0] :], run))
                is_away = isr[rows] != self.everybody
                begins.append(times_us[rows][is_away])
                ends.append(np.append(times_us[rows[1:]], NEVER_US)[is_away])
        begin_us = np.maximum(np.concatenate(begins), self.identity["from_us"])
        order = np.argsort(begin_us, kind="stable")
        begin_us = begin_us[order]
        end_us = np.minimum(np.maximum.accumulate(np.concatenate(ends)[order]), self.identity["until_us"])
        first = np.append(True, begin_us[1:] > end_us[:-1] + 1)
        yield from zip(begin_us[first].tolist(), end_us[np.append(first[1:], True)].tolist(), strict=True)

    def _choose(
        self, kind: str, rows: Int64Array, spans: Sequence[Span], until_us: int
    ) -> Iterator[tuple[Int64Array, Identity]]:
        """Yield a timeline's rows within the spans, from ``decided_us`` to ``until_us``.

        A span begins with rows that repeat the state at its start, and ends with rows without offsets and times.
        """
        state, seen = self.before[kind], 0
        for begin_us, end_us in spans:
            first = _rows_until(rows, kind, begin_us)
            if begin_us > self.decided_us:
                state, seen = self._in_effect(kind, state, rows[seen:first]), first
                yield _timeline_rows_joined(state, kind, begin_us), self.identity
            yield rows[first : _rows_until(rows, kind, min(end_us, until_us))], self.identity
            goes_on = end_us >= self.identity["until_us"] or (end_us + 1) % DAY_US == 0
            if not goes_on and self.decided_us < end_us + 1 <= until_us:
                unknown = {"offsets_known": False, "times_known": False}
                yield self._last(kind, end_us + 1), {**self.identity, **unknown}

    def _in_effect(self, kind: str, before: Int64Array, rows: Int64Array) -> Int64Array:
        """Return the last row of each rule run (and follower) in ``rows``, or in ``before`` if ``rows`` has none."""
        whose = self.followers if kind == "replica" else [0]
        found, end, at_once = rows[:0], len(rows), _AT_ONCE
        # The last row of most runs is among the latest rows, so these are searched first.
        while end and np.bitwise_count(found[:, 0] & BITS).sum() < self.runs * len(whose):
            begin = max(0, end - at_once)
            found = _last_row_of_each(np.concatenate([rows[begin:end], found]), kind, whose)
            end, at_once = begin, 4 * at_once
        return _last_row_of_each(np.concatenate([before, found]), kind, whose)

    def _last(self, kind: str, time_us: int) -> Int64Array:
        """Return the rows that end a span: every replica is in every rule run's ISR, and all other values unknown."""
        stretches = range(0, self.runs, _STRETCH)
        bits = [n // _STRETCH << _STRETCH | (1 << min(_STRETCH, self.runs - n)) - 1 for n in stretches]
        if kind == "partition":
            return np.array([(of, time_us, UNKNOWN, UNKNOWN, self.everybody, UNKNOWN) for of in bits])
        rows = [(of, p, time_us, UNKNOWN, 0, UNKNOWN, UNKNOWN, 1) for p in self.followers for of in bits]
        return np.array(rows, np.int64).reshape(-1, len(REPLICA_COLUMNS))


def _spans_around_shrinks_by_day(spans: Iterator[Span], until_us: int) -> Iterator[Span]:
    """Yield the spans cut at midnight, without those that begin later than ``until_us``."""
    for begin_us, end_us in spans:
        while begin_us <= min(end_us, until_us):
            midnight_us = (begin_us // DAY_US + 1) * DAY_US
            yield begin_us, min(end_us, midnight_us - 1)
            begin_us = midnight_us


def _rows_until(rows: Int64Array, kind: str, time_us: int) -> int:
    """Return the number of timeline rows with a time up to ``time_us``. The rows are sorted by time."""
    return int(np.searchsorted(rows[:, _TIME[kind]], time_us, "right"))


def _has_run_around_shrink(runs: Int64Array, run: int) -> npt.NDArray[np.bool_]:
    """Return for each row whether its encoded ``runs`` include rule run number ``run``."""
    return (runs >> _STRETCH == run // _STRETCH) & (runs >> run % _STRETCH & 1 == 1)


def _last_row_of_each(rows: Int64Array, kind: str, whose: Sequence[int]) -> Int64Array:
    """Return the last row of each rule run and follower.

    A row that several rule runs share keeps only the bits of rule runs without a later row.
    """
    found = []
    stretches = rows[:, 0] >> _STRETCH
    for stretch in range(int(stretches.max(initial=-1)) + 1):
        for position in whose:
            mine = stretches == stretch
            if kind == "replica":
                mine &= rows[:, _POSITION] == position
            last_first = np.flatnonzero(mine)[::-1]
            bits = rows[last_first, 0] & BITS
            bits[1:] &= ~np.bitwise_or.accumulate(bits)[:-1]
            kept = rows[last_first[bits != 0]]
            kept[:, 0] = stretch << _STRETCH | bits[bits != 0]
            found.append(kept[::-1])
    return np.concatenate(found) if found else rows


def _timeline_rows_joined(rows: Int64Array, kind: str, time_us: int) -> Int64Array:
    """Return rows with ``time_us``, the start of a span, as their time. Rows are merged if only ``runs`` differs."""
    rows = rows.copy()
    rows[:, _TIME[kind]] = time_us
    if kind == "replica":
        rows[:, REPLICA_COLUMNS.index("nth")] = FROM_BEFORE
    joined: dict[tuple[int, ...], int] = {}
    for runs, *state in rows.tolist():
        of = runs >> _STRETCH, *state
        joined[of] = joined.get(of, 0) | runs
    return np.array([(runs, *state) for (_, *state), runs in joined.items()], np.int64).reshape(-1, rows.shape[1])

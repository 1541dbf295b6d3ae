"""Run the replay kernel on sorted Arrow batches, one replica set after the other, and return Arrow batches.

The stream of input batches contains the rows of many replica sets, one set after the other. A replica set is one
partition on one leader, with its terms (one per leader epoch) in chronological order. Only the state of the current set
is kept, so memory does not grow with the stream.
"""

import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.batches.around_shrinks import AroundShrinks, shown_around_shrinks
from udfs.batches.quiet_rows import QuietRows, fetches_from_below, kernel_rows, recall_appends
from udfs.batches.results import KINDS, RESULT_SCHEMA, SCORED, SET_COLUMNS, STATE, named_once, named_results
from udfs.batches.rule_runs import RuleRun, params_json, resolved_params
from udfs.batches.segment_stream import one_row_an_event
from udfs.batches.set_order import rows_of_piece, set_changes, set_of
from udfs.batches.stream_columns import OF_BROKER
from udfs.kernel import replay as kernels
from udfs.kernel.snapshot import packed_snapshot, unpacked_snapshot
from udfs.kernel.state import PARAMS, State, new_state
from udfs.records import (
    AT_LOG_END,
    FOLLOWERS_A_SCORE,
    GOES_ON,
    MIN_ISR,
    NEVER_US,
    TERM_STARTS,
    UNKNOWN,
    Int64Array,
    Rows,
    new_kernel_output,
)
from udfs.rules import REGISTRY
from udfs.rules.base import always_acts

RESULT_ROWS = 1 << 17
"""Minimum capacity of the output buffer, in rows per kind of result. A full buffer is yielded as a batch."""
SCORE_ROWS = 1 << 10
STATES = 64
"""Number of states for table ``replay_state`` that are collected before they are yielded as one batch."""
PASSED = 16
"""Number of the latest skipped quiet stretches that are remembered. If a follower loses records, the appends of these
stretches are restored. Stretches without appends are not remembered."""
TERMS_ALIKE = 64
"""Maximum number of different leader settings for which the resulting parameters of all rule runs are cached."""
WIDEST_ASSIGNMENT = FOLLOWERS_A_SCORE
"""Assumed maximum number of replicas of a partition. It determines the size of the output buffer."""


class SetReplay:
    """Replays one replica set after the other. It keeps the state of the current set, and results to yield later.

    Parameters
    ----------
    runs : sequence of RuleRun
        The rule runs to replay.
    kinds : collection of str
        Kinds of results to return, from ``udfs.batches.results.KINDS``. If they include STATE, the state of each set at
        ``until_us`` is returned as well.
    until_us : int
        End of the window that is replayed.
    shared : collection of str
        Timelines to return in their stored form, in which rule runs share rows (``udfs.batches.results.STATES``).
    around_shrinks : bool
        Whether to return only the rows of these timelines that are near shrinks (``udfs.batches.around_shrinks``).
    """

    def __init__(
        self,
        runs: Sequence[RuleRun],
        kinds: Collection[str],
        until_us: int = int(NEVER_US),
        shared: Collection[str] = (),
        *,
        around_shrinks: bool = False,
    ) -> None:
        self.runs = runs
        self.kinds = kinds
        self.shared = shared
        self.around = AroundShrinks() if shared and around_shrinks else None
        self.until_us = until_us
        self.codes = [list(REGISTRY).index(run.rule) for run in runs]
        rows = max(RESULT_ROWS, 2 * kernels.replay_room_for_a_row(len(runs), WIDEST_ASSIGNMENT))
        self.out = new_kernel_output(rows, max(SCORE_ROWS, 2 * len(runs)))
        self.marks: list[tuple[Int64Array, dict[str, Any]]] = []  # per finished term: rows filled, identity
        self.key: tuple[Any, ...] | None = None
        self.identity: dict[str, Any] | None = None
        self.state: State | None = None
        self.term_is_over = False
        self.kept: list[dict[str, Any]] = []
        self.passed: deque[QuietRows] = deque(maxlen=PASSED)
        self.params: dict[tuple[Any, ...], tuple[npt.NDArray[np.void], list[str]]] = {}

    def begin_set(self, key: tuple[Any, ...]) -> None:
        """Begin the replica set ``key`` (values of SET_COLUMNS). Rows that come before its first term are ignored."""
        self.key, self.identity, self.state = key, None, None
        self.passed.clear()

    def go_on(self, since_us: int, kept: dict[str, Any]) -> None:
        """Continue the set from its stored state ``kept`` at ``since_us``, the end of the previous window.

        ``kept`` contains the values of the set's GOES_ON row. The state's term may continue in this window, or be over.
        """
        self.state = unpacked_snapshot(zlib.decompress(kept["state"]))
        self.state.term["end_us"], self.state.term["ends_mid_term"] = kept["end_us"], kept["ends_mid_term"]
        self.term_is_over = kept["end_us"] < since_us
        self._identify(kept["leader_epoch"], kept["assigned"], kept["params"], since_us)
        if self.around and self.identity and not self.term_is_over:
            self.around.go_on(self.identity, shown_around_shrinks(self.state, since_us))

    def begin_term(self, start_us: int, start_offset: int, term: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Begin the term that ``term`` (TERM_FIELDS of a TERM_STARTS row) describes.

        If the output buffer may be too full for the first results of the term, yield its contents before.
        """
        promoted = {self.key and self.key[3], *term["isr_at_start"]}
        observers = set(term["observers"] or ()) - promoted
        order = sorted(range(len(term["assigned"])), key=lambda p: term["assigned"][p] in observers)
        assigned = [term["assigned"][p] for p in order]
        state = new_state(self.codes, len(assigned))
        if self.state is not None and not term["process_is_new"]:
            _carry_over_to_next_term(self.state, state, assigned)
        state.fetches["replica_id"] = assigned
        known = {None: int(UNKNOWN), int(AT_LOG_END): start_offset}
        held_at_start = [term["held_at_start"][p] for p in order] if term["held_at_start"] else []
        state.fetches["held_at_start"] = [known.get(held, held) for held in held_at_start] or int(UNKNOWN)
        state.term["leader"] = assigned.index(self.key[3]) if self.key else -1
        state.term["replicas"], state.term["observers"] = len(assigned), len(observers)
        state.term["start_us"], state.term["end_us"] = start_us, term["end_us"]
        state.term["start_offset"] = start_offset
        state.term["ends_mid_term"] = term["ends_mid_term"]
        state.term["begins_mid_term"], state.term["offsets_known"] = term["begins_mid_term"], term["offsets_known"]
        state.term["phase_unknown"], state.term["isr_inferred"] = not term["phase_known"], not term["isr_known"]
        state.term["held_unknown"] = not term["held_known"]
        params, shown = self._params_in(term)
        state.params[: len(self.runs)] = params
        self.state, self.term_is_over = state, False
        self.passed.clear()
        self._identify(term["leader_epoch"], assigned, shown, start_us)
        yield from self._make_room()
        isr = sum(1 << assigned.index(replica) for replica in term["isr_at_start"] if replica in assigned)
        kernels.begin_replay_of_term(state, isr, term["high_watermark"], bool(term["leader_is_new"]), self.out)

    def change_min_isr(self, now_us: int, min_isr: int) -> Iterator[pa.RecordBatch]:
        """Set min.insync.replicas from ``now_us`` on, except in rule runs for which the user fixed its value."""
        if self.state is None or self.term_is_over or now_us > self.state.term["end_us"][0]:
            return
        yield from self.advance(NO_ROWS, now_us)
        of_runs = np.array([run.params.get("min_insync_replicas", min_isr) for run in self.runs], np.int64)
        kernels.change_min_isr_in_replay(self.state, of_runs, now_us)

    def _params_in(self, term: Mapping[str, Any]) -> tuple[npt.NDArray[np.void], list[str]]:
        """Return the parameters of all rule runs in a term twice: as records for the kernel, and as JSON."""
        key = tuple(term[name] for name in OF_BROKER)
        if key not in self.params:
            if len(self.params) == TERMS_ALIKE:
                self.params.clear()
            params = np.zeros(len(self.runs), PARAMS)
            for of_run, run in zip(params, self.runs, strict=True):
                for name, value in resolved_params(run, term).items():
                    of_run[name] = value
            self.params[key] = params, [params_json(run, term) for run in self.runs]
        return self.params[key]

    def _identify(self, leader_epoch: int, assigned: Sequence[int], params: Sequence[str], from_us: int) -> None:
        """Set ``identity``: topic, leader epoch and the like, which are added to each result row of this term."""
        of_set = dict(zip(SET_COLUMNS, self.key or (), strict=True))
        assert self.state is not None
        self.identity = {
            **of_set, "leader_epoch": leader_epoch, "assigned": assigned, "params_json": params,
            "offsets_known": bool(self.state.term["offsets_known"][0]),
            "held_known": not self.state.term["held_unknown"][0],
            "from_us": from_us, "until_us": min(int(self.state.term["end_us"][0]), self.until_us - 1),
            "lag_times_us": 1000 * self.state.params["replica_lag_time_max_ms"][: len(self.runs)],
        }  # fmt: skip

    def _make_room(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected results if the output buffer may be too full for the results of one more row."""
        if not kernels.replay_has_room(self.state, self.out):
            yield from self.flush()

    def advance(self, rows: Rows, until_us: int) -> Iterator[pa.RecordBatch]:
        """Replay rows of the current term, then fire timers up to ``until_us``. Do nothing between two terms."""
        if self.state is None or self.term_is_over:
            return
        if self.passed and fetches_from_below(rows, self.passed[-1]):
            recall_appends(self.state.history, self.passed)
            self.passed.clear()
        self.state.term["row"] = 0
        while not kernels.advance_replay(self.state, rows, until_us, self.out):
            yield from self.flush()

    def pass_over(self, piece: QuietRows, rows: Callable[[], Rows]) -> Iterator[pa.RecordBatch]:
        """Skip ``piece``, a quiet stretch of the log; or replay its ``rows()`` if skipping could change results."""
        if self.state is None or self.term_is_over or self.key != piece.of_set:
            return
        if all(map(_run_knows_quiet, self.runs)):
            yield from self.advance(NO_ROWS, piece.first_us)
            yield from self._make_room()
            around = piece.around
            if kernels.pass_over_in_replay(self.state, around.quiet, around.latest, around.latencies, self.out):
                if around.quiet["appends"][0]:
                    self.passed.append(piece)
                return
        yield from self.advance(rows(), -1)

    def end_term(self) -> Iterator[pa.RecordBatch]:
        """Replay timers up to the end of the term, write its counters, and note where its rows end in the output."""
        if self.state is not None and self.identity is not None and not self.term_is_over:
            yield from self.advance(NO_ROWS, int(NEVER_US))
            kernels.end_replay_of_term(self.state, self.out)
            self.marks.append((self.out.filled.copy(), self.identity))
            self.term_is_over = True

    def end_set(self) -> Iterator[pa.RecordBatch]:
        """Replay the set to the end of its last term or of the window, and store its state if STATE was asked for."""
        if self.state is None or self.identity is None:
            return
        if self.state.term["end_us"][0] < self.until_us:
            yield from self.end_term()
        else:
            yield from self.advance(NO_ROWS, self.until_us - 1)
            if self.state.term["day_ends_us"][0] == self.until_us:
                yield from self._make_room()
                kernels.close_day_of_replay(self.state, self.out)
            self.marks.append((self.out.filled.copy(), self.identity))
        if STATE in self.kinds:
            named = {**self.identity, "params": self.identity["params_json"]}
            data = zlib.compress(packed_snapshot(self.state), 1)
            self.kept.append({**named, "result": STATE, "params_json": None, "time_us": self.until_us, "state": data})
            if len(self.kept) == STATES:
                yield from self.flush_states()
        self.identity = self.state = None

    def flush_states(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected states of replica sets as one batch."""
        if self.kept:
            yield pa.RecordBatch.from_pylist(self.kept, schema=RESULT_SCHEMA)
        self.kept.clear()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the results in the output buffer as rows with names instead of numbers, and empty the buffer."""
        if self.identity is not None:
            self.marks.append((self.out.filled.copy(), self.identity))
        rules = [run.rule for run in self.runs]
        if self.out.filled.any():
            yield from named_results(self.out, self.marks, rules, self.kinds, () if self.around else self.shared)
        if self.around:
            goes_on = self.identity is not None and not self.term_is_over
            for kind, rows, of_term, identities in self.around.kept(self.out, self.marks, goes_on=goes_on):
                if kind in self.shared:
                    yield named_once(rows, kind, of_term, identities, rules)
        self.marks.clear()
        self.out.filled[:] = 0


NO_ROWS = Rows(*(np.asarray(pa.array([], pa.int64())) for _ in Rows._fields))
"""No rows. The arrays are read-only like Arrow's, because numba would compile the kernel again for writable arrays."""


def _carry_over_to_next_term(former: State, state: State, assigned: Sequence[int]) -> None:
    """Copy the state of the followers that are assigned in two successive terms of a leader to the later one."""
    known = list(former.fetches["replica_id"])
    for p, replica in enumerate(assigned):
        if replica in known:
            state.followers[:, p] = former.followers[:, known.index(replica)]


def replay_batches(
    batches: Iterator[pa.RecordBatch],
    runs: Sequence[RuleRun],
    kinds: Collection[str] = tuple(KINDS),
    until_us: int = int(NEVER_US),
    shared: Collection[str] = (),
    *,
    around_shrinks: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Replay a stream of batches, which is sorted by replica set and then by ROW_ORDER, and yield the results.

    A replica set begins with a TERM_STARTS row (the start of a term), or with a GOES_ON row (its state from the
    previous window). Rows before that row are ignored.

    Parameters
    ----------
    batches : iterator of RecordBatch
        SET_COLUMNS, the columns of ``Rows`` (int64), ``term`` (struct of TERM_FIELDS, null except in TERM_STARTS rows),
        ``kept`` (struct of KEPT_FIELDS, null except in GOES_ON rows), and ``segment`` (many events in one row, or null;
        see ``udfs.batches.segments``).
    runs : sequence of RuleRun
    kinds : collection of str
        Kinds of results to return, from ``udfs.batches.results.KINDS`` and STATE.
    until_us : int
        End of the window, exclusive: later rows are ignored, and later timers do not fire.
    shared : collection of str
        Timelines to return in addition, in their stored form.
    around_shrinks : bool
        Whether to return only the rows of these timelines that are near shrinks.

    Yields
    ------
    RecordBatch
        Results of one kind, with RESULT_SCHEMA, or a schema of STATES.

    Raises
    ------
    ValueError
        If a set's rows are not in chronological order.
    """
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    # Quiet stretches are not skipped if timelines or states are wanted: timelines contain rows from within the
    # stretches, and states need all appends.
    quiet = not shared and set(kinds) <= set(SCORED) and "kept" not in first.schema.names
    groups = _by_knowledge_of_quiet(runs) if quiet else [runs]
    replays = [SetReplay(group, kinds, until_us, shared, around_shrinks=around_shrinks) for group in groups]
    for piece in one_row_an_event(chain([first], batches), quiet=quiet and any(map(_run_knows_quiet, runs))):
        if isinstance(piece, QuietRows) and piece.until_us < until_us:
            rows = cache(lambda piece=piece: kernel_rows(piece.rows()))
            for current in replays:
                yield from current.pass_over(piece, rows)
            continue
        batch = rows_of_piece(piece)
        times = batch.column("time_us")
        within = batch if (pc.max(times).as_py() or 0) < until_us else batch.filter(pc.less(times, until_us))
        if within.num_rows:
            for current in replays:
                yield from _replay_batch(within, current)
    for current in replays:
        yield from current.end_set()
        yield from current.flush()
        yield from current.flush_states()


def _by_knowledge_of_quiet(runs: Sequence[RuleRun]) -> list[list[RuleRun]]:
    """Split rule runs into those whose rules allow skipping quiet stretches and those whose rules do not.

    Returns the groups that are not empty.
    """
    knowing, others = ([run for run in runs if _run_knows_quiet(run) == known] for known in (True, False))
    return [group for group in (knowing, others) if group]


def _run_knows_quiet(run: RuleRun) -> bool:
    """Whether a rule run's rule allows the replay to skip quiet stretches."""
    return REGISTRY[run.rule].acts_in_quiet is not always_acts


def _replay_batch(batch: pa.RecordBatch, current: SetReplay) -> Iterator[pa.RecordBatch]:
    """Replay one batch of the stream. It is cut where a replica set, a term or a new min.insync.replicas begins."""
    rows = kernel_rows(batch)
    # The rows of a set are adjacent: if the first and the last row of a batch are of one set, all are.
    alone = set_of(batch, 0) == set_of(batch, batch.num_rows - 1)
    new_set = np.zeros(batch.num_rows, np.bool_) if alone else set_changes(batch, SET_COLUMNS)
    _require_order_of_time(batch, rows, new_set)
    terms = rows.kind <= TERM_STARTS
    new_set[0] = set_of(batch, 0) != current.key
    starts = np.union1d(np.flatnonzero(new_set | terms | (rows.kind == MIN_ISR)), [0])
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        first = start
        if new_set[start]:
            yield from current.end_set()
            current.begin_set(set_of(batch, int(start)))
        if rows.kind[start] == GOES_ON:
            current.go_on(int(rows.time_us[start]), batch.column("kept")[int(start)].as_py())
            first = start + 1
        elif terms[start]:
            if not new_set[start]:
                yield from current.end_term()
            yield from current.begin_term(
                int(rows.time_us[start]), int(rows.offset[start]), batch.column("term")[int(start)].as_py()
            )
            first = start + 1
        elif rows.kind[start] == MIN_ISR:
            yield from current.change_min_isr(int(rows.time_us[start]), int(rows.offset[start]))
            first = start + 1
        yield from current.advance(Rows(*(column[first:end] for column in rows)), -1)


def _require_order_of_time(batch: pa.RecordBatch, rows: Rows, new_set: Any) -> None:
    """Raise ValueError if the rows of a replica set are not in chronological order."""
    back = np.flatnonzero((np.diff(rows.time_us) < 0) & ~new_set[1:])
    if len(back):
        message = f"rows of {set_of(batch, int(back[0]))} are not in order of time at {rows.time_us[back[0]]} us"
        raise ValueError(message)

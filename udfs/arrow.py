"""From sorted Arrow batches to the kernel and back: where one set ends, and which term a result belongs to.

The stream holds the rows of many sets one after the other: a set is one partition on one leader, its
terms in order of time. Only the current set's state is kept, so memory does not grow with the stream.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.records import (
    CHANGE_COLUMNS,
    CHANGE_KINDS,
    MADE_BY,
    NEVER_US,
    PARTITION_COLUMNS,
    RELINQUISH,
    REPLICA_COLUMNS,
    TERM_STARTS,
    Int64Array,
    Rows,
    new_output,
)
from udfs.replay import kernels
from udfs.rules import REGISTRY, Param, Rule
from udfs.state import State, new_state, room_for_a_row
from udfs.verdict import CAUSES, VERDICT_OF_CAUSE

SET_COLUMNS = ("cluster_id", "topic", "partition_id", "leader_id")
TERM_FIELDS = (
    ("leader_epoch", pa.int32()),
    ("end_us", pa.int64()),
    ("high_watermark", pa.int64()),
    ("assigned", pa.list_(pa.int32())),
    ("isr_at_start", pa.list_(pa.int32())),
    ("leader_is_new", pa.bool_()),
    ("process_is_new", pa.bool_()),
    ("replica_lag_time_max_ms", pa.int64()),
    ("min_insync_replicas", pa.int64()),
    ("check_origin_ms", pa.int64()),
    ("isr_write_ms", pa.int64()),
)
"""What a TERM row tells beyond its time and ``offset`` (the start offset), as a struct column ``term``."""

RESULT_SCHEMA = pa.schema(
    [
        ("result", pa.string()),  # replica, partition, change: which table
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("leader_id", pa.int32()),
        ("rule", pa.string()),
        ("params_json", pa.string()),
        ("time_us", pa.int64()),
        ("replica_id", pa.int32()),
        ("follower_log_end_offset", pa.int64()),
        ("lag_ms", pa.int64()),
        ("lag_messages", pa.int64()),
        ("last_caught_up_time_ms", pa.int64()),
        ("in_isr", pa.bool_()),
        ("leader_log_end_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("isr_before", pa.list_(pa.int32())),
        ("isr_after", pa.list_(pa.int32())),
        ("kind", pa.string()),
        ("made_by", pa.string()),
        ("true_lag_ms", pa.int64()),
        ("verdict", pa.string()),
        ("primary_cause", pa.string()),
        ("causes", pa.list_(pa.string())),
        ("leader_held_ms", pa.int64()),
        ("leader_silent_ms", pa.int64()),
    ]
)

RESULT_ROWS = 1 << 15
"""Result rows of a kind that are held before they leave as a batch, at the least."""
WIDEST_ASSIGNMENT = 16
"""Replicas of a partition that the results of one row must have room for."""


@dataclass(frozen=True)
class RuleRun:
    """A rule and the parameters that are set for it; all others come from the broker or the rule."""

    rule: str
    params: Mapping[str, int] = field(default_factory=dict)


class SetReplay:
    """The set under replay: its state, its current term, and the results that wait to leave.

    Parameters
    ----------
    runs : sequence of RuleRun
        Replayed side by side.
    """

    def __init__(self, runs: Sequence[RuleRun]) -> None:
        self.runs = runs
        self.codes = [list(REGISTRY).index(run.rule) for run in runs]
        self.out = new_output(max(RESULT_ROWS, 2 * room_for_a_row(len(runs), WIDEST_ASSIGNMENT)))
        self.marks: list[tuple[Int64Array, dict[str, Any]]] = []  # rows filled when a term was left, and its identity
        self.key: tuple[Any, ...] | None = None
        self.identity: dict[str, Any] | None = None
        self.state: State | None = None

    def begin_set(self, key: tuple[Any, ...]) -> None:
        """Forget the former set; the next row starts a term, or is not replayed."""
        self.key, self.identity, self.state = key, None, None

    def begin_term(self, start_us: int, start_offset: int, term: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Take up a term as its TERM row describes it."""
        assigned = term["assigned"]
        state = new_state(self.codes, len(assigned))
        if self.state is not None and not term["process_is_new"]:
            _carry_over(self.state, state, assigned)
        state.fetches["replica_id"] = assigned
        state.term["leader"] = assigned.index(self.key[3]) if self.key else -1
        state.term["replicas"] = len(assigned)
        state.term["start_us"], state.term["end_us"] = start_us, term["end_us"]
        state.term["start_offset"] = start_offset
        for r, run in enumerate(self.runs):
            for name, value in resolved_params(run, term).items():
                state.params[r][name] = value
        self.state = state
        self.identity = {
            **dict(zip(SET_COLUMNS, self.key or (), strict=True)),
            "leader_epoch": term["leader_epoch"],
            "assigned": assigned,
            "params_json": [params_json(run, term) for run in self.runs],
        }
        if self.room() < room_for_a_row(len(self.runs), len(assigned)):
            yield from self.flush()
        isr = sum(1 << assigned.index(replica) for replica in term["isr_at_start"] if replica in assigned)
        kernels().begin_term(state, isr, term["high_watermark"], bool(term["leader_is_new"]), self.out)

    def advance(self, rows: Rows, until_us: int) -> Iterator[pa.RecordBatch]:
        """Replay a stretch of the current term; without a term there is nothing to replay it against."""
        if self.state is None:
            return
        self.state.term["row"] = 0
        while not kernels().advance(self.state, rows, until_us, self.out):
            yield from self.flush()

    def end_term(self) -> Iterator[pa.RecordBatch]:
        """Let the timers run to the end of the term, and remember whose rows these were."""
        if self.state is not None and self.identity is not None:
            yield from self.advance(NO_ROWS, int(NEVER_US))
            self.marks.append((self.out.filled.copy(), self.identity))

    def room(self) -> int:
        """Result rows that can still be held."""
        return int(len(self.out.replica) - self.out.filled.max())

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Send the waiting results."""
        if self.identity is not None:
            self.marks.append((self.out.filled.copy(), self.identity))
        if self.out.filled.any():
            yield from _results(self)
        self.marks.clear()
        self.out.filled[:] = 0


NO_ROWS = Rows(*(np.empty(0, np.int64) for _ in Rows._fields))


def _carry_over(former: State, state: State, assigned: Sequence[int]) -> None:
    """A leader keeps what it knows of its followers from one of its terms to the next."""
    known = list(former.fetches["replica_id"])
    for p, replica in enumerate(assigned):
        if replica in known:
            state.followers[:, p] = former.followers[:, known.index(replica)]


def resolved_params(run: RuleRun, term: Mapping[str, Any]) -> dict[str, int]:
    """Every parameter of a run in a term: set for the run, else the broker's, else the rule's."""
    rule = REGISTRY[run.rule]
    lag_time = run.params.get("replica_lag_time_max_ms", term["replica_lag_time_max_ms"])
    return {
        "replica_lag_time_max_ms": lag_time,
        "min_insync_replicas": term["min_insync_replicas"],
        "check_period_ms": lag_time // rule.checks_per_lag_time if rule.checks_per_lag_time else 0,
        "check_phase_ms": term["check_origin_ms"],
        "isr_write_latency_ms": term["isr_write_ms"] if rule.isr_write_in_background else 0,
        **{name: param.default or 0 for name, param in rule.params.items()},
        **run.params,
    }


def params_json(run: RuleRun, term: Mapping[str, Any]) -> str:
    """The parameters that tell one run of a rule from another, as JSON with sorted keys."""
    rule = REGISTRY[run.rule]
    told = {"replica_lag_time_max_ms", "min_insync_replicas", *rule.params, *run.params}
    values = {name: value for name, value in resolved_params(run, term).items() if name in told}
    return json.dumps({name: _param(rule, name).name_of(value) for name, value in values.items()}, sort_keys=True)


def _param(rule: Rule, name: str) -> Param:
    param = rule.param(name)
    assert param is not None
    return param


def replay_batches(batches: Iterator[pa.RecordBatch], runs: Sequence[RuleRun]) -> Iterator[pa.RecordBatch]:
    """Replay a stream of batches sorted by set, then ``time_us``, then ``kind``.

    Parameters
    ----------
    batches : iterator of RecordBatch
        SET_COLUMNS, the columns of ``Rows`` (int64), and ``term`` (struct of TERM_FIELDS, null but in
        TERM rows).
    runs : sequence of RuleRun

    Yields
    ------
    RecordBatch
        Of RESULT_SCHEMA, the three kinds of result in batches of their own.

    Raises
    ------
    ValueError
        When a set's rows are not in order of time.
    """
    current = SetReplay(runs)
    for batch in batches:
        if batch.num_rows:
            yield from _replay_batch(batch, current)
    yield from current.end_term()
    yield from current.flush()


def _replay_batch(batch: pa.RecordBatch, current: SetReplay) -> Iterator[pa.RecordBatch]:
    rows = Rows(*(np.asarray(batch.column(name)) for name in Rows._fields))
    new_set = np.zeros(batch.num_rows, bool)
    for name in SET_COLUMNS:
        column = batch.column(name)
        new_set[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    _check_order(batch, rows, new_set)
    terms = rows.kind == TERM_STARTS
    new_set[0] = _key(batch, 0) != current.key
    starts = np.union1d(np.flatnonzero(new_set | terms), [0])
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        first = start
        if new_set[start]:
            yield from current.end_term()
            current.begin_set(_key(batch, start))
        if terms[start]:
            if not new_set[start]:
                yield from current.end_term()
            yield from current.begin_term(
                int(rows.time_us[start]), int(rows.offset[start]), batch.column("term")[int(start)].as_py()
            )
            first = start + 1
        yield from current.advance(Rows(*(column[first:end] for column in rows)), -1)


def _key(batch: pa.RecordBatch, row: int) -> tuple[Any, ...]:
    return tuple(batch.column(name)[int(row)].as_py() for name in SET_COLUMNS)


def _check_order(batch: pa.RecordBatch, rows: Rows, new_set: Any) -> None:
    back = np.flatnonzero((np.diff(rows.time_us) < 0) & ~new_set[1:])
    if len(back):
        message = f"rows of {_key(batch, back[0])} are not in order of time at {rows.time_us[back[0]]} us"
        raise ValueError(message)


def _results(current: SetReplay) -> Iterator[pa.RecordBatch]:
    """Name what the kernel numbered: replicas by id, ISRs as lists, rules, terms."""
    before = np.zeros(3, np.int64)
    counts = []
    for filled, _ in current.marks:
        counts.append(filled - before)
        before = filled
    identities = [identity for _, identity in current.marks]
    for which, (name, columns) in enumerate(
        (("replica", REPLICA_COLUMNS), ("partition", PARTITION_COLUMNS), ("change", CHANGE_COLUMNS))
    ):
        filled = int(current.out.filled[which])
        if filled:
            table = current.out[which][:filled]
            values = {column: np.ascontiguousarray(table[:, i]) for i, column in enumerate(columns)}
            of_mark = np.repeat(np.arange(len(counts)), [count[which] for count in counts])
            yield _named(name, values, identities, of_mark, current.runs)


def _named(
    result: str,
    values: dict[str, Int64Array],
    identities: Sequence[dict[str, Any]],
    of_mark: Int64Array,
    runs: Sequence[RuleRun],
) -> pa.RecordBatch:
    rows = len(of_mark)
    run = values.pop("rule")
    widest = max(len(identity["assigned"]) for identity in identities)
    replica_ids = np.array([i["assigned"] + [-1] * (widest - len(i["assigned"])) for i in identities], np.int32)
    named: dict[str, Any] = {
        "result": pa.repeat(result, rows),
        "rule": pa.array([r.rule for r in runs]).take(pa.array(run)),
        "params_json": pa.array([text for i in identities for text in i["params_json"]]).take(
            pa.array(of_mark * len(runs) + run)
        ),
        "time_us": values.pop("time_us"),
    }
    for column in (*SET_COLUMNS, "leader_epoch"):
        field_type = RESULT_SCHEMA.field(column).type
        named[column] = pa.array([i[column] for i in identities], field_type).take(pa.array(of_mark))
    if "position" in values:
        named["replica_id"] = replica_ids[of_mark, values.pop("position")]
        never_caught_up = values["last_caught_up_time_ms"] <= 0
        named["lag_ms"] = pa.array(values.pop("lag_ms"), mask=never_caught_up)
    if "lag_messages" in values:
        named["lag_messages"] = pa.array(values.pop("lag_messages"), mask=values["follower_log_end_offset"] < 0)
    if "in_isr" in values:
        named["in_isr"] = values.pop("in_isr") != 0
    if "isr" in values:
        named["isr_after"] = _isr_lists(values.pop("isr"), of_mark, identities)
    if "causes" in values:
        named["isr_before"] = _isr_lists(values.pop("isr_before"), of_mark, identities)
        given_up = values["kind"] == RELINQUISH
        named["isr_after"] = _isr_lists(values.pop("isr_after"), of_mark, identities, leader_last=given_up)
        named["kind"] = pa.array(CHANGE_KINDS).take(pa.array(values.pop("kind")))
        named["made_by"] = pa.array(MADE_BY).take(pa.array(values.pop("made_by")))
        named.update(_verdicts(values.pop("causes")))
    named.update(values)
    return pa.RecordBatch.from_arrays(
        [pa.nulls(rows, f.type) if f.name not in named else _as(named[f.name], f.type) for f in RESULT_SCHEMA],
        schema=RESULT_SCHEMA,
    )


def _as(values: Any, wanted: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == wanted else array.cast(wanted)


def _isr_lists(
    bits: Int64Array, of_mark: Int64Array, identities: Sequence[dict[str, Any]], leader_last: Any = False
) -> pa.Array:
    """Lists of replica ids in order of assignment, few different ones, so each is made once."""
    keys = np.stack([of_mark, bits, np.broadcast_to(leader_last, bits.shape)])
    found, inverse = np.unique(keys, axis=1, return_inverse=True)
    lists = []
    for mark, bit, last in found.T:
        members = [replica for p, replica in enumerate(identities[mark]["assigned"]) if bit >> p & 1]
        if last:  # who gave up leadership moves to the end
            members.sort(key=identities[mark]["leader_id"].__eq__)
        lists.append(members)
    return pa.array(lists, pa.list_(pa.int32())).take(pa.array(inverse.ravel()))


def _verdicts(causes: Int64Array) -> dict[str, pa.Array]:
    """Verdict, primary cause and all causes of every set of cause bits; null where nothing was judged."""
    bits, inverse = np.unique(causes, return_inverse=True)
    names = [[name for i, name in enumerate(CAUSES) if bit >> i & 1] for bit in bits.tolist()]
    primary = [held[0] if held else None for held in names]
    rows = pa.array(inverse.ravel())
    return {
        "causes": pa.array([held or None for held in names], pa.list_(pa.string())).take(rows),
        "primary_cause": pa.array(primary, pa.string()).take(rows),
        "verdict": pa.array([VERDICT_OF_CAUSE.get(name) for name in primary], pa.string()).take(rows),  # type: ignore[arg-type]
    }

"""Convert the kernel's numeric results to Arrow batches with RESULT_SCHEMA or, for stored timelines, STATES."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from udfs.kernel.ack_latency import middle_of_latency_bucket_us
from udfs.kernel.causes import CAUSES, VERDICT_OF_CAUSE
from udfs.kernel.doubts import DEPENDS_ON
from udfs.kernel.ledger import DAY_US
from udfs.records import (
    BUCKETS,
    CHANGE_COLUMNS,
    CHANGE_KINDS,
    FIRST_SLOW_BUCKET,
    FOLLOWER_SCORE_COLUMNS,
    MADE_BY,
    PARTITION_COLUMNS,
    RELINQUISH,
    REPLICA_COLUMNS,
    RUNS_A_ROW,
    SCORE_COLUMNS,
    Int64Array,
    KernelOutput,
)

SET_COLUMNS = ("cluster_id", "topic", "partition_id", "leader_id")
KINDS = {
    "replica": REPLICA_COLUMNS,
    "partition": PARTITION_COLUMNS,
    "change": CHANGE_COLUMNS,
    "score": SCORE_COLUMNS,
    "follower_score": FOLLOWER_SCORE_COLUMNS,
}
"""Kinds of results and their columns, in the order of the kernel's output arrays."""
SCORED = ("change", "score", "follower_score")
"""The kinds of results from which scores are computed. The other two kinds are timelines."""
STATE = "state"
"""The kind of result that holds the state of a replica set's replay at the end of the window
(``udfs.kernel.snapshot``)."""

LATENCIES = pa.list_(pa.struct([("latency_ms", pa.float64()), ("appends", pa.int64())]))
WAITS = pa.list_(pa.struct([("wait_ms", pa.float64()), ("time_us", pa.int64())]))
Identity = Mapping[str, Any]
_NULL_UNLESS = {
    "offsets_known": {"follower_log_end_offset", "leader_log_end_offset", "high_watermark", "acknowledged_offset"},
    "times_known": {"last_caught_up_time_ms"},
    "held_known": {"leader_held_ms"},
}
"""For each flag of a term, the columns that are null if the flag is false. ``offsets_known``: a log line names offsets.
``times_known``: the row does not end a span around shrinks. ``held_known``: the log has more than one time per
fetch."""
_ROWS_A_BATCH = 1 << 16
_WIDEST = 40
"""Where a term's index and an ISR (a bit per replica) are combined in one number, the ISR has this many lower bits."""
Results = Iterator[pa.RecordBatch]

RESULT_SCHEMA = pa.schema(
    [
        ("result", pa.string()),  # replica, partition, change, score, follower_score, state: which table
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
        ("nth", pa.int32()),  # order of rows of the same instant; the last one counts
        ("lag_ms", pa.int64()),
        ("lag_messages", pa.int64()),
        ("last_caught_up_time_ms", pa.int64()),
        ("in_isr", pa.bool_()),
        ("leader_log_end_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("acknowledged_offset", pa.int64()),
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
        ("time_error_ms", pa.int64()),
        ("depends_on", pa.string()),
        ("measures", pa.list_(pa.int64())),  # for scores: MEASURES or FOLLOWER_MEASURES, in that order
        ("acks_all_latencies", LATENCIES),
        ("acks_all_waits", WAITS),
        ("assigned", pa.list_(pa.int32())),  # for states, as are the columns after it
        ("params", pa.list_(pa.string())),
        ("state", pa.binary()),
    ]
)

_OF_TIMELINES = {
    "replica": ("replica_id", "follower_log_end_offset", "nth", "lag_messages", "last_caught_up_time_ms", "in_isr"),
    "partition": ("leader_log_end_offset", "high_watermark", "acknowledged_offset", "isr_after"),
}
_TEXT = pa.dictionary(pa.int32(), pa.string())
STATES = {
    kind: pa.schema(
        [
            ("result", _TEXT),
            ("run_set", _TEXT),  # JSON: rule and params_json of each run that the bits of ``runs`` stand for
            ("runs", pa.int64()),  # bit b: the row belongs to run b of run_set
            *(
                (field.name, _TEXT if field.type == pa.string() else field.type)
                for field in RESULT_SCHEMA
                if field.name in {*SET_COLUMNS, "leader_epoch", "time_us", *columns}
            ),
        ]
    )
    for kind, columns in _OF_TIMELINES.items()
}
"""Schemas of the timelines in the form in which tables store them: one row for all rule runs with the same state, and
text as dictionaries."""


def named_results(
    out: KernelOutput,
    marks: Sequence[tuple[Int64Array, Identity]],
    rules: Sequence[str],
    kinds: Collection[str],
    shared: Collection[str] = (),
) -> Results:
    """Convert the kernel's numbers to rows with topics, leader epochs, rule names and replica ids.

    Parameters
    ----------
    out : KernelOutput
    marks : sequence of (number of rows, term)
        One entry per term, in the order of the rows: the number of rows in each array of ``out`` up to the end of the
        term (a copy of ``out.filled``), and a dict with the term's SET_COLUMNS, ``leader_epoch``, ``assigned``, and
        ``params_json`` (a list with one text per rule run).
    rules : sequence of str
        The rule of each rule run.
    kinds : collection of str
        Kinds of results to return, from KINDS.
    shared : collection of str
        Timelines to return in their stored form (STATES): one row for all rule runs that have the same state.

    Yields
    ------
    RecordBatch
        Results of one kind, with RESULT_SCHEMA, or a schema of STATES.
    """
    identities = [identity for _, identity in marks]
    filled = np.array([filled for filled, _ in marks])
    for which, kind in enumerate(KINDS):
        of_term = np.repeat(np.arange(len(marks)), np.diff(filled[:, which], prepend=0))
        if kind in kinds:
            yield from named(out, kind, of_term, identities, rules)
        elif kind in shared and (rows := int(out.filled[which])):
            yield named_once(out[which][:rows], kind, of_term, identities, rules)


def named_once(
    rows: Int64Array, kind: str, of_term: Int64Array, identities: Sequence[Identity], rules: Sequence[str]
) -> pa.RecordBatch:
    """Convert rows of the timeline ``kind`` to a batch in the form in which tables store them (STATES).

    Rule runs with the same state share a row. Row i belongs to the term ``identities[of_term[i]]``. ``rules`` contains
    the rule of each rule run.
    """
    params = list(dict.fromkeys(tuple(identity["params_json"]) for identity in identities))
    params_of = np.array([params.index(tuple(identity["params_json"])) for identity in identities])
    found = _named_result_columns(kind, _result_columns(rows, kind), identities, of_term)
    stretches = -(-len(rules) // int(RUNS_A_ROW))
    found["runs"] = rows[:, 0] & (1 << RUNS_A_ROW) - 1
    sets = [
        json.dumps([*zip(rules, of_runs, strict=True)][n * int(RUNS_A_ROW) :][: int(RUNS_A_ROW)])
        for of_runs in params
        for n in range(stretches)
    ]
    of_set = params_of[of_term] * stretches + (rows[:, 0] >> RUNS_A_ROW)
    found["run_set"] = pa.DictionaryArray.from_arrays(pa.array(of_set.astype(np.int32)), pa.array(sets))
    return pa.RecordBatch.from_arrays(
        [_as_result_type(found[each.name], each.type) for each in STATES[kind]], schema=STATES[kind]
    )


def named(
    out: KernelOutput, kind: str, of_term: Int64Array, identities: Sequence[Identity], rules: Sequence[str]
) -> Results:
    """Convert one kind of result to batches with RESULT_SCHEMA. A row that rule runs share is repeated for each.

    Row i of the kernel's output belongs to the term ``identities[of_term[i]]``. ``rules`` contains the rule of each
    rule run.
    """
    which = list(KINDS).index(kind)
    rows = out[which][: int(out.filled[which])]
    row, run = _result_of_each_run(rows[:, 0]) if kind in _OF_TIMELINES else (np.arange(len(rows)), rows[:, 0])
    params = pa.array([text for identity in identities for text in identity["params_json"]])
    for begin in range(0, len(row), _ROWS_A_BATCH):
        of, of_run = row[begin : begin + _ROWS_A_BATCH], run[begin : begin + _ROWS_A_BATCH]
        values = _result_columns(rows[of], kind)
        if kind == "score":
            values["latency"] = out.latency[of]
        found = _named_result_columns(kind, values, identities, of_term[of])
        found["rule"] = _taken_by_index(pa.array(rules), of_run)
        found["params_json"] = _taken_by_index(params, of_term[of] * len(rules) + of_run)
        arrays = [
            _as_result_type(found[f.name], f.type) if f.name in found else pa.nulls(len(of), f.type)
            for f in RESULT_SCHEMA
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA)


def _result_of_each_run(runs: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Expand rows that rule runs share. Return the row's index and the rule run's index for each (row, rule run)."""
    bits = np.ascontiguousarray(runs)[:, None].view(np.uint8)
    row, bit = np.nonzero(np.unpackbits(bits, axis=1, count=int(RUNS_A_ROW), bitorder="little"))
    return row, (runs[row] >> RUNS_A_ROW) * RUNS_A_ROW + bit


def _result_columns(rows: Int64Array, kind: str) -> dict[str, Int64Array]:
    """Return the columns of one kind of result by name, without the first one, which contains the rule runs."""
    return {column: np.ascontiguousarray(rows[:, i]) for i, column in enumerate(KINDS[kind]) if i}


def _named_result_columns(
    result: str,
    values: dict[str, Int64Array],
    identities: Sequence[Identity],
    of_mark: Int64Array,
) -> dict[str, Any]:
    """Return the columns of RESULT_SCHEMA for one kind of result, except ``rule`` and ``params_json``.

    Text columns are dictionary arrays. Row i belongs to the term ``identities[of_mark[i]]``.
    """
    rows = len(of_mark)
    widest = max(len(identity["assigned"]) for identity in identities)
    replica_ids = np.array([i["assigned"] + [-1] * (widest - len(i["assigned"])) for i in identities], np.int32)
    named: dict[str, Any] = {
        "result": _taken_by_index(pa.array([result]), np.zeros(rows, np.int32)),
        "time_us": values.pop("time_us") if "time_us" in values else values.pop("day") * DAY_US,
    }
    for column in (*SET_COLUMNS, "leader_epoch"):
        named[column] = _taken_by_index(
            pa.array([i[column] for i in identities], RESULT_SCHEMA.field(column).type), of_mark
        )
    if "position" in values:
        named["replica_id"] = replica_ids[of_mark, values.pop("position")]
    if "lag_messages" in values:
        not_fetched = values["follower_log_end_offset"] < 0
    if "lag_ms" in values:
        never_caught_up = values["last_caught_up_time_ms"] <= 0
        named["lag_ms"] = pa.array(values.pop("lag_ms"), mask=never_caught_up)
    for known, columns in _NULL_UNLESS.items():
        unknown = ~np.array([identity.get(known, True) for identity in identities])
        if unknown.any():
            for column in columns & values.keys():
                named[column] = pa.array(values.pop(column), mask=unknown[of_mark])
    if "lag_messages" in values:
        named["lag_messages"] = pa.array(values.pop("lag_messages"), mask=not_fetched)
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
        named["depends_on"] = pa.array(DEPENDS_ON, pa.string()).take(pa.array(values.pop("depends_on")))
        error_ms = values.pop("time_error_ms")
        named["time_error_ms"] = pa.array(error_ms, mask=error_ms == 0)
        silent_ms = values.pop("leader_silent_ms")
        named["leader_silent_ms"] = pa.array(silent_ms, mask=silent_ms < 0)
        named.update(_result_verdicts(values.pop("causes")))
    if "latency" in values:
        middle_us = middle_of_latency_bucket_us(np.arange(BUCKETS))
        counts = values.pop("latency")
        named["acks_all_latencies"] = _result_histograms(counts[:, :BUCKETS], middle_us, LATENCIES)
        wait_us = np.append(0, middle_us[FIRST_SLOW_BUCKET:])  # waits of up to a second share a bucket
        named["acks_all_waits"] = _result_histograms(counts[:, BUCKETS:], wait_us, WAITS)
    if result in {"score", "follower_score"}:
        names = list(values)
        measures = np.stack([values.pop(name) for name in names], axis=1)
        named["measures"] = pa.FixedSizeListArray.from_arrays(pa.array(measures.ravel()), len(names))
    return named | values


def _taken_by_index(few: pa.Array, which: Int64Array) -> pa.Array:
    """Return ``few[which[i]]`` for each row i. Text becomes a dictionary array."""
    if few.type != pa.string():
        return few.take(pa.array(which))
    differ = few.dictionary_encode()
    return pa.DictionaryArray.from_arrays(differ.indices.take(pa.array(which)), differ.dictionary)


def _as_result_type(values: Any, wanted: pa.DataType) -> pa.Array:
    """Convert values to an Arrow array of the type ``wanted``."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == wanted else array.cast(wanted)


def _isr_lists(
    bits: Int64Array, of_mark: Int64Array, identities: Sequence[Identity], leader_last: Any = False
) -> pa.Array:
    """Convert ISRs from bits to lists of replica ids, in assignment order. The leader comes last if ``leader_last``."""
    # ISR and term are combined to one number per row: Arrow finds its distinct values by hashing, without a sort.
    keys = pa.array((of_mark << _WIDEST | bits) << 1 | leader_last).dictionary_encode()
    lists = []
    for key in keys.dictionary.to_pylist():
        identity, bit = identities[key >> _WIDEST + 1], key >> 1
        members = [replica for p, replica in enumerate(identity["assigned"]) if bit >> p & 1]
        if key & 1:  # the leader that gave up leadership moves to the end
            members.sort(key=identity["leader_id"].__eq__)
        lists.append(members)
    return pa.array(lists, pa.list_(pa.int32())).take(keys.indices)


def _result_verdicts(causes: Int64Array) -> dict[str, pa.Array]:
    """Return the columns verdict, primary_cause and causes for causes as bits; null where no bit is set."""
    bits, inverse = np.unique(causes, return_inverse=True)
    names = [[name for i, name in enumerate(CAUSES) if bit >> i & 1] for bit in bits.tolist()]
    primary = [held[0] if held else None for held in names]
    rows = pa.array(inverse.ravel())
    return {
        "causes": pa.array([held or None for held in names], pa.list_(pa.string())).take(rows),
        "primary_cause": pa.array(primary, pa.string()).take(rows),
        "verdict": pa.array([VERDICT_OF_CAUSE.get(name) for name in primary], pa.string()).take(rows),  # type: ignore[arg-type]
    }


def _result_histograms(counts: Int64Array, of_bucket_us: Int64Array, histogram: pa.ListType) -> pa.Array:
    """Return each row's histogram: pairs of a bucket's time in ms and what it counts, where that is not 0."""
    row, bucket = np.nonzero(counts)
    pairs = pa.StructArray.from_arrays(
        [pa.array(of_bucket_us[bucket] / 1000.0), pa.array(counts[row, bucket])], fields=list(histogram.value_type)
    )
    offsets = np.searchsorted(row, np.arange(len(counts) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)

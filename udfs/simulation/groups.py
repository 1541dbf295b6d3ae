"""Simulate a group of brokers with their common partitions, and yield the log that they write as rows of tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from udfs.batches.results import Identity, named
from udfs.batches.rule_runs import RuleRun, params_json, resolved_params
from udfs.records import CHANGE_COLUMNS, Int64Array
from udfs.rules import REGISTRY
from udfs.simulation.loop import simulation_loop
from udfs.simulation.world import (
    APPEND_COLUMNS,
    EVENT_COLUMNS,
    FAULT,
    FETCH_COLUMNS,
    TERM_COLUMNS,
    WHOSE_COLUMNS,
    World,
    new_world,
    new_world_log,
)

TABLES = {
    "fetches": FETCH_COLUMNS,
    "appends": APPEND_COLUMNS,
    "terms": TERM_COLUMNS,
    "events": EVENT_COLUMNS,
}
_CHANGED = {
    "change_time": "time_us",
    "kind": "kind",
    "replica": "position",
    "isr_before": "isr_before",
    "isr_after": "isr_after",
    "high_watermark": "high_watermark",
    "leader_log_end_offset": "leader_log_end_offset",
    "follower_log_end_offset": "follower_log_end_offset",
    "last_caught_up_time_ms": "last_caught_up_time_ms",
    "made_by": "made_by",
}
"""For each column of table ``changes`` (the ISR changes that brokers would log), the column of CHANGE_COLUMNS that
contains its value."""
CHANGES = (*WHOSE_COLUMNS[:3], *_CHANGED)
COLUMNS = tuple(dict.fromkeys(column for columns in (*TABLES.values(), CHANGES) for column in columns))
_BROKERS = {
    "leader": "leader_id",
    "replica": "replica_id",
    "broker": "broker_id",
    "previous_leader": "previous_leader_id",
}
"""For each column in which the simulation stores a broker as its position in the assignment, the column for its id."""
_ISRS = ("isr_at_start", "isr_before", "isr_after")
SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("topic", pa.string()),
        ("assigned", pa.list_(pa.int32())),
        *(
            (_BROKERS[name], pa.int32()) if name in _BROKERS
            else (name, pa.list_(pa.int32()) if name in _ISRS else pa.int64())
            for name in COLUMNS
        ),
    ]
)  # fmt: skip
"""Schema of the simulated log's rows. Column ``table`` names the input table to which a row belongs. Times are in
microseconds."""
ROWS_AT_ONCE = 1 << 16
BROKERS_A_GROUP_ID = 10


def broker_of_group(group_number: int, position: int) -> int:
    """Return the id of the broker at ``position`` in a group's assignments. Each broker belongs to one group only."""
    return group_number * BROKERS_A_GROUP_ID + position + 1


def topic_of_group(group_number: int) -> str:
    """Return the name of the single topic to which all partitions of a group belong."""
    return f"group-{group_number}"


LINK_US, RECORD_US, MOST_RECORDS = 300, 1, 5000
"""Defaults of a broker: one-way delay of its link and time to write a record, both in microseconds, and maximum number
of records per partition in a fetch response."""


@dataclass(frozen=True)
class GroupPlan:
    """The input of a simulation: a group of brokers, the partitions that one of them leads, and faults to inject."""

    number: int
    seed: int
    start_us: int
    end_us: int
    brokers: int
    run: RuleRun
    replica_lag_time_max_ms: int
    min_insync_replicas: int
    isr_write_ms: int
    """Duration of an ISR write. In releases before 2.7, the write blocks the fetch for this time."""
    gap_us: Sequence[int]
    """For each partition, the mean time between two produce requests, in microseconds; 0 for a partition without a
    producer."""
    records: int
    """Records per produce request."""
    acks: Sequence[int]
    faults: Sequence[tuple[int, int, int, int]] = ()
    """Faults to inject, each as time, kind, broker and value (``udfs.simulation.world.FAULT``)."""
    isr_at_start: int = -1
    """ISR at the start as bits. -1 means all replicas."""


def group_world(plan: GroupPlan) -> World:
    """Return the initial state of the simulation of a plan."""
    faults = np.array(list(plan.faults), FAULT) if plan.faults else np.zeros(0, FAULT)
    world = new_world(len(plan.gap_us), plan.brokers, faults, max_in_flight=5, seed=plan.seed)
    group: Any = world.group[0]
    rule = REGISTRY[plan.run.rule]
    for name, value in {
        "now_us": plan.start_us,
        "end_us": plan.end_us,
        "io_threads": 8,
        "request_us": 200,
        "send_us": 100,
        "max_wait_us": 500_000,
        "retry_us": 100_000,
        "election_us": 20_000,
        "isr_write_us": 0 if rule.isr_write_in_background else plan.isr_write_ms * 1000,
    }.items():
        group[name] = value
    world.peers["link_us"], world.peers["record_us"], world.peers["most_records"] = LINK_US, RECORD_US, MOST_RECORDS
    world.partitions["gap_us"], world.partitions["acks"] = plan.gap_us, plan.acks
    world.partitions["records"] = plan.records
    world.partitions["term_isr"] = plan.isr_at_start & (1 << plan.brokers) - 1
    for name, value in resolved_params(plan.run, _terms(plan)).items():
        world.params[0][name] = value
    world.codes[0] = list(REGISTRY).index(plan.run.rule)
    return world


def _terms(plan: GroupPlan) -> Mapping[str, int]:
    """Return the settings of a plan's leader, from which parameters of the rule get their values."""
    return {
        "replica_lag_time_max_ms": plan.replica_lag_time_max_ms,
        "min_insync_replicas": plan.min_insync_replicas,
        "check_origin_ms": plan.start_us // 1000,
        "isr_write_ms": plan.isr_write_ms,
    }


def simulate_group(plan: GroupPlan) -> Iterator[pa.RecordBatch]:
    """Simulate a group under the plan's rule run, and yield the rows of the log that its brokers write.

    Yields
    ------
    RecordBatch
        Rows with the schema SCHEMA. All rows of a batch are of one table.
    """
    world = group_world(plan)
    log = new_world_log(len(plan.gap_us), ROWS_AT_ONCE)
    done = 0
    while not done:
        done = simulation_loop(world, log, ROWS_AT_ONCE)
        for (table, columns), filled in zip(TABLES.items(), log.filled, strict=True):
            if filled:
                yield _batch_of_group(table, plan, columns, getattr(log, table)[:filled])
        if changes := int(world.out.filled[2]):
            changed = world.out.change[:changes, [CHANGE_COLUMNS.index(name) for name in _CHANGED.values()]]
            yield _batch_of_group("changes", plan, CHANGES, np.hstack([log.changes[:changes, :3], changed]))
        log.filled[:] = 0
        world.out.filled[:] = 0
        world.group["changes_noted"] = 0


def score_group(plan: GroupPlan, cluster_id: str) -> Iterator[pa.RecordBatch]:
    """Simulate a group under the plan's rule run, and yield the rule's ISR changes and scores instead of the log.

    Yields
    ------
    RecordBatch
        Results of the kinds change, score and follower_score, with the schema ``udfs.batches.results.RESULT_SCHEMA``.
    """
    world = group_world(plan)
    log = new_world_log(len(plan.gap_us), ROWS_AT_ONCE)
    done = 0
    while not done:
        done = simulation_loop(world, log, ROWS_AT_ONCE)
        changes, scores = (int(world.out.filled[which]) for which in (2, 3))
        of_scores = np.repeat(log.scores[:scores], plan.brokers - 1, axis=0)
        for kind, whose in (
            ("change", log.changes[:changes, :3]),
            ("score", log.scores[:scores]),
            ("follower_score", of_scores),
        ):
            if len(whose):
                terms, of_term = np.unique(whose, axis=0, return_inverse=True)
                identities = [_identity_of_term(plan, cluster_id, *term) for term in terms.tolist()]
                yield from named(world.out, kind, of_term.ravel(), identities, [plan.run.rule])
        log.filled[:] = 0
        world.out.filled[:] = 0
        world.group["changes_noted"] = 0


def _identity_of_term(plan: GroupPlan, cluster_id: str, partition: int, leader_epoch: int, leader: int) -> Identity:
    """Return the columns that all result rows of a simulated term share, such as topic, partition and leader."""
    assigned = _brokers_of_plan(plan)
    return {
        "cluster_id": cluster_id,
        "topic": topic_of_group(plan.number),
        "partition_id": partition,
        "leader_id": assigned[leader],
        "leader_epoch": leader_epoch,
        "assigned": assigned,
        "params_json": [params_json(plan.run, _terms(plan))],
    }


def _brokers_of_plan(plan: GroupPlan) -> list[int]:
    """Return the ids of a group's brokers."""
    return [broker_of_group(plan.number, position) for position in range(plan.brokers)]


def _batch_of_group(table: str, plan: GroupPlan, columns: Sequence[str], rows: Any) -> pa.RecordBatch:
    """Convert rows of one simulated table to Arrow, with broker ids instead of positions."""
    ids = pa.array(_brokers_of_plan(plan), pa.int32())
    arrays = {
        "table": pa.repeat(table, len(rows)),
        "topic": pa.repeat(topic_of_group(plan.number), len(rows)),
    }
    if table == "terms":
        arrays["assigned"] = pa.array([ids.to_pylist()] * len(rows), pa.list_(pa.int32()))
    for i, name in enumerate(columns):
        values = np.ascontiguousarray(rows[:, i])
        if name in _BROKERS:
            arrays[_BROKERS[name]] = ids.take(pa.array(values, mask=values < 0))
        elif name in _ISRS:
            arrays[name] = _isr_members(values, ids)
        else:
            arrays[name] = pa.array(values)
    return pa.RecordBatch.from_arrays(
        [arrays[field.name] if field.name in arrays else pa.nulls(len(rows), field.type) for field in SCHEMA],
        schema=SCHEMA,
    )


def _isr_members(bits: Int64Array, ids: pa.Array) -> pa.ListArray:
    """Convert ISRs from bits to lists of broker ids."""
    held = bits[:, None] >> np.arange(len(ids)) & 1 == 1
    ends = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), ids.take(pa.array(np.nonzero(held)[1])))

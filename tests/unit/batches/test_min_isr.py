"""min.insync.replicas changed in the middle of a term."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.segments import in_pieces, packed_stream, segments_of
from tests.strategies import Log, Setting, cases_of_all_rules
from tests.unit.batches.test_fetch_runs import stream
from udfs.batches.replay import replay_batches
from udfs.batches.results import SCORED
from udfs.batches.rule_runs import RuleRun
from udfs.records import APPEND, FETCH, MIN_ISR, ROW_ORDER, TERM_STARTS, Rows

SECOND = 1_000_000
SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 1}


def with_changes(rows: Sequence[dict[str, Any]], values: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Add rows of changes: time and value."""
    sets = {tuple(row[name] for name in SET): row for row in rows}
    unknown = dict.fromkeys(Rows._fields, -1)
    changes = [
        {name: row[name] for name in (*SET, "leader")} | unknown
        | {"kind": int(MIN_ISR), "time_us": at_us, "offset": value} for row in sets.values() for at_us, value in values
    ]  # fmt: skip
    both = [*rows, *changes]
    return sorted(both, key=lambda row: (row["leader_id"], *(row[name] for name in ROW_ORDER)))


RULES = ("kafka-2.7", "kafka-3.7", "kafka-19996-expand", "no-shrink-under-min-isr")
"""Rules with and without a use for it."""


def outcome(rows: Sequence[dict[str, Any]], runs: Sequence[RuleRun]) -> list[str]:
    """Changes and scores; which runs share a row of a timeline may differ."""
    packed = packed_stream(rows, segments_of(rows))
    return sorted(str(row) for batch in replay_batches(in_pieces(packed), runs, SCORED) for row in batch.to_pylist())


@seed(20261128)
@settings(max_examples=25, deadline=None, database=None, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(st.data(), cases_of_all_rules())
def test_a_run_with_a_min_isr_of_its_own_keeps_it_and_the_same_value_changes_nothing(
    data: st.DataObject, case: tuple[Log, list[Setting]]
) -> None:
    log, chosen = case
    runs = [RuleRun(rule) for rule in RULES]
    rows = stream(log, 0, chosen[0], b"\0")
    times = st.integers(min(row["time_us"] for row in rows), max(row["time_us"] for row in rows))
    at = sorted(data.draw(st.lists(times, min_size=1, max_size=3)))
    same = [(at_us, chosen[0].min_insync_replicas) for at_us in at]
    assert outcome(with_changes(rows, same), runs) == outcome(rows, runs)
    own = [RuleRun(rule, {"min_insync_replicas": 2}) for rule in RULES]
    others = [(at_us, data.draw(st.integers(1, 4))) for at_us in at]
    assert outcome(with_changes(rows, others), own) == outcome(rows, own)


def joined(*changes: tuple[int, int]) -> list[int]:
    """When follower 3 joins: it fetches from offset 0, and the ISR holds ten records."""
    term = {
        "leader_epoch": 0, "end_us": 9 * SECOND, "high_watermark": 0, "assigned": [1, 2, 3], "isr_at_start": [1, 2],
        "leader_is_new": True, "process_is_new": True, "replica_lag_time_max_ms": 30_000, "min_insync_replicas": 1,
        "check_origin_ms": 0, "isr_write_ms": 0, "begins_mid_term": False, "ends_mid_term": False,
        "offsets_known": True, "phase_known": True, "isr_known": True, "held_known": True, "held_at_start": None,
        "observers": None,
    }  # fmt: skip

    def row(kind: np.int64, at_us: int, offset: int, replica_id: int = -1, **more: Any) -> dict[str, Any]:
        known = dict.fromkeys(Rows._fields, -1) | {"kind": int(kind), "time_us": at_us, "offset": offset}
        if kind == FETCH:
            known |= dict.fromkeys(("handled_us", "processed_us", "released_us", "until_us"), at_us + 10) | {"code": 0}
        return SET | {"leader": 1, "term": None} | known | {"replica_id": replica_id} | more

    rows = [
        row(TERM_STARTS, 0, 0, term=term), row(APPEND, 2 * SECOND, 10, code=1),
        row(FETCH, 3 * SECOND, 10, 2), row(FETCH, 5 * SECOND, 0, 3),
    ]  # fmt: skip
    batches = replay_batches(in_pieces(with_changes(rows, changes)), [RuleRun("kafka-3.7")], ["change"])
    found = [row for batch in batches for row in pa.table(batch).to_pylist()]
    return [row["time_us"] // SECOND for row in found if row["kind"] == "expand" and row["replica_id"] == 3]


def test_the_high_watermark_is_frozen_from_the_change_on() -> None:
    assert joined() == []
    assert joined((SECOND, 3)) == [5]
    assert joined((SECOND, 3), (4 * SECOND, 1)) == [5], "the high watermark moves with the next fetch only"
    assert joined((4 * SECOND, 3)) == []

"""Followers that only observe: rules-next.md, section 5, without any promotion.

The assignment is 1, 3, 2, 4; 3 and 4 observe, and min.insync.replicas is 2. Follower 2 stops at 2.0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.segments import in_pieces
from udfs.batches.replay import replay_batches
from udfs.batches.rule_runs import RuleRun
from udfs.records import APPEND, FETCH, FOLLOWER_MEASURES, MEASURES, TERM_STARTS, Rows
from udfs.rules import REGISTRY

SECOND = 1_000_000
KINDS = ("replica", "partition", "change", "score", "follower_score")


def row(kind: np.int64, at_s: float, offset: int, replica_id: int = -1, **more: Any) -> dict[str, Any]:
    at_us = round(at_s * SECOND)
    known = dict.fromkeys(Rows._fields, -1) | {"kind": int(kind), "time_us": at_us, "offset": offset}
    if kind == FETCH:
        known |= dict.fromkeys(("handled_us", "processed_us", "released_us", "until_us"), at_us) | {"code": 0}
    of_set = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 1, "term": None}
    return of_set | known | {"replica_id": replica_id} | more


def replayed(
    observers: Sequence[int] | None, isr: Sequence[int] = (1, 2), rules: Sequence[str] = ("kafka-3.7",)
) -> dict[str, list[dict[str, Any]]]:
    """Replay the log, and return the results by kind."""
    term = {
        "leader_epoch": 0, "end_us": 50 * SECOND, "high_watermark": 100, "assigned": [1, 3, 2, 4],
        "isr_at_start": list(isr), "observers": observers, "leader_is_new": True, "process_is_new": True,
        "replica_lag_time_max_ms": 10_000, "min_insync_replicas": 2, "check_origin_ms": 0, "isr_write_ms": 0,
        "begins_mid_term": False, "ends_mid_term": False, "offsets_known": True, "phase_known": True,
        "isr_known": True, "held_known": True, "held_at_start": None,
    }  # fmt: skip
    rows = [
        row(TERM_STARTS, 0, 100, term=term),
        row(FETCH, 0.2, 100, 2), row(FETCH, 0.2, 100, 3), row(FETCH, 0.2, 100, 4),
        row(APPEND, 1, 110, code=-1),
        row(FETCH, 1.1, 110, 2), row(FETCH, 1.1, 110, 3), row(FETCH, 1.3, 110, 4),
        row(APPEND, 2, 120, code=-1),
        row(FETCH, 2.1, 120, 3), row(FETCH, 2.3, 120, 4),
        row(FETCH, 15.2, 120, 3), row(FETCH, 15.3, 120, 4),
    ]  # fmt: skip
    runs = [RuleRun(rule) for rule in rules]
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for batch in replay_batches(in_pieces(rows), runs, KINDS):
        for one in pa.table(batch).to_pylist():
            found[one["result"]].append(one)
    return found


def changes(found: dict[str, list[dict[str, Any]]]) -> list[tuple[float, str, int]]:
    return [(one["time_us"] / SECOND, one["kind"], one["replica_id"]) for one in found["change"]]


def measures(found: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    (score,) = found["score"]
    return dict(zip(MEASURES, score["measures"], strict=True))


def high_watermarks(found: dict[str, list[dict[str, Any]]]) -> list[tuple[float, int]]:
    return [(one["time_us"] / SECOND, one["high_watermark"]) for one in found["partition"]]


def test_observers_neither_join_nor_hold_the_high_watermark() -> None:
    found = replayed([3, 4])
    assert changes(found) == [(15.0, "shrink", 2)]
    assert high_watermarks(found)[-1][1] == 110
    assert (1.1, 110) in high_watermarks(found), "it waits for 2 alone"
    assert measures(found)["under_replicated_us"] == measures(found)["under_min_isr_us"] == 35 * SECOND
    assert measures(found)["passed_within_lag_time"] == 0


def test_without_the_list_they_join_and_hold_it() -> None:
    """As kafka-3.7 does in the text's last column."""
    found = replayed(None)
    assert changes(found) == [
        (0.2, "expand", 3), (0.2, "expand", 4), (15.0, "shrink", 2),
    ]  # fmt: skip
    assert (1.3, 110) in high_watermarks(found)
    assert high_watermarks(found)[-1] == (15.0, 120)
    assert measures(found)["under_min_isr_us"] == 0


@pytest.mark.parametrize("replica", [3, 4])
def test_what_an_observer_fetches_is_in_its_timeline_but_nobody_judges_it(replica: int) -> None:
    found = replayed([3, 4])
    rows = [one for one in found["replica"] if one["replica_id"] == replica]
    assert not any(one["in_isr"] for one in rows)
    ends = [(one["follower_log_end_offset"], one["last_caught_up_time_ms"]) for one in rows]
    assert ends == [(-1, 0), (100, 200), *([(110, 1100), (120, 2100)] if replica == 3 else [(110, 1300), (120, 2300)])]
    (score,) = [one for one in found["follower_score"] if one["replica_id"] == replica]
    assert dict(zip(FOLLOWER_MEASURES, score["measures"], strict=True)) == dict.fromkeys(FOLLOWER_MEASURES, 0)


def test_no_rule_takes_an_observer_in() -> None:
    found = replayed([3, 4], rules=[*REGISTRY])
    assert {one["replica_id"] for one in found["change"]} <= {1, 2}, "1 is the leader, which may step down"
    assert not any(one["in_isr"] for one in found["replica"] if one["replica_id"] in (3, 4))


def test_one_that_was_promoted_before_the_term_is_replayed_as_any_member() -> None:
    found = replayed([3, 4], isr=(1, 2, 3))
    assert changes(found) == [(15.0, "shrink", 2)]
    assert (1.1, 110) in high_watermarks(found), "it does not wait for 4"
    assert high_watermarks(found)[-1] == (15.0, 120), "1 and 3 are enough"

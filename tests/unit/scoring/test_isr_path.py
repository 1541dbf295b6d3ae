"""Who could lead if the leader died: the path of a partition under a rule, against sets and by hand."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.scoring.controller_words import ControlledCluster, ControllerWord
from isr_batch.scoring.isr_path import DAY_US, SPANS, spans_outside_isr
from tests.naive_rule_path import REPLICAS, World

KEY = {"cluster_id": "c", "topic": "t", "partition_id": 0, "rule": "kafka-3.7", "params_json": "{}"}
_INTS = pa.list_(pa.int32())
ROWS = pa.schema([
    *(SPANS.field(name) for name in (*KEY, "leader_epoch", "leader_id")), ("kind", pa.string()), ("at_us", pa.int64()),
    ("end_us", pa.int64()), ("assigned", _INTS), ("isr", _INTS), ("min_isr", pa.int32()),
    ("min_isr_of_term", pa.int32()), ("write_us", pa.int64()), ("isr_before", _INTS), ("made_by", pa.string()),
    ("elr", _INTS),
])  # fmt: skip


def found(rows: list[dict[str, Any]], *words: ControllerWord, enabled: bool | None = True) -> list[dict[str, Any]]:
    table = pa.Table.from_pylist([KEY | row for row in rows], ROWS)
    return spans_outside_isr(table, {"c": ControlledCluster(words, "recorded", enabled)}).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("enabled", [True, False, None])
def test_every_instant_is_as_sets_have_it(enabled: bool | None) -> None:
    eligible, seen = 0, 0
    for seed in range(400):
        world = World(seed, enabled)
        rows = found(world.rows, *(ControllerWord(*word) for word in world.words), enabled=enabled)
        by_instant: dict[tuple[int, int], dict[str, Any]] = {}
        for row in rows:
            assert row["from_us"] // DAY_US == (row["until_us"] - 1) // DAY_US
            for at_us in range(row["from_us"], row["until_us"]):
                assert (row["leader_epoch"], at_us) not in by_instant, "rows do not overlap"
                by_instant[row["leader_epoch"], at_us] = row
        for instant, expected in world.instants.items():
            if instant not in by_instant:
                assert expected.isr == set(REPLICAS)
                assert expected.heir_if_off is not None
                continue
            row = by_instant[instant]
            elr, if_on = (None if each is None else frozenset(each) for each in (row["elr"], row["elr_if_on"]))
            assert (
                frozenset(row["isr"]), elr, row["heir_id"], row["offline_if_leader_dies"], if_on,
                row["heir_if_on"], row["heir_if_off"], tuple(row["active"]),
            ) == expected, (seed, instant)  # fmt: skip
            eligible += bool(elr)
            seen += 1
        assert by_instant.keys() <= world.instants.keys(), seed
    assert seen > 10_000
    assert (eligible > 1000) or not enabled


def term(isr: list[int], until: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "term", "leader_epoch": 0, "leader_id": 1, "at_us": 0, "end_us": until, "assigned": [1, 2, 3],
        "isr": isr, "min_isr": 2, "min_isr_of_term": 2, "write_us": 0, "isr_before": [], "made_by": "controller",
    } | more  # fmt: skip


def change(at_us: int, before: list[int], after: list[int]) -> dict[str, Any]:
    kind = "shrink" if len(after) < len(before) else "expand"
    return {"kind": kind, "leader_epoch": 0, "leader_id": 1, "at_us": at_us, "isr_before": before, "isr": after,
            "made_by": "rule"}  # fmt: skip


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["from_us"], row["isr"], row["elr"], row["heir_id"], row["heir_if_off"]) for row in rows]


def test_a_fenced_replica_stays_eligible_and_cannot_lead() -> None:
    rows = [term([1, 2, 3], 100), change(10, [1, 2, 3], [1, 2]), change(20, [1, 2], [1])]
    words = [ControllerWord(40, 0, "inactive", broker_id=2), ControllerWord(60, 1, "active", broker_id=2),
             ControllerWord(80, 2, "unclean_restart", broker_id=2)]  # fmt: skip
    assert shown(found(rows, *words))[1:] == [
        (20, [1], [2], 2, None), (40, [1], [2], None, None), (60, [1], [2], 2, None), (80, [1], [], None, None)
    ]  # fmt: skip


def test_a_shrink_counts_when_its_write_is_answered() -> None:
    rows = [term([1, 2, 3], 100, write_us=7), change(10, [1, 2, 3], [1]), change(10, [1, 2, 3], [1])]
    assert [row[0] for row in shown(found(rows))] == [17]


def test_a_rules_own_isr_before_an_election_gives_its_own_elr() -> None:
    """The brokers had dropped 2 before 1 died, the rule had not: under the rule 2 is eligible."""
    rows = [term([1, 2, 3], 100), term([3], 300, leader_epoch=1, leader_id=3, at_us=200)]
    assert shown(found(rows)) == [(200, [3], [1, 2], 1, None)]


def test_an_unknown_elr_is_named_where_it_matters() -> None:
    rows = [term([1, 2, 3], 100), change(10, [1, 2, 3], [1, 2]), change(20, [1, 2], [1])]
    told = [(row["elr"], row["offline_if_leader_dies"], row["heir_if_on"]) for row in found(rows, enabled=None)]
    assert told == [(None, False, 2), (None, None, 2)]


def test_an_elr_from_before_the_log_is_the_recorded_one_or_unknown() -> None:
    rows = [term([1], 100), change(50, [1], [1, 2]), change(60, [1, 2], [1])]
    later = [(50, [1, 2], [], 2, 2), (60, [1], [2], 2, None)]
    assert shown(found(rows)) == [(0, [1], None, None, None), *later]
    assert found(rows)[0]["offline_if_leader_dies"] is None
    assert shown(found([rows[0] | {"elr": [3]}, *rows[1:]])) == [(0, [1], [3], 3, None), *later]

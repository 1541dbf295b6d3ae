"""The lag between two fetches, in the heat map and in the lag lane: under 0.10.2 it grows while nothing is lacked."""

import json
import math
import re
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.lake.arrow_read import contract_of
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.report.pictures import sql_of_picture
from isr_batch.report.shrinks_on_page import ShrinkInQuery
from udfs.rules import REGISTRY

START_US, END_US, LAG_TIME_MS = 86_400_000_000, 86_430_000_000, 1_000
PARAMS = json.dumps({"replica_lag_time_max_ms": LAG_TIME_MS})
OF_SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 1, "leader_epoch": 0}
DATE = pa.scalar(1, pa.date32()).as_py()


def at(us: int) -> Any:
    return pa.scalar(us, pa.timestamp("us", "UTC")).as_py()


def fetched(fetches_us: list[int], cuts: set[int], rule: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of a follower that is at the log end for its whole term; a new row of fetch_log begins at each cut."""
    edges = sorted({0, len(fetches_us), *(cut for cut in cuts if cut < len(fetches_us))})
    runs = [fetches_us[first:last] for first, last in pairwise(edges)]
    of_follower = {**OF_SET, "replica_id": 2, "event_date": DATE}
    of_rule = {"rule": rule, "params_json": PARAMS, "event_date": DATE}
    state = {"time": at(START_US), "lag_messages": 0, "last_caught_up_time_ms": START_US // 1000, "in_isr": True}
    return {
        "leader_epochs": [{**OF_SET, "start_time": at(START_US), "end_time": at(END_US)}],
        "replica_changes": [{**of_follower, **of_rule, **state, "follower_log_end_offset": 7}],
        "rule_runs": [of_rule | {"no_lag_while": REGISTRY[rule].no_lag_while}],
        "fetch_log": [
            {
                **of_follower, "error_code": 0, "run_length": len(run),
                "later_by": [by for a, b in pairwise(run) for by in (b - a,) * 5 + (1,)] or None,
                "handled_time": at(run[0]), "last_handled_time": at(run[-1]),
            }
            for run in runs
        ],
    }  # fmt: skip


def drawn(picture: str, rows: dict[str, list[dict[str, Any]]], **values: str) -> list[dict[str, Any]]:
    text = re.sub(r":(\w+)", lambda name: values.get(name[1], name[0]), sql_of_picture(picture))
    names = set(re.findall(r"(?:FROM|JOIN) (\w+)", text)) - set(re.findall(r"(\w+) AS \(", text))
    tables = {name: pa.Table.from_pylist(rows.get(name, []), arrow_schema(contract_of(name))) for name in names}
    with ArrowSql() as sql:
        return list(sql(text, **tables).to_pylist())


def lag_s(fetches_us: list[int], us: float) -> float:
    """Just before an instant."""
    return (us - max([START_US, *(one for one in fetches_us if one < us)])) / 1e6


FETCHES = st.lists(st.sampled_from([20, 90, 101, 480, 500, 3_000, 9_000]), min_size=1, max_size=30).map(
    lambda gaps_ms: [START_US + 1000 * sum(gaps_ms[:n]) for n in range(len(gaps_ms)) if sum(gaps_ms[:n]) < 30_000]
)
CUTS = st.sets(st.integers(1, 30), max_size=4)


@settings(max_examples=15, deadline=None)
@given(FETCHES, CUTS)
def test_the_heat_map_shows_the_longest_lag_of_each_cell(fetches_us: list[int], cuts: set[int]) -> None:
    rows = fetched(fetches_us, cuts, "kafka-0.10.2")
    cells = drawn("heat", rows, own="('c', 'kafka-0.10.2')", rules="'kafka-0.10.2'")
    wide_ms = (END_US - START_US + 1000) / 1000 / 96
    found: dict[int, float] = defaultdict(float)
    for cell in cells:
        found[round((cell["from_ms"] - START_US / 1000) / wide_ms)] = cell["age_s"]
    for number in range(96):
        first_us, last_us = (START_US + 1000 * n * wide_ms for n in (number, number + 1))
        last_us = min(1000 * math.floor(last_us / 1000), END_US)
        peaks = [last_us, *(us for us in fetches_us if first_us <= us < last_us)]
        longest = max(lag_s(fetches_us, us) for us in peaks)
        if longest >= LAG_TIME_MS / 10_000:
            assert found[number] == pytest.approx(longest, abs=1e-6), number
        else:  # in the lowest colour, whatever it is
            assert found[number] <= longest + 1e-6, number


@settings(max_examples=15, deadline=None)
@given(FETCHES, CUTS, st.integers(0, 20), st.integers(1, 10))
def test_the_lag_lane_rises_until_each_fetch(fetches_us: list[int], cuts: set[int], after_s: int, wide_s: int) -> None:
    from_us = START_US + 1_000_000 * after_s
    until_us = from_us + 1_000_000 * wide_s
    shown = ShrinkInQuery(0, "c", "t", 0, "kafka-0.10.2", PARAMS, from_us + 1, from_us + 1, from_us, until_us)
    values = ", ".join(repr(one) for one in shown)
    rows = drawn("lanes", fetched(fetches_us, cuts, shown.rule), shrinks=f"({values})", rules="'kafka-0.10.2'")
    points = {row["from_us"]: row["value"] for row in rows if row["lane"] == "lag" and row["value"] > 0}
    for us, value in points.items():
        assert value == pytest.approx(lag_s(fetches_us, us), abs=1e-6)
    two_slots_s = (until_us - from_us) / 160e6 * 2
    ends_us = [us for us in (*fetches_us[1:], until_us) if from_us < us <= until_us]
    assert {us for us in ends_us if lag_s(fetches_us, us) > two_slots_s} <= points.keys()


def test_no_lag_is_drawn_while_nothing_is_lacked_since_2_1() -> None:
    fetches_us = [START_US, START_US + 9_000_000]
    for rule, most_s in (("kafka-2.1", 0), ("kafka-0.10.2", 21)):
        cells = drawn("heat", fetched(fetches_us, set(), rule), own=f"('c', '{rule}')", rules=f"'{rule}'")
        assert max(cell["age_s"] for cell in cells) == most_s


@settings(max_examples=10, deadline=None)
@given(FETCHES, CUTS)
def test_phases_of_a_run_are_those_of_its_single_fetches(fetches_us: list[int], cuts: set[int]) -> None:
    """Each waits a second for records, and is in the queue for too short a time to be drawn."""
    edge_us = END_US + 20_000_000
    shown = ShrinkInQuery(0, "c", "t", 0, "kafka-0.10.2", PARAMS, END_US, END_US, START_US, edge_us)
    rows = fetched(fetches_us, cuts, shown.rule)
    for row in rows["fetch_log"]:
        handled_us = round(row["handled_time"].timestamp() * 1_000_000)
        row.update(arrival_time=at(handled_us - 10), processed_time=at(handled_us))
        row.update(dict.fromkeys(("released_time", "completed_time"), at(handled_us + 1_000_000)))
    rows["shrink_verdicts"] = [
        {**OF_SET, "replica_id": 2, "rule": shown.rule, "params_json": PARAMS, "change_time": at(END_US)}
    ]
    lanes = drawn("lanes", rows, shrinks=f"({', '.join(map(repr, shown))})", rules="'kafka-0.10.2'")
    bars = [(row["verdict"], row["from_us"], row["until_us"]) for row in lanes if row["lane"] == "fetch"]
    assert bars == [("wait", us, min(us + 1_000_000, edge_us)) for us in fetches_us]

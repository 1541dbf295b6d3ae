"""A check that would have dropped a follower without a line ran later; DuckDB and Spark agree."""

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from isr_batch.lake.tables.outputs import LATE_CHECKS
from isr_batch.replay.days import fingerprints
from isr_batch.replay.replay import replay
from isr_batch.scoring.broker_check import ask_broker_check, validate
from isr_batch.scoring.late_checks import find_late_checks
from isr_batch.scoring.scores import write_scores
from tests.spark.scoring.test_broker_check import START, at, fetch, of_set, term, write
from udfs.batches.rule_runs import RuleRun

if TYPE_CHECKING:
    from isr_batch.lake.lake_engine import LakeEngine

RUNS = [RuleRun("kafka-3.7")]


def event(kind: str, begin: float, end: float, broker: int = 1) -> dict[str, Any]:
    times = {"event_time": at(begin), "end_time": at(end), "event_date": at(begin).date()}
    return {"cluster_id": "c", "broker_id": broker, "kind": kind, **times}


def shrink(partition: int, time: float, status: str = "extra", **more: Any) -> dict[str, Any]:
    moment = round((START.timestamp() + time) * 1_000_000)
    made = {"replica_id": 2, "kind": "shrink", "status": status, "replayed_us": moment, "uncertain_ms": 1}
    return of_set(partition, time, **(made | more))


EDGES = [
    shrink(0, 50), shrink(0, 50, replica_id=3),  # to the next check that has a line
    shrink(1, 56),  # to the end of the time in which the leader was late
    shrink(2, 80),  # it was not late then
    shrink(3, 80, leader_id=5, uncertain_ms=1500),  # it was, by what the replay has seen
    shrink(4, 50), shrink(4, 50, "matched", replica_id=3),  # the check did run: it dropped the other one
    shrink(5, 50),  # known already
    shrink(6, 50),  # it was moved here before, and may be moved somewhat more
    shrink(7, 50),  # it was moved here before, as far as it may be
    shrink(11, 80, leader_id=6, uncertain_ms=1500),  # its server.log has no line from then on
    shrink(8, 50) | {"kind": "expand"}, shrink(9, 50, "missing"), shrink(10, 50, "unknown"),
]  # fmt: skip
LATER = {0: (50, 55, 65), 1: (56, 60.1, 65), 3: (80, 81.5, 81.5), 6: (50, 52, 52)}


@pytest.mark.parametrize("engine_of", [InProcess, BySpark])
def test_how_far_a_check_is_moved(lake: Lake, engine_of: type[InProcess | BySpark]) -> None:
    known = [
        of_set(partition, due, due_time=at(due), ran_time=at(ran), latest_time=at(latest), replica_ids=[2])
        for partition, due, ran, latest in ((5, 50, 51, 60), (6, 48, 50, 52), (7, 48, 50, 50))
    ]
    events = [
        event("silent", 41, 49.5), event("silent", 54, 60), event("silent", 70, 70.5), event("check", 54.9, 55),
        event("check", 50, 50.001), event("check", 50.5, 51, broker=5),
    ]  # fmt: skip
    engine: LakeEngine
    with engine_of(lake) as engine:
        ends = [
            {"cluster_id": "c", "broker_id": broker, "log": "server", "from_time": at(0), "until_time": at(end),
             "event_date": at(0).date()} for broker, end in ((1, 120), (6, 79))
        ]  # fmt: skip
        given = {
            "broker_events": (BROKER_EVENTS, events), "late_checks": (LATE_CHECKS, known), "coverage": (COVERAGE, ends),
        }  # fmt: skip
        tables = {
            name: engine.rows(pa.Table.from_pylist(rows, arrow_schema(table))) for name, (table, rows) in given.items()
        }
        tables["late_spans"] = ask_broker_check(engine, "late_spans", tables)
        tables["doubted"] = engine.rows(pa.Table.from_pylist(EDGES))
        rows = engine.listed(
            engine(
                "SELECT partition_id, replica_ids, unix_micros(due_time) AS due, unix_micros(ran_time) AS ran, "
                "unix_micros(latest_time) AS latest FROM {rows}",
                rows=ask_broker_check(engine, "late_checks", tables),
            )
        )
    start_us = round(START.timestamp() * 1_000_000)
    found = {
        row["partition_id"]: tuple((row[name] - start_us) / 1e6 for name in ("due", "ran", "latest")) for row in rows
    }
    assert found == LATER
    assert {tuple(row["replica_ids"]) for row in rows if row["partition_id"] == 0} == {(2, 3)}


@pytest.fixture
def starved(lake: Lake) -> Lake:
    """A leader gets little CPU from 41 to 51 s; its check of 50 s comes after the fetch that it serves at 50.4 s."""
    known = {"check_origin_ms": round(START.timestamp() * 1000) % 5000, "check_origin_source": "shrinks"}
    write(lake, LEADER_EPOCHS, [
        term(0, 0, 120) | {"start_offset": 0, "previous_leader_id": 1, **known}
    ])  # fmt: skip
    write(lake, COVERAGE, [
        {"cluster_id": "c", "broker_id": 1, "log": log, "from_time": at(0), "until_time": at(120),
         "event_date": at(0).date()} for log in ("request", "server")
    ])  # fmt: skip
    write(lake, OBSERVED_ISR_CHANGES, [])
    write(lake, BROKER_EVENTS, [event("silent", 41, 49.5), event("silent", 50.5, 51)])
    served = [*range(1, 40), 50.4, *range(52, 119)]
    write(lake, FETCH_LOG, [
        fetch(0, time, time + 0.001, fetch_offset=offset, leader_log_end_offset=offset)
        for offset, time in enumerate(served, 1)
    ])  # fmt: skip
    write(lake, APPEND_LOG, [
        of_set(0, time, append_time=at(time - 0.1), base_offset=offset - 1, log_end_offset=offset, acks=1, error_code=0)
        for offset, time in enumerate(served, 1)
    ] + [
        of_set(0, 39.5, append_time=at(39.5), base_offset=39, log_end_offset=40, acks=1, error_code=0),
    ])  # fmt: skip
    return lake


def test_the_rules_are_replayed_with_it(starved: Lake) -> None:
    def replayed() -> list[dt.datetime]:
        replay(starved, RUNS)
        write_scores(starved)
        return [row["change_time"] for row in starved.read("isr_changes").where("kind = 'shrink'").collect()]

    assert len(replayed()) == 1
    before = fingerprints(starved)
    assert validate(starved).rows[0]["extra"] == 1
    assert find_late_checks(starved) == 1
    assert fingerprints(starved) != before, "its days are stale"
    assert replayed() == []
    assert validate(starved).rows == []
    assert find_late_checks(starved) == 0

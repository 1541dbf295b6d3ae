"""Shrinks that some rules make and others do not; times are milliseconds after noon, the lag time is 4 s."""

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES
from isr_batch.scoring.disagreements import (
    compare_rules,
    disagreements_at_events,
    rule_disagreements,
    runs_that_may_disagree,
    shrink_events,
    write_disagreements,
)
from isr_batch.window import Window
from pipelines import cli
from tests.spark.test_jobs import given, put

LAG = 4000
MIDNIGHT = 12 * 3_600_000
"""In milliseconds after noon."""


def at(ms: int) -> dict[str, str]:
    time = datetime(2026, 1, 1, 12) + timedelta(milliseconds=ms)  # noqa: DTZ001 (text for SQL, in UTC)
    return {"time": str(time), "change_time": str(time), "event_date": str(time.date())}


def run(rule: str, lag: int = LAG) -> dict[str, Any]:
    return {"rule": rule, "params_json": json.dumps({"replica_lag_time_max_ms": lag})}


def change(rule: str, ms: int, kind: str = "shrink", lag: int = LAG, **more: Any) -> dict[str, Any]:
    isr = {"isr_before": [1, 2, 3], "isr_after": [1, 3]}
    if kind == "expand":
        isr = {"isr_before": isr["isr_after"], "isr_after": isr["isr_before"]}
    return run(rule, lag) | at(ms) | isr | {"kind": kind, "replica_id": 2, "made_by": "rule"} | more


def shrink(rule: str, ms: int, cause: str = "follower_slow", **more: Any) -> dict[str, Any]:
    verdict = "genuine" if cause.startswith("follower") else "spurious"
    return change(rule, ms, **more) | {"verdict": verdict, "primary_cause": cause, "causes": [cause]}


def replayed(rule: str, ms: int = 0, lag: int = LAG, **more: Any) -> dict[str, Any]:
    """For the day of this instant."""
    nothing = {name.name: 0 for name in PARTITION_SCORES.columns if name.type == "BIGINT"}
    return nothing | run(rule, lag) | at(ms) | more


def term(isr: tuple[int, ...] = (3, 2, 1), **more: Any) -> dict[str, Any]:
    """Of ten days."""
    offsets = dict.fromkeys(("start_offset", "start_high_watermark", "check_origin_ms"), 0)
    told = {"replica_lag_time_max_ms": LAG, "min_insync_replicas": 1, "check_origin_source": "unknown"}
    times = {"start_time": at(-MIDNIGHT)["time"], "end_time": at(20 * MIDNIGHT)["time"]}
    return at(0) | offsets | told | times | {"assigned": [1, 2, 3], "isr_at_start": list(isr)} | more


def events(engine: LakeEngine, rows: list[dict[str, Any]]) -> dict[tuple[int, int], list[list[tuple[str, int]]]]:
    """By partition and replica: rule and time of the shrinks of each event."""
    found: dict[tuple[int, int], dict[int, list[tuple[str, int]]]] = {}
    verdicts = frame(engine, SHRINK_VERDICTS, *rows)
    for row in sorted(engine.listed(shrink_events(engine, verdicts)), key=lambda row: (row["at_us"], row["rule"])):
        noon = datetime(2026, 1, 1, 12).timestamp()  # noqa: DTZ001 (tests run in UTC)
        of_follower = found.setdefault((row["partition_id"], row["replica_id"]), {})
        made = (row["rule"], round(row["at_us"] / 1000 - noon * 1000))
        of_follower.setdefault(row["event_us"], []).append(made)
    return {follower: list(each.values()) for follower, each in found.items()}


def frame(engine: LakeEngine, table: Table, *rows: dict[str, Any]) -> Rows:
    return engine.rows(given(table, *rows))


@pytest.fixture(params=[InProcess, BySpark])
def engine(request: pytest.FixtureRequest, lake: Lake) -> Iterator[LakeEngine]:
    with request.param(lake) as engine:
        yield engine


EVENTS: list[list[list[tuple[str, int]]]] = [
    # The third comes one lag time after the second, but more than that after the first.
    [[("a", 0), ("b", 4000)], [("c", 4001), ("d", 8001)], [("a", 8002)]],
    # Neither side makes the same shrink twice.
    [[("a", 0), ("b", 100)], [("a", 200), ("b", 300)]],
    [[("a", 0)], [("a", 10), ("b", 20)]],
    [[("a", 0), ("b", 0), ("c", 0)]],
]


def test_shrinks_within_a_lag_time_of_the_first_are_one_event(engine: LakeEngine) -> None:
    rows = [
        shrink(rule, ms, partition_id=partition)
        for partition, case in enumerate(EVENTS)
        for event in case
        for rule, ms in event
    ]
    # The lag time of the later one counts: b comes too late for itself, and c is then with b.
    rows += [shrink("a", 0, partition_id=9), shrink("b", 1001, lag=1000, partition_id=9)]
    rows += [shrink("c", 2000, partition_id=9)]
    rows += [shrink("a", 0, partition_id=10), shrink("b", 0, partition_id=10, replica_id=3)]
    rows += [shrink("b", 1, partition_id=10, made_by="controller")]
    assert events(engine, rows) == {
        **{(partition, 2): case for partition, case in enumerate(EVENTS)},
        (9, 2): [[("a", 0)], [("b", 1001), ("c", 2000)]],
        (10, 2): [[("a", 0)]],
        (10, 3): [[("b", 0)]],
    }


def greedy(shrinks: list[tuple[int, str, int]]) -> list[list[tuple[str, int]]]:
    """The definition, one shrink after the other."""
    found: list[list[tuple[str, int]]] = []
    for ms, rule, lag in sorted(shrinks):
        latest = found[-1] if found else []
        if latest and ms - latest[0][1] <= lag and rule not in {other for other, _ in latest}:
            latest.append((rule, ms))
        else:
            found.append([(rule, ms)])
    return found


def test_events_are_those_of_the_definition(engine: LakeEngine) -> None:
    chance = random.Random(7)
    lags = {"a": 4000, "b": 4000, "c": 1000, "d": 8000}
    logs = {
        partition: sorted({(chance.randrange(60_000), rule, lags[rule]) for rule in chance.choices("abcd", k=30)})
        for partition in range(20)
    }
    rows = [shrink(rule, ms, lag=lag, partition_id=p) for p, log in logs.items() for ms, rule, lag in log]
    assert events(engine, rows) == {(p, 2): greedy(log) for p, log in logs.items()}


def test_changes_of_each_run_at_an_event(engine: LakeEngine) -> None:
    verdicts = [shrink("first", 0), shrink("second", 2000), shrink("gone", -5000), shrink("later", 6000)]
    changes = [
        *(change(row["rule"], ms) for row, ms in zip(verdicts, (0, 2000, -5000, 6000), strict=True)),
        change("back", -1000, "expand"),
        change("joins", 3000, "expand"),
    ]
    runs = [
        *(replayed(rule) for rule in ("first", "second", "keeps", "gone", "back", "later", "joins")),
        *(replayed("twice", lag=lag) for lag in (LAG, 2 * LAG)),
        replayed("yesterday", -MIDNIGHT - 1),
    ]
    # Another partition, whose follower was outside when its term began.
    verdicts.append(shrink("first", 0, partition_id=1))
    changes += [change("first", -10, "expand", partition_id=1), change("first", 0, partition_id=1)]
    runs += [replayed(rule, partition_id=1) for rule in ("first", "never")]
    scores = frame(engine, PARTITION_SCORES, *runs)
    terms = frame(engine, LEADER_EPOCHS, term(), term((3, 1), partition_id=1))
    noon_us = int(datetime(2026, 1, 1, 12).timestamp()) * 1_000_000  # noqa: DTZ001 (tests run in UTC)
    shrinks = shrink_events(engine, frame(engine, SHRINK_VERDICTS, *verdicts))
    at_noon = engine(f"SELECT * FROM {{shrinks}} WHERE event_us = {noon_us}", shrinks=shrinks)
    replayed_of = runs_that_may_disagree(engine, scores, terms)
    rows = engine.listed(disagreements_at_events(engine, at_noon, replayed_of, frame(engine, ISR_CHANGES, *changes)))
    assert {row["run"]: row["stand"] for row in rows if row["partition_id"] == 1} == {"first": "made", "never": "out"}
    assert {row["run"]: row["stand"] for row in rows if row["partition_id"] != 1} == {
        "first": "made",
        "second": "made",
        "keeps": "kept",
        "back": "kept",
        "later": "kept",
        'twice {"replica_lag_time_max_ms": 4000}': "kept",
        'twice {"replica_lag_time_max_ms": 8000}': "kept",
        "gone": "out",
        "joins": "out",
    }  # fmt: skip


def disagreeing(lake: Lake) -> list[tuple[str, list[str], list[str]]]:
    rows = lake.read("rule_disagreements").orderBy("change_time").collect()
    return [(str(row["event_date"]), row["rules_for"], row["rules_against"]) for row in rows]


def test_written_by_day_with_causes_and_over_midnight(lake: Lake) -> None:
    rules = ("kafka-2.1", "kafka-3.7", "true-lag")
    noon = [shrink("kafka-3.7", 0, "slow_leader"), shrink("kafka-2.1", 100), shrink("kafka-2.1", 30_000)]
    late = [shrink(rule, 3_600_000) for rule in rules]
    night = [shrink("kafka-3.7", MIDNIGHT - 1000)]
    # The leader was started again at noon, and kept its epoch.
    put(lake, LEADER_EPOCHS, term(end_time=at(-1)["time"]), term(start_time=at(0)["time"]))
    put(lake, PARTITION_SCORES, *(replayed(rule, ms) for rule in rules for ms in (-1, 0, MIDNIGHT)))
    lake.ensure(ISR_CHANGES)
    put(lake, SHRINK_VERDICTS, *noon, *late, *night)
    # All agree on what is at one o'clock.
    assert write_disagreements(lake, Window()) == 3
    with InProcess(lake) as here:
        in_spark = [row.asDict() for row in rule_disagreements(BySpark(lake)).orderBy("change_time").collect()]
        found = rule_disagreements(here).sort_by("change_time")
        for name in ("rules_for", "rules_against", "event_date"):
            assert [row[name] for row in in_spark] == found[name].to_pylist()
        assert [list(row["causes"].items()) for row in in_spark] == found["causes"].to_pylist()
    others = [
        ("2026-01-01", ["kafka-2.1", "kafka-3.7"], ["true-lag"]),
        ("2026-01-01", ["kafka-2.1"], ["kafka-3.7", "true-lag"]),
    ]
    assert disagreeing(lake) == [*others, ("2026-01-01", ["kafka-3.7"], ["kafka-2.1", "true-lag"])]
    first = lake.read("rule_disagreements").orderBy("change_time").collect()[0]
    assert first["causes"] == {"kafka-2.1": "follower_slow", "kafka-3.7": "slow_leader"}
    assert first["verdicts"] == {"kafka-2.1": "genuine", "kafka-3.7": "spurious"}
    # The second of January alone is replayed again, and now has a twin of the shrink before midnight.
    put(lake, SHRINK_VERDICTS, *noon, *late, *night, shrink("true-lag", MIDNIGHT + 1000))
    write_disagreements(lake, Window("2026-01-02", "2026-01-03"))
    assert disagreeing(lake) == [*others, ("2026-01-01", ["kafka-3.7", "true-lag"], ["kafka-2.1"])]


def test_two_rules_compared(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = "kafka-3.7", "true-lag"
    put(lake, PARTITION_SCORES, replayed(a), replayed(b), replayed(a, MIDNIGHT), replayed("kafka-2.1"))
    put(
        lake, SHRINK_VERDICTS,
        shrink(a, 0, "slow_leader"), shrink(b, 1000, "keeping_pace"),
        shrink(a, 10_000, "caught_up"), shrink(a, 20_000), shrink(b, 20_500),
        shrink(b, 30_000),
        shrink("kafka-2.1", 9_500),
        # b was not replayed for that day.
        shrink(a, MIDNIGHT + 1),
    )  # fmt: skip
    names = ("cause", "only_a", "only_b", "both_by_a", "both_by_b")
    counted = [tuple(row[name] for name in names) for row in compare_rules(lake, a, b)]
    assert counted == [
        ("caught_up", 1, 0, 0, 0),
        ("keeping_pace", 0, 0, 0, 1),
        ("slow_leader", 0, 0, 1, 0),
        ("follower_slow", 0, 1, 1, 1),
        ("total", 1, 1, 2, 2),
    ]
    with pytest.raises(UsageError, match="compared with itself"):
        compare_rules(lake, a, a)
    with pytest.raises(NoInputError, match=r"no replay of kafka-0\.8"):
        compare_rules(lake, a, "kafka-0.8")
    with pytest.raises(SystemExit) as exited:
        cli.main(["compare", a, b, "--lake", lake.root, "--quiet", "--json"])
    assert not exited.value.code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [tuple(line[name] for name in names) for line in lines] == counted
    with pytest.raises(SystemExit) as exited:
        cli.main(["compare", a, "kafka-0.8", "--lake", lake.root, "--quiet"])
    assert exited.value.code == 3
    assert "--rules kafka-0.8" in capsys.readouterr().err

"""Silences, checks and processes of a broker."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.terms import broker_events
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, lines, sources

_US = ("before_us", "first_us", "last_us", "before_done_us", "done_us", "waiting_since_us")
PAUSES = pa.schema([
    ("broker_id", pa.int32()), *((name, pa.int64()) for name in _US), ("process_before", pa.int32()),
    ("process", pa.int32()), ("is_last", pa.bool_()),
])  # fmt: skip
SIGNS = pa.schema([
    ("broker_id", pa.int32()), ("replica_id", pa.int32()), ("from_us", pa.int64()), ("arrival_us", pa.int64()),
    ("until_us", pa.int64()), ("sign", pa.string()),
])  # fmt: skip
NOT_NOTED = pa.schema([
    ("broker_id", pa.int32()), ("process", pa.int32()), ("at_us", pa.int64()), ("silent_from_us", pa.int64()),
    ("period_ms", pa.int64()),
]).empty_table()  # fmt: skip
STARTED = "Registered `kafka:type=kafka.Log4jController` MBean"
SHRINK = "[Partition t-x-1 broker=1] Shrinking ISR from 1,2 to 1"
SCHEDULED = "[LogDirFailureHandler]: Starting"


def pauses(*rows: dict[str, Any]) -> pa.Table:
    """Make pauses of broker 1 in seconds, in its first process."""
    told = [
        {"broker_id": 1, "process": 1, "process_before": 1, "is_last": False}
        | {name: round(value * SECOND) if name in _US else value for name, value in row.items()}
        for row in rows
    ]
    return pa.Table.from_pylist(told, PAUSES)


def acts(*seconds: float) -> pa.Table:
    times = pa.array([round(at * SECOND) for at in seconds], pa.int64())
    return pa.table({"broker_id": pa.array([1] * len(seconds), pa.int32()), "at_us": times})


def signs(*asked_again: tuple[int, float, float], sign: str = "spanned") -> pa.Table:
    """Make followers that were answered, and asked again 1 ms before they were answered again."""
    told = [
        {"broker_id": 1, "replica_id": replica, "from_us": round(answered * SECOND), "sign": sign,
         "arrival_us": round(asked * SECOND), "until_us": round(asked * SECOND) + 1000}
        for replica, answered, asked in asked_again
    ]  # fmt: skip
    return pa.Table.from_pylist(told, SIGNS)


def silent(sql: ArrowSql, activity: pa.Table, heard: pa.Table | None = None, **pause: float) -> list[Any]:
    known = sources(sql, lines((0, STARTED), (30, STARTED)))
    rows = broker_events.broker_silences(known, pauses(pause), activity, heard or signs()).to_pylist()
    return [(row["from_us"] / SECOND, row["until_us"] / SECOND) for row in rows]


def test_a_pause_is_a_silence_if_a_request_waited(sql: ArrowSql) -> None:
    assert silent(sql, acts(), before_us=10, first_us=12, waiting_since_us=10) == [(10, 12)]
    assert silent(sql, acts(), before_us=10, first_us=12, waiting_since_us=11.95) == []
    assert silent(sql, acts(), before_us=10, first_us=12) == []
    assert silent(sql, acts(), before_us=10, first_us=10.4, waiting_since_us=10) == []


def test_a_pause_is_a_silence_if_followers_that_had_been_answered_come_back_together(sql: ArrowSql) -> None:
    def found(*asked_again: tuple[int, float, float], sign: str = "spanned") -> list[Any]:
        return silent(sql, acts(), signs(*asked_again, sign=sign), before_us=10, first_us=12)

    assert found((2, 10, 12), (3, 9.95, 12.05)) == [(10, 12)]
    assert found((2, 10, 12), (2, 9.99, 12)) == [], "two threads of one follower, which may have been stopped itself"
    assert found((2, 10, 12), (3, 10, 12.2)) == [], "stopped followers wake up one by one"
    assert found((2, 10, 12), (3, 10, 10.01)) == [], "it waited for data"
    assert found((2, 10, 12), (3, 9, 12)) == [], "it was away before"
    assert found((2, 10, 12), (3, 10, 12), sign="break") == [], "lines are missing"
    told = silent(sql, acts(11), signs((2, 10, 12), (3, 10, 12)), before_us=10, first_us=12)
    assert told == [], "the leader did something meanwhile"


def test_a_line_of_the_server_log_ends_a_silence(sql: ArrowSql) -> None:
    told = silent(sql, acts(3, 10.6, 11, 11.1, 20), before_us=10, first_us=12, waiting_since_us=10)
    assert sorted(told) == [(10, 10.6), (11.1, 12)]
    # It waited for the second half only.
    assert silent(sql, acts(11), before_us=10, first_us=12, waiting_since_us=11.2) == [(11, 12)]


def test_a_pause_is_a_silence_if_a_check_was_late_for_it(sql: ArrowSql) -> None:
    def found(until: float, *shrinks: float) -> list[tuple[float, float]]:
        known = sources(sql, lines((0, STARTED), *((at, SHRINK) for at in (2, 4, *shrinks))))
        rows = broker_events.broker_silences(
            known, pauses({"before_us": 10, "first_us": until}), acts(*shrinks), signs()
        ).to_pylist()
        return [(row["from_us"] / SECOND, row["until_us"] / SECOND) for row in rows]

    # The lag time is 4 s, the period 2 s, and checks are due at 2, 4, 6 ... s.
    assert found(16.5, 16.6) == [(10, 16.5)]
    assert found(16.5, 16.4) == [(10, 16.4)]
    assert found(16.05, 16.4) == []
    assert found(16.5, 17.5) == []
    assert found(16.5) == []
    # The check in it, or the one after it, was on time: followers were stopped, and then a producer wrote.
    assert found(18.5, 14, 18.6) == []
    assert found(17.8, 18.05) == []


def test_a_restart_is_no_silence(sql: ArrowSql) -> None:
    told = silent(sql, acts(30), before_us=28, first_us=32, waiting_since_us=28)
    assert told == [(30, 32)]


def test_checks_and_their_origin(sql: ArrowSql) -> None:
    server = lines(
        (0, STARTED), (2.1, SCHEDULED), (20.1, SHRINK), (20.2, SHRINK), (26.13, SHRINK), (30.7, SHRINK), level="INFO"
    )  # fmt: skip
    known = sources(sql, server)
    silences = broker_events.broker_silences(
        known, pauses({"before_us": 27.7, "first_us": 30.695, "waiting_since_us": 27.7}), acts(), signs()
    )
    checks = broker_events.checks_seen(known, silences)
    seen = [(row["at_us"] / SECOND, row["silent_from_us"], row["period_ms"]) for row in checks.to_pylist()]
    assert sorted(seen) == [(20.1, None, 2000), (26.13, None, 2000), (30.7, 27_700_000, 2000)]
    last = pauses({"before_us": 27.7, "first_us": 31, "last_us": 31.5, "is_last": True})
    (process,) = broker_events.broker_processes(known, last, acts(0, 40), checks, NOT_NOTED).to_pylist()
    assert process == {
        "broker_id": 1, "process": 1, "last_led_us": 31_500_000, "broker_version": None, "check_origin_ms": 20_100,
        "check_origin_source": "shrinks",
    }  # fmt: skip
    events = broker_events.check_events(
        sql, checks, broker_events.broker_processes(known, last, acts(), checks, NOT_NOTED)
    ).to_pylist()
    due = sorted((row["at_us"] / SECOND, row["end_us"] / SECOND) for row in events)
    assert due == [(20.1, 20.1), (26.1, 26.13), (28.1, 30.7)]


def test_processes_end_with_their_last_request_or_shrink(sql: ArrowSql) -> None:
    server = lines((0, STARTED), (2, SCHEDULED), (25, SHRINK), (30, STARTED), (31, SCHEDULED.replace("Starting", "no")))
    known = sources(sql, server)
    restarted = pauses(
        {"before_us": 20, "first_us": 33, "process": 2},
        {"before_us": 34, "first_us": 36, "last_us": 36.01, "process": 2, "process_before": 2, "is_last": True},
    )
    none = broker_events.checks_seen(
        sources(sql), broker_events.broker_silences(sources(sql), pauses(), acts(), signs())
    )
    rows = (
        broker_events.broker_processes(known, restarted, acts(0, 31, 50), none, NOT_NOTED)
        .sort_by("process")
        .to_pylist()
    )
    facts = [(row["process"], row["last_led_us"], row["check_origin_source"], row["check_origin_ms"]) for row in rows]
    assert facts == [(1, 25 * SECOND, "startup", 2000), (2, 36_010_000, "unknown", 0)]


def test_a_process_without_requests_is_known_by_its_lines(sql: ArrowSql) -> None:
    known = sources(sql, lines((10, STARTED)))
    none = broker_events.checks_seen(known, broker_events.broker_silences(known, pauses(), acts(), signs()))
    rows = broker_events.broker_processes(known, pauses(), acts(5, 10), none, NOT_NOTED).sort_by("process").to_pylist()
    assert [(row["process"], row["last_led_us"]) for row in rows] == [(0, None), (1, None)]


STILL_LEADS = (
    "[Broker id=1] Skipped the become-leader state change for t-x-1 with topic id Some(QOGIGkfUTjeQvN1wX98d01) and "
    "partition state LeaderAndIsrPartitionState(topicName='t-x', partitionIndex=1, controllerEpoch=-1, leader=1, "
    "leaderEpoch=0, isr=[{}], partitionEpoch={}, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false, "
    "leaderRecoveryState=0) since it is already the leader with leader epoch 0."
)


@pytest.mark.parametrize(
    ("at", "origin"),
    [
        ((10.03, 16.01, 30.06), ("removals", 16_010)),
        ((10.03,), ("unknown", 10_030)),
        ((10.03, 16.5, 31), ("unknown", 10_030)),
        ((), ("unknown", 0)),
    ],
)
def test_removals_in_phase_show_when_checks_are_due(
    sql: ArrowSql, at: tuple[float, ...], origin: tuple[str, int]
) -> None:
    both = [(0.5, STILL_LEADS.format("1, 2", 0)), *((each + 2, STILL_LEADS.format("1, 2", 0)) for each in at)]
    notes = lines(*sorted([*both, *((each, STILL_LEADS.format("1", 1)) for each in at)]))
    known = sources(sql, state_changes=notes)
    silences = broker_events.broker_silences(known, pauses(), acts(), signs())
    noted = broker_events.checks_noted(known, silences)
    (process,) = broker_events.broker_processes(known, pauses(), acts(5), NOT_NOTED, noted).to_pylist()
    assert (process["check_origin_source"], process["check_origin_ms"]) == origin

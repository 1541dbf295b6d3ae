"""Day by day as in one go, through the tables: states, what spans midnight, which days are done."""

import random
import shutil
from datetime import date
from pathlib import Path

import pytest

from isr_batch.errors import WriteConflictError
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lease import leased
from isr_batch.lake.run_log import Run
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.inputs import INPUT_TABLES
from isr_batch.lake.tables.outputs import OUTPUT_TABLES, REPLAY_STATE, REPLAYED_DAYS, RUN_LEASE, RUN_LOG
from isr_batch.lake.tables.timelines import RULE_RUNS, TIMELINES, VIEWS
from isr_batch.replay.days import DONE, MISSING, STALE, DaysOfReplay, days_status, fingerprints, undone_days
from isr_batch.replay.event_stream import _states_at_begin, stream_facts
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import ORDER, rule_runs
from isr_batch.settings import ReplaySettings, Settings
from isr_batch.simulation.generate_scenario import generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.window import Window
from pipelines.job import Job, replay_window_of_job
from pipelines.output import Output
from tests.same_rows import rows_in
from tests.unit.test_windows import in_order, in_windows, results
from udfs.batches.results import SET_COLUMNS, STATE
from udfs.batches.segments import unpack_segment
from udfs.records import NEVER_US

RULES = ["kafka-0.9", "kafka-3.7", "kip-501-pending", "kip-501-relinquish", "true-lag"]
FIRST, SECOND = date(2023, 12, 31), date(2024, 1, 1)
MIDNIGHT = {"kip-501-example": 20, "kafka-4485-always-behind": 12, "kafka-10853-dead-follower": 30}
"""Stories, and after how many of their seconds it comes; in the first a follower is dropped before, and back after."""
NOT_RESULTS = {RUN_LOG, RUN_LEASE, REPLAYED_DAYS, REPLAY_STATE, RULE_RUNS, *TIMELINES.values()}


@pytest.fixture
def stories(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Each story is a cluster, and midnight falls into each at another instant."""
    for name, seconds in MIDNIGHT.items():
        monkeypatch.setattr("isr_batch.simulation.generate_scenario.START_MS", START_MS - 1000 * seconds)
        generate_scenario(lake, FleetOfGroups(name))
    return lake


def job(lake: Lake) -> Job:
    return Job(Output(quiet=True), Settings.model_validate({"replay": {"rules": RULES}}), lake)


def done(lake: Lake, *windows: Window) -> None:
    for window in windows:
        replay_window_of_job(job(lake), Run(), window)


def tables(lake: Lake) -> dict[str, list[str]]:
    return {
        table.name: rows_in(lake, table.name)
        for table in (*OUTPUT_TABLES, *(contract for contract, _ in VIEWS.values()))
        if lake.has(table.name) and table not in NOT_RESULTS
    }


def told(lake: Lake) -> list[tuple[object, object]]:
    return [(row["event_date"], row["status"]) for row in days_status(lake, Window(), fingerprints(lake))]


def test_day_by_day_is_as_in_one_go(stories: Lake, tmp_path: Path) -> None:
    by_day = Lake(stories.spark, str(shutil.copytree(stories.root, tmp_path / "by-day")), "copy")
    pack_stale_days(by_day)
    assert told(by_day) == [(FIRST, MISSING), (SECOND, MISSING)]
    days = Window.of_day(FIRST), Window.of_day(SECOND)
    done(stories, Window())
    done(by_day, *days)
    whole = tables(stories)
    assert {name for name, rows in whole.items() if rows} >= {"isr_changes", "shrink_verdicts", "rule_disagreements"}
    found = tables(by_day)
    for name, rows in whole.items():
        assert found[name] == rows, name
    across = by_day.read("shrink_verdicts").where("CAST(restored_time AS DATE) > event_date")
    assert not across.isEmpty()
    assert told(by_day) == [(FIRST, DONE), (SECOND, DONE)]

    # The first day again: what the second day knows of it stays.
    done(by_day, days[0])
    assert tables(by_day) == whole

    # Something of the first day comes late: what was made of it no longer holds, until it is done again.
    (table,) = (table for table in INPUT_TABLES if table.name == "append_log")
    of_first = f"event_date = DATE'{FIRST}'"
    appends = by_day.read(table.name).where(of_first).orderBy("append_time")
    by_day.replace(table, appends.limit(appends.count() - 1).localCheckpoint(), of_first)
    pack_stale_days(by_day)
    assert told(by_day) == [(FIRST, STALE), (SECOND, STALE)]
    runs = rule_runs(job(by_day).settings.replay)
    DaysOfReplay(by_day, days[0], runs, fingerprints(by_day), days[0], None).mark()
    assert undone_days(by_day, Window(), runs, fingerprints(by_day)) == [SECOND]
    other_rules = runs[:1]
    assert undone_days(by_day, Window(), other_rules, fingerprints(by_day)) == [FIRST, SECOND]


def test_one_run_at_a_time(lake: Lake) -> None:
    other = Lake(lake.spark, lake.root, "other")
    with leased(lake), pytest.raises(WriteConflictError, match=f"run {lake.run_id} .process"), leased(other):
        pass
    with leased(other):
        pass
    with pytest.raises(ZeroDivisionError), leased(lake):
        raise ZeroDivisionError
    with leased(other):
        pass
    assert lake.read(RUN_LEASE.name).count() == 8


@pytest.mark.parametrize("cluster", ["leader-stop", "restart"])
def test_recorded_brokers_cut_anywhere(sample_lake: Lake, cluster: str) -> None:
    """The law of tests/unit/test_windows.py, of brokers: the window's edges fall on any instants of some partitions."""
    of_cluster = f"cluster_id = '{cluster}' AND partition_id < 2"
    with InProcess(sample_lake) as engine:
        of_facts = engine(f"SELECT * FROM {{facts}} WHERE {of_cluster}", facts=stream_facts(engine))
        rows = engine.listed(of_facts)
    for segment in (row.asDict() for row in sample_lake.read("fetch_segments").where(of_cluster).collect()):
        of_segment = {name: segment[name] for name in (*SET_COLUMNS, "leader_epoch")}
        columns = {name: values.tolist() for name, values in unpack_segment(segment).items()}
        rows += [of_segment | dict(zip(columns, event, strict=True)) for event in zip(*columns.values(), strict=True)]
    rows.sort(key=lambda row: [row[name] for name in ORDER])
    times = sorted(row["time_us"] for row in rows)
    cuts = sorted(random.Random(20261122).sample(range(times[0], times[-1]), 3))
    runs = rule_runs(ReplaySettings(rules=RULES))
    whole = [row for row in results(rows, runs, int(NEVER_US)) if row["result"] != STATE]
    assert sum(row["result"] == "change" for row in whole) > 10
    assert in_order(in_windows(rows, runs, cuts)) == in_order(whole)


def test_a_state_is_of_the_last_term_before_the_window(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that starts again leads in the same epoch, and so in two rows of one key."""
    of_set = "'c' cluster_id, 't' topic, 0 partition_id, 7 leader_epoch, 1 leader_id"
    hours = "(1, 5), (6, 30), (31, 40) AS hours(begins, ends)"
    instant = "TIMESTAMP'2023-12-31' + make_interval(0, 0, 0, 0, {})"
    terms = lake.spark.sql(
        f"SELECT {of_set}, {instant.format('begins')} start_time, {instant.format('ends')} end_time, "
        f"false ends_mid_term FROM VALUES {hours}"
    )
    kept = lake.spark.sql(f"SELECT {of_set}, array(1, 2) assigned, array('{{}}') params, X'00' state")
    with BySpark(lake) as engine:
        monkeypatch.setattr("isr_batch.replay.event_stream.joined_terms", lambda _: terms)
        (row,) = engine.listed(_states_at_begin(engine, kept, Window.of_day(SECOND)))
    assert row["kept"]["end_us"] == (1_703_980_800 + 30 * 3600) * 1_000_000

"""Changes of brokers and replay side by side, of made-up edges; DuckDB and Spark say the same."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import InProcess, replace_arrow
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from isr_batch.lake.tables.outputs import ISR_CHANGES, REPLAY_CHECK, REPLAYED_DAYS, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES
from isr_batch.replay.days import fingerprints
from isr_batch.replay.packing import pack_stale_days
from isr_batch.scoring.broker_check import matched, validate
from pipelines import cli

if TYPE_CHECKING:
    from isr_batch.lake.lake_engine import LakeEngine

START = dt.datetime(2026, 11, 21, 23, 50, tzinfo=dt.UTC)
PARAMS = '{"min_insync_replicas": 1, "replica_lag_time_max_ms": 10000}'


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def of_set(partition: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "cluster_id": "c", "topic": "t", "partition_id": partition, "leader_epoch": 1, "leader_id": 1,
        "event_date": at(seconds).date(), **more,
    }  # fmt: skip


def change(partition: int, time: float, kind: str = "shrink", **more: Any) -> dict[str, Any]:
    isr = dict(zip(("isr_before", "isr_after"), ([1, 2], [1]) if kind == "shrink" else ([1], [1, 2]), strict=True))
    return of_set(partition, time, change_time=at(time), kind=kind, replica_id=2, **isr, **more)


def replayed(partition: int, time: float, kind: str = "shrink", **more: Any) -> dict[str, Any]:
    made = {"rule": "kafka-3.7", "params_json": PARAMS, "made_by": "rule", "certainty": "certain"}
    return change(partition, time, kind, **{**made, **more})


def term(partition: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    return of_set(
        partition, start, start_time=at(start), end_time=at(end), assigned=[1, 2], isr_at_start=[1, 2],
        replica_lag_time_max_ms=10_000, min_insync_replicas=1, broker_version="4.1.0", check_origin_ms=0,
        check_origin_source="unknown", **more,
    )  # fmt: skip


def fetch(partition: int, handled: float, processed: float, **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("arrival", "handled"), handled)
    times |= dict.fromkeys(("processed", "released", "completed"), processed)
    return of_set(
        partition, handled, replica_id=2, error_code=0, **{f"{name}_time": at(time) for name, time in times.items()},
        **{"run_length": 1, "last_handled_time": at(handled), **more},
    )  # fmt: skip


def write(lake: Lake, table: Table, rows: list[dict[str, Any]]) -> None:
    whole = [{name: row.get(name) for name in table.column_names} for row in rows]
    with ArrowSql() as sql:
        replace_arrow(lake, sql, table, pa.Table.from_pylist(whole, arrow_schema(table)))


@pytest.fixture
def edges(lake: Lake) -> Lake:
    """A partition for each edge; what was logged and replayed of it is its story."""
    terms = [term(partition, 0, 1200) for partition in range(8)]
    # The log of partition 8 begins in mid-term; of partition 9 it goes on from the one before, on the next day.
    terms += [term(8, 100, 1200, begins_mid_term=True)]
    terms += [term(9, 0, 620, ends_mid_term=True), term(9, 620.5, 1200, begins_mid_term=True)]
    # Broker 3 has no server.log, and that of broker 4 begins late.
    terms += [term(7 + leader, 0, 1200) | {"leader_id": leader, "assigned": [leader, 2], "isr_at_start": [leader, 2]}
              for leader in (3, 4)]  # fmt: skip
    # An observer that the leader took out is not compared.
    terms += [term(12, 0, 1200, observers=[2]) | {"isr_at_start": [1]}]
    write(lake, LEADER_EPOCHS, terms)
    write(lake, COVERAGE, [
        {"cluster_id": "c", "broker_id": broker, "log": log, "from_time": at(begin), "until_time": at(1200),
         "event_date": at(0).date()}
        for broker, log, begin in ((1, "request", 0), (3, "request", 0), (4, "request", 0), (1, "server", -5),
                                   (4, "server", 100))
    ])  # fmt: skip
    write(lake, OBSERVED_ISR_CHANGES, [
        change(0, 50, made_by="leader", last_caught_up_time_ms=5, high_watermark=3),
        change(0, 60, made_by="controller"),
        change(1, 50, made_by="leader"), change(2, 700, made_by="leader"), change(3, 50, made_by="leader"),
        change(5, 1199.9, made_by="leader"), change(6, 1300, made_by="leader"), change(8, 110, made_by="leader"),
        change(9, 625, made_by="leader"), change(12, 50, made_by="leader"),
        change(7, 50, "expand", made_by="leader"), change(7, 52, "expand", made_by="leader"),
    ])  # fmt: skip
    write(lake, ISR_CHANGES, [
        replayed(0, 50.004, last_caught_up_time_ms=7, high_watermark=3),
        replayed(0, 50.001, rule="kafka-0.9"), replayed(0, 51, params_json=PARAMS.replace("10000", "500")),
        replayed(4, 50, depends_on="check_time", certainty="possible"), replayed(4, 55, "expand"),
        replayed(7, 51.5, "expand"), replayed(7, 40, "expand"),
        replayed(10, 50, leader_id=3), replayed(11, 50, leader_id=4), replayed(11, 150, leader_id=4),
    ])  # fmt: skip
    write(lake, PARTITION_SCORES, [of_set(0, 0, rule="kafka-3.7", params_json=PARAMS, time=at(0))])
    write(lake, SHRINK_VERDICTS, [])
    # In a run of three across midnight the last fetch is the near one; in another one the first is long done.
    write(lake, FETCH_LOG, [
        fetch(1, 49.990, 49.996), fetch(1, 40, 40.001), fetch(3, 49.9, 49.994),
        fetch(2, 599, 599.001, run_length=3, last_handled_time=at(699.999),
              later_by=[500_000, 500_000, 500_000, 500_000, 500_000, 1, *[100_499_000] * 5, 1]),
    ])  # fmt: skip
    appended = {"base_offset": 1, "log_end_offset": 2, "acks": 1, "error_code": 0}
    times = ((1, 50.005), (3, 50.006), (2, 600))
    write(lake, APPEND_LOG, [of_set(p, when, append_time=at(when), **appended) for p, when in times])
    return lake


STORY: Mapping[int, list[tuple[str, str | None]]] = {
    0: [("matched", None)],
    1: [("missing", "race: a fetch of the replica and an append within 5 ms of the change")],
    2: [("missing", "race: a fetch of the replica within 5 ms of the change")],
    3: [("missing", None)],
    4: [("extra", "possible: it depends on when the leader's check ran"), ("extra", None)],
    5: [("unknown", "less than 600 ms before the leader's request log ends: requests in flight are not in it")],
    6: [("unknown", "outside the time that the leader's request log covers")],
    7: [("extra", None), ("missing", None), ("matched", None)],
    8: [("unknown", "within a lag time and a check of where the leader's request log begins")],
    9: [("missing", None)],
    10: [("unknown", "no server.log of the leader covers this time: the change may not be the leader's")],
    11: [("unknown", "no server.log of the leader covers this time: the change may not be the leader's"),
         ("extra", None)],
    12: [("observer", "the replica was listed as an observer and not in the ISR when the term began")],
}  # fmt: skip


def test_each_edge(edges: Lake) -> None:
    with InProcess(edges) as engine:
        rows = engine.listed(matched(engine, edges))
    found: dict[int, list[tuple[str, str | None]]] = {}
    for row in sorted(rows, key=lambda row: row["observed_time"] or row["replayed_time"]):
        found.setdefault(row["partition_id"], []).append((row["status"], row["note"]))
    assert found == STORY


def test_spark_gives_the_same(edges: Lake) -> None:
    """Times in microseconds: the engines return them in different zones."""
    plain = "SELECT *, unix_micros(observed_time) AS a_us, unix_micros(replayed_time) AS b_us FROM {rows}"
    engines: list[LakeEngine] = [InProcess(edges), BySpark(edges)]
    here, in_spark = (
        sorted(({**row, "observed_time": 0, "replayed_time": 0} for row in engine.listed(rows)), key=str)
        for engine in engines
        for rows in [engine(plain, rows=matched(engine, edges))]
    )
    assert here == in_spark


def test_the_metadata_log_names_every_leader(edges: Lake) -> None:
    record = {
        "cluster_id": "c", "record_time": at(0), "kind": "partition", "topic": "t", "partition_id": 10,
        "source_file": "metadata.txt", "source_line": 1, "ingest_run": "run-1", "event_date": at(0).date(),
    }  # fmt: skip
    write(edges, CONTROLLER_RECORDS, [record])
    with InProcess(edges) as engine:
        rows = engine.listed(matched(engine, edges))
    assert [row["status"] for row in rows if row["leader_id"] in {3, 4}] == ["extra"] * 3


def test_the_table_has_it(edges: Lake) -> None:
    summary = validate(edges)
    first = summary.rows[1]
    assert (first["kind"], first["matched"], first["missing"], first["races"]) == ("shrink", 1, 4, 3)
    assert (first["caught_up_within_1_ms"], first["caught_up_within_2_ms"], first["within_100_ms"]) == (0, 1, 1)
    assert first["offsets_equal"] is None  # no line has two of its figures
    assert (summary.matched, edges.read(REPLAY_CHECK.name).count()) == (2, sum(map(len, STORY.values())))
    assert summary.of_observers == 1
    logged = edges.read(OBSERVED_ISR_CHANGES.name).where("made_by = 'leader'").count()
    counts = (sum(row[name] for row in summary.rows) for name in ("matched", "missing", "of_observers"))
    unknown = edges.read(REPLAY_CHECK.name).where("status = 'unknown' AND observed_time IS NOT NULL").count()
    assert sum(counts) + unknown == logged


def marked(seconds: float, line: str = "any") -> dict[str, Any]:
    """Mark a day as replayed, with the fingerprint of its input."""
    return {"event_date": at(seconds).date(), "rule": "kafka-3.7", "runs": "r", "line": line, "run_id": "run-1",
            "replayed_time": at(seconds)}  # fmt: skip


def test_changes_on_a_day_that_is_not_replayed_are_unknown(edges: Lake) -> None:
    """The night's backfill ends before the current day, whose first hours are in the lake already."""
    write(edges, REPLAYED_DAYS, [marked(0)])
    with InProcess(edges) as engine:
        rows = engine.listed(matched(engine, edges))
    found: dict[int, list[tuple[str, str | None]]] = {}
    for row in sorted(rows, key=lambda row: row["observed_time"] or row["replayed_time"]):
        found.setdefault(row["partition_id"], []).append((row["status"], row["note"]))
    undone = ("unknown", "on a day that is not replayed")
    assert found == {**STORY, 2: [undone], 9: [undone]}


def test_too_few_matches_are_an_error_unless_days_are_stale(edges: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked: that a check ran late is only found once."""
    monkeypatch.setattr("isr_batch.scoring.late_checks.find_late_checks", lambda _: 0)
    derive_tables(edges)
    pack_stale_days(edges)
    known = fingerprints(edges)
    for lines, code in ((("earlier", "earlier"), 0), ((known.at(at(0).date()), known.at(at(700).date())), 4)):
        write(edges, REPLAYED_DAYS, [marked(0, lines[0]), marked(700, lines[1])])
        for _ in range(2):
            with pytest.raises(SystemExit) as ended:
                cli.main(["validate", "--lake", edges.root, "--quiet"])
            assert ended.value.code == code


def moments(rows: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], str | None]:
    """``depends_on`` of each change, by rule, partition, kind and seconds since the start."""
    return {
        (row["rule"], row["partition_id"], row["kind"], (row["change_time"] - START).total_seconds()): row["depends_on"]
        for row in rows
        if (row["certainty"] == "possible") == (row["depends_on"] is not None)
    }


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_shrink_refuted_by_the_logs_is_not_certain(
    edges: Lake, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    """Nor under another rule, if it is by the same check; what is unknown, or possible already, stays as it was."""
    if by_spark:
        monkeypatch.setattr("isr_batch.lake.sizes.QUERIED_BYTES", 1)
    rows = edges.read(ISR_CHANGES.name).toArrow().to_pylist()
    second = dt.timedelta(seconds=1)
    others = [row | {"rule": "kafka-2.1"} for row in rows if row["rule"] == "kafka-3.7"]
    late = [row | {"rule": "kafka-3.3", "change_time": row["change_time"] + second} for row in others]
    every = [*rows, *others, *late]
    before = moments(every)
    write(edges, ISR_CHANGES, every)
    judged = {"verdict": "spurious", "primary_cause": "caught_up", "causes": ["caught_up"]}
    write(edges, SHRINK_VERDICTS, [row | judged for row in every if row["kind"] == "shrink"])
    first = validate(edges)
    refuted = {
        (rule, *change): "not_logged"
        for rule in ("kafka-3.7", "kafka-2.1")
        for change in ((4, "expand", 55), (7, "expand", 40), (11, "shrink", 150))
    }
    after = before | refuted
    assert moments(edges.read(ISR_CHANGES.name).toArrow().to_pylist()) == after
    of_shrinks = {change: depends_on for change, depends_on in after.items() if change[2] == "shrink"}
    assert moments(edges.read(SHRINK_VERDICTS.name).toArrow().to_pylist()) == of_shrinks
    if not by_spark:  # a minute more, for the same table
        assert validate(edges) == first, "what it has said is no part of the next comparison"


def test_many_rows_are_for_spark(edges: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(engine_for(edges, ["isr_changes"]), InProcess)
    monkeypatch.setattr("isr_batch.lake.sizes.QUERIED_BYTES", 1)
    assert isinstance(engine_for(edges, ["isr_changes"]), BySpark)


def test_without_a_replay(lake: Lake) -> None:
    with pytest.raises(NoInputError, match="which release"):
        validate(lake)
    write(lake, LEADER_EPOCHS, [term(0, 0, 1200)])
    with pytest.raises(NoInputError, match=r"no replay of kafka-3\.7"):
        validate(lake)

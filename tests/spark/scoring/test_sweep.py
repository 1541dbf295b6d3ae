"""A sweep of a small lake: the counts equal those of a replay, nothing else is touched; and the command."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_LOG
from isr_batch.lake.tables.outputs import OUTPUT_TABLES
from isr_batch.lake.tables.scores import _SCORES, SWEEP_ADVICE, SWEEP_SCORES
from isr_batch.replay.replay import replay
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from isr_batch.scoring.sweep import sweep
from isr_batch.scoring.sweep_grid import NamedGrid, load_grid
from pipelines import cli
from tests.spark.replay.test_replay import stopped_follower

GRID = """
rules: [kafka-0.8, kafka-3.7, true-lag]
grid:
  replica.lag.time.max.ms: [2000, 4000, 60000]
  # Checks come between each append and the fetch that takes it.
  check_phase_ms: [1]
  replica_lag_max_messages: [0]
topic_classes: {internal: "^__"} # the others become one class
budgets: {mistakes_per_follower_day: 1000000, detection_ms_p99: 5000}
"""
Exit = tuple[int, str, str]


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(GRID, encoding="utf-8")
    return file


@pytest.fixture
def named(grid: Path) -> NamedGrid:
    return load_grid(grid)


@pytest.fixture(scope="module")
def made(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(stopped_follower(spark_session, tmp_path_factory.mktemp("made"), {"t": 2, "u": 1, "__v": 2}).root)


@pytest.fixture
def lake(spark: SparkSession, made: Path, tmp_path: Path) -> Lake:
    return Lake(spark, str(shutil.copytree(made, tmp_path / "lake")), "test")


def test_a_sweep_counts_like_a_replay_and_leaves_its_tables_alone(lake: Lake, named: NamedGrid) -> None:
    replay(lake, named.runs)
    write_eligible_leaders(lake, "auto")
    write_scores(lake)
    before = {table.name: lake.version(table.name) for table in OUTPUT_TABLES if lake.has(table.name)}
    found = sweep(lake, named)
    written = [row.asDict() for row in lake.read(SWEEP_SCORES.name).collect()]
    assert {name: lake.version(name) for name in before} == before
    new = {table.name for table in OUTPUT_TABLES if lake.has(table.name)} - set(before)
    assert new == {SWEEP_SCORES.name, SWEEP_ADVICE.name}

    total = lake.read("rule_scores").where("event_date IS NULL AND topic = '__v'").collect()
    plain = {(row["rule"], json.loads(row["params_json"])["replica_lag_time_max_ms"]): row for row in total}
    internal, other = (
        {(row["rule"], row["replica_lag_time_max_ms"]): row for row in written if row["topic_class"] == name}
        for name in ("internal", "other")
    )
    assert len(plain) == len(internal) == len(other) == len(named.runs) == 9
    without = {  # a sweep has no timelines
        "first_violation", "lost_if_leader_dies_records_max", "lost_by_first_active_records_max",
        "lost_by_longest_log_records_max", "high_watermark_frozen_seconds", "visibility_age_ms_max",
        "visibility_age_ms_mean", "hidden_record_seconds",
    }  # fmt: skip
    # A request has changes of topics with the same parameters, which in a sweep are all topics.
    peak = "isr_write_requests_peak_per_second"
    names = [column.name for column in _SCORES if column.name not in without | {peak}]
    for run, row in internal.items():
        expected = {name: plain[run][name] for name in names if plain[run][name] is not None}
        assert all(row[name] is None for name in names if name not in expected), run
        # Spark has summed up the sweep, and DuckDB the replay: the last digit of a percentile may be another.
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-12), run
        assert (row[peak] or 0) >= (plain[run][peak] or 0)
        # Topics are of one class whatever min.insync.replicas their brokers say.
        assert other[run]["shrinks"] == 2 * row["shrinks"]
        assert other[run]["exposure_follower_hours"] == pytest.approx(2 * row["exposure_follower_hours"])
    assert sum(row["spurious"] for row in internal.values()) > 0
    assert sum(row["genuine"] for row in internal.values()) > 0

    answers = [row.asDict() for row in lake.read(SWEEP_ADVICE.name).collect()]
    assert sorted(map(str, answers)) == sorted(map(str, found.advice))
    assert len({(row["topic_class"], row["rule"]) for row in answers}) == len(answers) == 6


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Exit:
    with pytest.raises(SystemExit) as exited:
        cli.main(list(args))
    captured = capsys.readouterr()
    return int(exited.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.long)])
def test_the_command_advises_and_draws(lake: Lake, grid: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    grid.write_text(GRID.replace("kafka-0.8, kafka-3.7, true-lag", "kafka-3.7").replace("  replica_lag_max", "  # "))
    page = grid.parent / "out" / "sweep.html"
    options = ["--lake", lake.root, "--grid", str(grid), "--engine", engine, "--quiet"]
    code, out, _ = run(capsys, "sweep", *options, "--json", "--out", str(page))
    internal, other = map(json.loads, out.splitlines())
    assert (code, internal["topic_class"], other["topic_class"]) == (0, "internal", "other")
    for row in (internal, other):
        # The follower stops after 5 s: dropped two or three seconds later, up to six, or not in these 30 s.
        assert (row["rule"], row["answer"], row["recommended_lag_time_max_ms"]) == ("kafka-3.7", "recommended", 2000)
    html = page.read_text(encoding="utf-8")
    assert "recommended" in html
    assert other["why"].split(";")[0] in html
    assert '"lag_time_s":2.0' in html
    ours = html.partition("<script>")[0] + html.rpartition("<script>")[2]  # between them are Vega's own scripts
    assert "http" not in ours.replace("https://vega.github.io/schema", "")


def test_a_lake_without_fetches_is_no_input(lake: Lake, grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake.replace(FETCH_LOG, lake.read(FETCH_LOG.name).where("false"), "true")
    for root in (lake.root, str(grid.parent / "nowhere")):
        code, _, err = run(capsys, "sweep", "--lake", root, "--grid", str(grid), "--quiet")
        assert code == 3, err
    assert not (grid.parent / "nowhere").exists()

"""Wrong options and paths: reported before Spark starts, with the remedy."""

import shlex
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.printable import printable
from pipelines.job import require_path_of_job
from tests.unit.command_line import Run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["replay", "--lake", "x", "--lke"], "No such option"),
        (["replay"], "--lake FOLDER or --catalog"),
        (["replay", "--lake", "x", "--catalog", "a.b"], "--lake FOLDER or --catalog"),
        (["replay", "--lake", "x", "--date", "today"], "2026-01-31"),
        (["replay", "--lake", "x", "--rules", "kafka-3,true-lag"], "no rule kafka-3; did you mean kafka-"),
        (["replay", "--lake", "x", "--set", "replica_lag_time_max_ms=1"], "RULE.PARAM=VALUE"),
        (
            ["replay", "--lake", "x", "--grid", "conf/grids/lag-times.yaml", "--rules", "true-lag"],
            "omit --rules and --set",
        ),
        (["replay", "--lake", "x", "--grid", "nowhere.yaml"], "'--grid'"),
        (["sweep", "--lake", "x"], "Missing option '--grid'"),
        (["sweep", "--lake", "x", "--grid", "nowhere.yaml"], "'--grid'"),
        (["generate", "quiet-fleet", "--lake", "x", "--rule", "kafka-3.7,kip-501"], "did you mean kip-501-pending?"),
        (["generate", "quiet-fleet", "--lake", "x", "--idle-share", "1.5"], "--idle-share"),
        (["replay", "--lake", "x", "--timelines", "some"], "must be one of all, around-shrinks, none"),
        (["validate", "--lake", "x", "--env", "nowhere"], "environment nowhere"),
        (["rules", "show", "kafka-3.8"], "did you mean kafka-3.7?"),
        (["compare", "kafka-3.7", "kafka-3.8", "--lake", "x"], "did you mean kafka-3.7?"),
        (["explain", "--lake", "x", "--topic", "t", "--partition", "0", "--at", "noon"], "2026-01-31T12:00:00"),
        (["explain", "--lake", "x", "--topic", "t"], "give --topic, --partition and --at"),
        (["explain", "--lake", "x", "--partition", "0", "--at", "0"], "give --topic, --partition and --at"),
        (["explain", "--lake", "x", "--out", "a.svg"], "give --topic, --partition and --at as well"),
        (
            ["explain", "--lake", "x", "--topic", "t", "--partition", "0", "--at", "0", "--broker", "1"],
            "give it without --topic and --partition",
        ),
        (
            ["explain", "--lake", "x", "--topic", "t", "--partition", "0", "--at", "0", "--rule", "true-leg"],
            "did you mean true-lag?",
        ),
        (
            ["explain", "--lake", "x", "--topic", "t", "--partition", "0", "--at", "0", "--out", "a.pdf"],
            ".svg, .png, .html",
        ),
    ],
)
def test_mistakes_exit_with_2_and_a_remedy(isr_batch: Run, arguments: list[str], told: str) -> None:
    code, out, err = isr_batch(*arguments)
    assert code == 2
    assert told in err
    assert not out
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--logs", "nowhere", "--lake", "x"],
        ["ingest", "kafka-logs", "nowhere", "--lake", "x"],
        ["ingest", "table", "nowhere", "--mapping", "conf/mappings/parquet.yaml", "--lake", "x"],
        ["report", "--lake", "nowhere", "--out", "report.html"],
        ["maintain", "--lake", "nowhere"],
    ],
)
def test_a_missing_path_is_found_before_spark_starts(isr_batch: Run, arguments: list[str]) -> None:
    code, out, err = isr_batch(*arguments)
    assert code == 3
    assert "nowhere" in err
    assert not out


@pytest.mark.parametrize("command", ["explain", "status", "backfill", "export csv", "sql 'SELECT 1'", "report --out x"])
def test_a_folder_without_tables_is_no_lake(isr_batch: Run, tmp_path: Path, command: str) -> None:
    code, out, err = isr_batch(*shlex.split(command), "--lake", str(tmp_path))
    assert (code, out) == (3, "")
    assert f"{tmp_path} has no tables" in err
    code, out, err = isr_batch(*shlex.split(command), "--lake", __file__)
    assert (code, out) == (2, "")
    assert "is a file" in err


def test_the_lake_is_looked_at_before_the_logs(isr_batch: Run) -> None:
    for command in ("run --logs", "ingest kafka-logs"):
        code, _, err = isr_batch(*command.split(), "nowhere", "--lake", __file__)
        assert code == 2
        assert "is a file" in err


@pytest.mark.parametrize("name", ["a#b", "a?b", "a\\b", "a\nb", "\x1b[31m", "a\udcffb"])
def test_a_lake_where_no_delta_table_can_lie(isr_batch: Run, tmp_path: Path, name: str) -> None:
    for command in ("status", "run --logs data/samples/quiet", "generate paused-follower"):
        code, out, err = isr_batch(*command.split(), "--lake", str(tmp_path / name / "lake"))
        assert (code, out) == (2, "")
        assert printable(f"{tmp_path / name}") in err
        assert not any(tmp_path.iterdir())


def test_a_path_of_a_cluster_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoInputError, match="nowhere"):
        require_path_of_job("nowhere", "")
    require_path_of_job("s3a://bucket/nowhere", "")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")  # fs.defaultFS may be another file system
    require_path_of_job("nowhere", "")

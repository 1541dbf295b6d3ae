"""A lake on HDFS has the content of one in a folder: a name node and a data node on loopback, in a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import hdfs_server
from isr_batch.lake.lake import Lake
from pipelines.cli import main
from tests.conformance.releases import Releases

MINICLUSTER = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"
TABLES = ("isr_changes", "shrink_verdicts", "partition_scores", "rule_scores", "replica_timeline", "partition_timeline")
RULES = "kafka-0.9,kafka-3.7,kip-501-pending"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture
def address(spark_session: SparkSession, tmp_path: Path) -> Iterator[str]:
    with hdfs_server.running(str(Releases(spark_session).jar(MINICLUSTER)), tmp_path) as url:
        yield url


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    return ended.value.code or 0


def test_hdfs_has_the_same_rows_as_a_folder(
    address: str, spark_session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for root in (f"{address}/a/lake", str(tmp_path / "lake")):
        assert exit_code("generate", "kip-501-example", "--lake", root) == 0
        assert exit_code("replay", "--rules", RULES, "--timelines", "all", "--lake", root) == 0
        assert exit_code("maintain", "--lake", root) == 0
        lake = Lake(spark_session, root)
        found.append({
            name: sorted(str(sorted(row.asDict().items())) for row in lake.read(name).collect())
            for name in TABLES
        })  # fmt: skip
        assert all(found[-1].values())
    assert found[0] == found[1]
    assert exit_code("timeline", "--topic", "story", "--partition", "0", "--lake", f"{address}/a/lake") == 0
    assert exit_code("sql", "SELECT 1", "--lake", f"{address}/b/lake") == 3
    assert "has no tables" in capsys.readouterr().err

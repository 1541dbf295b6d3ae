"""A lake of the samples, for all who ask it something."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.ingest.folder.clusters import find_clusters
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.report import write_report
from isr_batch.scoring.broker_check import validate
from isr_batch.scoring.disagreements import write_disagreements
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sample_lake(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All four samples, replayed through every rule and compared with the brokers, as `make run` does."""
    made = os.environ.get("SAMPLE_LAKE")  # `make test` names the folder in which its `run` has just left it
    if made:
        return Lake(spark_session, str(ROOT / made), "test")
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("samples")), "test")
    for name, (folder, _) in find_clusters(ROOT / "data" / "samples", None).items():
        ingest_broker_logs(lake, folder, name)
    runs = rule_runs(ReplaySettings())
    done = replay(lake, runs)
    write_disagreements(lake, Window())
    write_eligible_leaders(lake, "auto")
    write_scores(lake)
    done.days.mark()
    validate(lake)
    return lake


@pytest.fixture(scope="session")
def sample_report(sample_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the samples."""
    if os.environ.get("SAMPLE_LAKE"):
        return Path(sample_lake.root) / "report.html"
    page = tmp_path_factory.mktemp("report") / "report.html"
    write_report(sample_lake, page)
    return page


@pytest.fixture
def vacuum_at_once(spark_session: SparkSession) -> Iterator[None]:
    """Let VACUUM remove files that were just replaced, which Delta refuses because readers might still use them."""
    spark_session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    yield
    spark_session.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

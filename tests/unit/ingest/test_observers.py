"""Brokers of observers, as cluster.yaml lists them: what an ingest of logs makes of their replicas."""

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import UsageError
from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.settings_files import read_cluster_settings
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.lake.tables.leaders import LEADER_EPOCHS

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "follower-stop" / "broker-1"
REQUESTS = 500


def write_logs(folder: Path, settings: str) -> Path:
    """Write logs of broker 1, whose terms all begin without broker 3 in the ISR; later it drops and returns."""
    for log in SAMPLE.glob("*.log.gz"):
        text = gzip.decompress(log.read_bytes()).decode()
        if log.name.startswith("request"):
            text = "".join(text.splitlines(keepends=True)[:REQUESTS])
        text = re.sub(r"ISR \[(1,2),3\]|ISR \[(1),3,(2)\]", "ISR [1,2]", text)
        (folder / log.name.removesuffix(".gz")).write_text(text)
    (folder / "cluster.yaml").write_text(settings)
    return folder


@pytest.mark.parametrize(("settings", "observers", "dropped"), [("observers: [3]\n", [3], set()), ("", [], {3})])
def test_observers_of_a_cluster(tmp_path: Path, settings: str, observers: list[int], dropped: set[int]) -> None:
    folder = write_logs(tmp_path, settings)
    with log_sql() as sql:
        logs = read_kafka_logs(Here(sql), folder, "c", "run", sql=sql)
        evidence = evidence_rows(find_evidence(sql, logs.read_lines), "c")
    terms = logs.tables[LEADER_EPOCHS.name]
    assert isinstance(terms, pa.Table)
    found = [(row["isr_at_start"], row["observers"]) for row in terms.to_pylist() if 3 in row["assigned"]]
    assert found
    assert all(each == ([1, 2], observers) for each in found)
    assert set(evidence["replica_id"].to_pylist()) == dropped


@pytest.mark.parametrize("text", ["observers: 3", "observers: [x]", "observers: {topic: [3]}", "observers: [-1]"])
def test_a_list_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"observers: expected a list of broker ids, such as \[4, 5\]"):
        read_cluster_settings(tmp_path / "cluster.yaml")

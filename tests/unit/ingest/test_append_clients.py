"""Which client made an append: the client id of the produce request at the row's line."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.tables.inputs import APPEND_LOG

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "leader-stop"


@pytest.fixture(scope="module")
def appends(sql: ArrowSql, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("one-broker")
    shutil.copytree(SAMPLE / "broker-1", folder / "broker-1")
    table = read_kafka_logs(Here(sql), folder, "c", "run", sql=sql).tables[APPEND_LOG.name]
    assert isinstance(table, pa.Table)
    return table


def test_an_append_has_the_client_id_of_its_line(appends: pa.Table) -> None:
    with gzip.open(SAMPLE / "broker-1" / "request.log.gz", "rt") as log:
        headers = [json.JSONDecoder().raw_decode(line, line.index("{"))[0]["requestHeader"] for line in log]
    of_requests = [row for row in appends.to_pylist() if row["acks"] is not None]
    assert len(of_requests) > 1000
    assert len({row["client_id"] for row in of_requests}) > 2
    for row in of_requests:
        assert row["client_id"] == headers[row["source_line"] - 1]["clientId"]


def test_an_append_of_no_logged_request_has_no_client(sql: ArrowSql, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE / "broker-1", tmp_path / "broker-1")
    with gzip.open(SAMPLE / "broker-1" / "request.log.gz", "rt") as log:
        fetches = [line for line in log if '"requestApiKey":0,' not in line]
    (tmp_path / "broker-1" / "request.log.gz").write_bytes(gzip.compress("".join(fetches).encode()))
    rows = read_kafka_logs(Here(sql), tmp_path, "c", "run", sql=sql).tables[APPEND_LOG.name]
    assert isinstance(rows, pa.Table)
    assert rows.num_rows
    assert rows["client_id"].null_count == rows["acks"].null_count == rows.num_rows

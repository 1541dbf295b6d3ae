"""Logs in which anything may stand: an ingest does not fail, loses no line, and lets nothing impossible through."""

import gzip
import random
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from isr_batch.ingest.engine.in_spark import InSpark, Spread, spark_frame_of_spread
from isr_batch.ingest.folder import lines as reading
from isr_batch.ingest.kafka_logs.line_account import refused_as_bad, total_lines
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs
from isr_batch.ingest.requests.request_log import read_requests
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.tables.inputs import INPUT_TABLES
from tests.mutated_lines import mutated
from tests.request_pieces import partitions_of
from tests.spark.broker_logs import Leader, line, rows_of

SAMPLES = Path(__file__).parents[3] / "data" / "samples"
MUTATED = {
    "broker-2/request.log": 100_000, "broker-2/server.log": 5_000, "broker-2/state-change.log": 5_000,
    "metadata-dump.txt": 5_000,
}  # fmt: skip
"""Lines to make of the lines of each file."""


@pytest.fixture(scope="module")
def hostile(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[KafkaLogs, int]:
    chance = random.Random(20261122)
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "broker-2").mkdir()
    count = 0
    for name, lines in MUTATED.items():
        packed = (SAMPLES / "leader-stop" / f"{name}.gz").read_bytes()
        originals = [text for text in gzip.decompress(packed).split(b"\n") if 0 < len(text) < 1500]
        chosen = [chance.choice(originals) for _ in range(lines + 1)]
        written = b"".join(mutated(a, b, chance) + b"\n" for a, b in pairwise(chosen))
        (folder / name).write_bytes(written)
        count += written.count(b"\n")
    (folder / "broker-2" / "server.properties").write_text("node.id=2\n")
    return read_kafka_logs(InSpark(spark_session), folder, "c", "run-1"), count


def test_every_mutated_line_is_counted_once(hostile: tuple[KafkaLogs, int]) -> None:
    logs, count = hostile
    account = logs.account()
    assert count >= sum(MUTATED.values())
    assert total_lines(account, "read") == count
    assert sum(tally.lines for tally in account if tally.became != "read") == count
    told: Counter[str] = Counter()
    for tally in account:
        if tally.became == "refused":
            told[tally.what] += tally.lines  # lines of several logs may be refused for the same reason
    # Each kind of damage occurs often, and lines with no damage in a relevant field are read.
    assert {reason for reason, lines in told.items() if lines > 100} >= {
        "truncated line", "malformed JSON", "not a line of the request log", "time out of range",
        "no readable time stamp", "offset or partition out of range", "request without api key or durations",
        "values out of range", "malformed metadata record",
    }  # fmt: skip
    assert told["leader or follower line of an unknown form"] > 0
    assert total_lines(account, "used") > count / 10
    assert refused_as_bad(account) == sum(told.values()) - told["duplicate line"]


def test_rows_of_mutated_lines_keep_every_constraint(
    hostile: tuple[KafkaLogs, int], spark_session: SparkSession
) -> None:
    for table in INPUT_TABLES:
        broken = {name: f"count_if(NOT coalesce({text}, true))" for name, text in table.constraints.items()}
        broken |= {c.name: f"count_if({c.name} IS NULL)" for c in table.columns if not c.nullable}
        made = hostile[0].tables[table.name]
        frame = spark_frame_of_spread(made) if isinstance(made, Spread) else spark_session.createDataFrame(made)
        found = frame.agg(F.count("*").alias("rows"), *(F.expr(text).alias(name) for name, text in broken.items()))
        row = found.collect()[0].asDict()
        rows = row.pop("rows")
        assert {name: count for name, count in row.items() if count} == {}, table.name
        if table.name in {"fetch_log", "append_log"}:
            assert rows > 1000


def test_lines_that_might_bring_the_reader_down(spark: SparkSession, tmp_path: Path) -> None:
    case = Leader(tmp_path, 1)
    fetch = case.fetch(10, 0, 5)
    head = fetch.index('"request":')
    deep = "[" * 10_000 + "]" * 10_000
    appended = case.produce(11, 5, acks=0)
    unanswered = (
        appended[: appended.index('"response":')] + '"response":"",' + appended[appended.index('"totalTimeMs"') :]
    )
    case.requests(
        fetch[:head] + f'"rack": {deep}, ' + fetch[head:],
        fetch[:head] + '"rack": "' + "x" * (7 << 20) + '", ' + fetch[head:],
        fetch[:head] + '"rack": "' + "y" * (9 << 20) + '", ' + fetch[head:],
        fetch[:head] + '"rack": ' + "9" * 5000 + ", " + fetch[head:],
        unanswered,
        line(10, 1, {"topics": [None, {"topicId": "a", "partitions": [None]}]}, {"responses": [None]}),
        line(10, 1, {"replicaId": 2, "topics": []}, {"responses": [{"partitions": [{"partitionIndex": -1}]}]}),
        line(10, 1, {"replicaId": 2, "topics": []}, {"responses": [{"topic": "a", "partitions": [{}]}]}),
        fetch.replace('"requestApiKey": 1', '"requestApiKey": 1, "requestApiVersion": 19'),
        case.produce(12, 6).replace(f'"{case.topic_id}"', json_name("a'; DROP TABLE x; --<script>\"\\\n../../etc")),
    )
    found = reading.fingerprint_files(InSpark(spark), reading_files(case), [[]])
    table = InSpark(spark).collect(read_requests(InSpark(spark), found)).sort_by("source_line")
    rows = table.to_pylist()
    assert [(row["kind"], row["reason"]) for row in rows if row["source_line"]][2] == ("refused", "line too long")
    assert rows[2]["detail"].startswith(f"{(9 << 20) + len(fetch) + 12} bytes, begins with [2026-")
    kinds = [row["kind"] for row in rows]
    assert kinds[0] in {"refused", "follower fetch"}
    assert kinds[1] == "follower fetch"
    assert kinds[4:] == ["produce", "refused", "refused", "refused", "refused", "produce"]
    assert (rows[8]["reason"], rows[8]["detail"]) == ("API version not known here", "API 1, version 19")
    (batch,) = table.combine_chunks().to_batches()
    ((topic, partition),) = partitions_of(batch)[9]["answered"]
    assert (topic, partition) == ("a'; DROP TABLE x; --<script>\"\\\n../../etc", 0)


def json_name(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def reading_files(case: Leader) -> Any:
    from isr_batch.ingest.folder.log_folder import REQUEST, find_logs

    return find_logs(case.folder.parent).of_kind(REQUEST)


def test_a_folder_of_bad_copies(spark: SparkSession, tmp_path: Path) -> None:
    case = Leader(tmp_path, 1)
    texts = [case.fetch(10 + n, n, 5) for n in range(20)]
    case.requests(*texts)
    case.write("request.log.1", *texts[5:], case.fetch(40, 20, 5))
    (case.folder / "request.log.2.gz").write_bytes(gzip.compress((case.folder / "request.log").read_bytes()))
    (case.folder / "request.log.3.gz").write_bytes(zlib.compress(b"no gzip"))
    case.terms(case.leads(5, 4, 5), case.leads(15, 6, 5))
    case.write("state-change.log.1", case.leads(15, 6, 5), case.leads(25, 7, 5))
    logs = read_kafka_logs(InSpark(spark), tmp_path, "c", "run-1")
    account = {(t.log, t.became, t.what): t.lines for t in logs.account()}
    assert account["request", "refused", "duplicate line"] == 15
    assert account["request", "used", "follower fetch"] == 21
    assert account["state-change", "skipped", "of no interest"] == 1
    fetched = logs.tables["fetch_log"]
    assert isinstance(fetched, Spread)
    assert single_fetches(spark_frame_of_spread(fetched)).count() == 21
    assert len(rows_of(logs.tables["leader_epochs"])) == 3
    whole = [row for row in rows_of(logs.tables["quarantine"]) if row["source_line"] is None]
    assert sorted((row["source_file"], row["reason"]) for row in whole) == [
        ("broker-1/request.log.2.gz", "copy of another file"),
        ("broker-1/request.log.3.gz", "truncated or corrupt gzip file"),
    ]

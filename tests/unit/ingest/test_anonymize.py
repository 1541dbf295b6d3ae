"""A copy with made-up names gives the same tables but for the names, and no original name is left in it."""

import gzip
import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.evidence.broker_troubles import broker_troubles
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.log_folder import SNAPSHOT, find_logs
from isr_batch.ingest.folder.partition_listing import read_listing
from isr_batch.ingest.kafka_logs.anonymize import find_names, write_copy
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.made_up_names import MadeUpNames
from isr_batch.lake.tables.inputs import INPUT_TABLES, QUARANTINE
from tests.pipeline_events import EVENTS
from tests.unit.command_line import Run

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "leader-stop"
REQUESTS = 100
TABLES = [table.name for table in INPUT_TABLES if table != QUARANTINE]
PAUSE = "[2026-11-21T16:33:36.500+0000][info][gc] GC(7) Pause Full (System.gc()) 1023M->800M(1024M) 512.345ms"
LISTING = "Topic: acme-payments Partition: {} Leader: 1 Replicas: 1,2,3 Isr: 1{}"
_PLACE = {"source_file", "source_line", "ingest_run"}
_NAMES = {"topic", "client_id"}
SECRETS = {
    "busy": "acme-payments", "sparse": "leader", "bursty": "INFO", "idle": "audit.v2_x", "drv-0": "BILLING app",
    "ANONYMOUS": "CN=alice,O=acme", "127.0.0.1": "192.168.7.11", "apache-kafka-java": "acme-client",
    "/var/lib/kafka": "/data/acme",
}  # fmt: skip
WHOLLY = ("acme", "audit.v2", "BILLING", "alice", "192.168.7.11", "127.0.0.1", "secret-host", "kafka-1.acme.example")
LINE = re.compile(r"\[(\S+) (\S+),(\d{3})\] ([A-Z]+) (.*) \(([\w.$]+)\)$")
STRANGE = (
    "[2026-11-21 16:31:40,000] WARN [Controller id=1] acme-payments on secret-host.acme.example:9092 (kafka.x.Y)",
    (
        "[2026-11-21 16:31:40,100] WARN [ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Error in response for "
        "fetch request to kafka-1.acme.example:9092 (id: 2 rack: secret-host) fe80:0:0:0:1:2:3:4 (kafka.server.Fetcher)"
    ),
)
SHRINK = "[2026-11-21 16:30:1{0},123] INFO [Partition acme-{0} broker=1] Shrinking ISR from 1,2 to 1 (kafka.Partition)"


SHARED = Path(__file__).parents[4] / "shared"
NAMES_IN_LINES = re.compile(
    r"\[Partition ([\w.-]+)-\d+ broker|partitions? ([\w.-]+)-\d+ |\\?\"topic(?:Name)?\\?\": ?\\?\"([\w.-]+)"
    r"|\"clientId\\?\": ?\\?\"([^\"\\]+)|clientId=([\w.-]+)|\"principal\\?\": ?\\?\"(?:User:)?([^\"\\]+)"
    r"|[cC]luster[ .]?[iI][dD](?:\\?\": ?\\?\"| ?[=:] ?)([\w-]{22})"
    r"|\b(\d{1,3}(?:\.\d{1,3}){3})[:/\"]|\b([a-z][\w.-]*):(?:9\d{3}|[1-6]\d{4})\b"
)
"""Topics, clients, users, clusters and hosts, found without the code under test."""


def secret(text: str) -> str:
    for name, other in SECRETS.items():
        text = re.sub(rf"(?<![a-zA-Z]){re.escape(name)}(?![a-z])", other, text)
    return text


def write_logs(folder: Path, kind: str | None) -> Path:
    """Write the sample with other names, in Kafka's own layout or as events."""
    for log in sorted(SAMPLE.glob("broker-*/*.log.gz")):
        whole = gzip.decompress(log.read_bytes()).decode().splitlines()
        to = folder / log.parent.name.replace("broker", "secret-host")
        to.mkdir(parents=True, exist_ok=True)
        lines = secret("\n".join(whole[-REQUESTS if log.name.startswith("request") else 0 :])).splitlines()
        lines += STRANGE if log.name.startswith("server") else ()
        if kind:
            found = (LINE.fullmatch(line) for line in lines)
            lines = [EVENTS[kind](*one.groups()) for one in found if one]
        (to / log.name.removesuffix(".gz")).write_text("\n".join(lines) + "\n")
    dump = SAMPLE / "metadata-dump.txt.gz"
    (folder / "metadata-dump.txt").write_text(secret(gzip.decompress(dump.read_bytes()).decode()))
    (folder / "secret-host-1" / "server.properties").write_text(
        "node.id=1\nreplica.lag.time.max.ms=4000\nadvertised.listeners=PLAINTEXT://kafka-1.acme.example:9092\n"
    )
    (folder / "cluster.yaml").write_text("release: 4.1.0\nmin.insync.replicas: 2\nobservers: [3, 9]\n")
    (folder / "describe.txt").write_text(f"{LISTING.format(0, ',2,3')}\n{LISTING.format(1, '')}\n")
    (folder / "secret-host-1" / "kafkaServer-gc.log").write_text(f"{PAUSE}\n")
    return folder


def leave(folder: Path, files: str) -> Path:
    """Remove all files but those of a pattern."""
    for path in [path for path in folder.iterdir() if not path.match(files)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def packed(folder: Path) -> Path:
    """Move each broker's folder into an archive."""
    for logs in sorted(folder.glob("secret-host-*")):
        with zipfile.ZipFile(folder / f"{logs.name}.zip", "w") as archive:
            for path in logs.iterdir():
                archive.write(path, f"{logs.name}/{path.name}")
        shutil.rmtree(logs)
    return folder


def tables(folder: Path) -> dict[str, list[dict[str, object]]]:
    with log_sql() as sql:
        logs = read_kafka_logs(Here(sql), folder, "c", "run", sql=sql)
        logs.account()
        found = {}
        for table in TABLES:
            rows = logs.tables[table]
            assert isinstance(rows, pa.Table)
            found[table] = [
                {name: value for name, value in row.items() if name not in _PLACE} for row in rows.to_pylist()
            ]
        troubles = broker_troubles(sql, logs.read_lines.server, logs.read_lines.of_jvms, "c")
        found["troubles"] = troubles.drop_columns(["source_file", "source_line"]).to_pylist()
        listings = [read_listing(file.path)[0] for file in logs.found.of_kind(SNAPSHOT)]
        found["listed"] = [one._asdict() for listing in listings for one in listing.partitions]
        return found


def with_names_of_copy(row: dict[str, object], names: dict[str, str]) -> dict[str, object]:
    """The row of an original's table with the names of the copy; ``what`` begins with a partition or has no name."""
    what = re.sub(r"^(.+)(?=-\d+: )", lambda topic: names[topic[0]], str(row.get("what", "")))
    named = {name: names.get(str(row[name]), row[name]) for name in _NAMES & row.keys()}
    return row | named | ({"what": what} if what else {})


@pytest.mark.parametrize(
    ("kind", "shape", "empty"),
    [
        (None, packed, set()),
        (
            None,
            lambda folder: leave(folder, "metadata-dump.txt"),
            {"fetch_log", "append_log", "leader_epochs", "coverage", "troubles", "listed"},
        ),
        (None, lambda folder: leave(folder, "describe.txt"), {*TABLES, "troubles"}),
        pytest.param("Filebeat's module for Kafka", Path, set(), marks=pytest.mark.nightly),
        pytest.param("OTLP, parsed", Path, set(), marks=pytest.mark.nightly),
    ],
)
def test_the_copy_gives_the_same_tables_and_has_no_name(
    tmp_path: Path, kind: str | None, shape: Callable[[Path], Path], empty: set[str]
) -> None:
    found = find_logs(shape(write_logs(tmp_path / "logs", kind)))
    names = MadeUpNames(b"key")
    find_names(found, names)
    write_copy(found, names, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        assert not any(name in str(path.relative_to(tmp_path)) for name in WHOLLY)
        if path.is_file():
            content = path.read_bytes().decode()
            assert not [name for name in WHOLLY if name in content], path
            assert not re.search(r"(leader|INFO)-\d+ broker=|fe80", content)
    original, copy = tables(tmp_path / "logs"), tables(tmp_path / "copy")
    assert {table for table, rows in original.items() if not rows} == empty
    for table in original:
        renamed = Counter(str(with_names_of_copy(row, names.names)) for row in original[table])
        assert renamed == Counter(map(str, copy[table])), table


def test_equal_names_are_replaced_by_equal_ones_and_the_list_is_only_written_when_asked_for(
    isr_batch: Run, tmp_path: Path
) -> None:
    logs = tmp_path / "logs" / "kafka-1"
    logs.mkdir(parents=True)
    (logs / "server.log").write_text(f"{SHRINK.format(0)}\n{SHRINK.format(1)}\n")
    code, _, _ = isr_batch("anonymize", str(tmp_path / "logs"), str(tmp_path / "copy"))
    assert code == 0
    assert not list(tmp_path.glob("*.json"))
    topics = set(re.findall(r"topic-\w+(?=-[01] broker)", (tmp_path / "copy" / "broker-1" / "server.log").read_text()))
    assert len(topics) == 1
    code, _, err = isr_batch("anonymize", str(tmp_path / "logs"), str(tmp_path / "copy"))
    assert code == 2
    assert "exists" in err
    isr_batch("anonymize", str(tmp_path / "logs"), str(tmp_path / "two"), "--names", str(tmp_path / "names.json"))
    stated = json.loads((tmp_path / "names.json").read_text())
    assert "acme" in stated.values()
    assert not topics & set(stated)


@pytest.mark.nightly
@pytest.mark.skipif(not SHARED.is_dir(), reason="the operators' folders are not here: ../shared")
@pytest.mark.parametrize("case", ["cases/*/input", "traces/r*"])
def test_no_name_of_operators_is_in_the_copy(tmp_path: Path, case: str) -> None:
    for number, folder in enumerate(sorted(SHARED.glob(case))):
        found = find_logs(folder)
        names = MadeUpNames(b"key")
        find_names(found, names)
        write_copy(found, names, tmp_path / str(number))
        files = [path for path in (tmp_path / str(number)).rglob("*") if path.is_file()]
        copy = {word for path in files for word in re.findall(r"[\w.-]+", path.read_text())}
        logs = {file.path for file in found.files}
        words = {
            next(filter(None, each.groups()))
            for path in logs for each in NAMES_IN_LINES.finditer(b"".join(content_chunks(path)).decode())
        }  # fmt: skip
        kept = re.compile(r"__\w+|broker-\d+-fetcher-\d+|\d[\d.]*")
        assert words or "warn-level" in str(folder), folder
        assert not {word for word in words if word in copy and not (kept.fullmatch(word) and word.count(".") < 3)}, (
            folder
        )

"""Finding and reading log files, without Spark."""

import bz2
import gzip
import io
import lzma
import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from isr_batch.errors import NoInputError, QualityGateError
from isr_batch.ingest.folder.clusters import find_clusters
from isr_batch.ingest.folder.first_look import require_readable_logs
from isr_batch.ingest.folder.folder_warnings import folder_warnings
from isr_batch.ingest.folder.lines import lines_of_file
from isr_batch.ingest.folder.log_folder import METADATA, REQUEST, find_logs
from isr_batch.ingest.folder.settings_files import Broker


def write(path: Path, data: bytes = b"x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(path: Path | str, block_bytes: int = 4 << 20) -> tuple[list[tuple[int, str]], str | None]:
    """Numbered lines, and what is wrong with the file."""
    lines, problem = [], None
    for batch in lines_of_file(str(path), Path(path).name, 1, block_bytes=block_bytes):
        for row in batch.to_pylist():
            if row["problem"]:
                assert row["source_line"] is None
                problem = row["problem"]
            else:
                lines.append((row["source_line"], row["value"]))
    return lines, problem


def test_logs_plain_rotated_and_compressed_are_found(tmp_path: Path) -> None:
    for name in (
        "request.log",
        "request.log.1",
        "request.log.2026-11-21-16",
        "request.log.3.gz",
        "kafka-request.log.gz",
    ):
        write(tmp_path / "b-7" / name)
    write(tmp_path / "b-7" / "server.properties", b"# c\nnode.id = 3\nreplica.lag.time.max.ms=4000\n")
    for other in ("gc.log", "my-request.log", "partition-debug.log.gz"):
        write(tmp_path / "b-7" / other)
    write(tmp_path / "metadata-dump.txt.gz")
    found = find_logs(tmp_path)
    assert len(found.of_kind(REQUEST)) == 5
    assert [f.name for f in found.of_kind(METADATA)] == ["metadata-dump.txt.gz"]
    assert found.brokers == {3: Broker(3, 4000, None)}
    assert not found.refused


def test_without_properties_the_folder_names_the_broker(tmp_path: Path) -> None:
    write(tmp_path / "broker-12" / "server.log")
    found = find_logs(tmp_path)
    assert found.brokers == {12: Broker(12, None, None)}
    assert [r.reason for r in found.refused] == ["no server.properties"]


def test_a_broker_without_any_number_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "broker-1" / "server.log")
    write(tmp_path / "elsewhere" / "server.log")
    assert [r.reason for r in find_logs(tmp_path).refused][-1] == "no broker id"


@pytest.mark.parametrize("name", ["missing", "."])
def test_no_logs_is_an_error_that_names_the_logs_expected(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoInputError) as error:
        find_logs(tmp_path / name)
    assert "request.log" in error.value.hint


@pytest.mark.parametrize("block_bytes", [1, 7, 8, 1000])
def test_lines_are_numbered_across_blocks(tmp_path: Path, block_bytes: int) -> None:
    text = ["first", "", "third, longer", "4"]
    expected = list(enumerate(text, start=1))
    assert read(write(tmp_path / "a", "\n".join(text).encode()), block_bytes) == (expected, None)
    assert read(write(tmp_path / "b", ("\n".join(text) + "\n").encode()), block_bytes) == (expected, None)
    gz = write(tmp_path / "c.gz", gzip.compress("\n".join(text).encode()))
    assert read(gz, block_bytes) == (expected, None)


def test_a_last_blank_line_counts(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"x\n\n"), 1) == ([(1, "x"), (2, "")], None)


def test_bytes_that_are_not_text_are_replaced(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"caf\xe9\n")) == ([(1, "caf\ufffd")], None)


def test_an_empty_file_is_reported(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"")) == ([], "empty file")
    assert read(write(tmp_path / "a.gz", gzip.compress(b""))) == ([], "empty file")


def test_a_binary_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"\x7fELF\0\0line\n")) == ([], "binary file")


def test_a_truncated_gzip_file_gives_its_readable_part(tmp_path: Path) -> None:
    whole = "".join(f"line {number} {number * 7919 % 10007}\n" for number in range(20_000)).encode()
    packed = gzip.compress(whole)
    lines, problem = read(write(tmp_path / "a.gz", packed[: len(packed) // 2]))
    assert problem == "truncated or corrupt gzip file"
    assert 5_000 < len(lines) < 15_000
    assert lines[99] == (100, f"line 99 {99 * 7919 % 10007}")


def test_a_gzip_name_without_gzip_inside_is_reported(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.gz", b"plain text\n")) == ([], "truncated or corrupt gzip file")


def test_a_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path / "gone") == ([], "unreadable file")


OWN_LINES = {
    "server": "[2026-11-21 16:30:12,613] INFO [Partition t-0 broker={}] Shrinking ISR from 1,2 to 1 (a.b)",
    "request": "[2026-11-21 16:30:12,613] DEBUG Completed request:{{}} (kafka.request.logger)",
    "state-change": "[2026-11-21 16:30:12,613] INFO [Broker id={}] x (state.change.logger)",
}


def owners(folder: Path) -> dict[str, int | None]:
    return {f"{file.name}: {file.kind}": file.broker_id for file in find_logs(folder).files}


def test_the_lines_say_which_broker_it_is_before_a_folders_name_or_its_properties(tmp_path: Path) -> None:
    for host, broker in ((17, 1), (18, 2)):
        for log, line in OWN_LINES.items():
            write(tmp_path / f"kafka-host-{host}" / f"{log}.log", line.format(broker).encode())
    write(tmp_path / "kafka-host-18" / "server.properties", b"broker.id=7\nreplica.lag.time.max.ms=1\n")
    found = find_logs(tmp_path)
    assert {file.name: file.broker_id for file in found.files} == {
        f"kafka-host-{host}/{log}.log": broker for host, broker in ((17, 1), (18, 2)) for log in OWN_LINES
    }
    assert found.brokers[2].replica_lag_time_max_ms is None, "the settings are another broker's"
    assert {r.reason for r in found.refused} == {
        "no server.properties", "a name with another number", "another broker's server.properties"
    }  # fmt: skip


def test_names_of_logrotate_with_a_date_and_every_compression(tmp_path: Path) -> None:
    text = OWN_LINES["request"].format(1).encode()
    packed = {".gz": gzip.compress(text), ".xz": lzma.compress(text), ".bz2": bz2.compress(text), "": text}
    for suffix, data in packed.items():
        write(tmp_path / "broker-1" / f"request.log-20261121{suffix}", data)
    found = find_logs(tmp_path)
    assert len(found.of_kind(REQUEST)) == len(packed)
    for file in found.files:
        assert read(Path(file.path)) == ([(1, text.decode())], None)


@pytest.mark.parametrize("name", ["support.zip", "logs.tar.gz", "logs.tar"])
def test_logs_in_an_archive(tmp_path: Path, name: str) -> None:
    inside = {f"node-{n}/{log}.log": line.format(n).encode() for n in (1, 2) for log, line in OWN_LINES.items()}
    if name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in inside.items():
                archive.writestr(member, data)
    else:
        with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as tar:
            for member, data in inside.items():
                entry = tarfile.TarInfo(member)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    found = find_logs(tmp_path)
    assert {(file.name, file.broker_id) for file in found.files} == {
        (f"{name}!/{member}", int(member[5])) for member in inside
    }
    for file in found.files:
        (line,), problem = read(file.path)
        assert line[1].encode() == inside[file.name.partition("!/")[2]]
        assert problem is None


def test_a_damaged_archive_is_listed(tmp_path: Path) -> None:
    write(tmp_path / "broker-1" / "server.log")
    write(tmp_path / "broker-1" / "old.zip", b"PK no zip")
    assert "truncated or corrupt archive" in {each.reason for each in find_logs(tmp_path).refused}


def test_a_folder_an_hour_with_the_files_of_all_brokers(tmp_path: Path) -> None:
    for hour in ("2026-11-21-16", "2026-11-21-17"):
        for host, broker in (("a", 1), ("b", 2)):
            for log, line in OWN_LINES.items():
                write(tmp_path / hour / f"kafka-{host}-{log}.{hour}.log", line.format(broker).encode())
    found = owners(tmp_path)
    assert len(found) == 12
    assert all(broker == (1 if "kafka-a" in name else 2) for name, broker in found.items())
    assert list(find_clusters(tmp_path)) == [tmp_path.name], "hours are no clusters"


def test_pods_are_no_clusters_and_clusters_are_no_pods(tmp_path: Path) -> None:
    for cluster in ("east", "west"):
        for pod in (0, 1):
            write(tmp_path / cluster / f"kafka-{pod}" / "kafka" / "0.log", OWN_LINES["server"].format(pod).encode())
    for place in (tmp_path, tmp_path / "east"):
        write(place / "README.md", OWN_LINES["server"].format(0).encode())
    assert list(find_clusters(tmp_path)) == ["east", "west"]
    assert list(find_clusters(tmp_path / "east")) == ["east"]
    assert owners(tmp_path / "east") == {f"kafka-{pod}/kafka/0.log: server": pod for pod in (0, 1)}


def test_one_broker_of_a_cluster_is_of_that_cluster(tmp_path: Path) -> None:
    """A night may have one broker's folder only; its logs belong to the cluster that they belonged to before."""
    write(tmp_path / "east" / "broker-1" / "server.log", OWN_LINES["server"].format(1).encode())
    write(tmp_path / "pod" / "kafka-1" / "logs" / "server.log", OWN_LINES["server"].format(1).encode())
    assert list(find_clusters(tmp_path / "pod")) == ["pod"]
    assert list(find_clusters(tmp_path / "pod" / "kafka-1")) == ["kafka-1"]
    shutil.rmtree(tmp_path / "pod")
    assert list(find_clusters(tmp_path)) == ["east"]


def test_every_file_that_is_not_read_is_listed_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "broker-1" / "server.log", OWN_LINES["server"].format(1).encode())
    write(tmp_path / "broker-1" / "controller.log", b"x")
    write(tmp_path / "broker-1" / "notes", b"see ticket\n")
    for name in ("README.md", "notes.html"):  # they quote lines, and name another broker
        write(tmp_path / name, b"It began so:\n" + OWN_LINES["server"].format(0).encode())
    write(tmp_path / "broker-1" / "app.log", b"[2026-11-21 16:30:12,613] INFO started (com.example.App)\n")
    write(tmp_path / "broker-1" / "heap.hprof", b"JAVA PROFILE\0\0")
    found = find_logs(tmp_path)
    assert [(file.name, file.broker_id) for file in found.files] == [("broker-1/server.log", 1)]
    assert {Path(each.source_file).name: each.reason for each in found.left_out} == {
        "controller.log": "not needed", "notes": "no readable time stamps", "app.log": "no usable lines",
        "heap.hprof": "binary file", "README.md": "its name is that of a document",
        "notes.html": "its name is that of a document",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("metrics.prom", "# HELP kafka_isrshrinks x\nkafka_isrshrinks 3\n", "metrics (they count ISR changes"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused_by_its_name(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(NoInputError, match=re.escape(f"{name}: {reason}")):
        find_logs(tmp_path)


def test_a_metadata_dump_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "metadata-dump.txt").write_text("| 2026-11-21 | x")
    assert [file.kind for file in find_logs(tmp_path).files] == ["metadata"]


@pytest.mark.parametrize("locked", [("server.properties",), ("server.log", "state-change.log")])
def test_what_this_user_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: tuple[str, ...]
) -> None:
    for name, line in OWN_LINES.items():
        write(tmp_path / f"broker-1/{name}.log", line.format(1).encode())
    write(tmp_path / "broker-1/server.properties", b"node.id=1\n")
    opened = Path.open

    def refused(path: Path, *given: Any, **named: Any) -> Any:
        if path.name in locked:
            raise PermissionError(13, "Permission denied")
        return opened(path, *given, **named)

    monkeypatch.setattr(Path, "open", refused)
    found = find_logs(tmp_path)
    named = {each.source_file for each in [*found.refused, *found.unreadable] if each.reason == "unreadable file"}
    assert named == {f"broker-1/{name}" for name in locked}
    if found.unreadable:
        with pytest.raises(QualityGateError, match=r"server\.log: unreadable file") as stopped:
            require_readable_logs(found)
        assert stopped.value.hint == "give this user the right to read them, or move them away"


@pytest.mark.parametrize(
    ("lag_ms", "wait_ms", "warned"), [(10_000, 500, []), (10_001, 10_000, []), (10_000, 10_000, [1, 2])]
)
def test_a_fetch_that_may_wait_for_the_whole_lag_time_is_warned_of(
    tmp_path: Path, lag_ms: int, wait_ms: int, warned: list[int]
) -> None:
    """The follower's wait and the leader's lag time are settings of two brokers."""
    for broker, settings in ((1, f"replica.lag.time.max.ms={lag_ms}"), (2, "replica.lag.time.max.ms=20000")):
        write(tmp_path / f"broker-{broker}/server.log", OWN_LINES["server"].format(broker).encode())
        text = f"broker.id={broker}\n{settings}\nreplica.fetch.wait.max.ms={wait_ms}\n"
        write(tmp_path / f"broker-{broker}/server.properties", text.encode())
    assert [said for said in folder_warnings(find_logs(tmp_path)) if "fetch.wait" in said] == [
        f"replica.fetch.wait.max.ms of broker {follower} is 10,000, not below replica.lag.time.max.ms of broker 1 "
        "(10,000): without appends, a fetch waits that long, and the follower may be dropped as soon as it lacks a "
        "record." for follower in warned
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["cluster.yaml", "broker-1/server.properties"])
def test_settings_that_are_not_read_are_warned_of(tmp_path: Path, name: str) -> None:
    write(tmp_path / "logs/broker-1/server.log", OWN_LINES["server"].format(1).encode())
    (tmp_path / "logs" / name).symlink_to(write(tmp_path / "elsewhere"))
    warning, _ = folder_warnings(find_logs(tmp_path / "logs"))
    assert warning == f"{name}: link out of the folder."


def test_brokers_that_are_named_and_have_no_logs_are_warned_of(tmp_path: Path) -> None:
    """By the fetches that a leader serves, and by its ISRs; `run` knows the brokers of the lake as well."""
    fetch = OWN_LINES["request"].format(1).replace("{}", '{"requestBody":{"replicaId":3}}')
    write(tmp_path / "broker-1/request.log", fetch.encode())
    write(tmp_path / "broker-1/server.log", OWN_LINES["server"].format(1).replace("1,2", "1,2,4").encode())
    write(tmp_path / "broker-2/server.log", OWN_LINES["server"].format(2).encode())
    found = find_logs(tmp_path)
    (warning,) = [said for said in folder_warnings(found) if said.startswith("No logs of ")]
    assert warning.startswith("No logs of brokers 3 and 4 are here: only others show what happened to them")
    (warning,) = [said for said in folder_warnings(found, {5}, {3, 4}) if said.startswith("No logs of ")]
    assert warning.startswith("No logs of broker 5 are here: only others show what happened to it")

"""Streams, and folders by their address, as a folder of logs."""

import io
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import FileType

from isr_batch.errors import NoInputError, UsageError
from isr_batch.ingest.folder import given_logs as given_logs_file
from isr_batch.ingest.folder.given_logs import given_logs
from isr_batch.ingest.folder.log_folder import find_logs


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_itself(tmp_path: Path) -> None:
    with given_logs([str(tmp_path)]) as folder:
        assert folder == tmp_path


def test_streams_are_copied_under_their_names_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n")))
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"two\n",))
    writer.start()
    with given_logs(["kafka-0=-", f"kafka-1={tmp_path}/pipe"]) as folder:
        assert content(folder) == {"kafka-0/stdout.log": b"one\n", "kafka-1/stdout.log": b"two\n"}
    writer.join()
    assert not folder.exists()


def test_a_folder_by_its_address_is_copied(tmp_path: Path) -> None:
    (tmp_path / "cluster-a" / "broker-1").mkdir(parents=True)
    (tmp_path / "cluster-a" / "broker-1" / "server.log.gz").write_bytes(b"\x1f\x8bx")
    with given_logs([f"file://{tmp_path}/cluster-a"]) as folder:
        assert folder.name == "cluster-a"
        assert content(folder) == {"broker-1/server.log.gz": b"\x1f\x8bx"}


def test_an_empty_object_that_stands_for_a_folder_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles of S3 and Hadoop write them, and a listing has such a folder twice."""

    class Files:
        def get_file_info(self, _: object) -> list[SimpleNamespace]:
            return [
                SimpleNamespace(path=path, type=kind, size=size)
                for path, kind, size in [
                    ("", FileType.File, 0), ("broker-1", FileType.File, 0), ("broker-1", FileType.Directory, None),
                    ("broker-1/server.log", FileType.File, 1), ("broker-1/empty.log", FileType.File, 0)]
            ]  # fmt: skip

        def open_input_stream(self, path: str, compression: object) -> io.BytesIO:
            assert compression is None
            return io.BytesIO(b"x" if path == "broker-1/server.log" else b"")

    store = SimpleNamespace(is_folder=False, files=Files)
    monkeypatch.setattr("isr_batch.lake.delta_files.stores.store_of", lambda *_: store)
    with given_logs(["s3://bucket/logs"]) as folder:
        assert content(folder) == {"broker-1/server.log": b"x", "broker-1/empty.log": b""}


def test_messages_name_the_place_and_not_its_copy(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(NoInputError) as refused, given_logs([f"file://{tmp_path}"]) as folder:
        find_logs(folder)
    assert f"No broker logs in file://{tmp_path} (" in refused.value.message


@pytest.mark.parametrize("places", [["-", "a=-"], ["a=x", "a=y"], ["somewhere", "-"], ["s3://b/k", "-"]])
def test_what_does_not_go_together(places: list[str]) -> None:
    with pytest.raises(UsageError), given_logs(places):
        pass


@pytest.mark.parametrize("place", ["a=/no/such/file", "file:///no/such/folder"])
def test_what_is_not_there(place: str) -> None:
    with pytest.raises(NoInputError), given_logs([place]):
        pass


@pytest.mark.parametrize(("reason", "hint"), [
    ("dlopen(/usr/java/latest//lib/amd64/server/libjvm.so) failed", "JAVA_HOME"),
    ("Unable to load libhdfs: ./libhdfs.so: cannot open shared object file", "CLASSPATH"),
    ("HDFS list directory failed, errno: 111 (Connection refused)", "check the address"),
])  # fmt: skip
def test_hdfs_without_its_library_is_no_wrong_address(monkeypatch: pytest.MonkeyPatch, reason: str, hint: str) -> None:
    def refuse(_: str) -> None:
        raise OSError(reason)

    monkeypatch.setattr(given_logs_file, "fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=refuse)))
    with pytest.raises(NoInputError, match=re.escape(reason)) as refused, given_logs(["hdfs://namenode:9000/logs"]):
        pass
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(("limit", "said"), [("MAX_UNPACKED_BYTES", "GiB"), ("MAX_MEMBERS", "more than 3 files")])
def test_no_more_is_copied_than_an_archive_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    monkeypatch.setattr(given_logs_file, limit, 3)
    (tmp_path / "logs").mkdir()
    for number in range(4):
        (tmp_path / "logs" / f"{number}.log").write_bytes(b"x")
    for places in ([f"file://{tmp_path}/logs"], [f"{number}={tmp_path}/logs/{number}.log" for number in range(4)]):
        with pytest.raises(UsageError, match=said), given_logs(places):
            pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk")
def test_a_full_disk_is_not_a_bad_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * 100)
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: opened(Path("/dev/full") if mode == "wb" else path, mode))
    for places in (["a=" + str(tmp_path / "a.log")], [f"file://{tmp_path}"]):
        with pytest.raises(OSError, match="No space left"), given_logs(places):
            pass


@pytest.mark.parametrize("address", ["s3://AKIA:se/cr@et@bucket/logs", "https://me:pw@host/logs"])
def test_an_address_with_credentials_is_refused_without_them(address: str) -> None:
    with pytest.raises(UsageError, match=r"credentials in it: \w+://\*\*\*@(bucket|host)/logs"), given_logs([address]):
        pass

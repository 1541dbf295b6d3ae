"""Archives that are made to cost much, links that go round, and names that look like archives."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.folder.clusters import find_clusters
from isr_batch.ingest.folder.folder_warnings import folder_warnings
from isr_batch.ingest.folder.log_folder import PROPERTIES, find_logs
from isr_batch.ingest.log_files import archives
from isr_batch.ingest.log_files.archives import archive_members
from isr_batch.ingest.log_files.content import content_chunks, fingerprint
from isr_batch.ingest.log_files.limits import BadFileError, most_unpacked

LINE = (
    b"[2026-11-21 16:30:12,613] INFO [Partition a-0 broker=1] Shrinking ISR from 1,2 to 1. (kafka.cluster.Partition)\n"
)
MB = 1 << 20


def packed(path: Path, members: Iterable[tuple[str, bytes]], mode: str = "w:gz") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(name, data)
    else:
        with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            for name, data in members:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return str(path)


def reason(path: str) -> str:
    with pytest.raises(BadFileError) as bad:
        archive_members(path)
    return bad.value.reason


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar", "a.zip"])
def test_members_are_looked_at_and_read_in_one_pass_over_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened = rewound = 0

    rewind = gzip._GzipReader._rewind  # type: ignore[attr-defined]

    def counted_rewind(reader: object) -> None:
        nonlocal rewound
        rewound += 1
        rewind(reader)

    def counted_open(path: str, size: int) -> object:
        nonlocal opened
        opened += 1
        return of_kind(path, size)

    monkeypatch.setattr("gzip._GzipReader._rewind", counted_rewind)
    kind = "_Zip" if name == "a.zip" else "_Tar"
    of_kind = getattr(archives, kind)
    monkeypatch.setattr(archives, kind, counted_open)
    mode = "zip" if name == "a.zip" else "w:" + name.removeprefix("a.tar").strip(".")
    inside = {f"b-1/server.log.{number}": LINE * (number % 7 + 1) for number in range(300)}
    path = packed(tmp_path / name, inside.items(), mode)
    members = archive_members(path)
    for member, data in zip(members, inside.values(), strict=True):
        assert next(content_chunks(member)) == data  # the head, as a look does
        assert b"".join(content_chunks(member)) == data
    assert opened == 1
    assert rewound <= 2  # to list, and to read


def test_no_more_headers_are_read_than_an_archive_may_have(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    path = tmp_path / "a.tar.gz"
    # After the limit, the archive is damaged.
    path.write_bytes(gzip.compress(folder.tobuf() * (archives.MAX_MEMBERS + 1)) + b"no gzip")
    assert reason(str(path)) == "too many files in an archive"
    many = ((f"{number:0600}", b"") for number in range(archives.MAX_MEMBERS))
    assert reason(packed(tmp_path / "a.zip", many, "zip")) == "too many files in an archive"


def test_a_file_on_disk_has_one_budget(tmp_path: Path) -> None:
    bomb = gzip.compress(b"line\n" * (4 * MB), 9)
    path = packed(tmp_path / "a.zip", [(f"server.log.{number}.gz", bomb) for number in range(40)], "zip")
    read, bad = 0, 0
    for member in archive_members(path):
        try:
            for chunk in content_chunks(member):
                read += len(chunk)
        except BadFileError as error:
            bad += error.reason == "decompression limit"
    assert read <= most_unpacked(Path(path).stat().st_size) < 40 * 20 * MB
    assert bad == 40
    assert fingerprint(archive_members(path)[0]).content_bytes < 20 * MB


def test_the_declared_size_counts_before_unpacking(tmp_path: Path) -> None:
    for size in (1 << 40, -(1 << 12)):
        entry = tarfile.TarInfo("server.log")
        entry.size = size
        path = tmp_path / f"{size}.tar.gz"
        path.write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + LINE.ljust(1024)))
        assert reason(str(path)) in {"decompression limit", "truncated or corrupt archive"}
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "pax.tar.gz").write_bytes(gzip.compress(header.tobuf() + b"9" * MB))
    assert reason(str(tmp_path / "pax.tar.gz")) == "truncated or corrupt archive"


def test_no_member_is_lost_behind_a_damaged_header(tmp_path: Path) -> None:
    path = Path(packed(tmp_path / "a.tar", [(f"b-1/server.log.{number}", LINE) for number in range(3)], "w"))
    data = bytearray(path.read_bytes())
    data[1024 + 100] ^= 1  # of the second header
    path.write_bytes(data)
    assert reason(str(path)) == "truncated or corrupt archive"
    with pytest.raises(NoInputError, match=r"a\.tar: truncated or corrupt archive"):
        find_logs(tmp_path)


@pytest.mark.parametrize("name", ["logs.tar.gz", "logs.zip"])
def test_properties_in_an_archive_are_of_the_logs_next_to_them(tmp_path: Path, name: str) -> None:
    inside = {
        "a/server.properties": b"node.id=7\nreplica.lag.time.max.ms=1234\n",
        "./a/server.log": LINE.replace(b"broker=1", b"broker=7"),
        "b/server.log": LINE.replace(b"broker=1", b"broker=8"),
        "c/other.properties": b"node.id=9\n",
    }
    packed(tmp_path / name, inside.items(), "zip" if name.endswith("zip") else "w:gz")
    found = find_logs(tmp_path)
    assert {broker.broker_id: broker.replica_lag_time_max_ms for broker in found.brokers.values()} == {7: 1234, 8: None}
    (properties,) = found.of_kind(PROPERTIES)
    assert properties.name == f"{name}!/a/server.properties"
    assert fingerprint(properties.path).content_bytes == len(inside["a/server.properties"])


def test_an_archive_in_an_archive_is_refused_with_a_warning(tmp_path: Path) -> None:
    inner = Path(packed(tmp_path / "inner" / "server.zip", [("server.log", LINE)], "zip"))
    logs = tmp_path / "logs"
    packed(logs / "all.tgz", [("b-1/server.log", LINE), ("b-2/server.zip", inner.read_bytes())])
    found = find_logs(logs)
    assert [file.name for file in found.files] == ["all.tgz!/b-1/server.log"]
    assert [each.source_file for each in found.refused if each.reason == "archive in an archive"] == [
        "all.tgz!/b-2/server.zip"
    ]
    said = "all.tgz!/b-2/server.zip: archive in an archive (not read: unpack the outer archive)."
    assert said in folder_warnings(found)


def test_a_member_whose_name_is_not_text(tmp_path: Path) -> None:
    packed(tmp_path / "a.tar", [(os.fsdecode(b"b-1/server.log.\xff"), LINE), ("b-1/server.log", LINE)], "w")
    found = find_logs(tmp_path)
    assert [file.name for file in found.files] == ["a.tar!/b-1/server.log"]
    assert ("a.tar!/b-1/server.log.\ufffd", "file name is not text") in [
        (each.source_file, each.reason) for each in found.refused
    ]


def test_a_folder_is_no_archive_whatever_its_name(tmp_path: Path) -> None:
    packed(tmp_path / "b-2.zip", [("server.log", LINE.replace(b"broker=1", b"broker=3"))], "zip")
    for name in ("b-1!", "b-2.zip!"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_bytes(LINE.replace(b"broker=1", b"broker=" + name[2:3].encode()))
    found = find_logs(tmp_path)
    assert {(file.name, file.broker_id) for file in found.files} == {
        ("b-1!/server.log", 1), ("b-2.zip!/server.log", 2), ("b-2.zip!/server.log", 3),
    }  # fmt: skip
    for file in found.files:
        assert f"broker={file.broker_id}".encode() in next(content_chunks(file.path))
    assert list(find_clusters(tmp_path)) == [tmp_path.name]


def test_links_that_go_round_end(tmp_path: Path) -> None:
    (tmp_path / "b-1").mkdir()
    (tmp_path / "b-1" / "server.log").write_bytes(LINE)
    for number in range(12):
        (tmp_path / f"a{number}").symlink_to(".")
        (tmp_path / "b-1" / f"a{number}").symlink_to("..")
    (tmp_path / "a-link").symlink_to("b-1")
    found = find_logs(tmp_path)
    assert [file.name for file in found.files] == ["b-1/server.log"]
    assert {each.reason for each in found.left_out} == {"a link to a folder that is read anyway"}
    assert len(found.left_out) == 25

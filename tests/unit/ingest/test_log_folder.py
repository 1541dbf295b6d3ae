"""Finding and reading log files, without Spark."""

import gzip
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.kafka_logs.lines import lines_of_file
from isr_batch.ingest.kafka_logs.log_folder import METADATA, REQUEST, find_logs
from isr_batch.ingest.kafka_logs.settings_files import Broker


def write(path: Path, data: bytes = b"x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(path: Path, block_bytes: int = 4 << 20) -> tuple[list[tuple[int, str]], str | None]:
    """Numbered lines, and what is wrong with the file."""
    lines, problem = [], None
    for batch in lines_of_file(str(path), path.name, 1, block_bytes=block_bytes):
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
def test_no_logs_is_an_error_that_says_what_was_looked_for(tmp_path: Path, name: str) -> None:
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


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"")) == ([], "empty file")
    assert read(write(tmp_path / "a.gz", gzip.compress(b""))) == ([], "empty file")


def test_a_binary_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a", b"\x7fELF\0\0line\n")) == ([], "binary file")


def test_a_truncated_gzip_file_gives_what_it_has(tmp_path: Path) -> None:
    whole = "".join(f"line {number} {number * 7919 % 10007}\n" for number in range(20_000)).encode()
    packed = gzip.compress(whole)
    lines, problem = read(write(tmp_path / "a.gz", packed[: len(packed) // 2]))
    assert problem == "truncated or corrupt gzip file"
    assert 5_000 < len(lines) < 15_000
    assert lines[99] == (100, f"line 99 {99 * 7919 % 10007}")


def test_a_gzip_name_without_gzip_inside_is_told(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.gz", b"plain text\n")) == ([], "truncated or corrupt gzip file")


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    assert read(tmp_path / "gone") == ([], "unreadable file")

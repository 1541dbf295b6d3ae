"""A changed bit in a data file is noticed, by whichever engine reads the file; what reads it says which file."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.errors import SchemaError, explained_error
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.compact import compact_files
from isr_batch.lake.delta_files.sound_files import checksums_beside
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.outputs import TABLES
from pipelines import cli

NAMES = ("shrink_verdicts", "observed_isr_changes", "coverage", "rule_scores")


@pytest.fixture(scope="module")
def copied(sample_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("damaged") / "lake"
    for name in NAMES:
        if sample_lake.has(name):
            shutil.copytree(Path(sample_lake.root, name), folder / name)
    return Lake(lambda: sample_lake.spark, str(folder))


def live_files(lake: Lake) -> list[tuple[str, Path]]:
    return [(name, Path(file.removeprefix("file://"))) for name in NAMES if lake.has(name) for file in lake.files(name)]


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def read_here(lake: Lake, name: str) -> list[str]:
    return rows(read_columns(lake, name, TABLES[name].column_names))


def read_by_query(lake: Lake, name: str) -> list[str]:
    with InProcess(lake) as engine:
        return rows(engine("SELECT * FROM {rows}", rows=engine.table(name)))


def read_by_spark(lake: Lake, name: str) -> list[str]:
    return rows(lake.read(name).toArrow())


def flips(lake: Lake, number: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Files with one bit changed, half of these bits in their footers; each is as it was afterwards."""
    chosen = random.Random(seed)
    files = live_files(lake)
    for count in range(number):
        name, path = files[count % len(files)]
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        at = chosen.randrange(footer * 8 if count % 2 else 0, len(data) * 8)
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        yield name, path
        path.write_bytes(data)


def fault(read: Callable[[Lake, str], list[str]], lake: Lake, name: str) -> Exception | None:
    try:
        read(lake, name)
    except Exception as error:  # noqa: BLE001 (of whatever kind Spark's are)
        return explained_error(error) or error
    return None


def noticed_or_harmless(lake: Lake, number: int, seed: int, by_spark: int) -> None:
    ways = {read_here: number, read_by_query: number, read_by_spark: by_spark}
    whole = {(read, name): read(lake, name) for read in ways for name in NAMES if lake.has(name)}
    for count, (name, path) in enumerate(flips(lake, number, seed)):
        for read, times in ways.items():
            if count >= times:
                continue
            known = fault(read, lake, name)
            if known is None:
                assert read(lake, name) == whole[read, name], path
            else:
                assert isinstance(known, SchemaError), known
                assert path.name in known.message
    assert all(read(lake, name) == found for (read, name), found in whole.items())


def test_every_data_file_has_its_checksums(copied: Lake) -> None:
    assert all(checksums_beside(path).exists() for _, path in live_files(copied))


def test_a_changed_bit_is_noticed(copied: Lake) -> None:
    noticed_or_harmless(copied, 24, 1, 2)


@pytest.mark.nightly
def test_many_changed_bits_are_noticed(copied: Lake) -> None:
    noticed_or_harmless(copied, 2000, 2, 100)


def test_commands_name_the_file(copied: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (name, path) in enumerate(flips(copied, 2 * len(live_files(copied)), 3)):
        engine = "spark" if number < 2 else "local"
        with pytest.raises(SystemExit) as exited:
            cli.main(["sql", "--quiet", "--engine", engine, "--lake", copied.root, f"SELECT * FROM {name}"])
        assert exited.value.code == 5
        assert path.name in capsys.readouterr().err


def test_a_damaged_file_is_not_made_sound_by_upkeep(copied: Lake, tmp_path: Path) -> None:
    lake = Lake(copied._spark, str(tmp_path / "lake"))
    table, columns = TABLES["coverage"], TABLES["coverage"].column_names
    all_rows = read_columns(copied, "coverage", columns)
    with ArrowSql() as sql:
        lake.ensure(table)
        for row in range(3):
            SmallTables(lake, sql).replace(table, all_rows.slice(row, 1), "false", checked=True)
    before, files = read_here(lake, "coverage"), lake.files("coverage")
    assert len(files) == 3
    there = lake.by_delta_rs("coverage")
    for _, path in flips(lake, 1, 5):
        with pytest.raises(SchemaError, match=path.name):
            compact_files(there, table)
    compact_files(there, table)
    assert len(lake.files("coverage")) < 3
    assert read_here(lake, "coverage") == before
    assert read_by_spark(lake, "coverage") == before
    assert all(checksums_beside(path).exists() for _, path in live_files(lake))

"""The log of a table in a local folder is read again after each change by any process, and not before."""

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from isr_batch.lake.delta_files.open import DirectTable
from isr_batch.lake.delta_files.stores import Store


def test_a_log_is_read_again_once_anyone_has_changed_it(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    write_deltalake(folder, pa.table({"number": [1]}))
    there = DirectTable(Store(folder), lambda: "")
    first = there.log()
    assert there.log() is first
    write_deltalake(folder, pa.table({"number": [2]}), mode="append")  # as another process would
    assert there.log().version() == 1
    assert first.version() == 0  # an earlier version stays as it was read
    assert there.log() is there.log()


def test_a_table_that_was_made_again_is_read_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    write_deltalake(folder, pa.table({"number": [1]}))
    there = DirectTable(Store(folder), lambda: "")
    (before,) = there.data_files()
    shutil.rmtree(folder)
    write_deltalake(folder, pa.table({"number": [1]}))
    (after,) = there.data_files()
    assert before["path"] != after["path"]
    shutil.rmtree(folder)
    assert not there.exists()

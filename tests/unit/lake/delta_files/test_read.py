"""Rows read by their places are those of the files, whatever the order in which they are asked for."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isr_batch.errors import SchemaError
from isr_batch.lake.delta_files import read
from isr_batch.lake.delta_files.read import PLACE, FileRows
from isr_batch.lake.delta_files.stores import Store

SCHEMA = pa.schema([("number", pa.int64()), ("bytes", pa.binary())])


def written(folder: Path, random: Random) -> dict[str, list[dict[str, Any]]]:
    """Three files of several row groups, with a column more than is asked for."""
    found = {}
    for number in range(3):
        rows = [
            {"other": "x", "number": 100 * number + n, "bytes": random.randbytes(random.randrange(40)) or None}
            for n in range(random.randrange(1, 30))
        ]
        path = f"event_date=2026-01-0{number + 1}/part.parquet"
        (folder / path).parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / path, row_group_size=random.randrange(1, 9))
        found[path] = [{"number": row["number"], "bytes": row["bytes"]} for row in rows]
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("held_bytes", [1, 300, 1 << 27])
@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_rows_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, held_bytes: int, address: str
) -> None:
    random = Random(seed)
    files = written(tmp_path, random)
    monkeypatch.setattr(read, "HELD_BYTES", held_bytes)
    monkeypatch.setattr(read, "OPEN_FILES", 1 if held_bytes == 1 else 64)
    reader = FileRows(Store(address.format(tmp_path)), SCHEMA)
    every = [(path, row) for path, rows in files.items() for row in range(len(rows))]
    for places in (every, every[::-1], random.choices([*every, None], k=60), [None, None], []):
        asked = pa.array([place and {"path": place[0], "row": place[1]} for place in places], PLACE)
        expected = [place and files[place[0]][place[1]] for place in places]
        assert reader.at(asked).to_pylist() == expected
        if len(places) > 5:  # a slice, as Spark's batches may be
            assert reader.at(asked.slice(3, len(places) - 4)).to_pylist() == expected[3:-1]


@pytest.mark.parametrize("damage", ["gone", "other bytes"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path, *_ = written(tmp_path, Random(0))
    if damage == "gone":
        (tmp_path / path).unlink()
    else:
        (tmp_path / path).write_bytes(b"no parquet")
    with pytest.raises(SchemaError, match=f"{tmp_path}/{path}"):
        FileRows(Store(str(tmp_path)), SCHEMA).at(pa.array([{"path": path, "row": 0}], PLACE))

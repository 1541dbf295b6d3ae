"""Where a lake lies: what has a scheme is left as it is."""

from pathlib import Path

import pytest

from isr_batch.lake.addresses import absolute_address, is_address
from tests.unit.command_line import Run

SAMPLES = Path(__file__).parents[3] / "data" / "samples"


@pytest.mark.parametrize(
    "place", ["s3a://bucket/lake", "hdfs://host:9000/lake", "hdfs:/lake", "dbfs:/lake", "file:///lake", "abfss://c@a/l"]
)
def test_an_address_is_left_as_it_is(place: str) -> None:
    assert is_address(place)
    assert absolute_address(place) == place


@pytest.mark.parametrize("place", ["build/lake", "/data/lake", "./a:b", "a:b/lake", "1:/lake"])
def test_a_path_is_made_absolute(place: str) -> None:
    assert not is_address(place)
    assert absolute_address(place).startswith("/")
    assert absolute_address(place).endswith(place.removeprefix("."))


@pytest.mark.parametrize("sign", ["#", "?", "\\", "\n", "\x7f"])
def test_a_path_that_no_delta_table_can_have_is_refused_by_name(isr_batch: Run, tmp_path: Path, sign: str) -> None:
    lake = tmp_path / f"a{sign}b"
    code, _, err = isr_batch("ingest", "kafka-logs", str(SAMPLES / "quiet"), "--lake", str(lake))
    assert code == 2
    assert f"cannot be the path of a Delta table: it has {sign!a}" in err
    assert not lake.exists()

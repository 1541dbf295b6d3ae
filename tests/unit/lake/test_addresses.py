"""Where a lake lies: what has a scheme is left as it is."""

import pytest

from isr_batch.lake.addresses import absolute_address, is_address


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

"""The same values in columns of other types give the same shrinks."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import isr_batch
from isr_batch.errors import UsageError

SAMPLE: Final = Path(__file__).parents[3] / "data/samples/tables/fetches.parquet"
FETCHES: Final = pq.read_table(SAMPLE, filters=[("topic", "=", "busy"), ("partition", "=", 0)])
NAMES: Final = {"leader_id": "leader", "replica_id": "follower", "fetch_offset": "offset"}
IN_US: Final = {**NAMES, "handled_time": {"column": "handled_us", "unit": "us"}}


def cast(name: str, kind: pa.DataType) -> pa.Table:
    return FETCHES.set_column(FETCHES.column_names.index(name), name, FETCHES[name].cast(kind))


def with_time(unit: str, zone: str | None) -> pa.Table:
    known = FETCHES["handled_us"].cast(pa.timestamp("us", "UTC" if zone else None))
    return FETCHES.append_column("handled_time", known.cast(pa.timestamp(unit, zone)))


def with_nan() -> pa.Table:
    """Integers with nulls become floats with NaN in pandas."""
    place = FETCHES.column_names.index("high_watermark")
    return FETCHES.set_column(place, "high_watermark", pc.fill_null(FETCHES["high_watermark"].cast("double"), math.nan))


def in_pandas(**kinds: str) -> pd.DataFrame:
    return FETCHES.to_pandas().astype(kinds)


def shrinks(rows: Any) -> list[str]:
    mapping = NAMES if "handled_time" in getattr(rows, "column_names", ()) else IN_US
    found = isr_batch.analyze(rows, mapping=mapping, rules="kafka-3.7", lag_time_ms=4000).shrinks
    table = found if isinstance(found, pa.Table) else pa.Table.from_pandas(found, preserve_index=False)
    return sorted(map(str, table.cast(isr_batch.SHRINKS).to_pylist()))


@pytest.fixture(scope="module")
def expected() -> list[str]:
    found = shrinks(FETCHES)
    assert found
    return found


@pytest.mark.parametrize(
    "made",
    [
        lambda: cast("topic", pa.large_string()),
        lambda: cast("topic", pa.dictionary(pa.int8(), pa.string())),
        lambda: cast("partition", pa.uint8()),
        lambda: FETCHES.set_column(1, "partition", FETCHES["partition"].dictionary_encode()),
        lambda: cast("offset", pa.decimal128(38, 10)),
        lambda: with_time("ns", None),
        lambda: with_time("us", "Asia/Tokyo"),
        lambda: pa.concat_tables(FETCHES.slice(first, 999) for first in range(0, 5000, 999)),
        lambda: in_pandas(topic="category", partition="category", leader="category", handled_us="category"),
        lambda: in_pandas(offset="Int64", follower="float64"),
        with_nan,
    ],
)
def test_types_of_columns(made: Callable[[], Any], expected: list[str]) -> None:
    assert shrinks(made()) == expected


def test_run_ends_are_refused() -> None:
    topic = pc.run_end_encode(FETCHES["topic"].combine_chunks())
    with pytest.raises(isr_batch.SchemaError, match=r"topic is run_end_encoded.*cannot be read as"):
        shrinks(FETCHES.set_column(0, "topic", topic))


@pytest.mark.parametrize(
    "rows", [FETCHES.slice(0, 0), FETCHES.set_column(4, "follower", pa.array([-1] * len(FETCHES)))]
)
def test_group_without_a_fetch_of_a_follower(rows: pa.Table) -> None:
    """It is empty, or has only fetches of consumers; the other groups of the job go on."""
    facts = isr_batch.broker_facts(FETCHES, mapping=IN_US)
    for brokers in (facts, None):
        assert not isr_batch.shrink_udf(mapping=IN_US, brokers=brokers)(rows).num_rows


def test_columns_of_a_spark_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's types become Arrow's without a session; instants need a zone, and Arrow has no type for some."""
    from pyspark.sql import types

    from isr_batch.api import frames as module
    from isr_batch.ingest.own_table.spark_source import SparkSource

    monkeypatch.setattr(module, "kind_of", lambda *_: "spark")
    rows = types.StructType([
        types.StructField("time", types.TimestampType()),
        types.StructField("m", types.MapType(types.StringType(), types.LongType())),
    ])  # fmt: skip
    odd = types.StructType([*rows, types.StructField("i", types.CalendarIntervalType())])
    found = module.schema_of("fetches", SimpleNamespace(schema=odd, columns=odd.names))
    assert found.field("time").type == pa.timestamp("us", "UTC")
    assert "interval" in str(found.field("i").type)
    of_source = SparkSource.schema.func(SimpleNamespace(_types=rows))  # type: ignore[attr-defined]
    assert of_source == pa.schema([found.field("time"), found.field("m")])
    with pytest.raises(UsageError, match="fetches has several columns named time"):
        module.schema_of("fetches", SimpleNamespace(schema=rows, columns=["time", "time"]))

"""Settings that a user's session may have change no row: as it reads times, plans, and hands rows to Python."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import isr_batch
from tests.unit.api.test_analyze import NAMES, RULES, counted, frames

SETTINGS: Final = {
    "spark.sql.session.timeZone": ("America/New_York", "Asia/Kathmandu", "UTC"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.caseSensitive": ("true", "false"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("100", "10000"),
    "spark.sql.execution.arrow.useLargeVarTypes": ("true", "false"),
    "spark.sql.execution.arrow.pyspark.selfDestruct.enabled": ("true", "false"),
    "spark.sql.shuffle.partitions": ("1", "5"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.defaultCatalog": ("other", "spark_catalog"),
}
OTHER_CATALOG: Final = {
    "spark.sql.catalog.other": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.other.url": "jdbc:derby:memory:other;create=true",
    "spark.sql.catalog.other.driver": "org.apache.derby.jdbc.EmbeddedDriver",
}
FETCHES: Final = frames()["fetches"].filter(pc.equal(frames()["fetches"]["partition"], 0))
TIMES: Final[dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]]] = {
    "a number": lambda us: us,
    "TIMESTAMP_LTZ": lambda us: us.cast(pa.timestamp("us", "UTC")),
    "TIMESTAMP_NTZ": lambda us: us.cast(pa.timestamp("us")),
    "text": lambda us: pc.strftime(us.cast(pa.timestamp("us", "America/New_York")), "%Y-%m-%dT%H:%M:%S%z"),
}


def given(kind: str) -> tuple[pa.Table, dict[str, Any]]:
    """Fetches with times of this kind, and the mapping of their columns."""
    place = FETCHES.column_names.index("handled_us")
    rows = FETCHES.set_column(place, "handled", TIMES[kind](FETCHES["handled_us"]))
    time = {"a number": {"column": "handled", "unit": "us"}, "text": {"column": "handled", "unit": "iso"}}
    return rows, {**NAMES, "handled_time": time.get(kind, "handled")}


@cache
def expected(member: str) -> Any:
    rows, mapping = given("a number")
    return counted(getattr(isr_batch.analyze(rows, mapping=mapping, rules=RULES, lag_time_ms=4000), member))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))])
def test_rows_of_sessions(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each setting has one of its values by chance; of two seeds that follow each other, the second has others."""
    draw = random.Random(seed // 2)
    chosen = {name: values[(draw.randrange(len(values)) + seed) % len(values)] for name, values in SETTINGS.items()}
    kind = [*TIMES][(draw.randrange(len(TIMES)) + seed) % len(TIMES)]
    session = spark_session.newSession()
    for name, value in {**OTHER_CATALOG, **chosen}.items():
        session.conf.set(name, value)
    rows, mapping = given(kind)
    fetches = session.createDataFrame(rows)
    settings: dict[str, Any] = {"mapping": mapping, "lag_time_ms": 4000}
    result = isr_batch.analyze(fetches, rules=RULES, **settings)
    for member in ("shrinks", "changes", "scores", "partition_timeline"):
        assert counted(getattr(result, member).toArrow()) == expected(member), (member, chosen, kind)
    facts, groups = isr_batch.broker_facts(fetches, **settings), fetches.groupBy("topic", "partition")
    step = groups.applyInArrow(isr_batch.shrink_udf(RULES, brokers=facts, **settings), isr_batch.SHRINKS_DDL)
    assert counted(step.toArrow().cast(isr_batch.SHRINKS)) == expected("shrinks"), (chosen, kind)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    of_pandas = groups.applyInPandas(
        isr_batch.shrink_udf_pandas(RULES, brokers=facts, **settings), isr_batch.SHRINKS_DDL
    )
    if kind.startswith("TIMESTAMP") and chosen["spark.sql.session.timeZone"] != "UTC":
        with pytest.raises(PySparkException, match="handled has no time zone, and Spark gives pandas"):
            of_pandas.toArrow()
    else:
        assert counted(of_pandas.toArrow().cast(isr_batch.SHRINKS)) == expected("shrinks"), (chosen, kind)

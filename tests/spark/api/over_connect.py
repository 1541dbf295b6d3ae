"""The calls of a notebook over Spark Connect, with PySpark's server on loopback; run as a process."""

import json
import os
import sys
from typing import Any
from unittest.mock import patch

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, is_remote

import isr_batch
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from tests.unit.api.test_analyze import NAMES, RULES, counted, frames

DELTAS_OWN = {"spark.sql.parquet.fieldId.read.enabled", "spark.sql.parquet.fieldId.write.enabled"}
"""Settings that Delta itself makes in a session that first reads a table."""


def main(folder: str) -> dict[str, object]:
    """Compare each member with that of a process alone; gives the lines that say which engine did it."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    assert is_remote()
    given: dict[str, Any] = {name: spark.createDataFrame(rows) for name, rows in frames().items()}
    fetches = given["fetches"]
    settings: dict[str, Any] = {"mapping": NAMES, "lag_time_ms": 4000}
    before, views = {*spark.conf.getAll.items()}, spark.catalog.listTables()
    result = isr_batch.analyze(fetches, rules=RULES, **settings)
    local = isr_batch.analyze(frames()["fetches"], rules=RULES, **settings)
    same(result, local, ("shrinks", "spurious", "changes", "scores", "quarantine", "coverage", "replica_timeline"))
    facts = isr_batch.broker_facts(fetches, **settings)
    groups, shrinks = fetches.groupBy("topic", "partition"), counted(local.shrinks)
    step = groups.applyInArrow(isr_batch.shrink_udf(RULES, brokers=facts, **settings), isr_batch.SHRINKS_DDL)
    assert counted(step.toArrow().cast(isr_batch.SHRINKS)) == shrinks
    of_pandas = isr_batch.shrink_udf_pandas(RULES, brokers=facts, **settings)
    step = groups.applyInPandas(of_pandas, isr_batch.SHRINKS_DDL)
    assert counted(step.toArrow().cast(isr_batch.SHRINKS)) == shrinks
    changed = {*spark.conf.getAll.items()} ^ before
    assert {name for name, _ in changed} <= DELTAS_OWN, changed
    assert spark.catalog.listTables() == views

    answer = result.answer()
    assert answer == local.answer()
    result.save(f"{folder}/lake")
    opened = isr_batch.open(f"{folder}/lake")
    same(opened, local, ("shrinks", "spurious"))
    spark.sql("CREATE SCHEMA connected")
    for name in ("shrink_verdicts", "isr_changes"):
        spark.sql(f"CREATE TABLE spark_catalog.connected.{name} USING DELTA LOCATION '{folder}/lake/{name}'")
    of_catalog = isr_batch.open(catalog="spark_catalog.connected")
    same(of_catalog, local, ("shrinks", "spurious"))
    engine = BySpark(Lake(lambda: spark, f"{folder}/lake"))
    with patch.object(type(fetches), "persist", side_effect=AnalysisException("PERSIST TABLE is not supported")):
        assert engine.keep(fetches).count() == fetches.count()  # serverless platforms refuse it
    refused = ""
    try:
        _ = isr_batch.open("abfss://a@b.dfs.core.windows.net/lake").shrinks
    except isr_batch.UsageError as error:
        refused = error.message
    return {"engines": [result.engine, opened.engine, of_catalog.engine], "answer": answer, "refused": refused}


def same(found: Any, expected: Any, members: tuple[str, ...]) -> None:
    """Compare members by their rows."""
    for member in members:
        rows = getattr(expected, member)
        assert counted(getattr(found, member).toArrow().cast(rows.schema)) == counted(rows), member


if __name__ == "__main__":
    told = json.dumps(main(sys.argv[1]))
    sys.stdout.write(f"{told}\n")
    sys.stdout.flush()
    os._exit(0)  # the server of this process has a JVM that ends with it

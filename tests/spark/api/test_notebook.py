"""Frames of Spark's, and the blocks of the page for notebooks, which are run as they are, one after the other."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import isr_batch
from isr_batch.errors import NoInputError, QualityGateError, UsageError
from tests.unit.api.test_analyze import NAMES, RULES, SAMPLE, counted, frames

ROOT = Path(__file__).parents[3]


def by_spark(spark: SparkSession, *names: str) -> dict[str, Any]:
    return {name: spark.createDataFrame(rows) for name, rows in frames().items() if name in names}


def test_blocks_of_the_page(tmp_path: Path) -> None:
    """In a new process, with only the code of the page."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/notebook.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    assert len(blocks[0].strip().splitlines()) == 10
    code = "\n".join(blocks).replace('"data/', f'"{ROOT}/data/')
    # As an activated environment has it.
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "local: the frames are of pandas" in done.stdout
    assert "Of 72 followers that kafka-3.7, replayed, dropped, 20 were healthy" in done.stdout
    assert re.search(r"genuine\s*\|\s*52", done.stdout)
    assert {path.name for path in tmp_path.iterdir()} >= {"report.html", "lake"}


@pytest.mark.parametrize("mapping", ["mapping.yaml", "shortest.yaml"])
def test_rows_are_those_of_one_process(spark_session: SparkSession, mapping: str) -> None:
    names = [*frames()] if mapping == "mapping.yaml" else ["fetches"]
    before, views = {*spark_session.conf.getAll.items()}, spark_session.catalog.listTables()
    result = isr_batch.analyze(**by_spark(spark_session, *names), mapping=SAMPLE / mapping, rules=RULES)
    local = isr_batch.analyze(**{name: frames()[name] for name in names}, mapping=SAMPLE / mapping, rules=RULES)
    assert result.engine == "spark: the frames are Spark's"
    for member in ("shrinks", "spurious", "changes", "scores", "quarantine", "coverage", "replica_timeline"):
        found, expected = getattr(result, member).toArrow(), getattr(local, member)
        assert counted(found.cast(expected.schema)) == counted(expected), member
    changed = {name for name, _ in {*spark_session.conf.getAll.items()} ^ before}
    # Delta's extension sets these when a session plans its first query.
    assert changed <= {"spark.sql.parquet.fieldId.read.enabled", "spark.sql.parquet.fieldId.write.enabled"}
    assert spark_session.catalog.listTables() == views


def test_step_of_a_pipeline(spark_session: SparkSession) -> None:
    """Partitions by `applyInArrow` and `applyInPandas`, with what all fetches say of their leaders."""
    rows = by_spark(spark_session, "fetches")["fetches"]
    settings: dict[str, Any] = {"mapping": NAMES, "lag_time_ms": 4000}
    facts = isr_batch.broker_facts(rows, **settings)
    groups = rows.groupBy("topic", "partition")
    expected = counted(isr_batch.analyze(frames()["fetches"], rules=RULES, **settings).shrinks)
    found = groups.applyInArrow(isr_batch.shrink_udf(RULES, brokers=facts, **settings), isr_batch.SHRINKS_DDL)
    assert counted(found.toArrow().cast(isr_batch.SHRINKS)) == expected
    of_pandas = isr_batch.shrink_udf_pandas(RULES, brokers=facts, **settings)
    assert counted(groups.applyInPandas(of_pandas, isr_batch.SHRINKS_DDL).toArrow().cast(isr_batch.SHRINKS)) == expected


def test_nothing_runs_before_a_member_is_asked_for(spark_session: SparkSession) -> None:
    bad = by_spark(spark_session, "fetches")["fetches"].withColumn("topic", F.raise_error(F.lit("a row was read")))
    result = isr_batch.analyze(bad.withColumn("topic", F.col("topic").cast("string")), mapping=NAMES)
    with pytest.raises(PySparkException, match="a row was read"):
        _ = result.shrinks


def test_mistakes(spark_session: SparkSession) -> None:
    rows = by_spark(spark_session, "fetches")["fetches"]
    with pytest.raises(UsageError, match="follower does not exist"):
        isr_batch.analyze(rows.drop("follower"), mapping=NAMES)
    with pytest.raises(UsageError, match="column leader_id is missing; there are topic, partition"):
        isr_batch.analyze(rows)
    with pytest.raises(NoInputError, match="fetches has no rows"):
        _ = isr_batch.analyze(rows.limit(0), mapping=NAMES).shrinks


def test_names_with_dots(spark_session: SparkSession) -> None:
    """PySpark itself does not find such columns when it calls a Python function."""
    some = frames()["fetches"].filter(pc.equal(frames()["fetches"]["partition"], 0))
    names = {**NAMES, "leader_id": "lead.er `s"}
    rows = spark_session.createDataFrame(some).withColumnRenamed("leader", "lead.er `s")
    settings: dict[str, Any] = {"rules": "kafka-3.7", "lag_time_ms": 4000}
    expected = isr_batch.analyze(some, mapping=NAMES, **settings).changes
    assert counted(isr_batch.analyze(rows, mapping=names, **settings).changes.toArrow()) == counted(expected)
    assert len(expected) > 10
    none = isr_batch.analyze(rows.withColumn("handled_us", F.lit(None).cast("bigint")), mapping=names)
    with pytest.raises(QualityGateError, match=f"all {len(some)} rows were refused, the first one: required value"):
        _ = none.shrinks


def test_engine_that_was_asked_for(spark_session: SparkSession) -> None:
    rows = by_spark(spark_session, "fetches")["fetches"]
    local = isr_batch.analyze(rows, mapping=NAMES, rules=RULES, lag_time_ms=4000, engine="local")
    assert local.engine.startswith("local: ")
    spark = isr_batch.analyze(frames()["fetches"], mapping=NAMES, rules=RULES, lag_time_ms=4000, engine="spark")
    assert spark.engine.startswith("spark: ")
    assert isinstance(spark.shrinks, pa.Table)
    assert counted(local.shrinks.toArrow().cast(isr_batch.SHRINKS)) == counted(spark.shrinks.cast(isr_batch.SHRINKS))

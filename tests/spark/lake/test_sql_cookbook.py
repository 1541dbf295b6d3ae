"""Questions of the cookbook, asked of the samples as another session asks them: Spark's own, DuckDB, and pandas."""

import re
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from docs.generate.cookbook import PAGE, as_text, queries
from isr_batch.lake.arrow_sql import without_zones
from isr_batch.lake.lake import Lake
from isr_batch.lake.view_statements import create_catalog_views, view_statements

QUERIES = queries()
Ask = Callable[[str], tuple[list[str], list[list[Any]]]]


def by_spark(lake: Lake) -> Ask:
    session = lake.spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "4")
    for statement in view_statements(lake, "spark"):
        session.sql(statement)

    def ask(query: str) -> tuple[list[str], list[list[Any]]]:
        found = session.sql(query)
        return found.columns, [list(row) for row in found.collect()]

    return ask


def by_duckdb(lake: Lake) -> Ask:
    db = duckdb.connect()
    db.execute(";".join(view_statements(lake, "duckdb")))

    def ask(query: str) -> tuple[list[str], list[list[Any]]]:
        found = db.sql(query)
        return found.columns, [list(row) for row in found.fetchall()]

    return ask


@pytest.mark.usefixtures("compiled_queries")
@pytest.mark.parametrize("asker", [by_spark, by_duckdb])
def test_answers_of_the_page(sample_lake: Lake, asker: Callable[[Lake], Ask]) -> None:
    assert len(QUERIES) >= 20
    ask = asker(sample_lake)
    different = []
    for query, given in QUERIES:
        answer = as_text(*ask(query))
        if answer != given:
            different.append(f"{query}\n{answer}\n, not\n{given}")
    assert different == [], "`python -m docs.generate.cookbook build/sample` writes the page anew"


@pytest.mark.usefixtures("compiled_queries")
def test_the_same_in_pandas(sample_lake: Lake) -> None:
    """The block of the page is run as it is, and its frames are the answers below it."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(block.replace("LAKE", sample_lake.root), found)
    numbers = {"mistakes_of_rules": 1, "first": 2, "causes": 3, "worst": 5, "lasted": 6}
    for name, number in numbers.items():
        rows = pa.Table.from_pandas(found[name], preserve_index=False)
        listed = [list(row.values()) for row in without_zones(rows).to_pylist()]
        assert as_text(rows.column_names, listed) == QUERIES[number - 1][1], name


@pytest.mark.usefixtures("compiled_queries")
def test_every_view_says_the_same_in_both(sample_lake: Lake) -> None:
    spark, db = by_spark(sample_lake), by_duckdb(sample_lake)
    for view in {*sample_lake.names()} & {
        "changes_of_observers", "fetches", "days_to_replay", "evidence_storms", "spurious_shrinks",
        "spurious_by_leader", "worst_partitions",
    }:  # fmt: skip
        columns, _ = db(f"SELECT * FROM {view} LIMIT 0")
        kinds = dict(db(f"SELECT column_name, column_type FROM (DESCRIBE {view})")[1])
        for ask in (spark, db):
            assert ask(f"SELECT * FROM {view} LIMIT 0")[0] == columns
        parts = [f"count({name})" for name in columns]
        parts += [f"sum(unix_micros({name}) % 1000003)" for name in columns if kinds[name] == "TIMESTAMP"]
        parts += [f"sum({name} % 1000003)" for name in columns if kinds[name] in {"BIGINT", "INTEGER"}]
        query = f"SELECT count(*), {', '.join(parts)} FROM {view}"
        assert spark(query)[1] == db(query)[1], view


def test_views_of_a_catalog(spark: SparkSession, sample_lake: Lake) -> None:
    spark.sql("CREATE SCHEMA viewed")
    try:
        lake = Lake(spark, "spark_catalog.viewed", catalog=True)
        for name in ("shrink_verdicts", "replayed_days"):
            spark.sql(f"CREATE TABLE {lake.identifier(name)} USING DELTA LOCATION '{sample_lake.root}/{name}'")
        create_catalog_views(lake)
        create_catalog_views(lake)
        stored = "spark_catalog.viewed.spurious_shrinks"
        assert spark.table(stored).count() == len(sample_lake.query("SELECT * FROM spurious_shrinks")[0])
        said = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {stored}").collect()}
        assert said["Comment"].startswith("Shrinks with verdict spurious.")
    finally:
        spark.sql("DROP SCHEMA viewed CASCADE")

"""Who does the work, and the line that says so."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isr_batch.errors import UsageError
from isr_batch.lake.engine_choice import choice_of_settings
from isr_batch.lake.user_sql import answer
from isr_batch.settings import SparkSettings
from tests.unit.ingest.test_table_law import lake_in


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


def test_the_size_decides_and_is_said_once() -> None:
    said: list[str] = []
    choice = choice_of_settings(SparkSettings(), said.append)
    assert [choice.by_spark(rows, 100, "rows") for rows in (7, 100, 101, 5)] == [False, False, True, False]
    assert said == [
        "engine local: 7 rows, and one process holds 100", "engine spark: 101 rows, and one process holds 100",
        "engine local: 5 rows, and one process holds 100",
    ]  # fmt: skip


def test_local_refuses_more_rows_than_fit() -> None:
    choice = choice_of_settings(SparkSettings(engine="local"))
    assert not choice.by_spark(100, 100, "rows")
    with pytest.raises(UsageError, match="101 rows, and one process holds 100"):
        choice.by_spark(101, 100, "rows")


def test_spark_is_chosen_where_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice_of_settings(SparkSettings(master="spark://host:7077")).wanted == "spark"
    monkeypatch.setattr(SparkSession, "getActiveSession", object)
    assert choice_of_settings(SparkSettings()).why == "a Spark session is there"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    said: list[str] = []
    assert choice_of_settings(SparkSettings(), said.append).by_spark(1, 100, "rows")
    assert said == ["engine spark: this runs under spark-submit"]
    assert choice_of_settings(SparkSettings(engine="local")).wanted == "local"


def test_sql_of_duckdb(tmp_path: Path) -> None:
    """An alias without AS, GROUP BY ALL and a list: nothing of it starts Spark."""
    from isr_batch.ingest.own_table.derived_tables import derive_tables
    from isr_batch.ingest.own_table.ingest import ingest_own_table
    from isr_batch.ingest.own_table.mapping import load_mapping

    sample = Path(__file__).parents[3] / "data/samples/tables"
    lake = lake_in(tmp_path / "lake")
    ingest_own_table(lake, [str(sample / "fetches.parquet")], load_mapping(sample / "shortest.yaml"))
    derive_tables(lake)
    said: list[str] = []
    lake.engine = choice_of_settings(SparkSettings(), said.append)
    rows, columns = answer(lake, "FROM fetch_log SELECT topic t, count(*) n GROUP BY ALL ORDER BY ALL")
    assert columns == ["t", "n"]
    assert said == ["engine local: DuckDB's SQL; --engine spark takes Spark's"]
    assert sum(row["n"] for row in rows) == 52_616
    assert isinstance(answer(lake, "SELECT sum(partition_id) AS total FROM fetch_log")[0][0]["total"], int)
    first = answer(lake, "SELECT min(handled_time) AS first FROM fetch_log")[0][0]["first"]
    assert (first.year, first.tzinfo) == (2026, None)
    with pytest.raises(UsageError, match=r"DuckDB: .*no_such"):
        answer(lake, "SELECT no_such FROM fetch_log")
    for statement in ("COPY fetch_log TO 'x.csv'", "CREATE TABLE t (x INTEGER)", "ATTACH 'x.db'"):
        with pytest.raises(UsageError, match="not a query"):
            answer(lake, statement)
    with pytest.raises(UsageError, match="several statements"):
        answer(lake, "SELECT 1; DROP VIEW fetch_log")

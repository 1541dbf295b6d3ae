"""A reader that follows a result table sees what a redone day changed, and no more."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS, TABLES
from isr_batch.lake.tables.scores import RULE_SCORES

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "STRING": "x", "INT": 1, "BIGINT": 1, "TIMESTAMP": AT, "DATE": date(2026, 1, 1), "ARRAY<INT>": [1], "BOOLEAN": True,
}  # fmt: skip


def row_of(table: Table, **given: object) -> dict[str, object]:
    return {
        column.name: given.get(column.name, None if column.nullable else VALUES[column.type])
        for column in table.columns
    }


@pytest.mark.parametrize("without_spark", [False, True])
def test_changes_of_a_redone_day(lake: Lake, *, without_spark: bool) -> None:
    assert {table.name for table in TABLES.values() if table.change_feed} == {
        "isr_changes", "shrink_verdicts", "rule_scores", "replay_check",
    }  # fmt: skip
    assert RULE_SCORES.change_feed
    assert SHRINK_VERDICTS.change_feed

    def write(day: int, *replicas: int) -> None:
        of_day = date(2026, 1, day)
        rows = [
            row_of(ISR_CHANGES, kind="relinquish", made_by="rule", event_date=of_day, replica_id=replica)
            for replica in replicas
        ]
        where = f"event_date = DATE'{of_day}'"
        if without_spark:
            with ArrowSql() as sql:
                assert SmallTables(lake, sql).takes(ISR_CHANGES, where=where)
                replace_arrow(lake, sql, ISR_CHANGES, pa.Table.from_pylist(rows, arrow_schema(ISR_CHANGES)), where)
        else:
            lake.replace(ISR_CHANGES, lake.spark.createDataFrame(rows, ISR_CHANGES.schema_ddl), where)

    write(1, 1, 2)
    write(2, 1)
    write(1, 2, 3)
    reader = lake.spark.read.option("readChangeFeed", "true").option("startingVersion", lake.version("isr_changes"))
    table = f"{lake.root}/isr_changes"
    changes = reader.format("delta").load(table).select("_change_type", "replica_id", "event_date").collect()
    if without_spark:
        with ArrowSql() as sql:  # the row that stays would be shown as gone and come again
            assert not SmallTables(lake, sql).takes(ISR_CHANGES, where="replica_id = 2")
    first = date(2026, 1, 1)
    assert sorted(tuple(row) for row in changes) == [
        ("delete", 1, first), ("delete", 2, first), ("insert", 2, first), ("insert", 3, first),
    ]  # fmt: skip

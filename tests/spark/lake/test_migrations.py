"""Lakes of earlier versions are brought up to the contracts; who follows a table sees what a redone day changed."""

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from isr_batch.errors import SchemaError
from isr_batch.lake.ddl import create_statement, properties_of
from isr_batch.lake.lake import Lake
from isr_batch.lake.migrations import statements, upgrade
from isr_batch.lake.tables.contract import Column, Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, QUARANTINE
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import ISR_CHANGES, REPLAY_CHECK, RULE_DISAGREEMENTS, SHRINK_VERDICTS, TABLES
from isr_batch.lake.tables.scores import RULE_SCORES

EARLIER = [
    (LEADER_EPOCHS, ("isr_write_ms", "metadata_delay_ms", "start_offset_source")),
    (LEADER_EPOCHS, ("metadata_delay_ms", "start_offset_source")),
    (LEADER_EPOCHS, ("start_offset_source",)),
    (APPEND_LOG, ("log_end_source", "log_end_error")),
    (FETCH_LOG, ("later_by",)),
]
"""Tables as earlier versions made them, and the columns that they lacked; not those that may not be null."""
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "STRING": "x", "INT": 1, "BIGINT": 1, "TIMESTAMP": AT, "DATE": date(2026, 1, 1), "ARRAY<INT>": [1], "BOOLEAN": True,
}  # fmt: skip


def earlier(table: Table, lacks: tuple[str, ...]) -> Table:
    return replace(
        table,
        columns=tuple(column for column in table.columns if column.name not in lacks),
        constraints={
            name: text for name, text in table.constraints.items() if not any(column in text for column in lacks)
        },
    )


def row_of(table: Table, **given: object) -> dict[str, object]:
    return {
        column.name: given.get(column.name, None if column.nullable else VALUES[column.type])
        for column in table.columns
    }


def filled(lake: Lake, table: Table, **given: object) -> None:
    lake.spark.sql(create_statement(table, lake.identifier(table.name)))
    rows = lake.spark.createDataFrame([row_of(table, **given)], table.schema_ddl)
    rows.writeTo(lake.identifier(table.name)).append()


@pytest.mark.parametrize(("table", "lacks"), EARLIER, ids=lambda value: getattr(value, "name", None))
def test_from_each_earlier_version(lake: Lake, table: Table, lacks: tuple[str, ...]) -> None:
    filled(lake, earlier(table, lacks), check_origin_source="startup", error_code=0, leader_id=1)
    with pytest.raises(SchemaError) as refused:
        lake.read(table.name)
    assert "isr-batch maintain" in refused.value.hint
    done = upgrade(lake)
    assert all(column in done[0] for column in lacks)
    (row,) = lake.read(table.name).collect()
    assert [row[name] for name in lacks] == [None] * len(lacks)
    comments = {field.name: field.metadata["comment"] for field in lake.read(table.name).schema}
    assert comments == {column.name: column.comment for column in table.columns}
    version = lake.version(table.name)
    assert upgrade(lake) == []
    assert lake.version(table.name) == version
    lake.replace(table, lake.read(table.name), "true")


def test_more_than_adding_is_refused(lake: Lake) -> None:
    filled(lake, earlier(QUARANTINE, ("rows_kept",)))
    with pytest.raises(SchemaError, match="no column rows_kept") as refused:
        upgrade(lake)
    assert "move this table away" in refused.value.hint
    assert lake.version(QUARANTINE.name) == 1


def test_rows_that_break_a_new_constraint_are_refused(lake: Lake) -> None:
    filled(lake, earlier(FETCH_LOG, ("later_by",)), run_length=2, last_handled_time=AT + timedelta(seconds=1))
    with pytest.raises(SchemaError, match=r"run_told \(run_length = 1"):
        upgrade(lake)
    assert lake.version(FETCH_LOG.name) == 1


def schema_of(*columns: Column) -> StructType:
    return StructType([StructField(c.name, _parse_datatype_string(c.type), c.nullable) for c in columns])


@pytest.mark.usefixtures("spark")
def test_what_is_altered() -> None:
    table = Table("t", "", (Column("a", "INT", "", nullable=True),), {"a_known": "a > 0"}, change_feed=True)
    constraint = properties_of(table)["delta.constraints.a_known"]
    feed = "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    before = {"delta.constraints.a_known": "a > 1", "delta.constraints.gone": "a < 9", "delta.minReaderVersion": "1"}
    strict = schema_of(Column("a", "INT", "", nullable=False))
    assert statements(table, strict, before) == [
        "ALTER COLUMN `a` DROP NOT NULL",
        "DROP CONSTRAINT a_known",
        "DROP CONSTRAINT gone",
        f"ADD CONSTRAINT a_known CHECK ({constraint})",
        feed,
    ]
    assert statements(table, schema_of(*table.columns), properties_of(table)) == []


def test_constraints_change_and_the_feed_begins(lake: Lake) -> None:
    old = replace(
        RULE_DISAGREEMENTS, constraints={"partition_from_0": "partition_id >= 1", "obsolete": "partition_id < 9"}
    )
    lake.spark.sql(create_statement(old, lake.identifier(old.name)))
    lake.spark.sql(create_statement(replace(REPLAY_CHECK, change_feed=False), lake.identifier(REPLAY_CHECK.name)))
    assert upgrade(lake)
    assert upgrade(lake) == []
    for table in (RULE_DISAGREEMENTS, REPLAY_CHECK):
        rows = lake.spark.sql(f"SHOW TBLPROPERTIES {lake.identifier(table.name)}").collect()
        found = {row["key"]: "".join(row["value"].split()) for row in rows}  # Delta spaces what is added its own way
        assert found.items() >= {name: "".join(text.split()) for name, text in properties_of(table).items()}.items()
        assert "delta.constraints.obsolete" not in found


def test_changes_of_a_redone_day(lake: Lake) -> None:
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
        frame = lake.spark.createDataFrame(rows, ISR_CHANGES.schema_ddl)
        lake.replace(ISR_CHANGES, frame, f"event_date = DATE'{of_day}'")

    write(1, 1, 2)
    write(2, 1)
    write(1, 2, 3)
    reader = lake.spark.read.option("readChangeFeed", "true").option("startingVersion", lake.version("isr_changes"))
    table = f"{lake.root}/isr_changes"
    changes = reader.format("delta").load(table).select("_change_type", "replica_id", "event_date").collect()
    first = date(2026, 1, 1)
    assert sorted(tuple(row) for row in changes) == [
        ("delete", 1, first), ("delete", 2, first), ("insert", 2, first), ("insert", 3, first),
    ]  # fmt: skip


def test_an_upgrade_that_was_cut_off_goes_on(lake: Lake, tmp_path: Path) -> None:
    filled(lake, earlier(FETCH_LOG, ("later_by",)), error_code=0)
    copy = Lake(lake.spark, str(shutil.copytree(lake.root, tmp_path / "copy")))
    done = upgrade(lake)
    assert len(done) > 1
    for step in range(1, len(done)):
        cut = Lake(lake.spark, str(shutil.copytree(copy.root, tmp_path / f"cut-{step}")))
        for statement in done[:step]:
            lake.spark.sql(statement.replace("TABLE fetch_log", f"TABLE {cut.identifier('fetch_log')}"))
        assert upgrade(cut) == done[step:]

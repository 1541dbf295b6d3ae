"""Generate the SQL that creates a table from its contract, and compare existing tables with their contracts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

from pyspark.sql.types import StructType

from isr_batch.lake.tables.contract import Column, Table

_CONSTRAINT: Final = "delta.constraints."


def quoted_for_spark(name: str) -> str:
    """Quote the name of a column or a table for Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def ddl_differences(table: Table, found: Mapping[str, str]) -> list[str]:
    """Return one message per difference between a contract and ``found``, an existing table's types by column name."""
    expected = _types_of_contract(table.columns)
    return [
        *(f"no column {name} {expected[name]}" for name in expected if name not in found),
        *(
            f"{name} is {found[name]}, not {expected[name]}"
            for name in expected
            if name in found and found[name] != expected[name]
        ),
        *(f"unknown column {name}" for name in found if name not in expected),
    ]


def column_types(schema: StructType) -> dict[str, str]:
    """Return {column name: SQL type} for a schema that Spark has read, such as ``{"leader_id": "int"}``."""
    return {field.name: field.dataType.simpleString() for field in schema}


def column_types_in_log(schema: str) -> dict[str, str]:
    """Return the same as `column_types` for a schema in the JSON form of Delta's log."""
    return {field["name"]: _ddl_type_in_log(field["type"]) for field in json.loads(schema)["fields"]}


def _ddl_type_in_log(kind: str | dict[str, Any]) -> str:
    """Convert a type from Delta's log, such as "long", to the SQL type, such as "bigint"."""
    if isinstance(kind, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_ddl_type_in_log(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_ddl_type_in_log(kind['keyType'])},{_ddl_type_in_log(kind['valueType'])}>"
    members = (f"{field['name']}:{_ddl_type_in_log(field['type'])}" for field in kind["fields"])
    return f"struct<{','.join(members)}>"


def _types_of_contract(columns: Iterable[Column]) -> dict[str, str]:
    """Return the same as `column_types` for the columns of a contract."""
    return {column.name: column.type.lower().replace(" ", "") for column in columns}


def create_statement(table: Table, identifier: str) -> str:
    """Return the ``CREATE TABLE`` statement for a contract: columns, comments, constraints and partitioning.

    ``identifier`` is the table as Spark SQL names it.

    Constraints are set as table properties, in which Delta stores them, because an ALTER TABLE for each would be a
    separate commit. Delta refuses a row for which a constraint is NULL, whereas contracts follow standard SQL, which
    accepts such a row. Therefore each constraint is wrapped in ``coalesce(..., true)``.
    """
    columns = ",\n  ".join(map(_column_ddl, table.columns))
    properties = ", ".join(
        f"{sql_literal(name)} = {sql_literal(value)}" for name, value in table_properties(table).items()
    )
    return "\n".join(
        part
        for part in (
            f"CREATE TABLE IF NOT EXISTS {identifier} (\n  {columns})",
            "USING DELTA",
            f"PARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else "",
            f"COMMENT {sql_literal(table.comment)}",
            f"TBLPROPERTIES ({properties})" if properties else "",
        )
        if part
    )


def _column_ddl(column: Column) -> str:
    """Return a column's part of ``CREATE TABLE``: name, type, NOT NULL and comment."""
    required = "" if column.nullable else " NOT NULL"
    return f"`{column.name}` {column.ddl_type}{required} COMMENT {sql_literal(column.comment)}"


def table_properties(table: Table) -> dict[str, str]:
    """Return the table properties that a contract requires: constraints, file names, statistics and the change feed."""
    given = {f"{_CONSTRAINT}{name}": f"coalesce({condition}, true)" for name, condition in table.constraints.items()}
    # Otherwise Spark would name folders after partition values, and rule parameters can be too long for a file name.
    if len(table.partitioned_by) > 1:
        given["delta.randomizeFilePrefixes"] = "true"
    if table.skipped_by:
        given["delta.dataSkippingStatsColumns"] = ",".join(table.skipped_by)
    if table.change_feed:
        given["delta.enableChangeDataFeed"] = "true"
    return given


def constraints_since(table: Table, known: Mapping[str, str]) -> dict[str, str]:
    """Return the constraints of a contract that are not in ``known``, a table's properties, as {property: value}."""
    wanted = table_properties(table).items()
    return {key: value for key, value in wanted if key.startswith(_CONSTRAINT) and known.get(key) != value}


def constraint_statements(identifier: str, constraints: Mapping[str, str]) -> Iterator[str]:
    """Yield ALTER TABLE statements that add constraints, given as properties, or replace those with the same name.

    ``identifier`` is the table as Spark SQL names it.
    """
    for key, condition in constraints.items():
        name = key.removeprefix(_CONSTRAINT)
        yield f"ALTER TABLE {identifier} DROP CONSTRAINT IF EXISTS {name}"
        yield f"ALTER TABLE {identifier} ADD CONSTRAINT {name} CHECK ({condition})"


def sql_literal(text: str) -> str:
    """Return a text as a literal in Spark SQL. The text may contain any character."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def days_as_sql(days: Sequence[date]) -> str:
    """Return the SQL condition that ``event_date`` is one of these days."""
    listed = ", ".join(f"DATE'{day}'" for day in days)
    return f"event_date IN ({listed})"

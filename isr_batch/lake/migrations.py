"""A lake of an earlier version, brought up to the contracts: what can be added without writing rows anew is added.

There is no list of versions. A table that lacks something tells so itself, so an upgrade that was cut off goes on, and
tables that were written by different versions come to the same.
"""

from collections.abc import Mapping

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from isr_batch.errors import SchemaError
from isr_batch.lake.ddl import column_ddl, differences, literal, properties_of, types_of, with_nullable
from isr_batch.lake.lake import OTHER_VERSION, Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TABLES

CONSTRAINT = "delta.constraints."


def upgrade(lake: Lake) -> list[str]:
    """Add to each table of the lake what its contract has come to have since it was made.

    Nullable columns and constraints are added, columns that may now be null are told so, and properties are set.

    Returns
    -------
    list of str
        What was done, as SQL.

    Raises
    ------
    SchemaError
        When a table needs more than that, or when its rows do not meet a new constraint; it is as it was.
    """
    return [step for table in TABLES.values() if lake.has(table.name) for step in _upgrade(lake, table)]


def _upgrade(lake: Lake, table: Table) -> list[str]:
    identifier = lake.identifier(table.name)
    schema = lake.spark.table(identifier).schema
    properties = {row["key"]: row["value"] for row in lake.spark.sql(f"SHOW TBLPROPERTIES {identifier}").collect()}
    if differences(table, with_nullable(table, types_of(schema))):
        lake.ensure(table)  # which says so
    steps = statements(table, schema, properties)
    _require(lake, table, schema, properties)
    for step in steps:
        lake.spark.sql(f"ALTER TABLE {identifier} {step}")
    return [f"ALTER TABLE {table.name} {step}" for step in steps]


def statements(table: Table, schema: StructType, properties: Mapping[str, str]) -> list[str]:
    """What ``ALTER TABLE`` has to do, in this order."""
    stored = {field.name: field for field in schema}
    missing = [column for column in table.columns if column.name not in stored and column.nullable]
    loosened = [
        column for column in table.columns if column.name in stored and column.nullable > stored[column.name].nullable
    ]
    wanted = properties_of(table)
    changed = {name: value for name, value in wanted.items() if _words(properties.get(name)) != _words(value)}
    dropped = [name for name in properties if name.startswith(CONSTRAINT) and (name in changed or name not in wanted)]
    set_to = [f"{literal(name)} = {literal(value)}" for name, value in changed.items() if CONSTRAINT not in name]
    return [
        *([f"ADD COLUMNS ({', '.join(map(column_ddl, missing))})"] if missing else []),
        *(f"ALTER COLUMN `{column.name}` DROP NOT NULL" for column in loosened),
        *(f"DROP CONSTRAINT {name.removeprefix(CONSTRAINT)}" for name in dropped),
        *(
            f"ADD CONSTRAINT {name.removeprefix(CONSTRAINT)} CHECK ({value})"
            for name, value in changed.items()
            if CONSTRAINT in name
        ),
        *([f"SET TBLPROPERTIES ({', '.join(set_to)})"] if set_to else []),
    ]


def _require(lake: Lake, table: Table, schema: StructType, properties: Mapping[str, str]) -> None:
    """Rows must meet the new constraints, which Delta would only find out one after the other."""
    new = {
        name.removeprefix(CONSTRAINT): value
        for name, value in properties_of(table).items()
        if name.startswith(CONSTRAINT) and _words(properties.get(name)) != _words(value)
    }
    if not new:
        return
    added = {c.name: F.lit(None).cast(c.type) for c in table.columns if c.name not in schema.names}
    rows = lake.spark.table(lake.identifier(table.name)).withColumns(added)
    kept = rows.agg(*(F.every(F.expr(condition)).alias(name) for name, condition in new.items())).collect()[0]
    broken = [f"{name} ({table.constraints[name]})" for name in new if kept[name] is False]
    if broken:
        raise SchemaError(
            f"{lake.identifier(table.name)} has rows that its contract does not allow: {'; '.join(broken)}",
            OTHER_VERSION,
        )


def _words(text: str | None) -> str | None:
    """Without white space: Delta puts its own into a constraint that is added to a table."""
    return None if text is None else "".join(text.split())

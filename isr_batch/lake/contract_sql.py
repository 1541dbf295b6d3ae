"""Check Arrow rows against conditions in Spark SQL, and against a table's contract (its constraints and NOT NULLs)."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.lake.arrow_sql import ArrowSql, quoted, without_zones
from isr_batch.lake.tables.contract import Table


def rows_that_meet(sql: ArrowSql, rows: pa.Table, where: str) -> pa.Table:
    """Return the rows that meet ``where``, a condition in Spark SQL.

    Literals in the condition may contain backslash escapes. Times in it are UTC.
    """
    meets = _rows_meet(sql, rows, where)
    return rows if pc.all(meets).as_py() else rows.filter(meets)  # filtering copies the rows


def _rows_meet(sql: ArrowSql, rows: pa.Table, where: str) -> pa.ChunkedArray:
    """Return one bool per row: whether the row meets a condition in Spark SQL. A condition that is null is not met."""
    plain = [
        name for name, type_ in zip(rows.column_names, rows.schema.types, strict=True) if not pa.types.is_map(type_)
    ]
    known = without_zones(rows.select(plain))
    text = re.sub(r"'((?:[^'\\]|\\.)*)'", lambda found: quoted(re.sub(r"\\(.)", r"\1", found[1])), where)
    return sql(f"SELECT coalesce({text}, false) AS meets FROM stored", stored=known)["meets"]


def count_breaking_contract(sql: ArrowSql, table: Table, rows: pa.Table, where: str = "true") -> int:
    """Return the number of rows that break the contract of a table or do not meet a condition.

    Parameters
    ----------
    sql : ArrowSql
    table : Table
    rows : pa.Table
        Rows with the contract's columns.
    where : str
        The condition, in SQL that both DuckDB and Spark understand.
    """
    holds = [f"coalesce({condition}, true)" for condition in table.constraints.values()]
    # Columns of maps are left out, because `ArrowSql` cannot handle them.
    required = [column for column in table.columns if not column.nullable]
    holds += [f"{column.name} IS NOT NULL" for column in required if not column.type.startswith("MAP")]
    if any(rows[column.name].null_count for column in required if column.type.startswith("MAP")):
        return int(rows.num_rows)
    holds.append(f"coalesce({where}, false)")
    return int(
        rows.num_rows - (pc.sum(_rows_meet(sql, rows, " AND ".join(f"({each})" for each in holds))).as_py() or 0)
    )

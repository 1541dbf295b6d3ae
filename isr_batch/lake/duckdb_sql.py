"""Run users' SQL in DuckDB, in this process and its own dialect, on tables and views by bare name."""

import re
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import contract_of, open_columns, read_columns
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import views_for_duckdb
from isr_batch.lake.tables.outputs import TABLES

_OWN: Final = "rows_of_"
_QUERY: Final = re.compile(r"(?i)[\s(]*(SELECT|FROM|WITH|VALUES|DESCRIBE|SHOW|SUMMARIZE|PIVOT|UNPIVOT)\b")


def answered_by_duckdb(lake: Lake, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Run a query, and collect the whole result in this process.

    Parameters
    ----------
    lake : Lake
    text : str
        A query in DuckDB's SQL. Instants are TIMESTAMP, in UTC.

    Returns
    -------
    rows, columns
        Rows as dictionaries, and the names of the columns in their order.

    Raises
    ------
    UsageError
        When DuckDB cannot parse the query, or it is not a query.
    """
    if not _QUERY.match(text):
        raise UsageError("this is not a query", "such as SELECT * FROM spurious_shrinks")
    names = lake.names()
    asked = _asked(text, names)
    try:
        with ArrowSql() as sql:
            found = sql(text, **{name: _view(lake, name) for name in names if name in asked})
    except duckdb.Error as error:
        there = f"the lake has {', '.join(names) or 'no table'}"
        raise UsageError(f"DuckDB: {str(error).strip().partition(chr(10))[0]}", there) from error
    return found.to_pylist(), found.column_names


def _asked(text: str, names: list[str]) -> set[str]:
    """Name the tables and views in a query, and in the views that it names."""
    views, asked, rest = views_for_duckdb(), set[str](), {*re.findall(r"\w+", text)} & {*names}
    while rest:
        asked |= rest
        rest = {word for name in rest if name in views for word in re.findall(r"\w+", views[name])} & {*names} - asked
    return asked


def _view(lake: Lake, name: str) -> ArrowView:
    if name not in TABLES:
        return ArrowView(views_for_duckdb()[name], {}, pa.schema([]))
    columns = contract_of(name).column_names
    opened: pa.Table | ds.Dataset | None = open_columns(lake, name, columns)
    rows = read_columns(lake, name, columns) if opened is None else opened
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    plain = ", ".join(f"make_timestamp(epoch_us({time})) AS {time}" for time in times)
    text = f"SELECT *{f' REPLACE ({plain})' if plain else ''} FROM {_OWN}{name}"
    return ArrowView(text, {f"{_OWN}{name}": rows}, rows.schema)

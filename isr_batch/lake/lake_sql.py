"""Run SQL that uses the short names of a lake's tables, with DuckDB if possible, else with Spark."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import Any

import pyarrow as pa

from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import stored_bytes
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS

Row = dict[str, Any]
Value = str | Sequence[tuple[object, ...]]


class LakeSql(AbstractContextManager["LakeSql"]):
    """Runs queries that use the short names of a lake's tables, in SQL that both Spark and DuckDB understand.

    Parameters
    ----------
    lake : Lake
        The lake. Tables that do not exist in it are empty in queries.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._opened = ExitStack()
        self._here = InProcess(lake)
        self._opened.enter_context(self._here)
        self._read: dict[str, Rows | None] = {}

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def __call__(self, text: str, **values: Value) -> list[Row]:
        """Run a query, and return its rows as dictionaries.

        Parameters
        ----------
        text : str
            SELECT statement.
        **values : str or sequence of tuple
            What to substitute for each ``:name``. A string is inserted as SQL; a sequence of tuples becomes the rows of
            a VALUES list.

        Raises
        ------
        SchemaError
            If a table's columns or types differ from the contract.
        """
        tables = self._tables(text)
        engine: LakeEngine = self._here
        if any(rows is None for rows in tables.values()):
            engine = self._spark
            tables = {name: engine.table(name) for name in tables}
        return engine.listed(engine(_sql_with_values(_with_marks(text, tables), values, engine.literal), **tables))

    def arrow(self, text: str) -> pa.Table | None:
        """Run a query in this process, and return an Arrow table; None if Spark has to read one of the tables."""
        tables = self._tables(text)
        if any(rows is None for rows in tables.values()):
            return None
        return self._here.arrow(self._here(_with_marks(text, tables), **tables))

    def _tables(self, text: str) -> dict[str, Rows | None]:
        """Return the tables and views that occur in a query, by name. The value is None if Spark has to read it."""
        return {name: self._table(name) for name in re.findall(r"\w+", text) if name in TABLES or name in VIEWS}

    @cached_property
    def _spark(self) -> LakeEngine:
        """The Spark engine, in whose session the SQL functions of isr-batch are registered."""
        for text in sql_texts("functions").values():
            self.lake.spark.sql(text)
        return self._opened.enter_context(BySpark(self.lake))

    def _table(self, name: str) -> Rows | None:
        """Return a table or view for queries in this process; None if Spark has to read it."""
        if name not in self._read:
            parts = VIEWS[name][1] if name in VIEWS else (name,)
            here = all(self._here.reads(part) and stored_bytes(self.lake, part) <= sizes.READ_BYTES for part in parts)
            self._read[name] = self._here.table(name) if here else None
        return self._read[name]


def _with_marks(text: str, tables: Mapping[str, object]) -> str:
    """Replace table names after FROM and JOIN with ``{name}``, the form that `LakeEngine` expects."""
    text = re.sub(r"[{}]", r"\g<0>\g<0>", text)
    named = rf"\b((?i:FROM|JOIN))\s+({'|'.join(tables) or '(?!)'})\b(\s+AS \w+)?"
    return re.sub(named, lambda at: f"{at[1]} {{{at[2]}}}{at[3] or f' AS {at[2]}'}", text)


def lake_sql_for_spark(text: str, **values: Value) -> str:
    """Return the text of a query of `LakeSql` with its values substituted, which `isr-batch sql` can run."""
    return _sql_with_values(text, values, sql_literal)


def _sql_with_values(text: str, values: Mapping[str, Value], quote: Callable[[str], str]) -> str:
    """Replace each ``:name`` in a query with its value, as in `LakeSql.__call__`. ``quote`` returns a SQL literal."""

    def written(value: object) -> str:
        return quote(value) if isinstance(value, str) else "NULL" if value is None else repr(value)

    def rows(value: Value) -> str:
        return value if isinstance(value, str) else ", ".join(f"({', '.join(map(written, row))})" for row in value)

    # All names are replaced in one pass, because a value may itself contain something like ``:name``.
    return re.sub(r":(\w+)", lambda found: rows(values[found[1]]) if found[1] in values else found[0], text)

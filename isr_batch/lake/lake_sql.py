"""Answer SQL over a lake's tables by bare name: in this process where their files can be read here, else in Spark.

Planning a query in Spark takes longer than this process takes to read a day of a cluster.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, Self

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView, quoted
from isr_batch.lake.ddl import literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS

LARGEST: Final = 512 << 20
"""Bytes of a table's files; of a larger one Spark does not need the memory at once."""
_SPARKS: Final = (
    "explode(list) AS unnest(list)",
    "unix_micros(time) AS epoch_us(time)",
    "unix_millis(time) AS epoch_us(time) // 1000",
    "percentile(value, share) AS quantile_cont(value, share)",
    "sequence(least, most) AS generate_series(CAST(least AS BIGINT), CAST(most AS BIGINT))",
    "lag_time_ms(params) AS CAST(regexp_extract(params, '\"replica_lag_time_max_ms\": *([0-9]+)', 1) AS BIGINT)",
)
"""Functions of Spark and of the lake, as DuckDB has them."""
_READ: Final = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")

Row = dict[str, Any]
Value = str | Sequence[tuple[object, ...]]


class LakeSql:
    """Queries in what Spark and DuckDB have in common, beside the functions above.

    Instants are compared by ``unix_micros``: DuckDB needs an extension to see that two types of them are alike.

    Parameters
    ----------
    lake : Lake
        Tables that it lacks count as empty.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._opened = ExitStack()
        self._here = self._opened.enter_context(ArrowSql([f"CREATE MACRO {text}" for text in _SPARKS]))
        self._in_spark = False
        self._read: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def __call__(self, text: str, **values: Value) -> list[Row]:
        """Answer a query.

        Parameters
        ----------
        text : str
            SELECT statement.
        **values : str or sequence of tuple
            What stands for ``:name`` in it: SQL, or rows for VALUES.

        Raises
        ------
        SchemaError
            When a table's columns or types differ from the contract.
        """
        names = [name for name in dict.fromkeys(re.findall(r"\w+", text)) if name in TABLES or name in VIEWS]
        tables = {name: self._table(name) for name in names}
        if any(table is None for table in tables.values()):
            if not self._in_spark:
                self._opened.enter_context(_all_tables(self.lake))
                self._in_spark = True
            return [row.asDict() for row in self.lake.spark.sql(for_spark(text, **values)).collect()]
        text = _filled(text, values, quoted).replace("LEFT SEMI JOIN", "SEMI JOIN")
        return self._here(text, **tables).to_pylist()  # type: ignore[no-any-return]

    def _table(self, name: str) -> pa.Table | ds.Dataset | ArrowView | None:
        if name not in self._read:
            self._read[name] = self._find(name)
        return self._read[name]

    def _find(self, name: str) -> pa.Table | ds.Dataset | ArrowView | None:
        """Find a table as Arrow's dataset; None if Spark is to read it."""
        if name in VIEWS:
            contract, names = VIEWS[name]
            parts = {part: self._table(part) for part in names}
            for_spark_alone = any(part is None for part in parts.values())
            schema = contract_schema(name, contract.column_names)
            return None if for_spark_alone else ArrowView(sql_texts()[name], parts, schema)
        if not self.lake.has(name):
            plain = [
                column.name for column in TABLES[name].columns if not column.type.startswith(("MAP", "ARRAY<STRUCT"))
            ]
            return contract_schema(name, plain).empty_table()
        self.lake.ensure(TABLES[name])
        folder = self.lake.folder(name)
        if folder is None or not self.lake.is_plain(name):
            return None
        table = deltalake.DeltaTable(folder)
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        return table.to_pyarrow_dataset(parquet_read_options=_READ) if sum(sizes) <= LARGEST else None


def for_spark(text: str, **values: Value) -> str:
    """Write a query as `isr-batch sql` takes it."""
    return _filled(text, values, literal)


def _filled(text: str, values: Mapping[str, Value], quote: Callable[[str], str]) -> str:
    def written(value: object) -> str:
        return quote(value) if isinstance(value, str) else "NULL" if value is None else repr(value)

    def rows(value: Value) -> str:
        return value if isinstance(value, str) else ", ".join(f"({', '.join(map(written, row))})" for row in value)

    # At once: a value may look like a name.
    return re.sub(r":(\w+)", lambda found: rows(values[found[1]]) if found[1] in values else found[0], text)


@contextmanager
def _all_tables(lake: Lake) -> Iterator[None]:
    """Register every table as a view, and for the duration of the context missing ones as empty."""
    there = lake.register_views()
    lacking = [name for name in TABLES if name not in there]
    for name in lacking:
        lake.spark.createDataFrame([], TABLES[name].schema_ddl).createOrReplaceTempView(name)
    for name in VIEWS.keys() - set(there):
        lake.spark.sql(sql_texts()[name]).createOrReplaceTempView(name)
        lacking.append(name)
    try:
        yield
    finally:
        for name in lacking:
            lake.spark.catalog.dropTempView(name)

"""SQL over Arrow tables by DuckDB in this process, for tables with too few rows to be worth Spark jobs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.errors import unreadable_file_error
from isr_batch.lake.arrow_rows import damaged_file_of

if TYPE_CHECKING:
    import duckdb

_OPTIONS: dict[str, str | bool | int | float | list[str]] = {
    "temp_directory": "",  # no files: the tables are in memory anyway
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "default_null_order": "nulls_first_on_asc_last_on_desc",  # as Spark
}


SPARK_FUNCTIONS = (
    "array_intersect(a, b) AS list_intersect(a, b)",
    "array_max(list) AS list_max(list)",
    "array_sort(list) AS list_sort(list)",
    "collect_list(item) AS coalesce(list(item) FILTER (WHERE item IS NOT NULL), [])",
    "collect_set(item) AS coalesce(list(DISTINCT item) FILTER (WHERE item IS NOT NULL), [])",
    "conv(digits, from_base, to_base) AS CAST('0x' || digits AS BIGINT)",
    "count_if(holds) AS count(*) FILTER (holds)",
    "element_at(list, number) AS list_extract(list, number)",
    "explode(list) AS unnest(list)",
    "get_json_object(document, path) AS json_extract_string(document, path)",
    "lag_time_ms(params_json) AS CAST(json_extract_string(params_json, '$.replica_lag_time_max_ms') AS BIGINT)",
    "out_of_isr_ms(change_time, restored_time) AS (epoch_us(restored_time) - epoch_us(change_time)) // 1000",
    "percentile(number, share) AS quantile_cont(number, share)",
    "sequence(least, most) AS generate_series(CAST(least AS BIGINT), CAST(most AS BIGINT))",
    "size(entries) AS len(entries)",
    "struct(a, b) AS row(a, b)",
    "timestamp_micros(micros) AS make_timestamp(micros)",
    "timestamp_millis(millis) AS make_timestamp(millis * 1000)",
    "unix_micros(instant) AS epoch_us(instant)",
    "unix_millis(instant) AS epoch_us(instant) // 1000",
)
"""Functions of Spark, and of the lake (`lag_time_ms`, `out_of_isr_ms`), by what this engine has for them."""


@dataclass(frozen=True)
class ArrowView:
    """A query that is used like a table.

    Attributes
    ----------
    text : str
        SELECT statement.
    tables : dict of pa.Table or ds.Dataset
        The tables that it names.
    schema : pa.Schema
        Of its answer.
    """

    text: str
    tables: Mapping[str, pa.Table | ds.Dataset]
    schema: pa.Schema


class ArrowSql(AbstractContextManager["ArrowSql"]):
    """A separate DuckDB engine that reads Arrow tables without copying them, and returns Arrow tables.

    Parameters
    ----------
    macros : iterable of str
        More functions, as ``name(parameters) AS expression``.
    threads : int
        Number of threads per query.
    """

    def __init__(self, macros: Iterable[str] = (), threads: int = 2) -> None:
        import duckdb  # a large library, which most processes that import this module do not use

        self._engine = duckdb.connect(":memory:", config=_OPTIONS | {"threads": threads})
        # No query reaches a file, or a variable of Python's, by its name.
        self._engine.execute("SET enable_external_access = false; SET python_enable_replacements = false")
        for text in (*SPARK_FUNCTIONS, *macros):
            self._engine.execute(f"CREATE MACRO {text}")

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def __call__(self, text: str, **tables: pa.Table | ds.Dataset | ArrowView) -> pa.Table:
        """Run a query.

        Parameters
        ----------
        text : str
            SELECT statement.
        **tables : pa.Table, ds.Dataset or ArrowView
            The tables that it names; a dataset is read while the query runs.
        """
        with self._asked(text, tables) as answer:
            found = answer.to_arrow_table()
            # With a chunk in each column, even if it is an empty one: Spark takes no others.
            return found if found.num_rows else found.schema.empty_table()

    def batches(self, text: str, rows_at_once: int, **tables: pa.Table | ds.Dataset) -> Iterator[pa.RecordBatch]:
        """Run a query, and yield its result in batches while it runs.

        Raises
        ------
        ValueError
            When the query does not fit the tables.
        """
        import duckdb

        try:
            with self._asked(text, tables) as answer:
                yield from answer.to_arrow_reader(rows_at_once)
        except duckdb.Error as error:
            raise ValueError(str(error)) from error

    @contextmanager
    def _asked(
        self, text: str, tables: Mapping[str, pa.Table | ds.Dataset | ArrowView]
    ) -> "Iterator[duckdb.DuckDBPyRelation]":
        views = {name: table for name, table in tables.items() if isinstance(table, ArrowView)}
        stored = {name: table for view in views.values() for name, table in view.tables.items()}
        stored |= {name: table for name, table in tables.items() if name not in views}
        import duckdb

        # A separate connection with its own names, because threads may query concurrently.
        with self._engine.cursor() as query:
            for name, table in stored.items():
                query.register(name, table)
            for name, view in views.items():
                query.execute(f"CREATE TEMP VIEW {name} AS {view.text}")
            try:
                yield query.sql(text)
            except duckdb.Error:
                for rows in stored.values():
                    if isinstance(rows, ds.Dataset) and (damaged := damaged_file_of(rows)):
                        raise unreadable_file_error(damaged) from None
                raise


def quoted(text: str) -> str:
    """Write a text as a literal of `ArrowSql`, where a backslash has no special meaning."""
    return "'" + text.replace("'", "''") + "'"


def without_zones(rows: pa.Table) -> pa.Table:
    """Drop the zone of UTC times, which `ArrowSql` would convert to the machine's zone."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(number, field.name, rows[field.name].cast(pa.timestamp("us")))
    return rows

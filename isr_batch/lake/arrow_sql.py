"""Run SQL over Arrow tables with DuckDB in this process, for tables that are too small for Spark jobs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.errors import unreadable_file_error

if TYPE_CHECKING:
    import duckdb

_OPTIONS: dict[str, str | bool | int | float | list[str]] = {
    "temp_directory": "",  # no spill: the tables are in memory anyway
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "default_null_order": "nulls_first_on_asc_last_on_desc",  # as in Spark
}
_MOST_PLANS = 128


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
"""DuckDB macros for Spark functions that DuckDB lacks, and for the lake's own functions (`lag_time_ms`,
`out_of_isr_ms`)."""


@dataclass(frozen=True)
class ArrowView:
    """A SELECT statement, not computed yet, that other queries of `ArrowSql` can use like a table.

    Attributes
    ----------
    text : str
        SELECT statement.
    tables : dict of pa.Table or ds.Dataset
        The tables that the statement reads, by name.
    schema : pa.Schema
        Schema of the statement's result.
    """

    text: str
    tables: Mapping[str, pa.Table | ds.Dataset]
    schema: pa.Schema


class _GivenArrowRows:
    """Placeholder for a table in a prepared query. The table's rows are set before each run of the query."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows: pa.Table | None = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self.rows is not None
        return self.rows.__arrow_c_stream__(requested_schema)


class _ArrowSqlPlan:
    """A prepared query, which is planned once, and can run on different rows."""

    def __init__(self, query: "duckdb.DuckDBPyConnection", text: str, tables: Mapping[str, pa.Table]) -> None:
        self._query = query
        self._given = {name: _GivenArrowRows(rows) for name, rows in tables.items()}
        for name, given in self._given.items():
            query.register(name, given)
        query.execute(f"PREPARE planned AS {text}")

    @contextmanager
    def run(self, tables: Mapping[str, pa.Table]) -> "Iterator[duckdb.DuckDBPyRelation]":
        """Run the query on these tables, and yield the result. The tables must have the columns of the planned ones.

        No reference to the tables is kept.
        """
        for name, given in self._given.items():
            given.rows = tables[name]
        try:
            yield self._query.sql("EXECUTE planned")
        finally:
            for given in self._given.values():
                given.rows = None


class ArrowSql(AbstractContextManager["ArrowSql"]):
    """DuckDB that reads Arrow tables without copying them, and returns Arrow tables.

    All instances of a process with the same macros share one engine. Each query only sees its own tables.

    Parameters
    ----------
    macros : iterable of str
        Further functions, as ``name(parameters) AS expression``.
    threads : int
        Number of threads per query.
    repeated : bool
        Whether the same few queries run many times on different rows. If so, each query is planned only once. On some
        thousand rows, planning takes longer than running.
    """

    def __init__(self, macros: Iterable[str] = (), threads: int = 2, *, repeated: bool = False) -> None:
        self._engine = _engine_of_process(tuple(macros), threads, os.getpid())
        self._plans: dict[object, _ArrowSqlPlan] | None = {} if repeated else None
        self._one_at_a_time = RLock()

    def __exit__(self, *_: object) -> None:
        """Do nothing: the engine stays open for other instances, and each query has closed its own connection."""

    def __call__(self, text: str, **tables: pa.Table | ds.Dataset | ArrowView) -> pa.Table:
        """Run a query, and return its result as an Arrow table.

        Parameters
        ----------
        text : str
            SELECT statement.
        **tables : pa.Table, ds.Dataset or ArrowView
            The tables that the statement reads, by name. A dataset is read while the query runs.
        """
        with self._asked(text, tables) as answer:
            found = answer.to_arrow_table()
            # Each column needs a chunk, even an empty one: Spark accepts no column without chunks.
            return found if found.num_rows else found.schema.empty_table()

    def batches(self, text: str, rows_at_once: int, **tables: pa.Table | ds.Dataset) -> Iterator[pa.RecordBatch]:
        """Run a query, and yield its result in batches of up to ``rows_at_once`` rows while it runs.

        Raises
        ------
        ValueError
            If DuckDB cannot run the query on these tables.
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
        """Run a query, and yield its result: by a prepared plan if queries are repeated, else on a new connection."""
        views = {name: table for name, table in tables.items() if isinstance(table, ArrowView)}
        stored = {name: table for view in views.values() for name, table in view.tables.items()}
        stored |= {name: table for name, table in tables.items() if name not in views}
        import duckdb

        if self._plans is not None and all(isinstance(table, pa.Table) for table in tables.values()):
            with self._one_at_a_time:
                key = text, *((name, table.schema) for name, table in tables.items())
                if key not in self._plans:
                    if len(self._plans) == _MOST_PLANS:
                        del self._plans[next(iter(self._plans))]
                    self._plans[key] = _ArrowSqlPlan(self._engine.cursor(), text, tables)
                with self._plans[key].run(tables) as answer:
                    yield answer
            return
        # Threads may run queries concurrently, so each query registers its tables on its own connection.
        with self._engine.cursor() as query:
            for name, table in stored.items():
                query.register(name, table)
            for name, view in views.items():
                query.execute(f"CREATE TEMP VIEW {name} AS {view.text}")
            try:
                yield query.sql(text)
            except duckdb.Error:
                for rows in stored.values():
                    if isinstance(rows, ds.Dataset) and (damaged := _damaged_file_of(rows)):
                        raise unreadable_file_error(damaged) from None
                raise


@cache
def _engine_of_process(macros: tuple[str, ...], threads: int, _process: int) -> "duckdb.DuckDBPyConnection":
    """Return this process' DuckDB engine with these macros. The engine is cached, as opening one takes 35 ms.

    ``threads`` is the number of its threads.
    """
    import duckdb  # a large library, which most processes that import this module do not use

    engine = duckdb.connect(":memory:", config=_OPTIONS | {"threads": threads})
    # A name in a query must always be a given table, and never a file or a Python variable.
    engine.execute("SET enable_external_access = false; SET python_enable_replacements = false")
    for text in (*SPARK_FUNCTIONS, *macros):
        engine.execute(f"CREATE MACRO {text}")
    return engine


def quoted(text: str) -> str:
    """Return a text as a SQL literal for DuckDB, where quotes are doubled and backslashes are ordinary characters."""
    return "'" + text.replace("'", "''") + "'"


def without_zones(rows: pa.Table) -> pa.Table:
    """Drop the zone (UTC) from the type of timestamps, because DuckDB would convert them to the machine's zone."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(number, field.name, rows[field.name].cast(pa.timestamp("us")))
    return rows


def _damaged_file_of(rows: ds.Dataset) -> str | None:
    """Return the address of the first file of a dataset that cannot be read; None if all can be read."""
    for fragment in rows.get_fragments():
        try:
            for _ in fragment.to_batches():
                pass
        except (pa.ArrowInvalid, OSError):
            return f"{getattr(fragment.filesystem, 'base_path', '')}{fragment.path}"
    return None

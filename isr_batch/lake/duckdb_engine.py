"""Run SQL over a lake's tables with DuckDB in this process.

A Spark query takes at least a tenth of a second, even on a few rows. DuckDB takes milliseconds, if this process can
read the files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from isr_batch.lake.arrow_read import contract_of, contract_schema, open_columns, read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView, quoted, without_zones
from isr_batch.lake.contract_sql import rows_that_meet
from isr_batch.lake.ddl import days_as_sql
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import (
    FIGURES,
    FOLLOWER,
    INSTANTS,
    LARGE_ROWS_AT_A_TIME,
    Days,
    LakeEngine,
    OfBatches,
    OfTable,
    Rows,
    appends_text,
)
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.progress import counted


class InProcess(LakeEngine):
    """Runs queries with DuckDB in this process (see `LakeEngine`). Spark only loads tables that DuckDB cannot read.

    Parameters
    ----------
    lake : Lake
    sql : ArrowSql, optional
        The DuckDB connection to use, which the caller closes; by default a new one.
    """

    in_process = True

    def __init__(self, lake: Lake, sql: ArrowSql | None = None) -> None:
        self._lake = lake
        self._sql = sql or ArrowSql()
        self._closes = sql is None

    def __exit__(self, *_: object) -> None:
        if self._closes:
            self._sql.__exit__()

    def table(self, name: str, columns: Sequence[str] = ()) -> Rows:
        """Return columns of a table or view (`LakeEngine.table`). The files are only read while a query runs."""
        columns = columns or contract_of(name).column_names
        if name in VIEWS:
            parts = {part: self._opened(part, TABLES[part].column_names) for part in VIEWS[name][1]}
            text = f"SELECT {', '.join(columns)} FROM ({sql_texts()[name]})"
            return ArrowView(text, parts, contract_schema(name, columns))
        return self._opened(name, columns)

    def with_struct(
        self,
        name: str,
        columns: Sequence[str],
        struct: str,
        fields: Sequence[str],
        days: tuple[str, str],  # noqa: ARG002 the queries filter by day themselves
    ) -> Rows:
        """Return columns of a table, and one struct that packs its large columns (`LakeEngine.with_struct`)."""
        packed = self.struct(
            {field: f"of_table.{field}" for field in fields}
        )  # qualified, as some names are SQL keywords
        text = f"SELECT {', '.join(columns)}, {packed} AS {struct} FROM {name} AS of_table"
        schema = contract_schema(name, columns).append(pa.field(struct, pa.struct(list(contract_schema(name, fields)))))
        return ArrowView(text, {name: self._opened(name, (*columns, *fields))}, schema)

    def _opened(self, name: str, columns: Sequence[str]) -> pa.Table | ds.Dataset:
        """Return columns of a table. If this process cannot read the table's files, Spark loads them."""
        opened = open_columns(self._lake, name, columns)
        opened = read_columns(self._lake, name, columns) if opened is None else opened
        return without_zones(opened) if isinstance(opened, pa.Table) else opened

    def rows(self, given: pa.Table) -> Rows:
        """Convert an Arrow table for queries of this engine, by dropping the zones of its times (`LakeEngine.rows`)."""
        return without_zones(given)

    def fetches(self, spans: Rows, days: Days) -> Rows:
        """Return one row per fetch that was in progress during a time span of its follower (`LakeEngine.fetches`)."""
        # Runs of fetches are expanded only if the time from their first to their last fetch overlaps a span.
        names = [*FOLLOWER, *(f"{name}_time" for name in INSTANTS), *FIGURES, "run_length", "later_by", "event_date"]
        runs = self(
            f"""
            SELECT row_number() OVER () AS run, * FROM {{fetch_log}} JOIN {{spans}} USING ({", ".join(FOLLOWER)})
            WHERE event_date BETWEEN DATE '{days[0]}' AND DATE '{days[1]}' AND epoch_us(arrival_time) <= until_us
              AND epoch_us(completed_time) + coalesce(list_sum(later_by[5:6 * run_length:6]), 0) >= from_us
            """,
            fetch_log=self.table(FETCH_LOG.name, names), spans=spans,
        )  # fmt: skip
        # Lists are unnested before the sums, because a window copies all its columns for each row.
        later = {f"{name}_later": number for number, name in enumerate(INSTANTS, 1)}
        steps = ", ".join(
            f"unnest(list_concat([0], later_by[{number}:6 * run_length:6])) AS {step}" for step, number in later.items()
        )
        instants = ", ".join(
            f"epoch_us({name}_time) + CAST(sum({name}_later) OVER of_run AS BIGINT) AS {name}_us" for name in INSTANTS
        )
        gone = ", ".join(("run", "n", "run_length", "event_date", *later, *(f"{name}_time" for name in INSTANTS)))
        return self(
            f"""
            SELECT * FROM (
              SELECT * EXCLUDE ({gone}), {instants}
              FROM (SELECT * EXCLUDE (later_by), unnest(range(run_length)) AS n, {steps} FROM {{runs}})
              WINDOW of_run AS (PARTITION BY run ORDER BY n)
            ) WHERE arrival_us <= until_us AND completed_us >= from_us
            """,
            runs=runs,
        )

    def appends(self, spans: Rows, days: Days) -> Rows:
        """Return one row per append to a partition during a time span of that partition (`LakeEngine.appends`)."""
        names = [*FOLLOWER[:-1], "append_time", "event_date"]
        return self(appends_text(days), append_log=self.table(APPEND_LOG.name, names), spans=spans)

    def by_key(self, rows: Rows, keys: Sequence[str], work: OfTable, schema: pa.Schema) -> Rows:
        """Call a function once per key, with all rows of the key, and concatenate the results (`LakeEngine.by_key`)."""
        table = rows.sort_by([(name, "ascending") for name in keys]).combine_chunks()
        sizes = self._sql(
            f"SELECT count(*) AS n FROM rows GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}", rows=table
        )["n"].to_pylist()
        ends = [0, *accumulate(sizes)]
        done = [work(table.slice(start, end - start)) for start, end in pairwise(ends)]
        return pa.concat_tables([schema.empty_table(), *(part.select(schema.names).cast(schema) for part in done)])

    def stream(
        self, rows: pa.Table, keys: Sequence[str], order: Sequence[str], work: OfBatches, schema: pa.Schema
    ) -> Rows:
        """Call a function with an iterator over sorted batches of rows (`LakeEngine.stream`)."""
        by = [*dict.fromkeys((*keys, *order))]
        places = pc.sort_indices(rows.select(by), [(name, "ascending") for name in by])
        starts = range(0, len(places), LARGE_ROWS_AT_A_TIME)
        cuts = ((places.slice(start, LARGE_ROWS_AT_A_TIME), LARGE_ROWS_AT_A_TIME) for start in starts)
        parts = map(rows.take, counted(cuts, len(places), "segments"))
        batches = (batch for part in parts for batch in part.combine_chunks().to_batches())
        return pa.Table.from_batches(work(batches), schema)

    def only(self, rows: Rows, wanted: Rows, keys: Sequence[str]) -> Rows:
        """Return the rows whose keys are in ``wanted`` (`LakeEngine.only`). Tables under a view are filtered first."""
        if isinstance(rows, ArrowView):
            return replace(rows, tables={name: self.only(part, wanted, keys) for name, part in rows.tables.items()})
        shared = ", ".join(name for name in keys if name in rows.schema.names)
        return self(f"SELECT * FROM {{rows}} SEMI JOIN {{wanted}} USING ({shared})", rows=rows, wanted=wanted)

    def union(self, *rows: pa.Table) -> Rows:
        """Concatenate rows by column name. Columns that some rows lack are null there (`LakeEngine.union`)."""
        return pa.concat_tables(rows, promote_options="default")

    def reads(self, name: str) -> bool:
        """Whether this process can read a table without Spark. True also for a missing table, which is empty."""
        return not self._lake.has(name) or self._lake.direct(name) is not None

    def __call__(self, text: str, **tables: Rows) -> Rows:
        """Run a SELECT statement, in which ``{name}`` stands for the table ``name`` (`LakeEngine.__call__`)."""
        return answered(self._sql, text, **tables)

    def struct(self, fields: Mapping[str, str]) -> str:
        """Return DuckDB's SQL expression of a struct, given the expression of each field (`LakeEngine.struct`)."""
        return "struct_pack({})".format(", ".join(f'"{name}" := {text}' for name, text in fields.items()))

    def literal(self, value: str | int) -> str:
        """Return a value as a literal of DuckDB's SQL, for texts passed to `__call__` (`LakeEngine.literal`)."""
        return quoted(value).replace("{", "{{").replace("}", "}}") if isinstance(value, str) else str(value)

    def keep(self, rows: Rows) -> Rows:
        """Return the rows unchanged, because rows in this process are computed already (`LakeEngine.keep`)."""
        return rows

    def listed(self, rows: Rows) -> list[dict[str, Any]]:
        """Return rows as dictionaries (`LakeEngine.listed`)."""
        return rows.to_pylist()  # type: ignore[no-any-return]

    def arrow(self, rows: Rows) -> pa.Table:
        """Return rows as an Arrow table (`LakeEngine.arrow`)."""
        return rows if isinstance(rows, pa.Table) else self("SELECT * FROM {rows}", rows=rows)

    def columns(self, rows: Rows) -> list[str]:
        """Return the names of the rows' columns (`LakeEngine.columns`)."""
        return list(rows.schema.names)

    def replace(
        self,
        table: Table,
        rows: Rows,
        where: str = "true",
        days: tuple[str, str] | None = None,
        files: Sequence[FileOfWorker] = (),
    ) -> int:
        """Replace the rows of a table that meet a condition (`LakeEngine.replace`), without Spark if possible."""
        arrow = rows.select(table.column_names).cast(arrow_schema(table))
        return replace_arrow(self._lake, self._sql, table, arrow, where, days=days, files=files)

    def amend(self, table: Table, rows: Rows, key: Sequence[str], *columns: str) -> None:
        """Update columns of existing rows (`LakeEngine.amend`). Each day with a changed row is rewritten as a whole."""
        same = " AND ".join(f"there.{name} = given.{name}" for name in key)
        there = self.table(table.name)
        days = self(
            f"SELECT DISTINCT there.event_date FROM {{there}} AS there JOIN {{given}} AS given ON {same}"
            f" WHERE there.{columns[0]} IS DISTINCT FROM given.{columns[0]} ORDER BY 1",
            there=there, given=rows,
        )["event_date"].to_pylist()  # fmt: skip
        if not days:
            return
        where = days_as_sql(days)
        taken = ", ".join(
            f"CASE WHEN given.{key[0]} IS NULL THEN there.{name} ELSE given.{name} END AS {name}" for name in columns
        )
        amended = self(
            f"SELECT there.* REPLACE ({taken}) FROM {{there}} AS there LEFT JOIN {{given}} AS given ON {same}"
            f" WHERE there.{where}",
            there=there, given=rows,
        )  # fmt: skip
        self.replace(table, amended, where, (str(days[0]), str(days[-1])))


def answered(sql: ArrowSql, text: str, **tables: Rows) -> pa.Table:
    """Run a query in which each ``{name}`` stands for a table, as in `LakeEngine.__call__`, and return its result."""
    used = {name: rows for name, rows in tables.items() if f"{{{name}}}" in text}
    found = sql(text.format_map({name: _from_clause(name, rows) for name, rows in used.items()}), **used)
    for number, field in enumerate(found.schema):
        if (
            pa.types.is_decimal(field.type) and field.type.scale == 0
        ):  # DuckDB's type for sums of integers: back to integers
            found = found.set_column(number, field.name, found[field.name].cast(pa.int64()))
    return found


def _from_clause(name: str, rows: pa.Table | ds.Dataset | ArrowView) -> str:
    """Return the SQL to put after FROM for a table: its name, or a subquery that drops the zones of its timestamps."""
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type) and field.type.tz]
    plain = ", ".join(f"make_timestamp(epoch_us({time})) AS {time}" for time in times)
    return f"(SELECT * REPLACE ({plain}) FROM {name})" if times else name


def replace_arrow(  # noqa: PLR0913 two of them have a default
    lake: Lake,
    sql: ArrowSql,
    table: Table,
    rows: pa.Table,
    where: str = "true",
    *,
    days: tuple[str, str] | None = None,
    files: Sequence[FileOfWorker] = (),
) -> int:
    """Replace the rows of a table that meet ``where`` with ``rows`` and the rows in ``files``.

    Spark is only used if it has to be. Returns the number of rows written. ``days`` are as for `LakeEngine.replace`.
    """
    if isinstance(lake, MemoryLake):
        there = read_columns(lake, table.name, table.column_names)
        stay = rows_that_meet(sql, there, f"NOT coalesce({where}, false)")
        lake.put(table, pa.concat_tables([stay, rows.select(table.column_names).cast(stay.schema)]))
        return int(rows.num_rows)
    small = SmallTables(lake, sql)
    if files or small.takes(table, days, where):
        return small.replace(table, rows, where, days, files)
    return lake.replace(table, lake.spark.createDataFrame(rows), where)

"""Write the rows of an ingest to the input tables, in place of existing rows."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isr_batch.ingest.engine.in_spark import (
    Spread,
    here_if_few,
    reported_by_workers,
    spark_frame_of_spread,
    worker_sql,
)
from isr_batch.ingest.runs_taken_apart import take_runs_apart
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.delta_files.open import Days
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import REPORTS, FileOfWorker, reported_files, with_files_written
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES, QUARANTINE
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS

TABLES_AT_ONCE = 3
"""Number of tables that are written concurrently. This uses Spark better: while one table is being planned or
committed, Spark works on another.
"""


CUT_BY = (
    (FETCH_LOG, "handled_time"),
    (APPEND_LOG, "append_time"),
    (LEADER_EPOCHS, "start_time"),
    (OBSERVED_ISR_CHANGES, "change_time"),
    (BROKER_EVENTS, "event_time"),
    (COVERAGE, "from_time"),
    (CONTROLLER_RECORDS, "record_time"),
)
"""The input tables, each with the column from which its event_date is derived."""

Span = tuple[str, str]
Given: TypeAlias = DataFrame | pa.Table | Spread


def replace_covered_rows(  # noqa: PLR0913 four of them have a default
    lake: Lake,
    tables: Mapping[str, Given],
    cluster_id: str,
    *,
    small: SmallTables | None = None,
    replaced: Mapping[str, str] | None = None,
    replaced_days: Days | None = None,
    left_alone: Mapping[str, str] | None = None,
) -> tuple[dict[str, int], int]:
    """Write rows of a cluster to input tables, and delete the existing rows that they replace.

    A row that violates its table's contract is written to quarantine instead.

    Parameters
    ----------
    lake : Lake
        The lake to write to.
    tables : mapping of str to DataFrame, pa.Table or Spread
        The rows by name of their table, with the columns of `isr_batch.lake.tables.inputs`. Arrow tables are written
        without Spark if possible. The rows of a `Spread` are written by the Spark workers that compute them.
    cluster_id : str
        The cluster to which all rows belong.
    small : SmallTables, optional
        Writer for small tables of the same lake. Without it, Spark writes all tables.
    replaced : mapping of str to str, optional
        By table, the SQL condition that selects the existing rows to replace. In a table that is not listed, the rows
        in the period of the new rows are replaced. In quarantine, the default is to replace all rows of the cluster.
    replaced_days : (str, str), optional
        First and last event_date of the rows that ``replaced`` selects. By default, they can have any date.
    left_alone : mapping of str to str, optional
        By table, the SQL condition that selects existing rows to keep.

    Returns
    -------
    dict of str to int
        Number of rows written, by table.
    int
        Number of rows that violated their table's contract.
    """
    replaced = {QUARANTINE.name: "true"} | dict(replaced or {})
    left_alone = left_alone or {}
    cuts = [(table, time) for table, time in CUT_BY if table.name in tables]
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        given = _look_at_given_rows(
            lake, tables, small, _Replaced(cluster_id, replaced, replaced_days, left_alone), pool
        )
        few, frames, spans = given.few, given.frames, given.spans
        # Fetches and appends define the period of the new rows. Other tables have too few rows to show it.
        served = [span for name, span in spans.items() if span and name in (FETCH_LOG.name, APPEND_LOG.name)]

        def write(cut: tuple[Table, str]) -> int:
            table, time = cut
            others = f"NOT ({left_alone.get(table.name, 'false')})"
            own = spans.get(table.name)
            covers = [*served, *([own] if own else [])]
            where = replaced.get(table.name) or replaced_rows_between(time, covers)
            if table is FETCH_LOG and table.name not in replaced and covers:
                take_runs_apart(lake, rows_of_cluster(cluster_id), time, _span_of_all(covers))
            whole = f"{rows_of_cluster(cluster_id)} AND ({where}) AND {others}"
            if table.name in frames or not small:
                return lake.replace(table, frames[table.name].where(others), whole)
            days = replaced_days if table.name in replaced else _days_replaced(covers)
            days = days if time else None
            if table.name in given.files:
                return small.replace(table, arrow_schema(table).empty_table(), whole, days, given.files[table.name])
            rows = few[table.name]
            if table.name in left_alone:
                rows = small.select(rows, others)
            if small.takes(table, days, whole):
                return small.replace(table, rows, whole, days, checked=table is not QUARANTINE)
            return lake.replace(table, _rows_in_spark(lake, rows), whole)

        cuts.append((QUARANTINE, ""))
        in_pool = {cut[0].name: pool.submit(write, cut) for cut in cuts if cut[0].name in frames}
        # While the pool writes tables with Spark, this thread writes the tables that do not need Spark.
        written = {cut[0].name: write(cut) for cut in cuts if cut[0].name in {*few, *given.files}}
        written |= {name: done.result() for name, done in in_pool.items()}
    for frame in given.cached:
        frame.unpersist()
    return written, given.refused


class _Replaced(NamedTuple):
    """The arguments of `replace_covered_rows` that define which existing rows are replaced."""

    cluster_id: str
    where: Mapping[str, str]
    days: Days | None
    left_alone: Mapping[str, str]


class _Given(NamedTuple):
    """The rows to write, grouped by how they are written.

    Attributes
    ----------
    few : dict of str to pa.Table
        Tables that are small enough to be written by this process.
    files : dict of str to list of FileOfWorker
        Files that workers have written, by table, which are not committed yet.
    frames : dict of str to DataFrame
        Tables that Spark writes.
    cached : list of DataFrame
        Frames to unpersist after writing.
    spans : dict
        First and last instant of the new rows, by table.
    refused : int
        Number of rows that violate their table's contract.
    """

    few: dict[str, pa.Table]
    files: dict[str, list[FileOfWorker]]
    frames: dict[str, DataFrame]
    cached: list[DataFrame]
    spans: dict[str, Span | None]
    refused: int


def _look_at_given_rows(
    lake: Lake,
    tables: Mapping[str, Given],
    small: SmallTables | None,
    replaced: _Replaced,
    pool: ThreadPoolExecutor,
) -> _Given:
    """Decide how to write each table, find the period of its rows, and move invalid rows to quarantine."""
    cuts = [(table, time) for table, time in CUT_BY if table.name in tables]
    tables = {
        name: _here_if_few_rows(rows) if small and isinstance(rows, Spread) else rows for name, rows in tables.items()
    }
    few = {name: rows for name, rows in tables.items() if small and isinstance(rows, pa.Table)}
    for table, _ in cuts:
        # If some rows violate the contract, the table is written with Spark, which converts them to JSON for
        # quarantine.
        if small and table.name in few and small.count_broken(
            table, few[table.name], replaced.where.get(table.name, "true")
        ):  # fmt: skip
            del few[table.name]
    files: dict[str, list[FileOfWorker]] = {}
    if small:
        shares: list[tuple[Table, Spread, Store]] = []
        for table, _ in cuts:
            rows, store = tables[table.name], _store_for_workers(small, table, replaced)
            if isinstance(rows, Spread) and store:
                shares.append((table, rows, store))
        by_workers = list(pool.map(partial(_written_by_workers, replaced.where), shares))
        files = {share[0].name: found for share, found in zip(shares, by_workers, strict=True) if found is not None}
    frames = {
        name: _rows_in_spark(lake, rows) for name, rows in tables.items() if name not in few and name not in files
    }
    cached = {table.name: frames[table.name].persist() for table, _ in cuts
              if isinstance(tables[table.name], DataFrame)}  # fmt: skip
    frames |= cached
    in_spark = [(table, time) for table, time in cuts if table.name in frames]
    broken = {table.name: _broken(table, replaced.where.get(table.name, "true")) for table, _ in in_spark}
    looks = pool.map(lambda cut: _look_at_frame(frames[cut[0].name], cut[1], broken[cut[0].name]), in_spark)
    looked = dict(zip((table.name for table, _ in in_spark), looks, strict=True))
    spans = {table.name: _span_of_rows(few[table.name][time]) for table, time in cuts if table.name in few}
    spans |= {table.name: _span_of_files(files[table.name], time) for table, time in cuts if table.name in files}
    spans |= {name: look.span for name, look in looked.items()}
    refused = [name for name, look in looked.items() if look.refused]
    if refused and QUARANTINE.name in few:
        frames[QUARANTINE.name] = _rows_in_spark(lake, few.pop(QUARANTINE.name))
    for name in refused:
        why = F.concat(F.lit(f"{name}: "), broken[name])
        frames[QUARANTINE.name] = frames[QUARANTINE.name].unionByName(_refused(frames[name], why, lake.run_id))
        frames[name] = frames[name].where(broken[name].isNull())
    for name, look in looked.items():
        if small and look.rows <= sizes.COLLECTED_ROWS and not look.refused:
            few[name] = frames.pop(name).toArrow()
    return _Given(few, files, frames, list(cached.values()), spans, sum(look.refused for look in looked.values()))


def _here_if_few_rows(rows: Spread) -> Given:
    """Compute rows as an Arrow table if there are few; otherwise return the rows unchanged."""
    few = here_if_few(rows, sizes.SPREAD_ROWS)
    return rows if few is None else few


def _store_for_workers(small: SmallTables, table: Table, replaced: _Replaced) -> Store | None:
    """Return the store to which workers can write a table's files; None if Spark must write the table with Delta."""
    if table.name not in replaced.where or table.name in replaced.left_alone:
        return None
    whole = f"{rows_of_cluster(replaced.cluster_id)} AND ({replaced.where[table.name]})"
    there = small.takes(table, replaced.days, whole)
    return there.store if there else None


def _written_by_workers(where: Mapping[str, str], share: tuple[Table, Spread, Store]) -> list[FileOfWorker] | None:
    """Have Spark workers write the rows of a table to files, and return these files.

    ``share`` is (table, rows, store), and ``where`` is the SQL condition that a table's rows must meet, by table name.

    If a row violates the contract, the files are deleted and None is returned. Spark must then write the table, without
    the invalid rows.
    """
    table, rows, store = share
    write = partial(with_files_written, table, store, where[table.name], worker_sql)
    files = reported_files(reported_by_workers(rows, write, REPORTS))
    if not any(file.broken for file in files):
        return files
    for file in files:
        store.files().delete_file(file.path)
    return None


def _span_of_files(files: list[FileOfWorker], time: str) -> Span | None:
    """Return the first and last instant, as text, of the rows in files that workers wrote; None without files.

    ``time`` is the column with the time of a row.
    """
    first_us = [file.least[time] for file in files]
    last_us = [file.most[_upto(time)] for file in files]
    return (
        _span_of_rows(pa.chunked_array([pa.array([min(first_us), max(last_us)], pa.timestamp("us"))]))
        if files
        else None
    )


def _rows_in_spark(lake: Lake, rows: Given) -> DataFrame:
    """Convert rows (an Arrow table, a `Spread` or a frame) to a Spark frame."""
    if isinstance(rows, Spread):
        return spark_frame_of_spread(rows)
    if not isinstance(rows, pa.Table):
        return rows
    # NOT NULL is removed from the schema. Nulls in such columns are found when the contract is checked.
    return lake.spark.createDataFrame(pa.Table.from_arrays(rows.columns, names=rows.column_names))


def rows_of_cluster(cluster_id: str) -> str:
    """Return the SQL condition that selects the rows of a cluster."""
    return f"cluster_id = {sql_literal(cluster_id)}"


class _Look(NamedTuple):
    """Summary of a table's new rows: period (None without rows), number of rows, and number of invalid rows."""

    span: Span | None
    rows: int
    refused: int


def _look_at_frame(frame: DataFrame, time: str, broken: Column) -> _Look:
    # Instants are collected as text, because Python would convert them to the local time zone.
    bounds = (F.min(time).cast("string"), F.max(_upto(time)).cast("string"))
    first, last, rows, refused = frame.select(*bounds, F.count("*"), F.count(broken)).collect()[0]
    return _Look((first, last) if first else None, rows, refused)


def _upto(time: str) -> str:
    """Return the name of the column with a row's last instant. For other rows than runs of fetches, it is ``time``."""
    return "last_handled_time" if time == "handled_time" else time


def _span_of_rows(times: pa.ChunkedArray) -> Span | None:
    """Return the earliest and the latest of several times, as text in Spark's format; None if there are no times."""
    if not len(times):
        return None
    plain = times.cast(pa.timestamp("us"))  # as text in Arrow, because Python's datetime lacks the year 0
    return pc.min(plain).cast(pa.string()).as_py(), pc.max(plain).cast(pa.string()).as_py()


def _broken(table: Table, within: str) -> Column:
    """Return a Spark column that lists how a row violates its table's contract; null if it does not.

    It lists missing values and violated constraints. It also reports a row that does not meet ``within``, the condition
    of the rows to replace.
    """
    lacks = [F.when(F.col(c.name).isNull(), F.lit(f"no {c.name}")) for c in table.columns if not c.nullable]
    wrong = [F.when(~F.expr(condition), F.lit(name)) for name, condition in table.constraints.items()]
    stray = F.when(~F.coalesce(F.expr(within), F.lit(False)), F.lit("of no file or day that was read"))
    return F.nullif(F.concat_ws(", ", *lacks, *wrong, stray), F.lit(""))


def _refused(frame: DataFrame, why: Column, run_id: str) -> DataFrame:
    """Convert the rows with a non-null ``why`` to rows of quarantine, with ``why`` as the detail."""
    missing = F.lit(None)
    file, line = (F.col(name) if name in frame.columns else missing for name in ("source_file", "source_line"))
    return frame.where(why.isNotNull()).select(
        "cluster_id",
        F.coalesce(file, F.lit("several files")).alias("source_file"),
        line.cast("bigint").alias("source_line"),
        F.lit("breaks the contract").alias("reason"),
        why.alias("detail"),
        F.left(F.to_json(F.struct("*")), F.lit(500)).alias("raw"),
        F.lit(False).alias("rows_kept"),
        F.lit(run_id).alias("ingest_run"),
    )


def _span_of_all(spans: list[Span]) -> Span:
    """Return the earliest and the latest instant of several periods."""
    return min(span[0] for span in spans), max(span[1] for span in spans)


def _days_replaced(spans: list[Span]) -> Days | None:
    """Return the first and last day of several periods; None without periods."""
    if not spans:
        return None
    first, last = _span_of_all(spans)
    return first[:10], last[:10]


def replaced_rows_between(time: str, spans: list[Span]) -> str:
    """Return the SQL condition that selects the rows from the earliest to the latest instant in ``spans``.

    It includes rows between the periods. Without periods, it selects all rows. ``time`` is the column with the time of
    a row.
    """
    if not spans:
        return "true"
    first, last = _span_of_all(spans)
    # The days are redundant, but with them Delta skips the files of all other days.
    return (
        f"event_date BETWEEN DATE'{first[:10]}' AND DATE'{last[:10]}' "
        f"AND {time} BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{last}'"
    )

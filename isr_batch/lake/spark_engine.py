"""Run SQL over a lake's tables with Spark."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import contract_of, contract_schema, read_columns
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.delta_files.read import PLACE, FileRows, read_file
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.fetch_log import single_fetches
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
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.session import in_utc

TASKS_A_CORE: Final = 4
"""Number of tasks of a replay per core. With several, cores do not idle while the longest task is still running."""
LEAST_OF_TASK: Final = 1 << 22
MOST_OF_TASK: Final = 1 << 28
"""Smallest and largest input of a replay task, in bytes of data files: about one million and 60 million events. Each
task costs some tenths of a second, so smaller tasks are not worth it."""
FILES_AT_A_TIME: Final = 64
"""Maximum number of tasks that list the locations of a table's rows for `BySpark.with_struct`."""
_ROWS_AT_A_TIME: Final = ("spark.sql.parquet.columnarReaderBatchSize", "spark.sql.execution.arrow.maxRecordsPerBatch")


class _Late(NamedTuple):
    """A struct of large columns that workers read later by location: store, fields, and total size of the files."""

    store: Store
    schema: pa.Schema
    size_bytes: int


class BySpark(LakeEngine):
    """The engine that runs queries in the lake's Spark session."""

    in_process = False

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._kept: list[DataFrame] = []
        self._late: dict[str, _Late] = {}
        self._views: list[str] = []

    def __exit__(self, *_: object) -> None:
        for frame in self._kept:
            frame.unpersist()
        for view in self._views:
            self._lake.spark.catalog.dropTempView(view)

    def table(self, name: str, columns: Sequence[str] = ()) -> DataFrame:
        """Return columns of a table or view as a Spark frame (`LakeEngine.table`).

        This process reads a small table itself and passes the rows to Spark, which is faster.
        """
        columns = columns or contract_of(name).column_names
        if not self._lake.has(name):
            return self.rows(contract_schema(name, columns).empty_table())
        there = self._lake.direct(name) if name in TABLES else None
        if there and there.size_bytes <= sizes.PASSED_BYTES:
            return self.rows(read_columns(self._lake, name, columns))
        return self._lake.read(name).select(*columns)

    def with_struct(
        self, name: str, columns: Sequence[str], struct: str, fields: Sequence[str], days: tuple[str, str]
    ) -> DataFrame:
        """Return columns of a table (`LakeEngine.with_struct`), with each row's location in place of its struct.

        The workers of `stream` read the structs at these locations. Otherwise Spark would move all their data through
        its memory, to disk, and through a pipe to its Python workers.
        """
        there = self._lake.direct(name) if self._lake.has(name) else None
        if there is None:
            packed = self.struct({field: f"of_table.{field}" for field in fields})  # some names are SQL keywords
            return self.table(name, (*columns, *fields)).alias("of_table").selectExpr(*columns, f"{packed} AS {struct}")
        schema = contract_schema(name, columns).append(pa.field(struct, PLACE))
        files = there.data_files(days)
        size_bytes = sum(int(file["size_bytes"]) for file in files)
        self._late[struct] = _Late(there.store, contract_schema(name, fields), size_bytes)
        numbers = self._lake.spark.range(0, len(files), 1, min(max(1, len(files)), FILES_AT_A_TIME))
        return self.keep(
            numbers.mapInArrow(partial(_rows_with_locations, there.store, files, schema), from_arrow_schema(schema))
        )

    def rows(self, given: pa.Table) -> DataFrame:
        """Return an Arrow table as a Spark frame (`LakeEngine.rows`)."""
        return self._lake.spark.createDataFrame(given)

    def fetches(self, spans: DataFrame, days: Days) -> DataFrame:
        """Return one row per fetch that was in progress during a time span of its follower (`LakeEngine.fetches`)."""
        instants = ", ".join(f"unix_micros({name}_time) AS {name}_us" for name in INSTANTS)
        return self(
            f"""
            SELECT * FROM (
              SELECT /*+ BROADCAST(spans) */ spans.*, {instants}, {", ".join(f"fetches.{name}" for name in FIGURES)}
              FROM {{fetches}} AS fetches JOIN {{spans}} AS spans
              ON fetches.event_date BETWEEN DATE'{days[0]}' AND DATE'{days[1]}'
                AND {" AND ".join(f"fetches.{name} = spans.{name}" for name in FOLLOWER)}
            ) WHERE arrival_us <= until_us AND completed_us >= from_us
            """,
            fetches=single_fetches(self._lake.read(FETCH_LOG.name)), spans=spans,
        )  # fmt: skip

    def appends(self, spans: DataFrame, days: Days) -> DataFrame:
        """Return one row per append to a partition during a time span of that partition (`LakeEngine.appends`)."""
        return self(appends_text(days), append_log=self.table(APPEND_LOG.name), spans=spans)

    def by_key(self, rows: DataFrame, keys: Sequence[str], work: OfTable, schema: pa.Schema) -> DataFrame:
        """Call a function once per key in Spark's workers, and return the results (`LakeEngine.by_key`)."""
        names = schema.names

        def of_key(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from work(pa.Table.from_batches(batches)).select(names).to_batches()

        return rows.groupBy(*keys).applyInArrow(of_key, from_arrow_schema(schema))

    def stream(
        self, rows: DataFrame, keys: Sequence[str], order: Sequence[str], work: OfBatches, schema: pa.Schema
    ) -> Rows:
        """Call a function with sorted batches of rows in workers (`LakeEngine.stream`). The result stays on disk."""
        late = {name: self._late[name] for name in rows.columns if name in self._late}
        if late:
            # The shuffle is by range and not by hash, so that the rows of one row group of a file are in the same task.
            tasks = self._tasks(sum(of.size_bytes for of in late.values()))
            together, work = rows.repartitionByRange(tasks, *keys), partial(_with_late_read, late, work)
        else:
            together = rows.repartition(*keys)
        with rows_at_a_time(self._lake.spark, LARGE_ROWS_AT_A_TIME):
            sorted_rows = together.sortWithinPartitions(*order)
            made = self._persisted(sorted_rows.mapInArrow(work, from_arrow_schema(schema)), StorageLevel.DISK_ONLY)
            made.count()  # compute it now: in a later broadcast, Spark's timeout of 300 s would apply
        return made

    def _tasks(self, size_bytes: int) -> int:
        """Return the number of replay tasks for data files of this total size."""
        try:
            cores = self._lake.spark.sparkContext.defaultParallelism
        except (AttributeError, PySparkException):  # over Spark Connect
            cores = 0
        return max(1, min(TASKS_A_CORE * cores, size_bytes // LEAST_OF_TASK), size_bytes // MOST_OF_TASK)

    def only(self, rows: DataFrame, wanted: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Return the rows whose keys are in ``wanted`` (`LakeEngine.only`). Spark itself filters before views join."""
        shared = [name for name in keys if name in rows.columns]
        return rows.join(wanted.select(*shared).distinct(), shared, "left_semi").select(*rows.columns)

    def union(self, *rows: DataFrame) -> Rows:
        """Concatenate rows by column name. Columns that some rows lack are null there (`LakeEngine.union`)."""
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows)

    def __call__(self, text: str, **tables: DataFrame) -> DataFrame:
        """Run a SELECT statement, in which ``{name}`` stands for the table ``name`` (`LakeEngine.__call__`)."""
        used = {name: self._view(rows) for name, rows in tables.items() if f"{{{name}}}" in text}
        return self._session.sql(text.format(**used) if used else text)

    @cached_property
    def _session(self) -> SparkSession:
        return in_utc(self._lake.spark)

    def _view(self, rows: DataFrame) -> str:
        """Register rows as a temporary view, and return the view's name."""
        # `spark.sql(text, name=rows)` would drop its view immediately, and Spark drops persisted rows with their view.
        self._views.append(f"rows_{uuid.uuid4().hex}")
        rows.createTempView(self._views[-1])
        return self._views[-1]

    def struct(self, fields: Mapping[str, str]) -> str:
        """Return Spark's SQL expression of a struct, given the expression of each field (`LakeEngine.struct`)."""
        return "named_struct({})".format(", ".join(f"'{name}', {text}" for name, text in fields.items()))

    def literal(self, value: str | int) -> str:
        """Return a value as a literal of Spark's SQL, for texts passed to `__call__` (`LakeEngine.literal`)."""
        return sql_literal(value).replace("{", "{{").replace("}", "}}") if isinstance(value, str) else str(value)

    def keep(self, rows: DataFrame) -> DataFrame:
        """Persist rows in memory or on disk, because several queries will use them (`LakeEngine.keep`)."""
        return self._persisted(rows, StorageLevel.MEMORY_AND_DISK_DESER)

    def _persisted(self, rows: DataFrame, level: StorageLevel) -> DataFrame:
        """Persist rows at a storage level. If Spark refuses to persist, collect them instead."""
        try:
            self._kept.append(rows.persist(level))
        except PySparkException:  # serverless platforms refuse to persist
            return self.rows(rows.toArrow())
        return self._kept[-1]

    def listed(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Return rows as dictionaries (`LakeEngine.listed`)."""
        return [row.asDict() for row in rows.collect()]

    def arrow(self, rows: DataFrame) -> pa.Table:
        """Return rows as an Arrow table (`LakeEngine.arrow`)."""
        return rows.toArrow()

    def columns(self, rows: DataFrame) -> list[str]:
        """Return the names of the rows' columns (`LakeEngine.columns`)."""
        return rows.columns

    def replace(
        self,
        table: Table,
        rows: DataFrame,
        where: str = "true",
        days: tuple[str, str] | None = None,  # noqa: ARG002
        files: Sequence[FileOfWorker] = (),
    ) -> int:
        """Replace the rows of a table that meet a condition (`LakeEngine.replace`).

        ``days`` is not used, because Spark skips files by the condition.
        """
        assert not files
        return self._lake.replace(table, rows, where)

    def amend(self, table: Table, rows: DataFrame, key: Sequence[str], *columns: str) -> None:
        """Update columns of existing rows, with a MERGE statement (`LakeEngine.amend`)."""
        self._lake.amend(table, rows, key, *columns)


def _rows_with_locations(
    store: Store, files: Sequence[Mapping[str, Any]], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, with the location of each row in the last column. This runs in a worker.

    ``batches`` contain, in the column ``id``, the indices of the files that this task has to read.
    """
    *columns, struct = schema
    for number in (number.as_py() for batch in batches for number in batch.column("id")):
        rows = read_file(store, store.files(), files[number], pa.schema(columns), {})
        path, row = pa.repeat(files[number]["path"], len(rows)), pa.array(np.arange(len(rows)))
        yield from rows.append_column(struct, pa.StructArray.from_arrays([path, row], fields=list(PLACE))).to_batches()


def _with_late_read(
    late: Mapping[str, _Late], work: OfBatches, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call ``work`` on ``batches``, after locations are replaced with the structs that are stored there.

    This runs in a worker.

    ``late`` describes, by column, the files to read.
    """
    readers = {name: FileRows(of.store, of.schema) for name, of in late.items()}

    def read() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                readers[name].at(column) if name in readers else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)

    return work(read())


@contextmanager
def rows_at_a_time(spark: SparkSession, rows: int) -> Iterator[None]:
    """Limit Spark's batches to this number of rows while the block creates and runs a plan with large rows."""
    usual = {name: str(spark.conf.get(name)) for name in _ROWS_AT_A_TIME}
    for name in _ROWS_AT_A_TIME:
        spark.conf.set(name, str(rows))
    try:
        yield
    finally:
        for name, value in usual.items():
            spark.conf.set(name, value)

"""The class `Lake`, which creates a lake's tables from their contracts, reads them, and replaces or appends rows."""

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, is_remote
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, SchemaError, UsageError, explained_error
from isr_batch.lake.addresses import absolute_address, is_address
from isr_batch.lake.ddl import (
    column_types,
    column_types_in_log,
    constraint_statements,
    constraints_since,
    create_statement,
    ddl_differences,
    quoted_for_spark,
)
from isr_batch.lake.delta_files.commit import renew_constraints
from isr_batch.lake.delta_files.create import create_table
from isr_batch.lake.delta_files.open import DirectTable
from isr_batch.lake.delta_files.stores import DIRECT, hadoop_setting, log_store, store_of
from isr_batch.lake.engine_choice import EngineChoice
from isr_batch.lake.spark_writes import amend, conformed, is_delta, retrying
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS

OTHER_VERSION: Final = "it was written by another version: use a new lake, or move this table away and write it again"


class Lake:
    """The tables of one lake, in a folder or in a schema of a catalog.

    Parameters
    ----------
    spark : SparkSession or function that starts one
        Session with Delta's extension and catalog, or a function that is called when a session is first needed. With a
        function, a root without a scheme is a folder on this machine; otherwise it is on Spark's default file system.
    root : str
        Folder or URI in which each table is a folder ``<root>/<table>``; with ``catalog``, a schema as ``CAT.SCHEMA``.
    run_id : str
        Stored in the metadata of every commit, so that ``DESCRIBE HISTORY`` shows which row of ``run_log`` belongs to a
        commit.
    catalog : bool
        Whether ``root`` names a schema instead of a folder.
    """

    def __init__(
        self, spark: SparkSession | Callable[[], SparkSession], root: str, run_id: str = "", *, catalog: bool = False
    ) -> None:
        self._spark = spark
        self._here = callable(spark)
        self.root = root if catalog else absolute_address(root)
        self.run_id = run_id
        self.catalog = catalog
        self._checked: set[str] = set()
        self._seen: set[str] = set()  # tables known to exist: each check is a request to a store or a catalog
        self._reached: dict[str, DirectTable | None] = {}
        self._is_reached: bool | None = None
        self.engine = EngineChoice()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which is started on first use."""
        if callable(self._spark):  # Spark Connect's sessions have another class
            started: SparkSession = self._spark()
            self._spark = started
        return self._spark

    def identifier(self, name: str) -> str:
        """Return the name of a table in Spark SQL: delta.`PATH`, or its name in the catalog."""
        parts = [*self.root.split("."), name] if self.catalog else ["delta", f"{self.root.rstrip('/')}/{name}"]
        return ".".join(map(quoted_for_spark, parts))

    def has(self, name: str) -> bool:
        """Whether a table exists, or, for a view, whether all of its tables exist."""
        if name in VIEWS:
            return all(map(self.has, VIEWS[name][1]))
        if name in self._seen:
            return True
        if self.catalog:
            there = self.spark.catalog.tableExists(self.identifier(name))
        elif table := self.reached(name):
            there = table.exists()
        else:
            there = is_delta(self.spark, f"{self.root.rstrip('/')}/{name}")
        self._seen.update({name} if there else ())
        return there

    def ensure(self, table: Table) -> None:
        """Create a table from its contract. If the table exists, check that its columns and types match the contract.

        Raises
        ------
        SchemaError
            If the existing table does not match the contract.
        """
        if table.name in self._checked:
            return
        if not self.has(table.name):
            there = None if self.catalog else self.reached(table.name)
            if there:
                create_table(table, there.store, self.metadata())
            else:
                retrying(lambda: self.spark.sql(create_statement(table, self.identifier(table.name))), table.name)
        self._check(table)

    def require(self, tables: Iterable[Table]) -> None:
        """Compare these tables, if they exist, with their contracts, before a command computes rows for them.

        Raises
        ------
        SchemaError
            If the columns or types of a table differ from its contract.
        """
        self.ensure_all([table for table in tables if self.has(table.name)])

    def ensure_all(self, tables: Collection[Table]) -> None:
        """Call `ensure` for several tables concurrently, because a remote store responds slowly."""
        with ThreadPoolExecutor(len(tables) or 1) as pool:
            list(pool.map(self.ensure, tables))

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table, or of a view in `VIEWS`, as a Spark frame.

        Raises
        ------
        NoInputError
            If the lake has no such table.
        SchemaError
            If the table's columns or types differ from the contract.
        """
        if name in VIEWS:
            return self.spark.sql(self._view_text(name))
        self._require(name)
        return self.spark.table(self.identifier(name))

    def _view_text(self, name: str) -> str:
        """Return the SQL of a view, with each table's name replaced by its `identifier`, so that Spark finds it."""
        text = sql_texts()[name]
        for table in VIEWS[name][1]:
            self._require(table)
            text = re.sub(rf"\b(FROM|JOIN) {table}\b", rf"\1 {self.identifier(table)}", text)
        return text

    def _require(self, name: str) -> None:
        """Raise an error if a table does not exist or does not match its contract. A table is checked only once."""
        if name not in self._checked:
            if not self.has(name):
                raise NoInputError(
                    f"{self.root} has no table {name}",
                    "run the command that writes it first (`ingest` writes the input tables, `replay` the others), "
                    "or check the path given with --lake",
                )
            self._check(TABLES[name])

    def replace(self, table: Table, rows: DataFrame, where: str) -> int:
        """Replace the rows of a table that meet a condition with the given rows, in one commit of Spark's.

        The operation is idempotent. Columns are selected by name and cast to the contract's types. Every given row must
        meet the condition too, otherwise the write fails.

        Parameters
        ----------
        table : Table
            Contract of the table. The table is created if it does not exist.
        rows : DataFrame
            The new rows, with at least the contract's columns. If the frame is empty, rows are only removed.
        where : str
            SQL condition on the table's columns, such as ``cluster_id = 'a' AND event_date >= '2026-01-01'``.

        Returns
        -------
        int
            Number of rows written.
        """
        self.ensure(table)
        self._renew_constraints(table)
        metadata = self.metadata(commit=uuid.uuid4().hex[:8])
        writer = conformed(table, rows).writeTo(self.identifier(table.name)).option("userMetadata", metadata)
        retrying(lambda: writer.overwrite(F.expr(where)), table.name)
        self.was_written(table.name)
        last = self._last_commit(table.name)
        # If no row was removed or added, nothing was committed, and the last commit is from an earlier run.
        there = last.get("userMetadata") == metadata
        return int((last.get("operationMetrics") or {}).get("numOutputRows") or 0) if there else 0

    def reached(self, name: str) -> DirectTable | None:
        """Return a table to which this process can commit without Spark, or None. The table may not exist yet.

        delta-rs loads a table in milliseconds, Spark in half a second. delta-rs is used for tables in a folder, on S3
        and on HDFS. Spark is needed if delta-rs cannot reach the table, if the table is in a catalog but not in a local
        folder, or if Spark is configured to commit through a multi-writer log store.
        """
        if name not in self._reached:
            location = self._location(name)
            # A path with a % is left to Spark: Arrow's file readers and delta-rs would unescape it.
            scheme = "" if "%" in location else location.partition(":")[0]
            if scheme in DIRECT and self._is_reached is None:  # checked once per lake
                its_own = self.catalog or log_store(self.spark, scheme)
                self._is_reached = not its_own and self._by_delta_rs(location).store.is_reached()
            # Over Spark Connect, a catalog's local files are on the server's machine.
            is_here = scheme == "file" and not (self.catalog and is_remote())
            is_reached = is_here or (scheme in DIRECT and self._is_reached)
            self._reached[name] = self._by_delta_rs(location) if is_reached else None
        return self._reached[name]

    def direct(self, name: str) -> DirectTable | None:
        """Return an existing table if this process can read and write it without Spark; None if only Spark can."""
        there = self.reached(name)
        return there if there and self.is_plain(name) else None

    def by_delta_rs(self, name: str) -> DirectTable:
        """Return a table for access by delta-rs and workers, even if `reached` leaves the table to Spark.

        Raises
        ------
        UsageError
            If delta-rs cannot reach the table.
        """
        return self._reached.get(name) or self._by_delta_rs(self._location(name))

    def _by_delta_rs(self, location: str) -> DirectTable:
        return DirectTable(store_of(location, lambda key: hadoop_setting(self.spark, key)), self.metadata)

    def log(self, name: str) -> deltalake.DeltaTable | None:
        """Return the newest version of a table's Delta log; None if only Spark can read it."""
        there = self.reached(name)
        return there.log() if there else None

    def was_written(self, name: str) -> None:
        """Invalidate the cached Delta log of a table. Call this after writing without a method of `Lake`."""
        if there := self._reached.get(name):
            there.was_written()

    def require_layout(self, table: Table) -> None:
        """Check that an existing table is partitioned as in its contract.

        Raises
        ------
        SchemaError
            If it is not.
        """
        log = self.log(table.name)
        found = log.metadata().partition_columns if log else self.detail(table.name)["partitionColumns"]
        if list(found) != list(table.partitioned_by):
            raise SchemaError(f"{table.name} is partitioned by {', '.join(found) or 'nothing'}", OTHER_VERSION)

    def files(self, name: str) -> list[str]:
        """Return the paths or addresses of a table's data files.

        Raises
        ------
        NoInputError, SchemaError
            In the same cases as in `read`.
        """
        self._require(name)
        log = self.log(name)
        return log.file_uris() if log else self.read(name).inputFiles()

    def is_plain(self, name: str) -> bool:
        """Whether a table's data files alone define its rows, without deletion vectors and column mapping."""
        self._require(name)
        log = self.log(name)
        protocol = log.protocol().min_reader_version if log else self.detail(name)["minReaderVersion"]
        return int(protocol) == 1

    def append_once(self, table: Table, rows: DataFrame, key: str) -> None:
        """Append rows in one commit of Spark's, unless rows were appended with the same ``key`` before."""
        self.ensure(table)
        # The version is always 1, because Delta silently drops an append whose version is not above the key's last one.
        # With growing versions, such as dates, the rows of a late run would be dropped.
        writer = (
            conformed(table, rows)
            .writeTo(self.identifier(table.name))
            .option("userMetadata", self.metadata())
            .option("txnAppId", key)
            .option("txnVersion", "1")
        )
        retrying(writer.append, table.name)
        self.was_written(table.name)

    def amend(self, table: Table, rows: DataFrame, key: Sequence[str], *columns: str) -> None:
        """Copy ``columns`` from ``rows`` to existing rows with the same ``key`` if the first of ``columns`` differs."""
        retrying(lambda: amend(self.identifier(table.name), rows, key, columns), table.name)
        self.was_written(table.name)

    def version(self, name: str) -> int:
        """Return the current Delta version of a table, for time travel."""
        return int(self._last_commit(name)["version"])

    def names(self) -> list[str]:
        """Return the names of the lake's tables, then of its views, except views for which a table is missing."""
        names = [name for name in TABLES if self.has(name)]
        known = {*TABLES, *VIEWS}
        for name, text in sorted(sql_texts().items(), key=lambda view: view[0] not in VIEWS):
            if known & set(re.findall(r"\w+", text)) <= {*names, name}:
                names.append(name)
        return names

    def register_views(self) -> list[str]:
        """Register the lake's tables, views and functions in the Spark session, so that SQL can use their short names.

        Returns
        -------
        list of str
            The names of the tables and views.
        """
        names, views = self.names(), sql_texts()
        for name in names:
            rows = self.read(name) if name in TABLES else self.spark.sql(views[name])
            rows.createOrReplaceTempView(name)
        for text in sql_texts("functions").values():
            self.spark.sql(text)
        return names

    def query(self, text: str) -> tuple[list[dict[str, object]], list[str]]:
        """Run Spark SQL that uses the short names of tables and views, and collect the result in the driver.

        Returns
        -------
        rows, columns
            The rows as a list of dictionaries, and the list of column names in order.

        Raises
        ------
        UsageError
            If Spark cannot parse or compute the query.
        """
        names = self.register_views()
        try:
            answer = self.spark.sql(text)
            return [row.asDict() for row in answer.collect()], answer.columns
        except PySparkException as error:
            if explained_error(error):
                raise
            raise UsageError(
                str(error).strip().partition("\n")[0], f"the lake has {', '.join(names) or 'no table'}"
            ) from error

    def _check(self, table: Table) -> None:
        """Raise an error if the columns or types of a table differ from its contract."""
        log = self.log(table.name)
        found = (
            column_types_in_log(log.schema().to_json())
            if log
            else column_types(self.spark.table(self.identifier(table.name)).schema)
        )
        differs = ddl_differences(table, found)
        if differs:
            raise SchemaError(
                f"{self.identifier(table.name)} differs from its contract: {'; '.join(differs)}",
                OTHER_VERSION,
            )
        self._checked.add(table.name)

    def _renew_constraints(self, table: Table) -> None:
        """Add the constraints that a table lacks because an earlier version of isr-batch created it."""
        if log := self.log(table.name):
            renew_constraints(table, log)
            return
        later = constraints_since(table, self.detail(table.name)["properties"])
        for text in constraint_statements(self.identifier(table.name), later):
            self.spark.sql(text)

    def metadata(self, **more: str) -> str:
        """Return the user metadata to store in a commit, as JSON: the id of this run, and the fields in ``more``."""
        return json.dumps({"run_id": self.run_id, **more})

    def _location(self, name: str) -> str:
        """Return the address of a table's folder, with its scheme."""
        if self.catalog:
            return str(self.detail(name)["location"])
        place = f"{self.root.rstrip('/')}/{name}"
        if is_address(place):
            return place
        if self._here:
            return f"file:{place}"
        # The scheme that Spark assumes for a path without one; no public API returns it.
        default = self.spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001
        return f"{default.rstrip('/')}{place}"

    def detail(self, name: str) -> Row:
        """Return the result row of Spark's ``DESCRIBE DETAIL`` for a table."""
        return self.spark.sql(f"DESCRIBE DETAIL {self.identifier(name)}").collect()[0]

    def _last_commit(self, name: str) -> dict[str, Any]:
        """Return the newest entry of a table's history."""
        if log := self.log(name):
            return log.history(1)[0]
        return self.spark.sql(f"DESCRIBE HISTORY {self.identifier(name)} LIMIT 1").collect()[0].asDict()

"""Analyse Spark frames. Each Spark task replays all rows of some partitions, in the same way as a single process.

Facts about brokers that one partition's rows do not show (`BrokerFacts`) are collected once from all rows. Everything
else is a lazy plan: the rows of all frames are shuffled by topic and partition, and `mapInArrow` replays them. A task
holds all its rows in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.api.frames import Kind, given_back, require_rows
from isr_batch.api.replayed import BrokerFacts, facts_of, frames_read, results_of, timelines_of, without_fetches
from isr_batch.api.stored import folder_of, rows_where, save
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.added_rows import DAY_US
from isr_batch.ingest.own_table.broker_days import FetchDay
from isr_batch.ingest.own_table.derived_tables import broker_days_of, put_days
from isr_batch.ingest.own_table.in_memory import RowsHere
from isr_batch.ingest.own_table.leader_epochs import require_known_observers
from isr_batch.ingest.own_table.mapping import TableMapping, mapped_columns
from isr_batch.ingest.own_table.read_source import inputs_of_sources, read_input
from isr_batch.ingest.own_table.spark_source import SparkRows, rows_as_structs
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import contract_of, contract_schema, read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import quoted_for_spark
from isr_batch.lake.lake import Lake
from isr_batch.lake.memory_lake import MemoryLake, MemoryTable
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import BROKER_EVENTS, FETCH_LOG, QUARANTINE
from isr_batch.lake.tables.leaders import BROKER_DAYS, LEADER_EPOCHS
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.own_tables import FETCH_DAYS
from isr_batch.lake.tables.scores import RULE_SCORES
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.result_tables import SCORED_TABLES
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from udfs.batches.rule_runs import RuleRun

OfTask = Callable[[ArrowSql, MemoryLake, Any], pa.Table]
OF_BROKERS: Final = (LEADER_EPOCHS, BROKER_EVENTS, BROKER_DAYS)
_INSTANTS: Final = pa.schema([
    ("cluster_id", pa.string()), ("leader_id", pa.int32()), ("replica_id", pa.int32()),
    ("handled_time", pa.timestamp("us", "UTC")),
])  # fmt: skip
_PACKETS: Final = pa.schema([("name", pa.string()), ("rows", pa.binary())])


class SparkTables:
    """Replays Spark frames in Spark's workers, and computes the tables of an `Analysis` from the results.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        The caller's frames, by section of the mapping: ``fetches``, ``appends``, ``epochs``, ``changes``.
    mapping : TableMapping
    runs : sequence of RuleRun
    kind : {"pandas", "arrow", "spark"}
        Kind of the frames to return.
    engine : str
        Why this engine was chosen.
    spark : SparkSession
        Session of the frames.

    Raises
    ------
    UsageError, SchemaError
        If columns that the mapping names are missing from the frames, or have types that cannot be converted.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        frames: Mapping[str, DataFrame],
        mapping: TableMapping,
        runs: Sequence[RuleRun],
        kind: Kind,
        engine: str,
        spark: SparkSession,
    ) -> None:
        self._sources = [(name, SparkRows(name, frame)) for name, frame in frames.items()]
        inputs = inputs_of_sources(self._sources, mapping)  # finds all mistakes before a row is read
        self._frames = {
            given.section: frames[given.section].select(*map(quoted_for_spark, given.columns)) for given in inputs
        }
        self._mapping, self._runs, self._kind, self._spark = mapping, runs, kind, spark
        self.engine = f"spark: {engine}"

    def frame(self, name: str, where: Mapping[str, str] | None = None) -> Any:  # noqa: D102 as `Tables`
        if name == RULE_SCORES.name:
            rows = read_columns(self._scored, name, RULE_SCORES.column_names)
            return given_back(rows_where(rows, where), self._kind, self._spark)
        table = contract_of(name)
        if name == "coverage":
            return given_back(arrow_schema(table).empty_table(), self._kind, self._spark)
        if table is QUARANTINE:
            frame = self._worked(partial(_read_by_spark, name), arrow_schema(table), None)
        else:
            frame = self._worked(partial(_replayed, name, self._runs), arrow_schema(table), self.facts)
        for column, value in (where or {}).items():
            frame = frame.where(F.col(column) == value)
        return frame if self._kind == "spark" else given_back(frame.toArrow(), self._kind)

    def _worked(self, work: OfTask, schema: pa.Schema, facts: BrokerFacts | None) -> DataFrame:
        """Return a frame of the rows that ``work`` returns. A Spark task calls it with all rows of some partitions."""
        parts = [
            frame.select(*self._keys(name), *(
                F.struct(*map(quoted_for_spark, frame.columns)).alias(other) if other == name
                else F.lit(None).cast(self._frames[other].schema).alias(other) for other in self._frames
            ))
            for name, frame in self._frames.items()
        ]  # fmt: skip
        together = reduce(DataFrame.unionByName, parts).repartition("_topic", "_partition").drop("_topic", "_partition")
        return together.mapInArrow(
            partial(_worked_by_spark, self._mapping, facts, work, schema), from_arrow_schema(schema)
        )

    def _keys(self, section: str) -> list[Any]:
        """Return the expressions for topic and partition of a section's frame, by which Spark shuffles the rows."""
        columns = mapped_columns(getattr(self._mapping, section).columns)
        topic, partition_id = (
            F.lit(given.constant) if given.column is None else F.col(_dotted(self._frames[section], given.column))
            for given in (columns["topic"], columns["partition_id"])
        )
        # One frame may contain partition numbers as text and another as integers; a cast puts both in one group.
        return [topic.cast("string").alias("_topic"), partition_id.try_cast("double").alias("_partition")]

    @property
    def facts(self) -> BrokerFacts:
        """The facts about brokers (`BrokerFacts`), which are collected from all rows when they are first used."""
        return self._known[0]

    @cached_property
    def _known(self) -> tuple[BrokerFacts, dict[Table, pa.Table]]:
        """The facts about brokers, and the tables in `OF_BROKERS`, both derived from the rows of all partitions."""
        days = self._worked(
            _fetch_days_by_spark, contract_schema(FETCH_DAYS.name, FETCH_DAYS.column_names), None
        ).toArrow()
        if not days.num_rows:
            require_rows("fetches", int(not self._frames["fetches"].isEmpty()))
            refused = self._worked(partial(_read_by_spark, QUARANTINE.name), arrow_schema(QUARANTINE), None)
            raise without_fetches(refused.count(), refused.limit(1).toArrow())
        instants = rows_as_structs(self._frames["fetches"]).mapInArrow(
            partial(_fetch_instants_of_spark_rows, self._mapping), from_arrow_schema(_INSTANTS)
        )
        pairs = instants.repartition("leader_id", "replica_id")
        of_days = contract_schema(BROKER_DAYS.name, BROKER_DAYS.column_names)
        brokers = pairs.mapInArrow(partial(_broker_days, self._mapping, of_days), from_arrow_schema(of_days)).toArrow()
        few = {name: frame.toArrow() for name, frame in self._frames.items() if name in {"epochs", "changes"}}
        none = {name: frame.limit(0).toArrow() for name, frame in self._frames.items() if name not in few}
        with log_sql() as sql:
            clusters = pc.unique(days["cluster_id"]).to_pylist()
            lake = _NearSilences(self._fetch_log, frames_read(sql, none | few, self._mapping, clusters).tables)
            lake.put(FETCH_DAYS, days)
            lake.put(BROKER_DAYS, brokers)
            facts = facts_of(sql, lake)
            require_known_observers(lake)
            return facts, {table: read_columns(lake, table.name, table.column_names) for table in OF_BROKERS}

    def _fetch_log(self) -> DataFrame:
        schema = arrow_schema(FETCH_LOG)
        return self._worked(partial(_read_by_spark, FETCH_LOG.name), schema, None)

    @cached_property
    def _scored(self) -> MemoryLake:
        packets = self._worked(partial(_packets_of_spark_rows, self._runs), _PACKETS, self.facts).toArrow()
        none = {table.name: contract_schema(table.name, table.column_names).empty_table() for table in SCORED_TABLES}
        rows = {name: [empty] for name, empty in none.items()}
        for name, packet in zip(packets["name"].to_pylist(), packets["rows"], strict=True):
            rows[name].append(pa.ipc.open_stream(packet.as_buffer()).read_all())
        lake = MemoryLake({table: pa.concat_tables(rows[table.name]) for table in SCORED_TABLES} | self._known[1])
        write_eligible_leaders(lake, "auto")
        write_scores(lake)
        return lake

    @contextmanager
    def lake(self) -> Iterator[Lake]:  # noqa: D102
        yield self._stored

    @cached_property
    def _stored(self) -> Lake:
        self._require_few("save the analysis to a lake that all workers reach, then ask isr_batch.open(lake)")
        return save(folder_of(self), self._sources, self._mapping, self._runs)

    def save(self, lake: str) -> None:  # noqa: D102
        if is_remote():  # its workers may not see this folder
            self._require_few("over Spark Connect, use `isr-batch ingest table` on the cluster for that many")
        save(lake, self._sources, self._mapping, self._runs)

    def _require_few(self, otherwise: str) -> None:
        """Raise a UsageError with the remedy ``otherwise`` if there are too many fetches to collect in this process."""
        rows = self._sources[0][1].count(self._sources[0][1].items)
        if rows > sizes.OWN_ROWS:
            raise UsageError(
                f"{rows:,} fetches are more than the {sizes.OWN_ROWS:,} that this process puts into a lake", otherwise
            )


class _NearSilences(MemoryLake):
    """Tables in memory, except ``fetch_log``, which is a Spark frame: only fetches near leaders' silences are read."""

    def __init__(self, fetch_log: Callable[[], DataFrame], tables: Mapping[Table, pa.Table]) -> None:
        super().__init__(tables)
        self._fetch_log = fetch_log

    def direct(self, name: str) -> MemoryTable | None:
        """Return a table in memory; None for ``fetch_log``, which has to be read with `read`."""
        return None if name == FETCH_LOG.name else super().direct(name)

    def read(self, name: str) -> DataFrame:
        """Return ``fetch_log``, the only table that is not in memory, as a Spark frame."""
        assert name == FETCH_LOG.name
        return self._fetch_log()


def _dotted(frame: DataFrame, name: str) -> str:
    """Quote the name of a column, or of a field in a struct column (``column.field``), for Spark SQL."""
    return quoted_for_spark(name) if name in frame.columns else ".".join(map(quoted_for_spark, name.split(".")))


def _worked_by_spark(
    mapping: TableMapping, facts: BrokerFacts | None, work: OfTask, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run ``work`` in one Spark task, and yield the rows that it returns.

    The columns of an input row are structs, one per frame of the caller. Exactly one of them is not null: it contains a
    row of that frame.
    """
    parts = list(batches)
    if not parts:  # there may be fewer partitions than tasks
        return
    rows = pa.Table.from_batches(parts)
    frames = {name: pa.Table.from_struct_array(rows[name].filter(rows[name].is_valid())) for name in rows.column_names}
    with log_sql() as sql:
        lake = frames_read(sql, frames, mapping)
        yield from work(sql, lake, facts).select(schema.names).cast(schema).to_batches()


def _read_by_spark(name: str, _sql: ArrowSql, lake: MemoryLake, _facts: BrokerFacts | None) -> pa.Table:
    """In one Spark task, return the rows of the input table ``name``."""
    return read_columns(lake, name, contract_of(name).column_names)


def _replayed(name: str, runs: Sequence[RuleRun], sql: ArrowSql, lake: MemoryLake, facts: BrokerFacts) -> pa.Table:
    """In one Spark task, replay its rows, and return the result table or timeline ``name``."""
    if name in VIEWS:
        return timelines_of(lake, facts, runs)[name]
    return results_of(sql, lake, facts, runs, [TABLES[name]])[TABLES[name]]


def _packets_of_spark_rows(runs: Sequence[RuleRun], sql: ArrowSql, lake: MemoryLake, facts: BrokerFacts) -> pa.Table:
    """In one Spark task, replay its rows. Return one row per result table: the name, and the rows as Arrow IPC."""
    packets = []
    for table, rows in results_of(sql, lake, facts, runs).items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        packets.append({"name": table.name, "rows": sink.getvalue().to_pybytes()})
    return pa.Table.from_pylist(packets, _PACKETS)


def _fetch_days_by_spark(sql: ArrowSql, lake: MemoryLake, _facts: BrokerFacts | None) -> pa.Table:
    """In one Spark task, return the rows of ``fetch_days``."""
    put_days(lake, sql, FETCH_DAYS)
    return read_columns(lake, FETCH_DAYS.name, FETCH_DAYS.column_names)


def _fetch_instants_of_spark_rows(mapping: TableMapping, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In one Spark task, yield cluster, leader, follower and time of each successful fetch."""
    parts = list(batches)
    if not parts:
        return
    fetches = pa.Table.from_struct_array(pa.Table.from_batches(parts)["row"])
    (given,) = inputs_of_sources([("fetches", RowsHere("fetches", fetches))], mapping)
    with log_sql() as sql:
        read = read_input(sql, given, given.source.items)
    rows = given.checked.completed(read.rows)
    rows = rows.filter(pc.equal(rows["error_code"], 0))
    if "cluster_id" not in rows.column_names:
        rows = rows.append_column("cluster_id", pa.repeat(read.clusters()[0], rows.num_rows))
    yield from rows.select(_INSTANTS.names).cast(_INSTANTS).to_batches()


def _broker_days(
    mapping: TableMapping, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In one Spark task, yield the rows of ``broker_days``, which sum up fetches by day, leader and follower."""
    parts = list(batches)
    if not parts:
        return
    rows = pa.Table.from_batches(parts).combine_chunks()
    mapped = mapped_columns(mapping.fetches.columns)
    us = rows["handled_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    for cluster_id in pc.unique(rows["cluster_id"]).to_pylist():
        of_cluster = np.asarray(pc.equal(rows["cluster_id"], cluster_id))
        for number in np.unique(us[of_cluster] // DAY_US):
            chosen = of_cluster & (us // DAY_US == number)
            leaders, replicas = (rows[name].to_numpy()[chosen] for name in ("leader_id", "replica_id"))
            day = FetchDay(np.datetime64(int(number), "D").item())
            day.add(leaders, replicas, us[chosen])
            made = broker_days_of(cluster_id, day, mapped)
            made = made.append_column("made_from", pa.repeat("", made.num_rows))
            yield from made.select(schema.names).cast(schema).to_batches()

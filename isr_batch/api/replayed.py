"""A replay of rows that are in this process: a notebook's, or those of a task of Spark's."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.errors import NoInputError
from isr_batch.ingest.kafka_logs.log_sql import log_sql
from isr_batch.ingest.own_table.derived_tables import derive_in_memory
from isr_batch.ingest.own_table.in_memory import RowsHere, input_tables
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_source import inputs_of_sources
from isr_batch.lake.arrow_read import contract_schema, read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import BROKER_DAYS, LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.one_partition import timeline_rows
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.packing import pack_in_memory
from isr_batch.replay.replay import replayed_stream
from isr_batch.replay.result_tables import SCORED_TABLES, scored_result_tables
from udfs.batches.replay import RuleRun
from udfs.batches.results import SCORED

_OF_PARTITIONS = (FETCH_LOG, APPEND_LOG, OBSERVED_ISR_CHANGES, GIVEN_TERMS)
OF_BROKERS = (LEADER_EPOCHS, BROKER_EVENTS, BROKER_DAYS)


@dataclass(frozen=True)
class BrokerFacts:
    """What the rows of one partition alone do not tell: until when its leaders' logs go on, and when these were silent.

    Attributes
    ----------
    tables : tuple of pa.Table
        Rows of ``leader_epochs``, ``broker_events`` and ``broker_days``.
    """

    tables: tuple[pa.Table, ...]

    def put_all(self, lake: MemoryLake) -> None:
        """Put them into tables."""
        for table, rows in zip(OF_BROKERS, self.tables, strict=True):
            lake.put(table, rows)

    def put_beside(self, lake: MemoryLake) -> None:
        """Put them beside the input tables of some partitions, terms of these alone."""
        names = ["cluster_id", "topic", "partition_id"]
        here = pa.concat_tables(
            read_columns(lake, table.name, names).group_by(names).aggregate([]) for table in _OF_PARTITIONS
        )
        own, *others = self.tables
        for name in names:
            own = own.filter(pc.is_in(own[name], here[name]))
        known = {*zip(*(here[name].to_pylist() for name in names), strict=True)}
        own = own.filter(pa.array([key in known for key in zip(*(own[name].to_pylist() for name in names), strict=True)], pa.bool_()))
        for table, rows in zip(OF_BROKERS, (own, *others), strict=True):
            lake.put(table, rows)


def tables_of(
    sql: ArrowSql, frames: Mapping[str, pa.Table], mapping: TableMapping, facts: BrokerFacts | None = None
) -> MemoryLake:
    """Read frames by a mapping into the tables that a replay is made of.

    Parameters
    ----------
    sql : ArrowSql
        Of `log_sql`.
    frames : mapping of str to pa.Table
        By section of the mapping.
    mapping : TableMapping
    facts : BrokerFacts, optional
        Of more rows than these.
    """
    lake = frames_read(sql, frames, mapping)
    if facts:
        facts.put_beside(lake)
    else:
        derive_in_memory(lake, sql)
    pack_in_memory(lake)
    return lake


def frames_read(
    sql: ArrowSql, frames: Mapping[str, pa.Table], mapping: TableMapping, also: Collection[str] = ()
) -> MemoryLake:
    """Read frames into input tables alone; ``also`` are clusters without rows here."""
    sources = [(name, RowsHere(name, rows)) for name, rows in frames.items()]
    return input_tables(sql, inputs_of_sources(sources, mapping), mapping, also)


def facts_of(lake: MemoryLake) -> BrokerFacts:
    """Take what is known of brokers out of tables."""
    return BrokerFacts(tuple(read_columns(lake, table.name, table.column_names) for table in OF_BROKERS))


def put_results(sql: ArrowSql, lake: MemoryLake, runs: Sequence[RuleRun], kinds: Collection[str] = SCORED) -> None:
    """Replay tables, and put the results of these kinds beside them."""
    engine = InProcess(lake, sql)
    results = replayed_stream(engine, event_stream(engine, stream_facts(engine)), runs, kinds)
    for table, rows in scored_result_tables(engine, results).items():
        lake.put(table, rows.cast(arrow_schema(table)))


def timelines(sql: ArrowSql, lake: MemoryLake, runs: Sequence[RuleRun]) -> dict[str, pa.Table]:
    """Replay tables for the timelines, which take five times as long as all else: rows of each view."""
    engine = InProcess(lake, sql)
    kinds = [name.removesuffix("_timeline") for name in VIEWS]
    results = replayed_stream(engine, event_stream(engine, stream_facts(engine)), runs, kinds)
    return {name: timeline_rows(name, results) for name in VIEWS}

"""Replay rows that are in this process's memory: those of a notebook, or those of one Spark task."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.own_table.derived_tables import derive_in_memory
from isr_batch.ingest.own_table.in_memory import RowsHere, input_tables
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_source import inputs_of_sources
from isr_batch.lake.arrow_read import contract_schema, read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.lake.tables.timelines import TIMELINES
from isr_batch.replay.event_stream import rows_of_segments, stream_facts
from isr_batch.replay.one_partition import timelines_of_results
from isr_batch.replay.packing import packed_in_memory
from isr_batch.replay.replay import replayed_stream
from isr_batch.replay.result_tables import SCORED_TABLES, scored_result_tables
from udfs.batches.results import SCORED
from udfs.batches.rule_runs import RuleRun

_OF_PARTITIONS: Final = (FETCH_LOG, APPEND_LOG, OBSERVED_ISR_CHANGES, GIVEN_TERMS)
_PARTITION: Final = ["cluster_id", "topic", "partition_id"]


@dataclass(frozen=True)
class BrokerFacts:
    """Facts about brokers that no single partition's rows show: the time that leaders' logs cover, silences of leaders.

    Attributes
    ----------
    rows : pa.Table
        Result of `isr_batch.replay.event_stream.stream_facts`.
    """

    rows: pa.Table

    def of_partitions_in(self, lake: MemoryLake) -> pa.Table:
        """Select the facts that concern the partitions of a lake in memory."""
        tables = (read_columns(lake, table.name, _PARTITION) for table in _OF_PARTITIONS)
        here = pa.concat_tables(rows.group_by(_PARTITION).aggregate([]) for rows in tables if rows.num_rows)
        own = self.rows
        for name in _PARTITION:
            own = own.filter(pc.is_in(own[name], here[name]))
        if here.num_rows == 1:
            return own
        known = set(_keys(here))
        return own.filter(pa.array([key in known for key in _keys(own)], pa.bool_()))


def _keys(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[name].to_pylist() for name in _PARTITION), strict=True)


def frames_read(
    sql: ArrowSql, frames: Mapping[str, pa.Table], mapping: TableMapping, also: Collection[str] = ()
) -> MemoryLake:
    """Convert a caller's frames to input tables, but derive nothing yet; ``also`` names clusters without rows here."""
    sources = [(name, RowsHere(name, rows)) for name, rows in frames.items()]
    return input_tables(sql, inputs_of_sources(sources, mapping), mapping, also)


def facts_of(sql: ArrowSql, lake: MemoryLake) -> BrokerFacts:
    """Derive what is known about brokers from a lake in memory with input tables, and add the derived tables to it."""
    derive_in_memory(lake, sql)
    engine = InProcess(lake, sql)
    return BrokerFacts(engine.arrow(stream_facts(engine)))


def stream_of(lake: MemoryLake, facts: BrokerFacts) -> pa.Table:
    """Make the rows that the kernel reads: those of a lake in memory, and the facts that concern its partitions."""
    return pa.concat_tables(
        [facts.of_partitions_in(lake), rows_of_segments(packed_in_memory(lake))], promote_options="default"
    )


def results_of(
    sql: ArrowSql,
    lake: MemoryLake,
    stream: pa.Table,
    runs: Sequence[RuleRun],
    tables: Sequence[Table] = SCORED_TABLES,
) -> dict[Table, pa.Table]:
    """Replay the kernel's rows, and return the result tables named by ``tables``."""
    engine = InProcess(lake, sql)
    kinds = SCORED if {*tables} - {ISR_CHANGES, SHRINK_VERDICTS} else ("change",)
    results = replayed_stream(engine, stream, runs, kinds)
    schemas = {table: contract_schema(table.name, table.column_names) for table in tables}
    if not results.num_rows:  # most partitions have no shrink
        return {table: schema.empty_table() for table, schema in schemas.items()}
    return {table: rows.cast(schemas[table]) for table, rows in scored_result_tables(engine, results, tables).items()}


def timelines_of(sql: ArrowSql, lake: MemoryLake, stream: pa.Table, runs: Sequence[RuleRun]) -> dict[str, pa.Table]:
    """Replay the kernel's rows for timelines, and return the rows of each view; takes five times as long as results."""
    engine = InProcess(lake, sql)
    results = engine.arrow(replayed_stream(engine, stream, runs, [*TIMELINES]))
    return timelines_of_results(results, read_columns(lake, FETCH_LOG.name, FETCH_LOG.column_names))

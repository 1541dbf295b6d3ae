"""Replay rows that are in this process' memory: the frames of a notebook, or the rows of one Spark task."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.errors import QualityGateError
from isr_batch.ingest.own_table.derived_tables import derive_in_memory
from isr_batch.ingest.own_table.in_memory import RowsHere, input_tables
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_source import ReadTable, inputs_of_sources
from isr_batch.ingest.own_table.row_order import order_of_rows
from isr_batch.lake.arrow_read import contract_schema, read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.lake.tables.timelines import TIMELINES
from isr_batch.progress import counted
from isr_batch.replay.event_stream import stream_facts
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.replay.one_partition import timelines_of_results
from isr_batch.replay.result_tables import SCORED_TABLES, Asks, scored_result_tables, shrinks_of_results
from udfs.batches.event_chunks import COLUMNS_OF_APPENDS, COLUMNS_OF_FETCHES
from udfs.batches.replay import replay_batches
from udfs.batches.results import RESULT_SCHEMA, SCORED, SET_COLUMNS
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segments import SEGMENT
from udfs.records import APPEND, FETCH, NOBODY_WAITS, ROW_ORDER, UNKNOWN, Rows

_OF_PARTITIONS: Final = (FETCH_LOG, APPEND_LOG, OBSERVED_ISR_CHANGES, GIVEN_TERMS)
_PARTITION: Final = ["cluster_id", "topic", "partition_id"]
_SETS: Final = contract_schema(FETCH_LOG.name, SET_COLUMNS)
_NO_TABLES: Final = MemoryLake({})
ROWS_AT_ONCE: Final = 1 << 14
"""Number of events per batch of the replay's stream."""
_FEW_RESULTS: Final = 1_000
"""Up to this number of result rows of the kernel, shrinks are picked out faster in Python than by a query."""


@dataclass(frozen=True)
class BrokerFacts:
    """Facts about brokers that one partition's rows do not show.

    Examples are the periods that a leader's log covers, and those in which a leader handled no request (its silences).

    Attributes
    ----------
    rows : pa.Table
        The rows that `isr_batch.replay.event_stream.stream_facts` returned: one row per fact and partition.
    """

    rows: pa.Table

    def of_partitions_in(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return the facts about the partitions that occur in ``tables``."""
        here = chain.from_iterable(_partitions_of(rows) for rows in tables if rows.num_rows)
        places = (self._places.get(key, ()) for key in dict.fromkeys(here))
        return self.rows.take(pa.array(chain.from_iterable(places), pa.int64()))

    @cached_property
    def _places(self) -> Mapping[tuple[object, ...], Sequence[int]]:
        """The indices, in ``rows``, of the facts about each partition, by (cluster, topic, partition)."""
        found = defaultdict[tuple[object, ...], list[int]](list)
        for place, key in enumerate(_keys_of_replayed(self.rows)):
            found[key].append(place)
        return found


def _partitions_of(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield each distinct (cluster, topic, partition) of rows. If there is only one, the slow grouping is skipped."""
    if all(len(pc.unique(rows[name])) == 1 for name in _PARTITION):
        return _keys_of_replayed(rows.slice(0, 1))
    return _keys_of_replayed(rows.group_by(_PARTITION).aggregate([]))


def _keys_of_replayed(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield (cluster, topic, partition) of each row."""
    return zip(*(rows[name].to_pylist() for name in _PARTITION), strict=True)


def frames_read(
    sql: ArrowSql, frames: Mapping[str, pa.Table], mapping: TableMapping, also: Collection[str] = ()
) -> MemoryLake:
    """Convert the caller's frames to the tables that a replay reads, in memory.

    ``frames`` is keyed by section of the mapping, such as ``fetches``. Tables that are derived from others, such as
    that of the times in which a leader handled no request, are not computed; `facts_of` does that. ``also`` lists
    clusters to include although ``frames`` may have no row of them.
    """
    sources = [(name, RowsHere(name, rows)) for name, rows in frames.items()]
    return input_tables(sql, inputs_of_sources(sources, mapping), mapping, also)


def without_fetches(refused: int, first: pa.Table) -> QualityGateError:
    """Return the error for an input that contains no usable fetch.

    The message says how many rows were refused (``refused``), and why the first of them was: ``first`` is this row of
    table quarantine.
    """
    if not refused:
        return QualityGateError("no follower fetch is left", "check `where` and replica_id in the mapping")
    (row,) = first.to_pylist()
    why = f"{row['reason']}: {row['detail'] or ''} {row['raw']}"
    return QualityGateError(f"all {refused} rows were refused, the first one: {why}", "correct the mapping")


def facts_of(sql: ArrowSql, lake: MemoryLake) -> BrokerFacts:
    """Add to ``lake`` the tables that are derived from its input tables, and return the facts about brokers in it."""
    derive_in_memory(lake, sql)
    engine = InProcess(lake, sql)
    return BrokerFacts(engine.arrow(stream_facts(engine)))


def results_of(
    sql: ArrowSql,
    lake: MemoryLake,
    facts: BrokerFacts,
    runs: Sequence[RuleRun],
    tables: Sequence[Table] = SCORED_TABLES,
) -> dict[Table, pa.Table]:
    """Replay the input tables in ``lake`` under each of ``runs``, and return the requested result ``tables``.

    ``tables`` are some or all of `SCORED_TABLES`: ISR changes, verdicts, and counters by partition and by replica.
    """
    kinds = SCORED if {*tables} - {ISR_CHANGES, SHRINK_VERDICTS} else ("change",)
    results = _replayed_rows(_stream_of_lake(lake, facts), runs, kinds)
    return _tables_of_results(InProcess(lake, sql), results, tables)


def shrinks_of_fetches(sql: ArrowSql, read: ReadTable, facts: BrokerFacts, runs: Sequence[RuleRun]) -> pa.Table:
    """Replay fetches that were read from a user's table, and return the rows of table ``shrink_verdicts``.

    `results_of` would return the same rows, but needs input tables. Making these takes longer than a replay of some
    thousand fetches, so this function does not make any.
    """
    rows = read.checked.completed(read.rows)
    events = _events_of(rows, FETCH, COLUMNS_OF_FETCHES)
    # As in an ingest, of fetches that are equal in all given columns only one counts.
    for name in sorted({*read.rows.column_names} - {*SET_COLUMNS, *COLUMNS_OF_FETCHES.values()}):
        events = events.append_column(name, rows[name])
    stream = _stream_in_order(facts.of_partitions_in([events]), [events], distinct=True)
    results = _replayed_rows(stream, runs, ["change"])
    return _tables_of_results(InProcess(_NO_TABLES, sql), results, [SHRINK_VERDICTS])[SHRINK_VERDICTS]


def _tables_of_results(engine: Asks, results: pa.Table, tables: Sequence[Table]) -> dict[Table, pa.Table]:
    """Convert the kernel's results to rows of ``tables``."""
    if not results.num_rows:  # most partitions have no shrink
        return {table: _no_rows(table) for table in tables}
    few = [*tables] == [SHRINK_VERDICTS] and results.num_rows <= _FEW_RESULTS
    found = {SHRINK_VERDICTS: shrinks_of_results(results)} if few else scored_result_tables(engine, results, tables)
    return {table: rows.cast(_no_rows(table).schema) for table, rows in found.items()}


@cache
def _no_rows(table: Table) -> pa.Table:
    """Return no rows of a table, with the types in its contract."""
    return contract_schema(table.name, table.column_names).empty_table()


def timelines_of(lake: MemoryLake, facts: BrokerFacts, runs: Sequence[RuleRun]) -> dict[str, pa.Table]:
    """Replay the input tables in ``lake``, and return the tables replica_timeline and partition_timeline by name.

    This takes five times as long as `results_of`.
    """
    results = _replayed_rows(_stream_of_lake(lake, facts), runs, [*TIMELINES])
    return timelines_of_results(results, read_columns(lake, FETCH_LOG.name, FETCH_LOG.column_names))


def _replayed_rows(stream: Iterator[pa.RecordBatch], runs: Sequence[RuleRun], kinds: Collection[str]) -> pa.Table:
    """Replay a stream, and return the kernel's results of these kinds, as rows of `RESULT_SCHEMA`."""
    keep_compiled()
    return pa.Table.from_batches(replay_batches(stream, runs, kinds), RESULT_SCHEMA)


def _stream_of_lake(lake: MemoryLake, facts: BrokerFacts) -> Iterator[pa.RecordBatch]:
    """Return the stream of the input tables in memory, without appends that a leader refused."""
    about = facts.of_partitions_in(read_columns(lake, table.name, _PARTITION) for table in _OF_PARTITIONS)
    fetches = read_columns(lake, FETCH_LOG.name, (*SET_COLUMNS, *COLUMNS_OF_FETCHES.values()))
    appends = read_columns(lake, APPEND_LOG.name, (*SET_COLUMNS, *COLUMNS_OF_APPENDS.values()))
    appends = appends.filter(appends["log_end_offset"].is_valid())
    events = _events_of(fetches, FETCH, COLUMNS_OF_FETCHES), _events_of(appends, APPEND, COLUMNS_OF_APPENDS)
    return _stream_in_order(about, events)


def _stream_in_order(
    about: pa.Table, events: Sequence[pa.Table], *, distinct: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the events to replay in batches of `ROWS_AT_ONCE`, one row per event, in the order of the replay.

    They are not packed into segments, because packing and unpacking would take longer than this single replay.
    ``about`` contains facts about the partitions, which are also yielded. If ``distinct``, only one of several events
    that are equal in all columns is yielded.
    """
    names = [*SET_COLUMNS, *Rows._fields]
    rows = pa.concat_tables([about.select(names), *events], promote_options="default").combine_chunks()
    others = [name for name in rows.column_names if name not in names]
    # Rows at the same time are sorted by these columns; the last of them is the first sort key.
    order, is_first = order_of_rows(
        rows.select([*SET_COLUMNS, *others, *reversed(ROW_ORDER)]), SET_COLUMNS, ROW_ORDER[0]
    )
    if distinct:
        order = order[is_first | (order < about.num_rows)]
    terms = about["term"].combine_chunks()
    cuts = ((order[begin : begin + ROWS_AT_ONCE], ROWS_AT_ONCE) for begin in range(0, len(order), ROWS_AT_ONCE))
    for some in counted(cuts, len(order), "events"):
        (batch,) = rows.select(names).take(pa.array(some)).combine_chunks().to_batches()
        batch = batch.append_column("term", terms.take(pa.array(some, mask=some >= about.num_rows)))
        yield batch.append_column("segment", pa.nulls(len(some), SEGMENT))


def _events_of(rows: pa.Table, kind: np.int64, columns: Mapping[str, str]) -> pa.Table:
    """Convert rows of ``fetch_log`` or ``append_log`` to events to replay: SET_COLUMNS, and the columns of `Rows`."""
    events = dict(zip(SET_COLUMNS, rows.select(SET_COLUMNS).cast(_SETS).columns, strict=True))
    for name in Rows._fields:
        unknown = int(NOBODY_WAITS if columns.get(name) == "acks" else UNKNOWN)
        events[name] = (
            rows[columns[name]].cast(pa.int64()).fill_null(unknown) if name in columns
            else pa.repeat(int(kind) if name == "kind" else unknown, rows.num_rows)
        )  # fmt: skip
    return pa.table(events)

"""Replay the log: sort the events, and pass them once through the kernel, which applies all rules.

The kernel needs the rows of each replica set (one partition on one leader) together and in order. For a small log, this
process sorts the rows and runs the kernel. For a large log, Spark shuffles and sorts the rows, and each worker runs the
kernel on its share. Nearly all events are packed, thousands per row (``fetch_segments``), so that few rows are
shuffled. A worker processes one replica set after the other. At any time, it holds one Arrow batch, the segments that
overlap in time, the state of one replica set, and a bounded buffer of results (docs/adr/0002-one-pass.md,
0012-packed-segments.md, 0020-small-logs-in-the-driver.md).
"""

import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.engines import engine_for, engine_for_results
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.timelines import RULE_RUNS, Timelines
from isr_batch.progress import uncounted
from isr_batch.replay.days import DaysOfReplay, days_to_replay, of_rules
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.replay.packing import damaged_segments_explained, pack_stale_days
from isr_batch.replay.result_files import (
    RESULT_FILE,
    ResultFiles,
    reported_result_files,
    result_files_for,
    results_written,
)
from isr_batch.replay.result_tables import (
    RESTORED_BY,
    SCORED_TABLES,
    replace_together,
    restore_in_results,
    scored_result_tables,
)
from isr_batch.replay.timeline_files import FILE, SCHEMA, timelines_kept
from isr_batch.replay.timeline_tables import commit_timelines, stores_of_timelines
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window
from udfs.batches.replay import replay_batches
from udfs.batches.results import KINDS, SCORED, SET_COLUMNS, STATE
from udfs.batches.rule_runs import RuleRun
from udfs.records import ROW_ORDER
from udfs.rules import ALL_RULES

ORDER = (*SET_COLUMNS, *ROW_ORDER)
"""Columns by which the kernel's input is sorted: those of the replica set, then those of the time."""


@dataclass(frozen=True)
class ReplaySummary:
    """The outcome of a replay: number of events read, numbers of rows written by table, days, and kind of timelines."""

    rows_in: int
    rows_out: dict[str, int]
    days: DaysOfReplay
    """The days of the replay. Once all results and the tables derived from them are written, the caller must mark these
    days as done (`DaysOfReplay.mark`)."""
    timelines: str = "all"
    """Which timelines were written, in words: all, around-shrinks or none, and possibly the reason."""


def rule_runs(replay: ReplaySettings) -> list[RuleRun]:
    """Return a rule run (a rule with its parameters) for each rule that the settings name."""
    chosen = ALL_RULES if list(replay.rules) == ["all"] else list(replay.rules)
    return [RuleRun(name, {k: int(v) for k, v in replay.params.get(name, {}).items()}) for name in chosen]


def engine_of_replay(lake: Lake, window: Window = Window()) -> LakeEngine:  # noqa: B008 frozen
    """Return the engine for a replay: what the user chose, else Spark for many events and this process for few."""
    events = events_to_replay(lake, window)
    return (
        BySpark(lake) if lake.engine.by_spark(events, sizes.REPLAYED_EVENTS, "fetches and appends") else InProcess(lake)
    )


def replayed_stream(  # noqa: PLR0913 four of them have a default
    engine: LakeEngine,
    stream: Rows,
    runs: Sequence[RuleRun],
    kinds: Collection[str] = tuple(KINDS),
    window: Window = Window(),  # noqa: B008 frozen
    *,
    stores: Mapping[str, Store] | None = None,
    around_shrinks: bool = False,
    result_files: ResultFiles | None = None,
) -> Rows:
    """Replay input rows under each rule run, up to the end of a window, and return the results.

    Parameters
    ----------
    engine : LakeEngine
    stream : Rows
        The input rows, from ``isr_batch.replay.event_stream``.
    runs : sequence of RuleRun
    kinds : collection of str
        Kinds of results to return.
    window : Window
    stores : dict of Store, optional
        Stores of timelines' tables, by kind of result. Workers write these timelines to files. The result then
        contains reports of these files instead of the timelines' rows.
    around_shrinks : bool
        Whether to write only those timeline rows that are near shrinks.
    result_files : ResultFiles, optional
        Settings for the results that are not timelines. If given, a worker with many of them writes them to files, and
        returns reports of the files. A worker with few of them, or without these settings, returns the results.

    Returns
    -------
    Rows
        Rows of ``timeline_files.SCHEMA``: results and reports of files.

    Raises
    ------
    SchemaError
        If a segment is damaged.
    """
    shared = dict(stores or {})
    replay_id = uuid.uuid4().hex[:12]

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Replay a worker's share of the stream, write results to files, and yield all other rows and the reports."""
        keep_compiled()
        results = replay_batches(batches, runs, kinds, window.end_us, shared, around_shrinks=around_shrinks)
        kept = timelines_kept(results, shared, window.start_us, replay_id)
        return results_written(kept, result_files) if result_files else kept

    with damaged_segments_explained():
        return engine.stream(stream, SET_COLUMNS, ORDER, replay, SCHEMA)


def ready_to_replay(lake: Lake) -> None:
    """Check that the lake contains input for a replay, and bring the packed events (``fetch_segments``) up to date.

    Raises
    ------
    NoInputError
        If the lake contains no term of a leader, or no fetch.
    """
    if not lake.files("fetch_log") or not read_columns(lake, "leader_epochs", ["leader_epoch"]).num_rows:
        raise NoInputError(
            f"{lake.root} has no follower fetch, so there is nothing to replay",
            "give request logs of the leaders, or a table of your own: docs/getting-logs.md, docs/own-tables.md",
        )
    with uncounted("packs fetches"):
        pack_stale_days(lake)


def events_to_replay(lake: Lake, window: Window = Window()) -> int:  # noqa: B008 frozen
    """Return the number of fetches and appends in a window."""
    with InProcess(lake) as engine:  # two columns of few rows are read
        segments = engine.table("fetch_segments", ("events", "event_date"))
        text = f"SELECT sum(events) AS events FROM {{segments}} WHERE {window.condition}"
        return int(engine.listed(engine(text, segments=segments))[0]["events"] or 0)


def replay(
    lake: Lake,
    runs: Sequence[RuleRun],
    window: Window = Window(),  # noqa: B008 frozen
    *,
    timelines: Timelines | None = None,
) -> ReplaySummary:
    """Replay every replica set of the lake under the given rule runs, and write the results.

    Only results inside the window are written. They replace earlier results of the same rules and days. If the window
    has a first day, the replay continues from the latest valid state that is stored for an earlier day; if there is no
    such state, it starts on the first day of the lake. If the window has a last day, the states at its end are stored.
    By default, all timelines are written, or only those around shrinks if there are many events. If workers cannot
    write to the lake's store, none are written.

    Raises
    ------
    NoInputError
        If the lake contains no term of a leader, no fetch, or no input in the window.
    UsageError
        If ``timelines`` is "all" or "around-shrinks", but workers cannot write to the lake's store.
    """
    ready_to_replay(lake)
    stores, chosen, written = _stores(lake, window, timelines)
    days = days_to_replay(lake, window, runs)
    lake.ensure_all((RULE_RUNS, *SCORED_TABLES))
    kinds = (*SCORED, STATE) if window.end else SCORED
    where = f"{of_rules(runs)} AND {window.condition}"
    with engine_of_replay(lake, days.to_replay) as engine:
        facts = engine.keep(stream_facts(engine))
        stream = event_stream(engine, facts, days.to_replay, days.kept_states(engine))
        around_shrinks = chosen == "around-shrinks"
        result_files = None if engine.in_process else result_files_for(lake, where, window)
        results = replayed_stream(
            engine, stream, runs, kinds, window,
            stores=stores, around_shrinks=around_shrinks, result_files=result_files,
        )  # fmt: skip
        # If workers write results, each leaves at most `sizes.TASK_ROWS` rows to the driver.
        most = None if result_files else sizes.RESULT_ROWS
        with engine_for_results(lake, engine, results, f"result <> '{STATE}'", most) as (near, few):
            reports = near.listed(near(f"SELECT result, {FILE} FROM {{few}} AS f WHERE {FILE} IS NOT NULL", few=few))
            files = [json.loads(row[FILE]) for row in reports if row["result"] == FILE]
            files_of_results = reported_result_files([row[FILE] for row in reports if row["result"] == RESULT_FILE])
            rows_out = commit_timelines(lake, stores, files, where, window.days, replayed=days.days)
            in_window = f"SELECT * FROM {{rows}} AS in_table WHERE {window.condition}"
            scored = {table: near(in_window, rows=rows) for table, rows in scored_result_tables(near, few).items()}
            rows_out |= replace_together(near, scored, where, window.days, files_of_results)
        rows_out |= days.keep_states(engine, results)
        near_enough = nullcontext(engine) if engine.in_process else engine_for(lake, RESTORED_BY)
        with near_enough as near:
            restore_in_results(near, of_rules(runs), window)
    return ReplaySummary(events_to_replay(lake, window), rows_out, days, written)


def _stores(lake: Lake, window: Window, wanted: Timelines | None) -> tuple[Mapping[str, Store], Timelines, str]:
    """Decide which timelines to write. Return the stores of their tables by kind, the choice, and a text about it."""
    if wanted:
        return {} if wanted == "none" else stores_of_timelines(lake), wanted, wanted
    events = events_to_replay(lake, window)
    try:
        stores = stores_of_timelines(lake)
    except UsageError as error:
        return {}, "none", f"none ({error.message})"
    if events <= sizes.TIMELINE_EVENTS:
        return stores, "all", "all"
    return stores, "around-shrinks", f"around-shrinks (of {events:,} events; --timelines all writes all)"

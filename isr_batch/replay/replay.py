"""The replay in Spark: one exchange, one sort, one pass through the kernel for all rules.

Rows of a set must come together and in order, and nothing else about them matters, so the plan is
``repartition`` by set, ``sortWithinPartitions`` by time, ``mapInArrow``. Nearly all events come packed,
thousands a row (``fetch_segments``), so that exchange and sort move few rows. A task streams its sets one
after the other; what it holds is one Arrow batch, the segments that overlap, the state of one set, and a
bounded buffer of results (docs/adr/0002-one-pass.md, 0012-packed-segments.md).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from isr_batch.errors import NoInputError
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TIMELINES
from isr_batch.replay.days import InputFingerprints, fingerprints, keep, kept_before, of_rules, unmark
from isr_batch.replay.event_stream import event_stream, facts
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, pack_stale_days, rows_at_a_time
from isr_batch.replay.result_tables import replace_together, restore, scored_of, timeline_of
from isr_batch.replay.timeline_files import FILE, timelines_kept
from isr_batch.replay.timeline_files import SCHEMA as WITH_FILES
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window
from udfs.batches.replay import RuleRun, replay_batches
from udfs.batches.results import KINDS, SCORED, SET_COLUMNS, STATE, schema_of
from udfs.records import ROW_ORDER
from udfs.rules import REGISTRY

_LOOK = '`isr-batch sql --lake LAKE "SELECT event_date, count(*) FROM fetch_log GROUP BY 1"` shows what there is'
FEW_ROWS = 200_000
"""Results, other than timelines in files, that the driver commits by itself."""
ORDER = (*SET_COLUMNS, *ROW_ORDER)
"""Sort order of the stream."""


@dataclass(frozen=True)
class ReplaySummary:
    """What a replay read and wrote: rows by table."""

    rows_in: int
    rows_out: dict[str, int]
    fingerprints: InputFingerprints
    """Of the input that was replayed."""


def rule_runs(replay: ReplaySettings) -> list[RuleRun]:
    """Rules (``all`` or ids) with the parameters set for them; the settings have checked both."""
    chosen = list(REGISTRY) if list(replay.rules) == ["all"] else list(replay.rules)
    return [RuleRun(name, {k: int(v) for k, v in replay.params.get(name, {}).items()}) for name in chosen]


def replayed(
    stream: DataFrame,
    runs: Sequence[RuleRun],
    kinds: Collection[str] = tuple(KINDS),
    window: Window = Window(),  # noqa: B008 frozen
    folders: Mapping[str, str] | None = None,
) -> DataFrame:
    """Replay a stream of ``isr_batch.replay.event_stream``, up to the end of a window.

    Returns
    -------
    DataFrame
        Rows of ``udfs.batches.results.schema_of``, of these kinds of result. With ``folders``, a timeline's by its
        kind, of ``timeline_files.SCHEMA``: the workers write these timelines, as far as they are in the window.
    """
    to_files = dict(folders or {})
    schema = WITH_FILES if to_files else schema_of(kinds)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_compiled()
        results = replay_batches(batches, runs, kinds, window.end_us, to_files)
        if to_files:
            return timelines_kept(results, to_files, window.start_us)
        return (rows.select(schema.names) for rows in results)

    return stream.repartition(*SET_COLUMNS).sortWithinPartitions(*ORDER).mapInArrow(replay, from_arrow_schema(schema))


def ready_to_replay(lake: Lake) -> None:
    """See to it that ``fetch_segments`` is what the input is.

    Raises
    ------
    NoInputError
        When the lake holds no term of a leader, or no fetch.
    """
    if not lake.files("fetch_log") or lake.read("leader_epochs").isEmpty():
        raise NoInputError(
            f"{lake.root} holds no fetch of a follower, so there is nothing to replay",
            "request logs of the leaders are needed, or a table of fetches: docs/getting-logs.md, docs/own-tables.md",
        )
    pack_stale_days(lake)


def events_in(lake: Lake, window: Window = Window()) -> int:  # noqa: B008 frozen
    """Fetches and appends of a window."""
    with engine_for_a_partition(lake) as engine:
        segments = engine.table("fetch_segments", ("events", "event_date"))
        text = f"SELECT sum(events) AS events FROM {{segments}} WHERE {window.condition}"
        return int(engine.listed(engine(text, segments=segments))[0]["events"] or 0)


def replay(lake: Lake, runs: Sequence[RuleRun], window: Window = Window()) -> ReplaySummary:  # noqa: B008 frozen
    """Replay every set of the lake through the given rules, and write what they decide.

    Only results inside the window are written, in place of what the same rules gave for it before. A window that
    begins on some day is replayed from the latest state kept before it that still holds, else from the first day.
    One that ends on some day leaves the states at its end.

    Raises
    ------
    NoInputError
        When the lake holds no term of a leader, or no fetch, or when its log does not reach the window.
    """
    ready_to_replay(lake)
    told = facts(lake).persist()
    try:
        return _replay(lake, told, runs, window)
    finally:
        told.unpersist()


def _replay(lake: Lake, told: DataFrame, runs: Sequence[RuleRun], window: Window) -> ReplaySummary:
    folders = _folders(lake)
    known = fingerprints(lake)
    if not known.days(window):
        raise NoInputError(f"{lake.root} holds nothing of {window}", _LOOK)
    unmark(lake, window, runs)
    from_state, states = kept_before(lake, window, runs, known)
    stream = event_stream(lake, told, from_state, states)
    kinds = (*SCORED, STATE) if window.end else SCORED
    results = replayed(stream, runs, kinds, window, folders).persist(StorageLevel.DISK_ONLY)
    where = f"{of_rules(runs)} AND {window.condition}"
    try:
        with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
            if folders:
                rows_out = _commit_files(lake, results, runs, window, folders)
            else:  # A pass for each timeline, straight to its table: nearly all rows are theirs.
                rows_out = {
                    table.name: lake.replace(
                        table, timeline_of(replayed(stream, runs, (kind,), window)).where(window.condition), where
                    )
                    for kind, table in TIMELINES.items()
                }
            scored = {table: rows.where(window.condition) for table, rows in scored_of(results).items()}
            rows_out |= replace_together(lake, scored, where, few=results.count() <= FEW_ROWS)
            rows_out |= keep(lake, results, window, runs, known)
    finally:
        results.unpersist()
    restore(lake, of_rules(runs), window)
    return ReplaySummary(events_in(lake, window), rows_out, known)


def _folders(lake: Lake) -> dict[str, str]:
    """Where workers can write timelines, by kind of result; empty when Spark alone knows how to write one of them."""
    folders = {}
    for kind, table in TIMELINES.items():
        lake.ensure(table)
        lake.require_layout(table)
        if folder := lake.folder(table.name):
            folders[kind] = folder
    return folders if len(folders) == len(TIMELINES) else {}


def _commit_files(
    lake: Lake, results: DataFrame, runs: Sequence[RuleRun], window: Window, folders: Mapping[str, str]
) -> dict[str, int]:
    files = [json.loads(row[FILE]) for row in results.where(f"result = '{FILE}'").select(FILE).collect()]
    where: list[tuple[str, str, object]] = [("rule", "in", sorted({run.rule for run in runs}))]
    where += [("event_date", ">=", window.start)] if window.start else []
    where += [("event_date", "<", window.end)] if window.end else []
    return {
        table.name: lake.replace_files(
            table, folders[kind], [file for file in files if file["table"] == table.name], where
        )
        for kind, table in TIMELINES.items()
    }

"""Replay a window of days as one unit of work: lock the lake, replay, compare, score, and mark the days as done."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Any

from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lease import leased
from isr_batch.lake.maintain import maintain_tables
from isr_batch.lake.run_log import Run, RunCounts, is_still_valid
from isr_batch.lake.tables.heirs import ELIGIBLE_LEADERS
from isr_batch.lake.tables.outputs import OUTPUT_TABLES, REPLAYED_DAYS, RULE_DISAGREEMENTS
from isr_batch.lake.tables.scores import RULE_SCORES, RULE_SCORES_BY_BROKER
from isr_batch.lake.tables.timelines import Timelines
from isr_batch.phrases import count_of
from isr_batch.replay.days import fingerprints, run_of_days
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import replay
from isr_batch.replay.timeline_tables import take_out_unnamed
from isr_batch.scoring.broker_check import HELD, own_rules
from isr_batch.scoring.disagreements import write_disagreements
from isr_batch.scoring.eligible_leaders import Elr, write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from isr_batch.window import Window
from udfs.batches.rule_runs import RuleRun

Step = Callable[[str], AbstractContextManager[dict[str, Any]]]
"""Given a step's name, returns a context manager in which the step runs. It may show the name, and at the end the
values that the step has put into the dict that the context manager yields."""


@contextmanager
def _nightly_step_silently(_name: str) -> Iterator[dict[str, Any]]:
    """Run a step without showing anything (see `Step`)."""
    yield {}


def replay_window(  # noqa: PLR0913 four of them have a default
    lake: Lake,
    runs: Sequence[RuleRun],
    window: Window = Window(),  # noqa: B008 frozen
    run: Run | None = None,
    step: Step = _nightly_step_silently,
    *,
    elr: Elr = "auto",
    timelines: Timelines | None = None,
) -> None:
    """Replay a window under the given rule runs, and update all tables that are derived from a replay.

    The window's days are marked as done at the very end. If the process is killed before that, they stay unmarked, so
    that the command `backfill` replays them again.

    Parameters
    ----------
    lake : Lake
    runs : sequence of RuleRun
        Rules with their parameters.
    window : Window
        Days to replay; all by default.
    run : Run, optional
        The numbers of events read and rows written are added to it after each step, so that the run log records them
        even if a later step fails.
    step : callable
        Called with the name of each step, to show progress (see `Step`).
    elr : {"auto", "off", "on"}
        Whether the clusters use eligible leader replicas: as their logs show (auto), never (off), or all the time (on).
    timelines : {"all", "around-shrinks", "none"}, optional
        Which rows of replica_timeline and partition_timeline to write. By default, all of them, unless there are too
        many events.

    Raises
    ------
    NoInputError
        If the lake has nothing to replay in the window.
    SchemaError
        If a result table was written by another version.
    """
    run = run or Run()
    lake.require(OUTPUT_TABLES)
    with leased(lake) as turn:
        derive_tables(lake)  # an ingest may have been killed before it did this
        with step(f"replay {count_of(len(runs), 'rule')}") as shown:
            summary = replay(lake, runs, window, timelines=timelines)
            counts = RunCounts(summary.rows_in, sum(summary.rows_out.values()))
            run.add(counts)
            shown |= {"rows_read": counts.rows_in, "rows": counts.rows_out, "timelines": summary.timelines}
        with step("compare the rules") as shown:
            lake.ensure_all((RULE_DISAGREEMENTS, ELIGIBLE_LEADERS, RULE_SCORES, RULE_SCORES_BY_BROKER))
            written = write_disagreements(lake, window) + write_eligible_leaders(lake, elr) + write_scores(lake)
            counts = RunCounts(rows_out=written)
            run.add(counts)
            shown |= {"rows": counts.rows_out}
        turn.require()
        summary.days.mark()


def is_replayed(lake: Lake, runs: Sequence[RuleRun], window: Window, command: str, config_hash: str) -> bool:
    """Whether the same command has already replayed all days of a window with these rule runs, with valid results.

    Results are valid if input tables, settings (``config_hash``) and code have not changed since that command. The
    function first updates the tables that are derived from input tables, including the segments (rows of packed
    fetches and appends, from which replays read).
    """
    if not read_columns(lake, REPLAYED_DAYS.name, ["run_id"]).num_rows:
        return False
    with leased(lake):
        derive_tables(lake)
        pack_stale_days(lake)
    run_id = run_of_days(lake, window, runs, fingerprints(lake))
    return run_id is not None and is_still_valid(lake, run_id, command, config_hash)


def stale_days(lake: Lake) -> list[date]:
    """Return, in order, the days whose input has changed since the brokers' own rule was replayed on them.

    The function first updates the lake's segments (rows of packed fetches and appends, from which replays read).
    """
    pack_stale_days(lake)
    known = fingerprints(lake)
    with engine_for(lake, HELD) as engine:
        own = {run.rule for run in own_rules(engine)}
    marks = read_columns(lake, REPLAYED_DAYS.name, ["event_date", "rule", "line"]).to_pylist()
    return sorted({row["event_date"] for row in marks
                   if row["rule"] in own and row["line"] != known.at(row["event_date"])})  # fmt: skip


def maintain_and_pack(lake: Lake, retain_hours: int, state_days: int) -> list[dict[str, object]]:
    """Maintain a lake's tables, and then repack the segments, from which replays read events.

    Segments have to be repacked because maintenance replaces data files of fetches and appends with new ones, and a
    segment is only valid for the files from which it was packed. Parameters and returned rows are those of
    `isr_batch.lake.maintain.maintain_tables`.
    """
    with leased(lake):
        take_out_unnamed(lake)
        tables = maintain_tables(lake, retain_hours, state_days)
        if lake.has("fetch_log") and lake.has("append_log"):
            derive_tables(lake)
            pack_stale_days(lake)
    return tables

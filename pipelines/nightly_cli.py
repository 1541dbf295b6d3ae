"""Commands to run on a schedule: `status` lists days, `backfill` replays pending days, `maintain` compacts tables."""

from typing import TYPE_CHECKING, Annotated

import typer

from isr_batch.rule_names import take_in_rule_file
from isr_batch.window import Window, parse_window
from pipelines.job import (
    Catalog,
    Date,
    EngineOf,
    Env,
    From,
    Json,
    LakePath,
    Quiet,
    RuleFile,
    Rules,
    Set,
    TimelinesOf,
    To,
    open_job,
    recorded_job,
    replay_window_of_job,
    settings_of_job,
    timelines_of_job,
)
from pipelines.output import Output

if TYPE_CHECKING:
    from isr_batch.lake.lake import Lake
    from isr_batch.replay.days import InputFingerprints

COLUMNS = ("event_date", "status", "rules", "replayed_time", "run_id")


def status_command(
    lake: LakePath = None, catalog: Catalog = None, day: Date = None, start: From = None, end: To = None,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """List the days in the lake: those that are replayed, stale (their input changed since), or not replayed yet."""
    window = parse_window(day, start, end)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    from isr_batch.replay.days import days_status as of_days

    job.out.table("Days", of_days(job.lake, window, _fingerprints_of_packed_lake(job.lake)), COLUMNS)


def backfill_command(
    lake: LakePath = None, catalog: Catalog = None, rules: Rules = None, params: Set = None,
    rule_file: RuleFile = None, start: From = None, end: To = None, timelines: TimelinesOf = None,
    engine: EngineOf = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Replay all pending and stale days, one after the other. An interrupted backfill keeps finished days."""
    take_in_rule_file(rule_file)
    window, wanted = parse_window(None, start, end), timelines_of_job(timelines)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, rules, params, engine), lake, catalog)
    from isr_batch.replay.days import days_status as of_days
    from isr_batch.replay.days import undone_days
    from isr_batch.replay.replay import rule_runs

    runs = rule_runs(job.settings.replay)
    with recorded_job(job, "backfill", window) as done:
        # The list is computed again after each day, because its replay may show that the next day is not stale.
        while days := undone_days(job.lake, window, runs, _fingerprints_of_packed_lake(job.lake)):
            job.out.progress(f"{days[0]}: {len(days)} days to go")
            replay_window_of_job(job, done, Window.of_day(days[0]), runs, timelines=wanted)
        job.out.table("Days", of_days(job.lake, window, _fingerprints_of_packed_lake(job.lake)), COLUMNS)


def maintain_command(
    retain_hours: Annotated[
        int, typer.Option(metavar="HOURS", min=168, help="Hours for which replaced files are kept.")
    ] = 168,
    state_days: Annotated[
        int, typer.Option(metavar="DAYS", min=1, help="Number of latest days from which replays can continue.")
    ] = 14,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Compact the tables; delete unreferenced files, and old saved states from which a replay could continue."""
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    from isr_batch.nightly import maintain_and_pack

    with recorded_job(job, "maintain"):
        with job.out.step("maintain"):
            tables = maintain_and_pack(job.lake, retain_hours, state_days)
        job.out.table("Tables", tables, ("table", "files_before", "files_after", "bytes"))


def _fingerprints_of_packed_lake(lake: "Lake") -> "InputFingerprints":
    """Pack the days whose input has changed, and return a fingerprint (hash) of each day's input."""
    from isr_batch.replay.days import fingerprints
    from isr_batch.replay.packing import pack_stale_days

    pack_stale_days(lake)
    return fingerprints(lake)

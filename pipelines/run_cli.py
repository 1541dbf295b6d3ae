"""`isr-batch run`, which ingests, replays, compares and reports, and those of its steps that other commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_batch.errors import UsageError
from isr_batch.lake.addresses import is_address
from isr_batch.phrases import count_of
from isr_batch.rule_names import take_in_rule_file
from isr_batch.shipped_files import shipped
from isr_batch.window import Window, parse_window
from pipelines.evidence_cli import run_evidence_command
from pipelines.ingest_cli import (
    find_logs_of_command,
    ingest_logs_of_command,
    ingest_table_of_command,
    say_nothing_to_replay,
    show_warnings,
    table_of_command,
)
from pipelines.job import (
    Catalog,
    Cluster,
    DisplayZone,
    EngineOf,
    Env,
    From,
    Job,
    Json,
    LakePath,
    Quiet,
    Release,
    RuleFile,
    Rules,
    Set,
    StampFormat,
    TimelinesOf,
    TimeZone,
    To,
    open_job,
    recorded_job,
    replay_window_of_job,
    require_lake_of_job,
    settings_of_job,
    show_zone_of_job,
    timelines_of_job,
)
from pipelines.output import Output

if TYPE_CHECKING:  # help and small commands should not wait for Spark, so commands import it where they need it
    from collections.abc import Mapping, Sequence

    from isr_batch.incidents.own_shrinks import OwnShrinks
    from isr_batch.lake.run_log import Run
    from isr_batch.lake.tables.timelines import Timelines
    from isr_batch.scoring.broker_check import BrokerCheckSummary
    from isr_batch.scoring.scores import Rows

SAMPLES = "isr-batch-samples"
LEDGER_COLUMNS = (
    "rule", "T", "shrinks", "spurious", "precision", "detection_ms_p99", "mistake_duration_ms_p50", "query_accuracy",
    "under_min_isr_seconds", "high_watermark_stalled_seconds", "loss_records_max",
)  # fmt: skip
CAUSE_COLUMNS = (
    "rule", "T", "params_json", "shrinks", "spurious", "genuine", "excluded", "unknown",
    "caught_up", "keeping_pace", "slow_leader", "unacked_only",
)  # fmt: skip
MATCH_COLUMNS = (
    "cluster_id", "kind", "leader_id", "matched", "missing", "extra", "unknown", "of_observers", "races",
    "within_100_ms", "caught_up_within_1_ms", "caught_up_within_2_ms", "offsets_equal",
)  # fmt: skip


def compare_job_with_brokers(job: Job, done: "Run") -> "BrokerCheckSummary":
    """Compare the replay with the ISR changes that the brokers logged, and show progress."""
    from isr_batch.lake.run_log import RunCounts
    from isr_batch.scoring.broker_check import validate

    with job.out.step("compare with the brokers") as facts:
        summary = validate(job.lake)
        facts |= {"changes": sum(row["matched"] + row["missing"] + row["extra"] for row in summary.rows)}
        done.add(RunCounts(rows_out=facts["changes"]))
        return summary


def look_for_late_checks_of_job(job: Job) -> int:
    """Find ISR checks that leaders made late, store them in the lake, and show progress.

    Returns
    -------
    int
        Number of late checks that the lake did not contain before.
    """
    from isr_batch.scoring.late_checks import find_late_checks

    with job.out.step("look for checks that came late") as facts:
        facts["late_checks"] = find_late_checks(job.lake)
        return int(facts["late_checks"])


def write_report_of_job(
    job: Job, file: Path, own: "OwnShrinks | None" = None, warnings: "Mapping[str, Sequence[str]] | None" = None
) -> None:
    """Write the report on a job's lake, and show progress. See `isr_batch.report.write_report` for the parameters."""
    from isr_batch.report import write_report

    with job.out.step(f"write {file}"):
        write_report(job.lake, file, own, warnings)


def _answer_and_report(job: Job, file: Path, warnings: "Mapping[str, list[str]]") -> None:
    """Write the report, and print the answer (`isr_batch.report.answer`) and those warnings that it does not contain.

    Parameters
    ----------
    job : Job
    file : Path
        HTML report to write.
    warnings : mapping of str to list of str
        Warnings about each cluster, by its name.
    """
    from isr_batch.incidents.sentences import cluster_headline
    from isr_batch.report.answer import answer_of
    from isr_batch.shown_times import zone_note

    answer = answer_of(job.lake)
    write_report_of_job(job, file, answer.own, warnings)
    if job.out.as_json:
        for cluster in answer.own.clusters:
            name = cluster["cluster_id"]
            more = (*answer.better[name], *answer.by_lines.get(name, ()))
            said = [*cluster_headline(answer.own, cluster), *more]
            job.out.say(cluster=name, answer=said, warnings=warnings.get(name, []))
    else:
        job.out.text([*zone_note(), *answer.lines])
        stated = " ".join(answer.lines)
        for name, of_cluster in warnings.items():
            show_warnings(job.out, name, [said for said in of_cluster if said not in stated])


def rules_of_job(job: Job) -> "Rows":
    """Compute the numbers of shrinks, the scores and the costs of each rule run over the whole lake."""
    from isr_batch.scoring.scores import rules_side_by_side

    with job.out.step("compare the rules"):
        return rules_side_by_side(job.lake)


def show_rules(job: Job, rows: "Rows") -> None:
    """Print two tables with a row per rule run: its shrinks by verdict and cause, and its scores and costs."""
    # Parameters are only printed with --json, or if a rule has several rows with the same lag time.
    all_params = job.out.as_json or len({(row["rule"], row["T"]) for row in rows}) < len(rows)
    columns = [name for name in CAUSE_COLUMNS if all_params or name != "params_json"]
    job.out.table("Shrinks by rule, and the causes of the spurious ones", rows, columns)
    job.out.table("Scores and costs of each rule", rows, LEDGER_COLUMNS)


def show_match_of_job(job: Job, summary: "BrokerCheckSummary") -> None:
    """Print how many ISR changes are in the replay and in the brokers' logs, or only in one, by leader and kind."""
    job.out.table("ISR changes of the replay and of the brokers", summary.rows, MATCH_COLUMNS)


def match_sentence(summary: "BrokerCheckSummary", least: float) -> str:
    """Say how many ISR changes replay and brokers agree on, and whether to trust the verdicts.

    The verdicts can be trusted if at least the share ``least`` (0 to 1) of the changes agrees.
    """
    changes = sum(row["matched"] + row["missing"] + row["extra"] for row in summary.rows)
    if not changes:
        other = "other " if summary.of_observers else ""
        return f"The brokers logged no {other}ISR change, and the replay makes none: there is nothing to compare."
    share = f"{summary.matched:,} of {count_of(changes, 'ISR change')}"
    if summary.matched_ratio >= least:
        return f"The replay agrees with the brokers on {share}: the verdicts can be trusted."
    return (
        f"The replay agrees with the brokers on only {share}, and the limit is {least:.0%}: do not trust the verdicts."
    )


def run_command(
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--logs",
            metavar="DIR|-|NAME=FILE",
            help="Folder or address that contains a folder of logs per broker; for several clusters, a folder per "
            "cluster with such folders; or named streams.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Your own table of fetches, instead of logs; needs --mapping.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="YAML file that maps the table's columns.")
    ] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help=f"Use the sample logs; --lake is by default {SAMPLES}.")
    ] = False,
    lake: LakePath = None, catalog: Catalog = None, cluster: Cluster = None, release: Release = None,
    stamp_format: StampFormat = None, time_zone: TimeZone = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.html", help="Report to write; by default report.html in the lake's folder."
        ),
    ] = None,
    engine: EngineOf = None,
    rules: Rules = None, params: Set = None, rule_file: RuleFile = None, start: From = None, end: To = None,
    timelines: TimelinesOf = None, display_zone: DisplayZone = None,
    env: Env = None,
    show_all: Annotated[bool, typer.Option("--all", help="Also print tables of logs, lines and rules.")] = False,
    quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ingest logs, replay them, compare with the brokers, and report; without fetches, report what server.log shows.

    --from and --to choose the days that are replayed. All logs are ingested.
    """
    show_zone_of_job(display_zone)
    take_in_rule_file(rule_file)
    window = parse_window(None, start, end)
    out = Output(quiet=quiet, as_json=as_json, brief=not show_all)
    settings, wanted = settings_of_job(env, rules, params, engine), timelines_of_job(timelines)
    if samples and not logs and tables is None:
        logs, lake = [str(shipped("data/samples"))], lake or (None if catalog else SAMPLES)
    elif samples or (not logs) == (tables is None) or (tables is None) != (mapping is None):
        raise UsageError("nothing to replay", "give --logs DIR, or --table TABLE and --mapping FILE, or --samples")
    require_lake_of_job(lake, catalog, new=True)
    command = f"run --timelines {wanted}" if wanted else "run"
    file = file or Path(lake if lake and not is_address(lake) else "") / "report.html"
    if tables is not None and mapping is not None:
        if release or stamp_format or time_zone:
            raise UsageError("--release, --stamp-format and --time-zone apply to logs", "set these in the mapping")
        table = table_of_command(tables, mapping, cluster, window)
        job = open_job(out, settings, lake, catalog, new=True)
        with recorded_job(job, command) as done:
            ingest_table_of_command(job, done, table)
            from isr_batch.scoring.broker_check import can_be_compared

            _replay_and_report(job, done, command, file, window, wanted, {}, comparable=can_be_compared(job.lake))
        return
    from isr_batch.ingest.folder.given_logs import given_logs

    with given_logs(logs or []) as folder:
        found = find_logs_of_command(folder, cluster, release, stamp_format, time_zone)
        missing = say_nothing_to_replay(logs or [], found)
        job = open_job(out, settings, lake, catalog, logs=folder, new=True)
        if missing:
            run_evidence_command(job, found, file, missing)
            return
        with recorded_job(job, command) as done:
            ingest_logs_of_command(job, done, found)
            _replay_and_report(job, done, command, file, window, wanted, found.warnings(job.lake), comparable=True)


def _replay_and_report(
    job: Job, done: "Run", command: str, file: Path, window: Window, timelines: "Timelines | None",
    warnings: "Mapping[str, list[str]]", *, comparable: bool,
) -> None:  # fmt: skip
    """Replay unless the results are up to date, compare with the brokers if ``comparable``, and write the report.

    ``warnings`` are sentences for the report, by cluster.
    """
    from isr_batch.nightly import is_replayed
    from isr_batch.replay.replay import rule_runs
    from isr_batch.scoring.broker_check import require_match

    runs = rule_runs(job.settings.replay)
    if is_replayed(job.lake, runs, window, command, job.settings.hash):
        job.out.progress("nothing has changed since the last run: its results are shown")
    else:
        replay_window_of_job(job, done, window, runs, timelines=timelines)
        if comparable and look_for_late_checks_of_job(job):
            replay_window_of_job(job, done, window, runs, timelines=timelines)
    matches = compare_job_with_brokers(job, done) if comparable else None
    if not job.out.brief:
        show_rules(job, rules_of_job(job))
        if matches:
            show_match_of_job(job, matches)
    _answer_and_report(job, file, warnings)
    job.out.say(tables=job.lake.root, report=file, run=job.lake.run_id)
    if matches:
        require_match(matches, job.settings.validation.min_matched_ratio)

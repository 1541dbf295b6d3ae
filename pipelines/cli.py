"""The command line `isr-batch`: all commands, and the function that runs them and sets the exit code."""

import sys
import traceback
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperArgument, TyperOption

from isr_batch.errors import BUG_EXIT_CODE, UsageError, explained_error
from isr_batch.rule_names import require_rule_names, take_in_rule_file
from isr_batch.window import parse_window
from pipelines.anonymize_cli import anonymize_command
from pipelines.completion import complete_rule
from pipelines.explain_cli import explain_command
from pipelines.export_cli import export_app
from pipelines.ingest_cli import (
    ingest_app,
    look_command,
)
from pipelines.job import (
    Catalog,
    Date,
    DisplayZone,
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
    show_zone_of_job,
    timelines_of_job,
)
from pipelines.kip_cli import kip_command
from pipelines.nightly_cli import backfill_command, maintain_command, status_command
from pipelines.output import Output
from pipelines.rules_cli import rules_app
from pipelines.run_cli import (
    MATCH_COLUMNS,
    compare_job_with_brokers,
    look_for_late_checks_of_job,
    match_sentence,
    rules_of_job,
    run_command,
    show_match_of_job,
    show_rules,
    write_report_of_job,
)
from pipelines.signals import ended_by_signals
from pipelines.sweep_cli import sweep_command
from pipelines.timeline_cli import timeline_command


def _show_version(asked: bool) -> None:  # noqa: FBT001
    """If ``--version`` is given, print the version and end the command."""
    if asked:
        from importlib.metadata import version

        Output().text([f"isr-batch {version('isr-batch')}"])
        raise typer.Exit


def _value_in_help(option: TyperArgument | TyperOption, ctx: typer.Context) -> str | None:
    """Return the placeholder for an option's value on help pages. Typer's own would be a type like ``<int range>``."""
    if isinstance(option, TyperArgument):
        return ""
    if option.metavar or option.is_flag:
        return option.metavar
    if option.type_descriptor.is_choice:
        return option.display_type(ctx).strip("<>")
    return option.opts[0].strip("-").upper()


TyperOption.display_type_rich = TyperArgument.display_type_rich = _value_in_help  # type: ignore[method-assign,assignment]

app = typer.Typer(
    name="isr-batch",
    epilog="Example: isr-batch run --logs data/samples --lake build/lake",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Replay Kafka followers' fetches through every ISR rule, and say which ISR shrinks were spurious."""


config_app = typer.Typer(no_args_is_help=True, help="Show the settings.")
app.command("run", epilog="Example: isr-batch run --logs data/samples --lake build/lake")(run_command)
app.add_typer(ingest_app, name="ingest")
app.command("look", epilog="Example: isr-batch look data/samples")(look_command)
app.command("anonymize", epilog="Example: isr-batch anonymize logs copy")(anonymize_command)
app.add_typer(rules_app, name="rules")
app.add_typer(config_app, name="config")
app.add_typer(export_app, name="export")


@app.command("generate", epilog="Example: isr-batch generate paused-follower --partitions 20 --lake build/generated")
def generate_command(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="Name of a scenario; an unknown name lists all.")],
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions, if the scenario is a fleet (many groups of brokers).")
    ] = 100,
    hours: Annotated[float, typer.Option(min=0.01, help="Hours to simulate.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 1,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Rule of the simulated brokers; by default kafka-3.7. Each of several (a,b) gets its own cluster."
        ),
    ] = None,
    rule_file: RuleFile = None,
    idle_share: Annotated[float, typer.Option(metavar="SHARE", min=0, max=1, help="Share of idle partitions.")] = 0.4,
    busiest_rate: Annotated[
        float,
        typer.Option(
            metavar="RATE", min=0.001, max=10_000, help="Produce requests per second of the busiest partition."
        ),
    ] = 20,
    records: Annotated[int, typer.Option(min=1, help="Records per produce request.")] = 10,
    acks_all_share: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="Share of partitions whose producers use acks=all.")
    ] = 0.5,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Simulate a scenario, and write its fetches and appends to a lake, as if they came from a cluster's logs.

    The cluster gets the scenario's name. With several rules, there is a cluster SCENARIO.RULE for each.
    """
    take_in_rule_file(rule_file)
    rules = list(dict.fromkeys(name.strip() for name in rule.split(","))) if rule is not None else [None]
    require_rule_names(*(name for name in rules if name is not None))
    from isr_batch.simulation.generate_scenario import generate_scenario
    from isr_batch.simulation.group_plans import FleetOfGroups

    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog, new=True)
    with recorded_job(job, "generate") as done:
        for name in rules:
            fleet = FleetOfGroups(
                scenario, partitions, hours, seed, name, idle_share, busiest_rate, records, acks_all_share
            )
            cluster_id = f"{scenario}.{name}" if len(rules) > 1 else scenario
            with job.out.step(f"generate {cluster_id}") as facts:
                counts = generate_scenario(job.lake, fleet, cluster_id)
                done.add(counts)
                facts |= {"rows": counts.rows_out}


@app.command(
    "experiment", epilog="Example: isr-batch experiment conf/experiments/kip-501-example.yaml --lake build/stories"
)
def experiment_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.yaml...", help="Files with scenario, rules, grid.")],
    rule_file: RuleFile = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Simulate the scenario in each file under each of its rules and parameter sets, and print the outcomes."""
    take_in_rule_file(rule_file)
    from isr_batch.simulation.experiments import experiment_outcome, load_experiment, run_experiment

    experiments = {file.stem: load_experiment(file) for file in files}
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog, new=True)
    with recorded_job(job, "experiment"):
        for name, given in experiments.items():
            with job.out.step(f"experiment {name}"):
                rows = run_experiment(job.lake, name, given)
            shown = [
                {"rule": row["rule"], "seed": row["seed"], "outcome": experiment_outcome(given, row)} for row in rows
            ]
            job.out.table(name, shown, ("rule", "seed", "outcome"))


@app.command(
    "replay", epilog="Example: isr-batch replay --lake build/lake --rules kafka-3.7,true-lag --date 2026-11-21"
)
def replay_command(
    lake: LakePath = None, catalog: Catalog = None, rules: Rules = None, params: Set = None,
    grid: Annotated[
        Path | None,
        typer.Option("--grid", metavar="FILE.yaml", exists=True, help="File with rules and parameters."),
    ] = None,
    rule_file: RuleFile = None,
    day: Date = None, start: From = None, end: To = None, timelines: TimelinesOf = None,
    engine: EngineOf = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Replay the lake's fetches and appends through the rules, and judge the shrinks that each rule makes."""
    take_in_rule_file(rule_file)
    window, wanted = parse_window(day, start, end), timelines_of_job(timelines)
    runs = None
    if grid:
        from isr_batch.scoring.sweep_grid import load_grid

        if rules or params:
            raise UsageError("--grid sets rules and parameters", "omit --rules and --set")
        runs = load_grid(grid).runs
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, rules, params, engine), lake, catalog)
    with recorded_job(job, "replay", window) as done:
        replay_window_of_job(job, done, window, runs, timelines=wanted)
        show_rules(job, rules_of_job(job))


app.command("backfill", epilog="Example: isr-batch backfill --lake build/lake --from 2026-11-20")(backfill_command)
app.command("status", epilog="Example: isr-batch status --lake build/lake")(status_command)
app.command("maintain", epilog="Example: isr-batch maintain --lake build/lake")(maintain_command)
app.command(
    "sweep", epilog="Example: isr-batch sweep --lake build/lake --grid conf/grids/lag-times.yaml --out sweep.html"
)(sweep_command)


@app.command("validate", epilog="Example: isr-batch validate --lake build/lake")
def validate_command(
    lake: LakePath = None, catalog: Catalog = None,
    without_pins: Annotated[
        bool, typer.Option("--without-pins", help="Also compare a replay that ignores the times of logged changes.")
    ] = False,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Compare the replay of the brokers' own rule with the ISR changes that the brokers logged."""
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    from isr_batch.lake.observers import sentences_on_observers
    from isr_batch.nightly import stale_days
    from isr_batch.phrases import count_of
    from isr_batch.scoring.broker_check import predict_broker_changes, require_match

    with recorded_job(job, "validate") as done:
        late, least = look_for_late_checks_of_job(job), job.settings.validation.min_matched_ratio
        matches = compare_job_with_brokers(job, done)
        show_match_of_job(job, matches)
        if without_pins:
            with job.out.step("replay without pins"):
                predicted = predict_broker_changes(job.lake)
            job.out.table("The same without times taken from logged changes", predicted.rows, MATCH_COLUMNS)
        too_few = matches.matched_ratio < least
        stale = stale_days(job.lake) if late or too_few else []
        if stale:
            job.out.progress(
                f"{count_of(len(stale), 'stale day')}, such as {stale[0]}: checks ran late, or logs came later. "
                "`isr-batch backfill` replays them, then `isr-batch validate` compares again"
            )
        if stale and too_few:  # stale days explain the bad match, and replaying them may improve it
            return
        if not job.out.as_json:
            job.out.text([*sentences_on_observers(matches.of_observers), match_sentence(matches, least)])
        require_match(matches, least)


@app.command("report", epilog="Example: isr-batch report --lake build/lake --out report.html")
def report_command(
    file: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="HTML page to write.")],
    display_zone: DisplayZone = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Write the report on a replayed lake as one self-contained HTML page."""
    show_zone_of_job(display_zone)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    with recorded_job(job, "report", writes=False):
        write_report_of_job(job, file)


@app.command("sql", epilog='Example: isr-batch sql --lake build/lake "SELECT * FROM worst_partitions LIMIT 5"')
def sql_command(
    query: Annotated[str, typer.Argument(metavar="SELECT", help="Query in DuckDB's SQL (--engine spark: Spark's).")],
    unrestricted: Annotated[bool, typer.Option("--unrestricted", help="Allow any Spark SQL statement.")] = False,
    engine: EngineOf = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Run an SQL query on the lake's tables and views, and print the result."""
    if not query.strip():
        raise UsageError("the query is empty", 'write one, such as "SELECT * FROM spurious_shrinks"')
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, engine=engine), lake, catalog)
    from isr_batch.lake.user_sql import answer

    rows, columns = answer(job.lake, query, unrestricted=unrestricted)
    job.out.table("", rows, columns)


@app.command("views", epilog="Example: isr-batch views --lake build/lake --format duckdb")
def views_command(
    form: Annotated[Literal["spark", "duckdb"], typer.Option("--format", help="SQL dialect.")] = "spark",
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Print SQL statements that define the lake's tables and views, to run in a Spark or DuckDB session."""
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.lake.view_statements import view_statements

    job.out.text("\n".join(f"{statement};\n" for statement in view_statements(job.lake, form)).splitlines())


@app.command("compare", epilog="Example: isr-batch compare kafka-3.7 kip-501-pending --lake build/lake")
def compare_command(
    first: Annotated[str, typer.Argument(metavar="A", autocompletion=complete_rule, help="First rule.")],
    second: Annotated[str, typer.Argument(metavar="B", autocompletion=complete_rule, help="Second rule.")],
    rule_file: RuleFile = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Count by primary cause the shrinks that only the first rule makes, only the second makes, or both make."""
    take_in_rule_file(rule_file)
    require_rule_names(first, second)
    from isr_batch.scoring.disagreements import COMPARED, compare_rules

    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    rows = compare_rules(job.lake, first, second)
    job.out.table(f"Shrinks of a: {first}, b: {second}, and of both by either's cause", rows, ("cause", *COMPARED))


app.command("kip", epilog="Example: isr-batch kip kafka-3.7 kip-501-pending --lake build/lake --out page.md")(
    kip_command
)


app.command(
    "explain", epilog="Example: isr-batch explain --topic busy --partition 0 --at 2026-11-21T16:31:54 --lake build/lake"
)(explain_command)


app.command(
    "timeline", epilog="Example: isr-batch timeline --topic busy --partition 0 --rules kafka-3.7 --lake build/lake"
)(timeline_command)


@config_app.command("show", epilog="Example: isr-batch config show --set kafka-3.7.replica_lag_time_max_ms=10000")
def show_config_command(
    env: Env = None, rules: Rules = None, params: Set = None, rule_file: RuleFile = None, as_json: Json = False
) -> None:
    """Print the settings that a command with these options would use, and their hash."""
    take_in_rule_file(rule_file)
    import yaml

    settings = settings_of_job(env, rules, params)
    out = Output(as_json=as_json)
    if as_json:
        out.say(**settings.model_dump(), hash=settings.hash)
    else:
        out.text([*yaml.safe_dump(settings.model_dump(), sort_keys=False).splitlines(), f"# hash {settings.hash}"])


@app.command("doctor", epilog="Example: isr-batch doctor")
def doctor_command(env: Env = None, as_json: Json = False) -> None:
    """Check that this machine has what the commands need, and say what to do if it does not."""
    from isr_batch.doctor import examine_machine, require_healthy_machine

    checks = examine_machine(settings_of_job(env))
    Output(as_json=as_json).table("", [check.as_row() for check in checks], ("check", "ok", "found", "what_to_do"))
    require_healthy_machine(checks)


def main(args: list[str] | None = None) -> None:
    """Run the command line, and exit with its exit code.

    Parameters
    ----------
    args : list of str, optional
        Command and options; by default those of the process.
    """
    out = Output(as_json="--json" in (args := sys.argv[1:] if args is None else args))
    try:
        with ended_by_signals(out):
            app(args=args, prog_name="isr-batch")
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 (nothing is swallowed; some errors of delta-rs are not an Exception)
        if known := explained_error(error):
            out.error(known.message, known.hint, known.exit_code)
            sys.exit(known.exit_code)
        out.error(traceback.format_exc(), "this is a bug: please report it with the text above", BUG_EXIT_CODE)
        sys.exit(BUG_EXIT_CODE)


if __name__ == "__main__":
    main()

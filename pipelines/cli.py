"""The command line `isr-batch`: options to settings, settings to functions of the library, outcome to an exit code."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isr_batch.errors import BUG_EXIT_CODE, IsrBatchError, UsageError
from isr_batch.settings import Settings, did_you_mean, load_settings, parse_params
from isr_batch.window import Window, parse_window
from pipelines.output import Output

if TYPE_CHECKING:  # help and small commands should not wait for Spark, so commands import it where they need it
    from isr_batch.runs import Run
    from isr_batch.store import Lake
    from isr_batch.validate import ValidationSummary

app = typer.Typer(
    name="isr-batch",
    help="Replay Kafka fetch logs through every ISR rule, and say which shrinks were spurious.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ingest_app = typer.Typer(no_args_is_help=True, help="Read logs into a lake.")
rules_app = typer.Typer(no_args_is_help=True, help="Which rules there are, and what they mean.")
config_app = typer.Typer(no_args_is_help=True, help="What is set.")
app.add_typer(ingest_app, name="ingest")
app.add_typer(rules_app, name="rules")
app.add_typer(config_app, name="config")

LakePath = Annotated[str | None, typer.Option("--lake", help="Folder or URI of the Delta tables.", show_default=False)]
Catalog = Annotated[str | None, typer.Option("--catalog", metavar="CAT.SCHEMA", help="Instead of --lake.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, results only.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines for programs.")]
Env = Annotated[str | None, typer.Option("--env", help="Take conf/<env>.yaml as well.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="RULE.PARAM=VALUE", help="A rule's parameter.")]
Rules = Annotated[str | None, typer.Option("--rules", help="all, or names between commas.")]
Logs = Annotated[Path, typer.Option("--logs", help="A folder per broker, or per cluster with those.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Name for the cluster; by default the folder's.")]
Date = Annotated[str | None, typer.Option("--date", help="One UTC day.")]
From = Annotated[str | None, typer.Option("--from", help="First UTC day.")]
To = Annotated[str | None, typer.Option("--to", help="The day after the last one.")]

LEDGER_COLUMNS = (
    "rule", "T", "shrinks", "spurious", "precision", "detection_ms_p99", "mistake_duration_ms_p50", "query_accuracy",
    "under_min_isr_seconds", "high_watermark_stalled_seconds", "loss_records_max",
)  # fmt: skip
CAUSE_COLUMNS = (
    "rule", "params_json", "shrinks", "spurious", "genuine", "excluded", "unknown",
    "caught_up", "keeping_pace", "slow_leader", "unacked_only",
)  # fmt: skip
MATCH_COLUMNS = (
    "cluster_id", "kind", "leader_id", "matched", "missing", "extra", "races", "within_100_ms",
    "caught_up_within_1_ms", "caught_up_within_2_ms", "offsets_equal",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What a command that works on a lake has at hand."""

    out: Output
    settings: Settings
    lake: "Lake"


def _settings(env: str | None, rules: str | None = None, params: list[str] | None = None) -> Settings:
    replay: dict[str, Any] = {}
    if rules is not None:
        replay["rules"] = rules
    if params:
        replay["params"] = parse_params(params)
    return load_settings(env, {"replay": replay} if replay else {})


def _open(out: Output, settings: Settings, lake: str | None, catalog: str | None) -> Job:
    if (lake is None) == (catalog is None):
        raise UsageError("the tables are in a folder or in a catalog", "give --lake FOLDER or --catalog CAT.SCHEMA")
    with out.step("start Spark"):
        from isr_batch.runs import new_run_id
        from isr_batch.session import start_session
        from isr_batch.store import Lake

        spark = start_session(settings.spark)
    return Job(out, settings, Lake(spark, lake or catalog or "", new_run_id(), catalog=catalog is not None))


@contextmanager
def _recorded(job: Job, command: str, window: Window | None = None) -> "Iterator[Run]":
    from isr_batch.runs import recorded

    with recorded(job.lake, command, str(window) if window else None, job.settings.hash) as run:
        yield run


def _ingest(job: Job, done: "Run", folder: Path, cluster: str | None) -> None:
    from isr_batch.ingest import find_clusters, ingest_kafka_logs, require_clean

    for name, logs in find_clusters(folder, cluster).items():
        with job.out.step(f"ingest {logs}") as facts:
            counts = ingest_kafka_logs(job.lake, logs, name)
            done.add(counts)
            facts |= {"lines": counts.rows_in, "rows": counts.rows_out, "quarantined": counts.rows_quarantined}
        require_clean(counts, job.settings.ingest.max_quarantine_ratio)


def _replay(job: Job, done: "Run", window: Window) -> None:
    from isr_batch.replay import replay, rule_runs
    from isr_batch.runs import Counts

    rules = rule_runs(job.settings.replay)
    with job.out.step(f"replay {len(rules)} rules") as facts:
        summary = replay(job.lake, rules, window)
        counts = Counts(summary.rows_in, sum(summary.rows_out.values()))
        done.add(counts)
        facts |= {"rows_read": counts.rows_in, "rows": counts.rows_out}


def _validate(job: Job, done: "Run") -> "ValidationSummary":
    from isr_batch.runs import Counts
    from isr_batch.validate import validate

    with job.out.step("compare with the brokers") as facts:
        summary = validate(job.lake)
        facts |= {"changes": sum(row["matched"] + row["missing"] + row["extra"] for row in summary.rows)}
        done.add(Counts(rows_out=facts["changes"]))
        return summary


def _report(job: Job, file: Path) -> None:
    from isr_batch.report import write_report

    with job.out.step(f"write {file}"):
        write_report(job.lake, file)


def _show_rules(job: Job) -> None:
    from isr_batch.summaries import rules_side_by_side

    rows = rules_side_by_side(job.lake)
    job.out.table("Shrinks by rule, and the causes of the spurious ones", rows, CAUSE_COLUMNS)
    job.out.table("What each rule got right, and what it cost", rows, LEDGER_COLUMNS)


def _show_match(job: Job, summary: "ValidationSummary") -> None:
    job.out.table("ISR changes of the replay beside those of the brokers", summary.rows, MATCH_COLUMNS)


@app.command()
def run(
    logs: Logs, lake: LakePath = None, catalog: Catalog = None, cluster: Cluster = None, file: Annotated[
        Path | None, typer.Option("--out", help="The report; by default report.html in a lake that is a folder.")
    ] = None,
    rules: Rules = None, params: Set = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ingest, replay, validate, report in one go."""
    from isr_batch.summaries import require_match

    out = Output(quiet=quiet, as_json=as_json)
    job = _open(out, _settings(env, rules, params), lake, catalog)
    file = file or Path(lake if lake and "://" not in lake else "") / "report.html"
    with _recorded(job, "run") as done:
        _ingest(job, done, logs, cluster)
        _replay(job, done, Window())
        matches = _validate(job, done)
        _report(job, file)
        _show_rules(job)
        _show_match(job, matches)
        out.say(tables=job.lake.root, report=file, run=job.lake.run_id)
        require_match(matches, job.settings.validation.min_matched_ratio)


@ingest_app.command("kafka-logs")
def ingest_kafka_logs_command(
    logs: Annotated[Path, typer.Argument(metavar="DIR", help="A folder per broker, or per cluster with those.")],
    lake: LakePath = None, catalog: Catalog = None, cluster: Cluster = None,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Read the request, server and state-change logs of brokers."""
    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env), lake, catalog)
    with _recorded(job, "ingest") as done:
        _ingest(job, done, logs, cluster)


@app.command()
def generate(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A name; a wrong one tells which there are.")],
    partitions: Annotated[int, typer.Option(min=1, help="Of a fleet.")] = 100,
    minutes: Annotated[int, typer.Option(min=1, help="Of a fleet's life.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="The same gives the same.")] = 1,
    rule: Annotated[str | None, typer.Option(help="In the loop; by default what runs today.")] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Write a log with a known story, as a cluster of that name, in place of an ingest."""
    from isr_batch.generate import generate as write_scenario
    from isr_batch.scenarios.plans import Fleet
    from udfs.rules import REGISTRY

    if rule is not None and rule not in REGISTRY:
        raise UsageError(f"no rule {rule}", did_you_mean(rule, REGISTRY))
    fleet = Fleet(scenario, partitions, minutes, seed, rule)
    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env), lake, catalog)
    with _recorded(job, "generate") as done, job.out.step(f"generate {scenario}") as facts:
        counts = write_scenario(job.lake, fleet)
        done.add(counts)
        facts |= {"rows": counts.rows_out}


@app.command()
def replay(
    lake: LakePath = None, catalog: Catalog = None, rules: Rules = None, params: Set = None,
    day: Date = None, start: From = None, end: To = None,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Replay the lake's fetches through the rules, and judge their shrinks."""
    window = parse_window(day, start, end)
    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env, rules, params), lake, catalog)
    with _recorded(job, "replay", window) as done:
        _replay(job, done, window)
        _show_rules(job)


@app.command()
def validate(
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Compare the replay of the rule that the brokers ran with what they logged."""
    from isr_batch.summaries import require_match

    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env), lake, catalog)
    with _recorded(job, "validate") as done:
        matches = _validate(job, done)
        _show_match(job, matches)
        require_match(matches, job.settings.validation.min_matched_ratio)


@app.command()
def report(
    file: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The page to write.")],
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Write one self-contained page."""
    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env), lake, catalog)
    with _recorded(job, "report"):
        _report(job, file)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT", help="Tables and views by bare name.")],
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ask the lake."""
    job = _open(Output(quiet=quiet, as_json=as_json), _settings(env), lake, catalog)
    rows, columns = job.lake.query(query)
    job.out.table("", rows, columns)


@rules_app.command("list")
def list_rules(as_json: Json = False) -> None:
    """Show every rule in a line."""
    from udfs.rules import REGISTRY

    rows = [{"rule": rule.id, "in_force": rule.in_force, "what_it_says": rule.summary} for rule in REGISTRY.values()]
    Output(as_json=as_json).table("", rows, ("rule", "in_force", "what_it_says"))


@rules_app.command("show")
def show_rule(name: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Tell a rule's story and its parameters."""
    from udfs.rules import COMMON_PARAMS, REGISTRY

    if name not in REGISTRY:
        raise UsageError(f"no rule {name}", did_you_mean(name, REGISTRY))
    rule = REGISTRY[name]
    out = Output(as_json=as_json)
    params = [
        {
            "parameter": name,
            "default": "" if param.default is None else param.name_of(param.default),
            "what": param.says,
        }
        for name, param in {**rule.params, **COMMON_PARAMS}.items()
    ]
    if as_json:
        out.say(rule=rule.id, in_force=rule.in_force, source=rule.source, params=params, doc=rule.doc)
        return
    out.text(rule.doc + "\n")
    out.say(in_force=rule.in_force, source=rule.source)
    out.table("", params, ("parameter", "default", "what"))


@config_app.command("show")
def show_config(env: Env = None, rules: Rules = None, params: Set = None, as_json: Json = False) -> None:
    """Print the settings in force and their hash."""
    import yaml

    settings = _settings(env, rules, params)
    out = Output(as_json=as_json)
    if as_json:
        out.say(**settings.model_dump(), hash=settings.hash)
    else:
        out.text(f"{yaml.safe_dump(settings.model_dump(), sort_keys=False)}# hash {settings.hash}")


@app.command()
def doctor(env: Env = None, as_json: Json = False) -> None:
    """Say what is wrong with this machine."""
    from isr_batch.doctor import examine, require_healthy

    checks = examine(load_settings(env))
    Output(as_json=as_json).table("", [check.as_row() for check in checks], ("check", "ok", "found", "what_to_do"))
    require_healthy(checks)


def main(args: list[str] | None = None) -> None:
    """Run a command and exit with its code."""
    args = sys.argv[1:] if args is None else args
    out = Output(as_json="--json" in args)
    try:
        app(args=args, prog_name="isr-batch")
    except IsrBatchError as error:
        out.error(error.message, error.hint, error.exit_code)
        sys.exit(error.exit_code)
    except Exception:  # noqa: BLE001 (nothing is swallowed: it is told in full, with an exit code of its own)
        out.error(traceback.format_exc(), "this is a bug: please report it with the text above", BUG_EXIT_CODE)
        sys.exit(BUG_EXIT_CODE)


if __name__ == "__main__":
    main()

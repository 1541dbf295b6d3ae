"""Code that the commands share: options, settings, and how to open a lake."""

import os
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from isr_batch.arrow_alone import use_arrow_alone
from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake.addresses import absolute_address, is_address, require_delta_path
from isr_batch.lake.tables.timelines import Timelines
from isr_batch.memory import require_address_space
from isr_batch.rule_names import parse_rule_params
from isr_batch.window import Window
from pipelines.completion import complete_rules
from pipelines.output import Output

if TYPE_CHECKING:  # help and small commands should not wait for Spark or pydantic: commands import what they need
    from collections.abc import Iterator, Sequence

    from isr_batch.lake.lake import Lake
    from isr_batch.lake.run_log import Run
    from isr_batch.session import Session
    from isr_batch.settings import Settings
    from udfs.batches.rule_runs import RuleRun

LakePath = Annotated[str | None, typer.Option("--lake", help="Folder or URI of the Delta tables.", show_default=False)]
Catalog = Annotated[
    str | None, typer.Option("--catalog", metavar="CAT.SCHEMA", help="Schema of a catalog, instead of --lake.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only, no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")]
Env = Annotated[str | None, typer.Option("--env", metavar="NAME", help="Also read conf/NAME.yaml.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="RULE.PARAM=VALUE", help="Set a rule's parameter.")]
Rules = Annotated[
    str | None,
    typer.Option("--rules", autocompletion=complete_rules, help="Names of rules, separated by commas; or all."),
]
RuleFile = Annotated[
    Path | None,
    typer.Option("--rule-file", metavar="FILE.py", help="File with an additional rule (docs/add-a-rule.md)."),
]
EngineOf = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="auto|spark|local",
        help="Engine: Spark or this process; by default Spark for large input, or if a Spark session exists.",
    ),
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Name of the cluster; by default the name of its folder.")
]
Release = Annotated[
    str | None,
    typer.Option(metavar="X.Y.Z", help="The brokers' Kafka release, if the logs have none or a wrong one."),
]
StampFormat = Annotated[
    str | None,
    typer.Option(
        "--stamp-format", metavar="FORMAT", help="Format of ambiguous timestamps, such as '%d/%m/%Y %H:%M:%S,%f'."
    ),
]
TimeZone = Annotated[
    list[str] | None,
    typer.Option(
        "--time-zone", metavar="[BROKER=]ZONE", help="Time zone of timestamps that have none; by default UTC."
    ),
]
DisplayZone = Annotated[
    str | None,
    typer.Option("--display-zone", metavar="ZONE", help="Time zone of all times shown, such as Europe/Helsinki."),
]
TimelinesOf = Annotated[
    str | None,
    typer.Option(
        "--timelines",
        metavar="all|around-shrinks|none",
        help="Timeline rows (followers' lag, state) to store; by default all, or around-shrinks for very many events.",
    ),
]
Date = Annotated[str | None, typer.Option("--date", metavar="DAY", help="Only this UTC day.")]
From = Annotated[str | None, typer.Option("--from", metavar="DAY", help="First UTC day.")]
To = Annotated[str | None, typer.Option("--to", metavar="DAY", help="UTC day after the last one.")]

LITTLE_BYTES: Final = 10 << 20
"""Input is small up to this size in bytes, which is about a million events: an event needs about ten bytes in table
``fetch_log`` and in compressed logs."""

_LEAST_TASKS: Final = 8
"""Minimum number of shuffle tasks. If there is more input, there is a task per million events, approximately."""
_CLUSTER = ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


@dataclass(frozen=True)
class Job:
    """A running command, with its output, its settings and the lake that it works on."""

    out: Output
    settings: "Settings"
    lake: "Lake"


def settings_of_job(
    env: str | None, rules: str | None = None, params: list[str] | None = None, engine: str | None = None
) -> "Settings":
    """Load the settings, and override them with the options of a command.

    Parameters
    ----------
    env : str or None
        Value of ``--env``: ``conf/NAME.yaml`` is read too.
    rules : str or None
        Value of ``--rules``.
    params : list of str or None
        Values of ``--set``.
    engine : str or None
        Value of ``--engine``.
    """
    from isr_batch.settings import load_settings

    replay: dict[str, Any] = {}
    if rules is not None:
        replay["rules"] = rules
    if params:
        replay["params"] = parse_rule_params(params)
    options = {"replay": replay, "spark": {"engine": engine} if engine is not None else {}}
    return load_settings(env, {section: given for section, given in options.items() if given})


def show_zone_of_job(zone: str | None) -> None:
    """Make all output show times in the time zone that ``--display-zone`` names; in UTC if it is None."""
    from isr_batch.ingest.log_files.stamps import stamp_zone
    from isr_batch.shown_times import show_times_in

    show_times_in(zone or "UTC", stamp_zone(zone or "UTC"))


def require_path_of_job(path: str, what_to_do: str) -> None:
    """Check that a local path exists, without starting Spark.

    Under spark-submit, or with a Hadoop configuration, a path without a scheme may belong to the cluster's file system.
    Such a path is not checked.

    Parameters
    ----------
    path : str
    what_to_do : str
        Hint for the user if the path does not exist.

    Raises
    ------
    NoInputError
        If the path is checked and does not exist.
    """
    if not _is_lake_elsewhere(path) and not Path(path).exists():
        raise NoInputError(f"there is no {path}", what_to_do)


def require_lake_of_job(lake: str | None, catalog: str | None, *, new: bool = False) -> None:
    """Check that the options name a lake. Spark is not started.

    Parameters
    ----------
    lake, catalog : str or None
        Values of ``--lake`` and ``--catalog``. Exactly one of them must be given.
    new : bool
        Whether the command may create the lake, so that it need not exist.

    Raises
    ------
    UsageError
        If the options name two lakes, none, or a file.
    NoInputError
        If the folder does not exist, or contains no tables.
    """
    if (lake is None) == (catalog is None):
        raise UsageError(
            "the tables are either in a folder or in a catalog", "give --lake FOLDER or --catalog CAT.SCHEMA"
        )
    if lake is not None:
        require_delta_path(absolute_address(lake))
    if lake is None or _is_lake_elsewhere(lake):
        return
    makes = "isr-batch run --logs DIR --lake LAKE makes a lake"
    if Path(lake).is_file():
        raise UsageError(f"--lake {lake} is a file", f"give a folder; {makes}")
    if not new:
        require_path_of_job(lake, makes)
        if not any(Path(lake).glob("*/_delta_log")):
            raise NoInputError(f"{lake} has no tables", makes)


def _is_lake_elsewhere(path: str) -> bool:
    """Whether a path may belong to an object store or to the file system of a Hadoop cluster."""
    return is_address(path) or any(name in os.environ for name in _CLUSTER)


def open_job(  # noqa: PLR0913 two of them have a default
    out: Output,
    settings: "Settings",
    lake: str | None,
    catalog: str | None,
    *,
    logs: Path | None = None,
    new: bool = False,
) -> Job:
    """Open a lake for a command. For a local folder, Spark only starts once it is needed.

    Parameters
    ----------
    out : Output
    settings : Settings
    lake, catalog : str or None
        Values of ``--lake`` and ``--catalog``. Exactly one of them must be given.
    logs : Path, optional
        Logs to ingest. Their size determines the options of the JVM and the number of tasks.
    new : bool
        Whether the command may create the lake, so that it need not exist.

    Raises
    ------
    UsageError, NoInputError
        As in `require_lake_of_job`, or if the catalog lacks the schema, or the lake its tables.
    """
    require_lake_of_job(lake, catalog, new=new)
    require_address_space()
    out.show_logged()
    use_arrow_alone()
    from isr_batch.lake.catalogs import require_catalog_schema, require_tables
    from isr_batch.lake.engine_choice import choice_of_settings
    from isr_batch.lake.lake import Lake
    from isr_batch.lake.run_log import new_run_id

    def start() -> "Session":
        """Start Spark, with JVM options and a number of tasks that suit the size of the input."""
        with out.step("start Spark"):
            from isr_batch import jvm
            from isr_batch.session import running_tasks, start_session

            os.environ["TZ"] = "UTC"  # because Spark passes instants to Python in the machine's zone
            time.tzset()
            size = size_of_job(lake, logs) if logs is not None or not new else None
            java = jvm.jvm_options(little=size is not None and size <= LITTLE_BYTES)
            tasks = None if size is None else max(_LEAST_TASKS, -(-size // LITTLE_BYTES))
            spark = start_session(settings.spark, java=java, tasks=tasks)
        out.watched = lambda: running_tasks(spark)
        return spark

    # Much can be read without Spark if the lake is a local folder. All other lakes need Spark from the beginning.
    on_disk = lake is not None and _is_lake_here(lake)
    tables = Lake(start if on_disk else start(), lake or catalog or "", new_run_id(), catalog=not lake)
    tables.engine = choice_of_settings(settings.spark, out.progress)
    require_catalog_schema(tables)
    if not (new or on_disk):
        require_tables(tables)
    return Job(out, settings, tables)


def _is_lake_here(path: str) -> bool:
    """Whether a path must be a local path."""
    return not _is_lake_elsewhere(path) and "SPARK_HOME" not in os.environ


def size_of_job(lake: str | None, logs: Path | None = None) -> int | None:
    """Estimate the size of a command's input, in bytes of table ``fetch_log``, using the sizes of local files.

    None if the lake is not a local folder, or does not exist yet and there are no logs.

    Parameters
    ----------
    lake : str or None
        Folder or address of the lake; None for a catalog.
    logs : Path, optional
        Folder with logs to ingest, whose estimated size is added.
    """
    if lake is None or is_address(lake) or not (logs or Path(lake).is_dir()):
        return None
    from isr_batch.ingest.log_files.content import USUAL_RATIO, text_bytes

    size = sum(path.stat().st_size for path in Path(lake, "fetch_log").rglob("*.parquet"))
    return size + (text_bytes(logs) // USUAL_RATIO if logs else 0)


@contextmanager
def recorded_job(job: Job, command: str, window: Window | None = None, *, writes: bool = True) -> "Iterator[Run]":
    """Record the ``with`` block as a run of ``command`` in the run log, even if the block fails.

    The block gets the `Run`, to which it adds its row counts. In a catalog, views of the tables are created at the end.

    Parameters
    ----------
    job : Job
    command : str
    window : Window, optional
        Days that the command works on.
    writes : bool
        Whether the command writes tables. If the lake allows only one writer at a time, other runs cannot write to it
        while the block runs.

    Raises
    ------
    WriteConflictError
        If another run is writing to a lake that allows only one writer at a time.
    """
    from isr_batch.lake.lease import sole_writer
    from isr_batch.lake.run_log import write_run_log

    log = write_run_log(job.lake, command, str(window) if window else None, job.settings.hash)
    with log as run, sole_writer(job.lake) if writes else nullcontext():
        yield run
        if writes and job.lake.catalog:
            from isr_batch.lake.view_statements import create_catalog_views

            create_catalog_views(job.lake)


def replay_window_of_job(
    job: Job,
    done: "Run",
    window: Window,
    runs: "Sequence[RuleRun] | None" = None,
    *,
    timelines: Timelines | None = None,
) -> None:
    """Replay the days of a window, and show progress.

    Parameters
    ----------
    job : Job
    done : Run
        The recorded run, to which the row counts are added.
    window : Window
    runs : sequence of RuleRun, optional
        Rule runs to replay; by default those of the settings.
    timelines : Timelines, optional
        Which timeline rows to store; by default this depends on the number of events.
    """
    from isr_batch.nightly import replay_window
    from isr_batch.replay.replay import rule_runs

    runs = runs or rule_runs(job.settings.replay)
    elr = job.settings.replay.elr
    replay_window(job.lake, runs, window, done, job.out.step, elr=elr, timelines=timelines)


def timelines_of_job(option: str | None) -> Timelines | None:
    """Check the value of the option ``--timelines``, and return it; None if the option is not given.

    Raises
    ------
    UsageError
        If the value is not one of the choices.
    """
    choices: tuple[Timelines, ...] = get_args(Timelines)
    if option and option not in choices:
        raise UsageError(
            f"--timelines {option}: must be one of {', '.join(choices)}",
            "omit the option to choose by the number of events",
        )
    return next((choice for choice in choices if choice == option), None)

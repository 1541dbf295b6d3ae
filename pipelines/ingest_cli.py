"""`isr-batch ingest`, which reads broker logs or a user's table into a lake, and `isr-batch look`, which lists logs."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_batch.arrow_alone import use_arrow_alone
from isr_batch.errors import NoInputError, UsageError
from isr_batch.window import Window, parse_window
from pipelines.job import (
    Catalog,
    Cluster,
    EngineOf,
    Env,
    From,
    Job,
    Json,
    LakePath,
    Quiet,
    Release,
    StampFormat,
    TimeZone,
    To,
    open_job,
    recorded_job,
    require_lake_of_job,
    require_path_of_job,
    settings_of_job,
)
from pipelines.output import Output

if TYPE_CHECKING:  # help should not wait for Spark, so commands import it where they need it
    from collections.abc import Callable, Sequence

    from isr_batch.errors import NothingToReplayError
    from isr_batch.ingest.folder.log_folder import LogFolder
    from isr_batch.ingest.folder.log_options import LogOptions
    from isr_batch.ingest.own_table.mapping import TableMapping
    from isr_batch.lake.lake import Lake
    from isr_batch.lake.run_log import Run

ingest_app = typer.Typer(no_args_is_help=True, help="Read broker logs, or your own table of fetches, into a lake.")

ACCOUNT_COLUMNS = ("log", "became", "what", "lines")
NOTE_COLUMNS = ("about", "found", "next_time")
LACKING_COLUMNS = ("cluster_id", "missing", "what_the_results_lack")
ROW_COLUMNS = ("table", "day", "leader_id", "rows_new", "rows_known", "rows_gone")


@dataclass(frozen=True)
class LogsOfCommand:
    """The logs that a command reads.

    ``clusters`` maps each cluster's name to its folder and the files found there. ``release`` is the Kafka release that
    the user gave, and ``options`` says how to parse timestamps.
    """

    clusters: "dict[str, tuple[Path, LogFolder]]"
    release: str | None
    options: "LogOptions"

    def warnings(self, lake: "Lake") -> dict[str, list[str]]:
        """Return for each cluster the reasons why its results are doubtful or incomplete, as sentences.

        `look` prints the same warnings, but only knows the first and last lines of each file. The tables of the lake
        may name more brokers that have no logs.
        """
        from isr_batch.ingest import broker_logs as logs
        from isr_batch.ingest.folder.folder_warnings import folder_warnings

        return {
            name: [
                *folder_warnings(found, *logs.brokers_in_tables(lake, name)),
                *logs.warnings_of_unread_lines(lake, name),
                *logs.warnings_of_observers(lake, name, found.given.observers),
            ]
            for name, (_, found) in self.clusters.items()
        }


def find_logs_of_command(
    folder: Path,
    cluster: str | None,
    release: str | None,
    stamp_format: str | None,
    zones: list[str] | None,
    show: "Callable[[str, LogFolder], None] | None" = None,
) -> LogsOfCommand:
    """Find the logs of all clusters in a folder, and check them. Neither Spark nor an ingest is started.

    Parameters
    ----------
    folder : Path
    cluster, release, stamp_format : str or None
        Values of the options ``--cluster``, ``--release`` and ``--stamp-format``.
    zones : list of str or None
        Values of the option ``--time-zone``.
    show : callable, optional
        Called with the name and the files of each cluster before they are checked, to print them.

    Raises
    ------
    NoInputError
        If the folder contains no logs.
    QualityGateError
        If a log has a layout that is not supported.
    UsageError
        If the release is unknown, if timestamps are not in UTC, or if options do not fit the folder.
    """
    if not folder.is_dir():  # before Spark is imported
        what = f"{folder} is not a folder" if folder.exists() else f"no such folder: {folder}"
        raise NoInputError(what, "give the folder with one folder per broker")
    use_arrow_alone()
    from isr_batch.ingest.folder.clusters import find_clusters
    from isr_batch.ingest.folder.first_look import require_readable_logs
    from isr_batch.ingest.folder.log_options import LogOptions
    from isr_batch.ingest.folder.settings_files import require_release
    from isr_batch.ingest.folder.time_zones import require_utc

    require_release(release)
    options = LogOptions.parse(stamp_format, zones or [])
    clusters = find_clusters(folder, cluster, options)
    if show:
        for name, (_, found) in clusters.items():
            show(name, found)
    for name, (_, found) in clusters.items():
        require_readable_logs(found)
        require_utc(found.files, name if len(clusters) > 1 else None)
    return LogsOfCommand(clusters, release, options)


def say_nothing_to_replay(given: "Sequence[str]", logs: LogsOfCommand) -> "NothingToReplayError | None":
    """Return the error for logs without follower fetches, or None if they contain some. The caller may raise it.

    ``given`` are the paths that the user named on the command line.

    Raises
    ------
    NothingToReplayError
        Raised instead of returned if the logs do not even contain a server.log, state-change.log, metadata dump or
        listing of partitions.
    """
    from isr_batch.broker_lines.kinds import METADATA, SERVER, STATE_CHANGE
    from isr_batch.errors import NothingToReplayError
    from isr_batch.ingest.folder.first_look import require_follower_fetches
    from isr_batch.ingest.folder.given_logs import shown_places
    from isr_batch.ingest.folder.log_folder import SNAPSHOT

    found = [found for _, found in logs.clusters.values()]
    try:
        require_follower_fetches(shown_places(given), found)
    except NothingToReplayError as missing:
        if not any(each.of_kind(kind) for each in found for kind in (SERVER, STATE_CHANGE, METADATA, SNAPSHOT)):
            raise
        return missing
    return None


def _show_files(out: Output, name: str, found: "LogFolder") -> None:
    """Print three tables about a cluster's folder: files that are read, files that are not, and possible analyses."""
    from isr_batch.ingest.folder import overview

    out.details(f"Logs of {name}", overview.file_rows(found), overview.FILE_COLUMNS)
    left_out = overview.left_out_rows(found)
    if left_out:
        out.details(f"Files of {name} that are not read", left_out, overview.LEFT_OUT_COLUMNS)
    capabilities = [each._asdict() for each in overview.capabilities(found)]
    out.details(f"Possible analyses of {name}", capabilities, overview.CAPABILITY_COLUMNS)


def _show_files_and_warnings(out: Output, name: str, found: "LogFolder") -> None:
    """Print the tables of `_show_files`, and then the warnings about the folder."""
    from isr_batch.ingest.folder.folder_warnings import folder_warnings, unread_lines_seen

    _show_files(out, name, found)
    show_warnings(out, name, [*folder_warnings(found), *unread_lines_seen(found)])


def show_warnings(out: Output, name: str, warnings: list[str]) -> None:
    """Print the warnings about a cluster, which are the reasons why its results are doubtful or incomplete."""
    if out.as_json:
        out.say(cluster=name, warnings=warnings)
    elif warnings:
        out.text(f"warning: {said}" for said in warnings)


def look_command(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR",
            help="Folder with one cluster's logs, or with such a folder per cluster; or what `run --logs` takes.",
        ),
    ],
    cluster: Cluster = None, stamp_format: StampFormat = None, time_zone: TimeZone = None,
    quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """List the files in a folder of logs and the analyses that they allow. Logs that `run` refuses are refused."""
    out, settings = Output(quiet=quiet, as_json=as_json), settings_of_job(None)
    from isr_batch.ingest.folder.given_logs import given_logs

    show = partial(_show_files_and_warnings, out)
    with given_logs(logs) as folder:
        found = find_logs_of_command(folder, cluster, None, stamp_format, time_zone, show)
        if nothing := say_nothing_to_replay(logs, found):
            out.say(nothing_to_replay=nothing.message)
        from isr_batch.ingest.kafka_logs.quarantine_gate import require_few_refused_in_folder

        for path, of_cluster in found.clusters.values():
            said = require_few_refused_in_folder(path, of_cluster, settings.ingest.max_quarantine_ratio)
            if said:
                out.warn(said)


def ingest_logs_of_command(job: Job, done: "Run", logs: LogsOfCommand) -> None:
    """Ingest the logs of all clusters. For each, print how its lines were used, and which values were assumed."""
    from isr_batch.ingest.broker_logs import ingest_broker_logs, ingested_clusters, require_clean_broker_logs
    from isr_batch.lake.observers import left_out_of_clusters

    known = ingested_clusters(job.lake)
    if known and not known & {*logs.clusters}:
        new = f"{', '.join(logs.clusters)}: new here; the lake has logs of {', '.join(sorted(known))}"
        job.out.warn(f"{new} (--cluster NAME if they belong to one of these)")
    for name, (folder, found) in logs.clusters.items():
        _show_files(job.out, name, found)
        with job.out.step(f"ingest {folder}") as facts:
            ingest = ingest_broker_logs(job.lake, folder, name, logs.release, logs.options, listed=found)
            counts = ingest.counts
            done.add(counts)
            facts |= {"lines": counts.rows_in, "rows": counts.rows_out, "quarantined": counts.rows_quarantined}
        if ingest.account:
            job.out.details(f"Lines of {name}", [vars(tally) for tally in ingest.account], ACCOUNT_COLUMNS)
        else:
            job.out.say(cluster=name, ingest="nothing new")
        notes = [note._asdict() for note in ingest.notes]
        if left_out := left_out_of_clusters(job.lake).get(name) if found.given.observers else None:
            notes.append({"about": "observers", "found": left_out, "next_time": ""})
        if notes:
            job.out.details(f"Assumptions about {name}", notes, NOTE_COLUMNS)
        require_clean_broker_logs(job.lake, name, counts, job.settings.ingest.max_quarantine_ratio)


@ingest_app.command("kafka-logs", epilog="Example: isr-batch ingest kafka-logs data/samples --lake build/lake")
def ingest_kafka_logs_command(
    logs: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder that contains a folder of logs per broker; for several clusters, a folder per cluster with "
            "such folders.",
        ),
    ],
    lake: LakePath = None, catalog: Catalog = None, cluster: Cluster = None, release: Release = None,
    stamp_format: StampFormat = None, time_zone: TimeZone = None,
    engine: EngineOf = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ingest the logs of brokers, such as request, server and state-change logs, and metadata dumps."""
    require_lake_of_job(lake, catalog, new=True)
    found = find_logs_of_command(logs, cluster, release, stamp_format, time_zone)
    job = open_job(
        Output(quiet=quiet, as_json=as_json), settings_of_job(env, engine=engine), lake, catalog, logs=logs, new=True
    )
    with recorded_job(job, "ingest") as done:
        ingest_logs_of_command(job, done, found)
        _pack(job)


@ingest_app.command(
    "table",
    epilog="Example: isr-batch ingest table fetches.parquet --lake build/lake --mapping conf/mappings/parquet.yaml",
)
def ingest_table_command(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="Fetch requests as Parquet, Delta or CSV: files, folders or globs; or a table of a catalog, by name.",
        ),
    ],
    file: Annotated[Path, typer.Option("--mapping", metavar="FILE", help="YAML file that maps the table's columns.")],
    lake: LakePath = None, catalog: Catalog = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Name of the cluster, instead of cluster_id in the mapping.")
    ] = None,
    start: From = None, end: To = None,
    full: Annotated[bool, typer.Option("--full", help="Also read files that were ingested before.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete rows from --from to --to that the table does not have.")
    ] = False,
    leader: Annotated[int | None, typer.Option("--leader", help="With --replace, only rows of this leader.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="With --replace, only rows of this topic.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Let --replace delete more rows than it adds.")] =
    False, engine: EngineOf = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ingest your own table of follower fetches, whose columns a YAML file maps. Only new rows are added."""
    window = parse_window(None, start, end)
    if replace and not (window.start and window.end):
        raise UsageError("--replace deletes rows and needs a range of days", "give --from and --to")
    if not replace and (leader is not None or topic is not None or yes):
        raise UsageError(
            "--leader, --topic and --yes select the rows that --replace deletes", "add --replace, or omit them"
        )
    table = table_of_command(places, file, cluster, window, full=full)
    if replace:
        table = dataclasses.replace(table, replaced=(leader, topic), may_lose=yes)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, engine=engine), lake, catalog, new=True)
    with recorded_job(job, "ingest") as done:
        ingest_table_of_command(job, done, table)


@dataclass(frozen=True)
class TableOfCommand:
    """A user's own table of fetches, as the command line describes it.

    ``places`` are files, folders, globs or names of tables. ``window`` and ``full`` select the rows to read.
    ``may_lose`` says whether more rows may be deleted than are added.
    """

    places: tuple[str, ...]
    mapping: "TableMapping"
    window: Window
    full: bool
    replaced: tuple[int | None, str | None] | None = None
    """Leader and topic whose rows ``--replace`` replaces, where None means all; None without this option."""
    may_lose: bool = False


def table_of_command(
    places: list[str], file: Path, cluster: str | None, window: Window, *, full: bool = False
) -> TableOfCommand:
    """Load the mapping of a user's table from ``file``, and check that the table exists, before Spark starts.

    The parameters are the command's argument and its options --mapping, --cluster, --from and --to, and --full.

    Raises
    ------
    UsageError
        If the mapping has mistakes. The message lists all of them.
    NoInputError
        If a file or folder does not exist.
    """
    from isr_batch.ingest.own_table.mapping import load_mapping
    from isr_batch.lake.addresses import is_glob, is_table_name

    for place in places:
        if not is_glob(place) and not is_table_name(place):
            require_path_of_job(place, "give the file or folder of the table of fetches, or its name in a catalog")
    return TableOfCommand(tuple(places), load_mapping(file, cluster), window, full)


def ingest_table_of_command(job: Job, done: "Run", table: TableOfCommand) -> None:
    """Ingest a user's table. Print by day and leader how many rows are new, were known before, or were deleted."""
    from isr_batch.ingest.own_table.added_rows import Replaced
    from isr_batch.ingest.own_table.derived_tables import derive_tables
    from isr_batch.ingest.own_table.ingest import ingest_own_table
    from isr_batch.ingest.own_table.mapped_clusters import lacking_input
    from isr_batch.lake.lease import leased
    from isr_batch.lake.observers import left_out_of_clusters

    # The lease is held until all tables derived from the rows are up to date, so that no other command interferes.
    with leased(job.lake):
        with job.out.step(f"ingest {' '.join(table.places)}") as facts:
            ingest = ingest_own_table(
                job.lake, table.places, table.mapping, window=table.window, full=table.full,
                replaced=Replaced(table.window, *table.replaced) if table.replaced else None, may_lose=table.may_lose,
                max_refused=job.settings.ingest.max_quarantine_ratio,
            )  # fmt: skip
            done.add(ingest.counts)
            total = ingest.total
            facts |= {"rows": total.rows_in, "new": total.new.total(), "known": total.known.total()}
            facts |= {"left_out": total.left_out, "refused": total.refused}
            if table.replaced:
                facts["gone"] = total.gone.total()
        job.out.details("Rows by day and leader", ingest.by_day_and_leader(), ROW_COLUMNS)
        for day in ingest.odd_days():
            job.out.say(odd_day=day, advice="check the timestamps; `where` or --from and --to exclude such rows")
        for section, files in ingest.skipped.items():
            if files:
                job.out.say(
                    skipped=section, files=files, why="unchanged since the last ingest; --full reads them again"
                )
        with job.out.step("terms of leaders"):
            derive_tables(job.lake)
        for name, left_out in left_out_of_clusters(job.lake).items():
            job.out.say(observers_of=name, left_out=left_out)
        if missing := lacking_input(job.lake):
            job.out.table("Missing input", missing, LACKING_COLUMNS)
        _pack(job)


def _pack(job: Job) -> None:
    """Pack the lake's new fetches and appends into segments, so that the next replay starts sooner."""
    from isr_batch.replay.packing import pack_stale_days

    with job.out.step("pack") as facts:
        facts["segments"] = pack_stale_days(job.lake)

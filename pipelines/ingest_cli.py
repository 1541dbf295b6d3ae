"""`isr-batch ingest`: what goes into a lake, from brokers' logs or from a table of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_batch.errors import NoInputError
from pipelines.job import (
    Catalog,
    Cluster,
    Env,
    Job,
    Json,
    LakePath,
    Quiet,
    Release,
    open_job,
    recorded_run,
    require_path,
    settings_of,
)
from pipelines.output import Output

if TYPE_CHECKING:  # help should not wait for Spark, so commands import it where they need it
    from isr_batch.lake.run_log import Run

ingest_app = typer.Typer(no_args_is_help=True, help="Read logs, or a table of fetches, into a lake.")

ACCOUNT_COLUMNS = ("log", "became", "what", "lines")
NOTE_COLUMNS = ("about", "found", "next_time")
LACKING_COLUMNS = ("missing", "what_the_results_lack")


def find_logs_of_clusters(
    folder: Path, cluster: str | None, release: str | None, *, to_replay: bool
) -> dict[str, Path]:
    """Find the clusters in a folder before anything is started.

    Raises
    ------
    NoInputError
        When there is nothing to read, or nothing to replay.
    UsageError
        When the release is none, or names and settings do not fit the folder.
    """
    if not folder.is_dir():  # before Spark is imported
        what = f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}"
        raise NoInputError(what, "give the folder that holds a folder for each broker")
    from isr_batch.ingest.broker_logs import find_clusters
    from isr_batch.ingest.kafka_logs.first_look import require_follower_fetches
    from isr_batch.ingest.kafka_logs.log_folder import find_logs, require_release

    require_release(release)
    clusters = find_clusters(folder, cluster)
    if to_replay:
        require_follower_fetches(folder, [find_logs(logs) for logs in clusters.values()])
    return clusters


def have_server_logs(clusters: dict[str, Path]) -> bool:
    """Whether any cluster has a server.log or a state-change.log."""
    from isr_batch.ingest.kafka_logs.log_folder import SERVER, STATE_CHANGE, find_logs

    return any(file.kind in (SERVER, STATE_CHANGE) for logs in clusters.values() for file in find_logs(logs).files)


def ingest_logs(job: Job, done: "Run", clusters: dict[str, Path], release: str | None) -> None:
    """Ingest the clusters that were found."""
    from isr_batch.ingest.broker_logs import ingest_kafka_logs, require_clean

    for name, logs in clusters.items():
        with job.out.step(f"ingest {logs}") as facts:
            ingest = ingest_kafka_logs(job.lake, logs, name, release)
            counts = ingest.counts
            done.add(counts)
            facts |= {"lines": counts.rows_in, "rows": counts.rows_out, "quarantined": counts.rows_quarantined}
        if ingest.account:
            job.out.table(f"Lines of {name}", [vars(tally) for tally in ingest.account], ACCOUNT_COLUMNS)
            job.out.table(f"What {name} rests on", [note._asdict() for note in ingest.notes], NOTE_COLUMNS)
        else:
            job.out.say(cluster=name, ingest="nothing new")
        require_clean(counts, job.settings.ingest.max_quarantine_ratio)


@ingest_app.command("kafka-logs", epilog="Example: isr-batch ingest kafka-logs data/samples --lake build/lake")
def kafka_logs(
    logs: Annotated[Path, typer.Argument(metavar="DIR", help="A folder per broker, or per cluster with those.")],
    lake: LakePath = None, catalog: Catalog = None, cluster: Cluster = None, release: Release = None,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Read the request, server and state-change logs of brokers."""
    clusters = find_logs_of_clusters(logs, cluster, release, to_replay=False)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of(env), lake, catalog, new=True)
    with recorded_run(job, "ingest") as done:
        ingest_logs(job, done, clusters, release)
        _pack(job)


@ingest_app.command(
    "table",
    epilog="Example: isr-batch ingest table fetches.parquet --lake build/lake --mapping conf/mappings/parquet.yaml",
)
def table(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Parquet, Delta or CSV of fetch requests.")],
    file: Annotated[Path, typer.Option("--mapping", metavar="FILE", help="YAML: which column is which.")],
    lake: LakePath = None, catalog: Catalog = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="In place of the mapping's cluster_id.")] = None,
    env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Read a table of follower fetches, by a file that says which column is which."""
    from isr_batch.ingest.own_table.mapping import load_mapping

    mapping = load_mapping(file, cluster)
    require_path(path, "give the file or folder of the table of fetches")
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of(env), lake, catalog, new=True)
    with recorded_run(job, "ingest") as done:
        from isr_batch.ingest.broker_logs import require_clean
        from isr_batch.ingest.own_table.ingest import ingest_table, lacking

        with job.out.step(f"ingest {path}") as facts:
            counts = ingest_table(job.lake, path, mapping)
            done.add(counts)
            facts |= {"rows": counts.rows_in, "written": counts.rows_out, "quarantined": counts.rows_quarantined}
        missing = lacking(mapping)
        if missing:
            job.out.table("What the input does not tell", missing, LACKING_COLUMNS)
        require_clean(counts, job.settings.ingest.max_quarantine_ratio)
        _pack(job)


def _pack(job: Job) -> None:
    """Leave the log in the form that a replay reads."""
    from isr_batch.replay.packing import pack_stale_days

    with job.out.step("pack") as facts:
        facts["segments"] = pack_stale_days(job.lake)

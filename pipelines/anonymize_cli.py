"""`isr-batch anonymize`, which copies logs with made-up names, so that they can be shown to others."""

from pathlib import Path
from typing import Annotated

import typer

from isr_batch.errors import UsageError
from pipelines.ingest_cli import find_logs_of_command
from pipelines.job import Cluster, Json, Quiet, StampFormat, TimeZone
from pipelines.output import Output


def anonymize_command(
    logs: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with one cluster's logs, or one per cluster.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; it must not exist.")],
    names_file: Annotated[
        Path | None, typer.Option("--names", metavar="FILE", help="Also write which name became which; keep it secret.")
    ] = None,
    cluster: Cluster = None, stamp_format: StampFormat = None, time_zone: TimeZone = None,
    quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Copy logs, and replace the names of topics, hosts, clients and users; `run` judges the copy like the original."""
    printer = Output(quiet=quiet, as_json=as_json)
    for path in filter(None, (out, names_file)):
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} exists", "name another one: nothing is overwritten")
    found = find_logs_of_command(logs, cluster, None, stamp_format, time_zone)
    from isr_batch.ingest.kafka_logs.anonymize import find_names, write_copy
    from isr_batch.ingest.log_files.made_up_names import MadeUpNames, names_as_text

    names = MadeUpNames()
    with printer.step("find names") as facts:
        for _, of_cluster in found.clusters.values():
            find_names(of_cluster, names)
        facts["names"] = len(names.names)
    with printer.step(f"write {out}") as facts:
        several = len(found.clusters) > 1
        if several:
            out.mkdir(parents=True)
        for name, (_, of_cluster) in found.clusters.items():
            facts["lines"] = facts.get("lines", 0) + write_copy(
                of_cluster, names, out / names.name("cluster", name) if several else out
            )
    if names_file:
        names_file.touch(mode=0o600)
        names_file.write_text(names_as_text(names.names), encoding="utf-8")
    printer.say(copy=out, names=len(names.names))

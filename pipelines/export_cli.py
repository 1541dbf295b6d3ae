"""The command that hands figures to a monitoring system."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pipelines.job import Catalog, Env, LakePath, Quiet, open_job, settings_of
from pipelines.output import Output


def export(
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.prom", help="For node_exporter's textfile collector.")
    ] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write counts of verdicts and scores of rules as Prometheus reads them; without --out, to the terminal."""
    from isr_batch.incidents.avoided import read_scores
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.prometheus import exposition

    job = open_job(Output(quiet=quiet), settings_of(env), lake, catalog)
    with job.out.step("look"):
        text = exposition(own_shrinks(job.lake), read_scores(job.lake))
    if file is None:
        job.out.text(text.rstrip("\n"))
        return
    # The collector may read at any time, and takes no file of another ending.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)

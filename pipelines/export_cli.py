"""`isr-batch export`: verdicts and scores for other programs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pipelines.job import Catalog, Env, LakePath, Quiet, open_job, settings_of_job
from pipelines.output import Output

export_app = typer.Typer(no_args_is_help=True, help="Export verdicts and scores to other programs.")


@export_app.command("prometheus", epilog="Example: isr-batch export prometheus --lake build/lake --out isr_batch.prom")
def export_prometheus_command(
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.prom", help="For node_exporter's textfile collector.")
    ] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write verdict counts and rule scores in Prometheus' text format; without --out, to the terminal."""
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.prometheus import prometheus_exposition
    from isr_batch.incidents.rule_choices import read_scores_for_choices

    with job.out.step("read the tables"):
        text = prometheus_exposition(own_shrinks(job.lake), read_scores_for_choices(job.lake))
    hand_over(text, file, job.out)


@export_app.command(name="csv", epilog="Example: isr-batch export csv --lake build/lake --out verdicts.csv")
def export_csv_command(
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE.csv", help="For a spreadsheet.")] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write each follower that your brokers dropped, with its verdict, as CSV; without --out, to the terminal."""
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.verdicts_csv import verdicts_csv

    with job.out.step("read the tables"):
        text = verdicts_csv(own_shrinks(job.lake), job.lake.root)
    hand_over(text, file, job.out)


def hand_over(text: str, file: Path | None, out: Output) -> None:
    """Write a text to a file, or to the terminal."""
    if file is None:
        out.text(text.rstrip("\n").split("\n"))
        return
    # Others may read at any time; node_exporter takes no file of another ending.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)

"""`isr-batch export`, which writes verdicts, scores and incidents as Prometheus metrics, CSV, Markdown or text."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from isr_batch.errors import NoInputError
from isr_batch.window import parse_asked_time
from pipelines.completion import complete_broker
from pipelines.job import Catalog, DisplayZone, Env, Job, LakePath, Quiet, open_job, settings_of_job, show_zone_of_job
from pipelines.output import Output

export_app = typer.Typer(
    no_args_is_help=True, help="Export verdicts, scores and incidents to other programs and people."
)


@export_app.command("prometheus", epilog="Example: isr-batch export prometheus --lake build/lake --out isr_batch.prom")
def export_prometheus_command(
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.prom", help="File for node_exporter's textfile collector.")
    ] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write numbers of drops, incidents and rule scores in Prometheus' text format; without --out, to the terminal."""
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.prometheus import prometheus_exposition
    from isr_batch.incidents.rule_choices import read_scores_for_choices

    with job.out.step("read the tables"):
        text = prometheus_exposition(own_shrinks(job.lake), read_scores_for_choices(job.lake))
    hand_over(text, file, job.out)


@export_app.command(name="csv", epilog="Example: isr-batch export csv --lake build/lake --out verdicts.csv")
def export_csv_command(
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE.csv", help="CSV file to write.")] = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write all drops by your brokers, with their verdicts, as CSV; without --out, to the terminal."""
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.verdicts_csv import verdicts_csv

    with job.out.step("read the tables"):
        text = verdicts_csv(own_shrinks(job.lake), job.lake.root)
    hand_over(text, file, job.out)


@export_app.command(name="incident", epilog="Example: isr-batch export incident --markdown --lake build/lake")
def export_incident_command(
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Time of the incident; by default the worst incident.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(min=0, autocompletion=complete_broker, help="Only incidents that involve this broker."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown, for a chat or an issue.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.svg", help="Picture to write of one of the shrinks: svg, png or html."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE.md", help="File to write.")] = None,
    display_zone: DisplayZone = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Describe one incident in about ten lines: who, when, what, why, how sure; without --out, on the terminal."""
    show_zone_of_job(display_zone)
    asked = parse_asked_time("--at", at) if at is not None else None
    if picture:
        from isr_batch.explain.swimlane import require_swimlane_file

        require_swimlane_file(picture)
    job = open_job(Output(quiet=quiet), settings_of_job(env), lake, catalog)
    from isr_batch.incidents.incident_card import incident_card, incident_markdown, incident_text
    from isr_batch.incidents.listing import chosen_incidents
    from isr_batch.incidents.own_shrinks import drops_of_incidents, incident_key, own_shrinks

    with job.out.step("read the tables"):
        own = own_shrinks(job.lake)
        found = chosen_incidents(own, broker, asked)
        if not found:
            raise NoInputError("no follower was dropped", "there is no incident to export")
        incident = found[0]
        card = incident_card(incident, drops_of_incidents(own)[incident_key(incident)], job.lake.root)
    if picture:
        if not incident["rule"]:
            raise NoInputError("no rule made a shrink in this incident", "omit --picture, or choose another with --at")
        _draw_incident(job, incident, picture)
    write = incident_markdown if markdown else incident_text
    hand_over(write(card, incident["cluster_id"], str(picture or "")), file, job.out)


def _draw_incident(job: Job, incident: dict[str, Any], picture: Path) -> None:
    """Draw the example shrink of an incident as a swim lane into the file ``picture``."""
    from isr_batch.explain.shrink_data import explain_shrink
    from isr_batch.explain.swimlane import draw_swimlane
    from isr_batch.explain.swimlane_data import swimlane_scene

    at = parse_asked_time("--at", str(incident["example_us"] // 1000))
    with job.out.step(f"draw {picture}"):
        story = explain_shrink(job.lake, incident["topic"], incident["partition_id"], at, incident["rule"])
        draw_swimlane(swimlane_scene(job.lake, story), story, picture)


def hand_over(text: str, file: Path | None, out: Output) -> None:
    """Write a text to ``file``, replacing it atomically, or to stdout if ``file`` is None."""
    if file is None:
        out.text(text.rstrip("\n").split("\n"))
        return
    # The text is written to another file, which is then renamed: node_exporter may read the file at any time. It
    # ignores files with other suffixes.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)

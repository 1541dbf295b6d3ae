"""`isr-batch explain`, which explains one shrink, or lists the incidents."""

from pathlib import Path
from typing import Annotated

import typer

from isr_batch.errors import UsageError
from isr_batch.rule_names import require_rule_names, take_in_rule_file
from isr_batch.window import AskedTime, parse_asked_time
from pipelines.completion import complete_broker, complete_rule, complete_topic
from pipelines.job import (
    Catalog,
    DisplayZone,
    Env,
    Job,
    Json,
    LakePath,
    Quiet,
    RuleFile,
    open_job,
    settings_of_job,
    show_zone_of_job,
)
from pipelines.output import Output


def explain_command(
    topic: Annotated[str | None, typer.Option(autocompletion=complete_topic, help="Topic of the shrink.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition of the shrink.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Time (ISO 8601, epoch ms, HH:MM:SS); shows the nearest shrink or incident."
        ),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            min=0, autocompletion=complete_broker,
            help="Without --topic, list only incidents with this broker as leader or follower.",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(autocompletion=complete_rule, help="Rule that made the shrink; by default kafka-3.7."),
    ] = None,
    rule_file: RuleFile = None,
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.svg", help="Picture to write: svg, png or html.")
    ] = None,
    display_zone: DisplayZone = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Explain one shrink (--topic, --partition and --at) or, without a topic, list the incidents in the lake."""
    take_in_rule_file(rule_file)
    show_zone_of_job(display_zone)
    asked = parse_asked_time("--at", at) if at is not None else None
    if topic is None and partition is None:
        if rule or file:
            raise UsageError("--rule and --out apply to one shrink", "give --topic, --partition and --at as well")
        _list_incidents(
            open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog), broker, asked
        )
        return
    if topic is None or partition is None or asked is None:
        raise UsageError("a shrink needs a topic, a partition and a time", "give --topic, --partition and --at")
    if broker is not None:
        raise UsageError("--broker applies to incidents", "give it without --topic and --partition")
    if rule:
        require_rule_names(rule)
    if file:
        from isr_batch.explain.swimlane import require_swimlane_file

        require_swimlane_file(file)
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env), lake, catalog)
    from udfs.rules import BASELINE

    _explain_one_shrink(job, topic, partition, asked, rule or BASELINE, file)


def _explain_one_shrink(job: Job, topic: str, partition: int, at: AskedTime, rule: str, file: Path | None) -> None:
    """Print the explanation of one shrink. If a file is given, draw the shrink into it as a swim lane."""
    from dataclasses import asdict

    from isr_batch.explain.shrink_data import explain_shrink
    from isr_batch.explain.shrink_text import shrink_lines

    with job.out.step("read the tables"):
        story = explain_shrink(job.lake, topic, partition, at, rule)
    if job.out.as_json:
        job.out.say(**asdict(story))
    else:
        job.out.text(shrink_lines(story))
    if file:
        from isr_batch.explain.swimlane import draw_swimlane  # it imports Altair, which takes a quarter of the command
        from isr_batch.explain.swimlane_data import swimlane_scene

        with job.out.step(f"draw {file}"):
            draw_swimlane(swimlane_scene(job.lake, story), story, file)


def _list_incidents(job: Job, broker: int | None, at: AskedTime | None) -> None:
    """Print all incidents, only those that involve a broker, or only the one nearest to a time."""
    from isr_batch.incidents.incident_story import incident_story
    from isr_batch.incidents.listing import chosen_incidents, listed_incidents, nearest_drop_us
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.incidents.sentences import assumed_of_tables
    from isr_batch.phrases import from_asked_time
    from isr_batch.shown_times import zone_note

    with job.out.step("read the tables"):
        own = own_shrinks(job.lake)
        found = chosen_incidents(own, broker, at)
        after_us = nearest_drop_us(own, found, at) if at else 0
    if job.out.as_json:
        for one in found:
            asked = {"nearest_drop_later_ms": after_us // 1000} if at else {}
            job.out.say(**one, **asked, story=incident_story(one))
    else:
        whole = broker is not None or at is not None
        listed = listed_incidents(own, found, job.lake.root, whole=whole, broker=broker)
        job.out.text([*from_asked_time(after_us, "drop"), *zone_note(), *listed, *assumed_of_tables(own)])

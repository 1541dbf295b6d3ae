"""`isr-batch timeline`, which computes the timelines of one partition."""

from pathlib import Path
from typing import Annotated

import typer

from isr_batch.errors import UsageError
from isr_batch.rule_names import take_in_rule_file
from isr_batch.window import parse_window
from pipelines.completion import complete_topic
from pipelines.job import Catalog, Date, Env, Json, LakePath, Quiet, RuleFile, Rules, Set, open_job, settings_of_job
from pipelines.output import Output


def timeline_command(
    topic: Annotated[str, typer.Option(autocompletion=complete_topic, help="Name of the topic.")],
    partition: Annotated[int, typer.Option(min=0, help="Number of the partition.")],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write Parquet files to.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster, if several have the topic.")] = None,
    lake: LakePath = None, catalog: Catalog = None, rules: Rules = None, params: Set = None,
    rule_file: RuleFile = None, day: Date = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Replay one partition, and print the tables replica_timeline and partition_timeline for it.

    If there are more than 1,000 rows, only the first 1,000 are printed. --out writes all of them to files.
    """
    take_in_rule_file(rule_file)
    window = parse_window(day, None, None)
    if file and file.suffix in {".html", ".svg", ".png", ".parquet", ".csv", ".json"} and not file.is_dir():
        raise UsageError(
            f"--out {file}: the timelines are written as Parquet files, into a folder",
            "name a folder; isr-batch explain --out draws a shrink, and the report has a picture of each incident",
        )
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, rules, params), lake, catalog)
    from isr_batch.replay.one_partition import timelines_of_one_partition, write_parquet_of_one_partition
    from isr_batch.replay.replay import rule_runs

    with job.out.step(f"replay {topic}-{partition}") as facts:
        made = timelines_of_one_partition(job.lake, rule_runs(job.settings.replay), (cluster, topic, partition), window)
        facts |= {"rows": sum(rows.num_rows for rows in made.values())}
    if file:
        write_parquet_of_one_partition(made, file)
        job.out.say(timelines=file)
        return
    for name, rows in made.items():
        job.out.table(name, rows.to_pylist(), rows.column_names)

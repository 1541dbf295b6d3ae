"""`isr-batch kip`, which writes a page that compares two rules, for the discussion of a proposal (KIP)."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isr_batch.errors import UsageError
from isr_batch.rule_names import require_rule_names, take_in_rule_file
from isr_batch.shipped_files import shipped
from isr_batch.window import Window
from pipelines.completion import complete_rule
from pipelines.export_cli import hand_over
from pipelines.ingest_cli import find_logs_of_command, ingest_logs_of_command
from pipelines.job import (
    Catalog,
    Env,
    Job,
    Quiet,
    RuleFile,
    open_job,
    recorded_job,
    replay_window_of_job,
    settings_of_job,
)
from pipelines.output import Output

if TYPE_CHECKING:
    from isr_batch.lake.lake import Lake


def kip_command(
    old: Annotated[str, typer.Argument(metavar="OLD", autocompletion=complete_rule, help="Rule to compare with.")],
    new: Annotated[str, typer.Argument(metavar="NEW", autocompletion=complete_rule, help="Proposed rule.")],
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE.md", help="Markdown file to write.")] = None,
    rule_file: RuleFile = None,
    lakes: Annotated[
        list[str] | None,
        typer.Option("--lake", help="Folder or URI of the Delta tables; may be repeated. By default, the sample logs."),
    ] = None,
    catalog: Catalog = None, env: Env = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write a Markdown page that compares two rules: figures with 95 % intervals, differences, simulated stories.

    The stories are the experiments in the lakes, or else all shipped experiments, simulated under both rules.
    """
    take_in_rule_file(rule_file)
    require_rule_names(old, new)
    if old == new:
        raise UsageError(f"{old} would be compared with itself", "name two different rules")
    out = Output(quiet=quiet, brief=True)
    with ExitStack() as until_written:
        if lakes or catalog:
            places: list[tuple[str | None, str | None]] = [(lake, None) for lake in lakes or []]
            places += [(None, catalog)] if catalog else []
            read = [open_job(out, settings_of_job(env), *place).lake for place in places]
        else:
            read = [until_written.enter_context(_lake_of_samples(out, env, old, new))]
        from isr_batch.report.kip_figures import stories_in
        from isr_batch.report.kip_page import kip_page

        stories = [row for lake in read for row in stories_in(lake) if row["rule"] in {old, new}]
        stories = stories or _simulated_stories(out, old, new)
        command = shlex.join(["isr-batch", *sys.argv[1:]])
        with out.step("compare the rules"):
            text = kip_page(read, old, new, stories, command, samples=not lakes and not catalog)
    hand_over(text, file, out)


@contextmanager
def _lake_of_samples(out: Output, env: str | None, old: str, new: str) -> "Iterator[Lake]":
    """Yield a temporary lake in which the sample logs were replayed under the rules ``old`` and ``new``.

    The lake is deleted when the ``with`` block ends. ``env`` is the environment whose settings are used.
    """
    logs = shipped("data/samples")
    with TemporaryDirectory() as folder:
        job: Job = open_job(out, settings_of_job(env, f"{old},{new}"), folder, None, logs=logs, new=True)
        with recorded_job(job, "kip") as done:
            ingest_logs_of_command(job, done, find_logs_of_command(logs, None, None, None, None))
            replay_window_of_job(job, done, Window())
        yield job.lake


def _simulated_stories(out: Output, old: str, new: str) -> list[dict[str, Any]]:
    """Simulate all shipped experiments under the rules ``old`` and ``new``. Return rows of table experiment_results."""
    from isr_batch.lake.memory_lake import MemoryLake
    from isr_batch.simulation.experiments import load_experiment, run_experiment

    rows = []
    for story in sorted(shipped("conf/experiments").glob("*.yaml")):
        with out.step(f"simulate {story.stem}"):
            experiment = load_experiment(story).model_copy(update={"rules": [old, new]})
            rows += run_experiment(MemoryLake({}), story.stem, experiment)
    return rows

"""`isr-batch sweep`, which replays many parameter sets in one pass, and recommends a lag time."""

from pathlib import Path
from typing import Annotated

import typer

from isr_batch.rule_names import take_in_rule_file
from pipelines.job import (
    Catalog,
    EngineOf,
    Env,
    Json,
    LakePath,
    Quiet,
    RuleFile,
    open_job,
    recorded_job,
    require_lake_of_job,
    settings_of_job,
)
from pipelines.output import Output

COLUMNS = ("cluster_id", "topic_class", "rule", "other_params", "answer", "recommended_lag_time_max_ms", "why")
FIGURES = (
    "exposure_follower_hours", "needed_follower_hours", "spurious", "mistakes_per_follower_day_low",
    "mistakes_per_follower_day_high", "genuine", "never_removed", "detection_ms_p99", "unknown_share",
)  # fmt: skip


def sweep_command(
    grid: Annotated[
        Path, typer.Option("--grid", metavar="FILE.yaml", exists=True, help="File with rules, parameters, budgets.")
    ],
    file: Annotated[Path | None, typer.Option("--out", metavar="FILE.html", help="HTML page to write.")] = None,
    rule_file: RuleFile = None, engine: EngineOf = None,
    lake: LakePath = None, catalog: Catalog = None, env: Env = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Replay many parameter sets in one pass, and recommend the smallest lag time within your budgets.

    The budgets are upper limits for mistakes and detection time, in the file of --grid.
    """
    take_in_rule_file(rule_file)
    require_lake_of_job(lake, catalog)
    from isr_batch.scoring.sweep_grid import load_grid, require_lag_times_in_grid

    named = require_lag_times_in_grid(grid, load_grid(grid))
    job = open_job(Output(quiet=quiet, as_json=as_json), settings_of_job(env, engine=engine), lake, catalog)
    with recorded_job(job, "sweep") as done:
        from isr_batch.lake.run_log import RunCounts
        from isr_batch.scoring.sweep import sweep as run
        from isr_batch.scoring.sweep import swept_params

        with job.out.step(f"replay {len(named.runs)} parameter sets") as facts:
            found = run(job.lake, named, job.settings.replay.elr)
            counts = RunCounts(found.rows_in, len(found.scores) + len(found.advice))
            done.add(counts)
            facts |= {"rows_read": counts.rows_in, "rows": counts.rows_out}
        if file:
            from isr_batch.report.sweep_page import write_sweep_page

            with job.out.step(f"write {file}"):
                write_sweep_page(job.lake, named, found, file)
        rows = [{**row, "other_params": swept_params(row["other_params_json"], named.grid)} for row in found.advice]
        job.out.table("Smallest lag times within the budgets", rows, (*COLUMNS, *FIGURES) if as_json else COLUMNS)

"""What `run` on the samples may cost, counted in what is the same on each machine."""

from pathlib import Path

from benchmarks.first_minute import costs_of_run


def test_jobs_and_commits_of_a_run_on_the_samples(tmp_path: Path) -> None:
    """Jobs are those of Spark; the few that depend on what is ready first are allowed for."""
    costs = {step: (jobs, commits) for step, (jobs, commits, _, _) in costs_of_run(str(tmp_path / "lake")).items()}
    jobs, commits = costs["all"]
    assert jobs <= 80
    # 20 for making the tables; controller_records in each ingest, rule_runs and eligible_leaders are among the rest.
    assert commits <= 80
    without_spark = [step for step in costs if step.startswith(("ingest", "compare", "write "))]
    assert len(without_spark) == 7
    assert [costs[step][0] for step in without_spark] == [0] * 7

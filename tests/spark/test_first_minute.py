"""What `run` on the samples may cost, counted in what is the same on each machine."""

from pathlib import Path

from benchmarks.first_minute import costs_of_run


def test_jobs_and_commits_of_a_run_on_the_samples(tmp_path: Path) -> None:
    """Jobs are those of Spark; the few that depend on what is ready first are allowed for."""
    costs = {step: (jobs, commits) for step, (jobs, commits, _, _) in costs_of_run(str(tmp_path / "lake")).items()}
    (report,) = (step for step in costs if step.startswith("write "))
    jobs, commits = costs["all"]
    assert jobs - costs[report][0] <= 80
    assert commits <= 75
    without_spark = [step for step in costs if step.startswith(("ingest", "compare"))]
    assert len(without_spark) == 6
    assert [costs[step][0] for step in without_spark] == [0] * 6

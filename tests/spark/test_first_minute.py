"""What `run` on the samples may cost, counted in what is the same on each machine."""

from pathlib import Path

import pytest

from benchmarks.first_minute import costs_of_run


def test_a_run_on_the_samples_starts_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/a-run-on-few-lines-must-not-start-java")
    costs = costs_of_run(str(tmp_path / "lake"))
    assert len(costs) > 8
    assert [jobs for jobs, *_ in costs.values()] == [0] * len(costs)
    # 30 for making the tables; kept_lines, session_ends and controller_records in each ingest are among the rest.
    assert costs["all"][1] <= 90

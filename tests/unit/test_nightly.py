"""A window's days are marked as done only after everything that is made of them was written."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from isr_batch import nightly
from isr_batch.lake.run_log import Run, RunCounts
from isr_batch.window import Window
from udfs.batches.rule_runs import RuleRun

RUNS = [RuleRun("kafka-3.7")]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for the steps, which write down that they were called."""
    names: list[str] = []

    def step(name: str, result: object) -> None:
        def stand_in(*_: object, **__: object) -> object:
            names.append(name)
            return result

        monkeypatch.setattr(nightly, name, stand_in)

    step("derive_tables", None)
    step("leased", nullcontext(SimpleNamespace(require=lambda: names.append("require"))))
    rows_out = {"isr_changes": 2, "shrink_verdicts": 1}
    days = SimpleNamespace(mark=lambda: names.append("mark"))
    step("replay", SimpleNamespace(rows_in=7, rows_out=rows_out, days=days, timelines="all"))
    step("write_disagreements", 4)
    step("write_eligible_leaders", 3)
    step("write_scores", 5)
    return names


def lake() -> SimpleNamespace:
    return SimpleNamespace(require=lambda _tables: None, ensure_all=lambda _tables: None)


def test_days_are_marked_last(called: list[str]) -> None:
    run = Run()
    nightly.replay_window(lake(), RUNS, Window(), run)  # type: ignore[arg-type]
    assert called == [
        "leased", "derive_tables", "replay", "write_disagreements", "write_eligible_leaders", "write_scores", "require",
        "mark",
    ]  # fmt: skip
    assert run.counts == RunCounts(7, 15)


def test_a_step_that_fails_leaves_the_days_unmarked_and_the_done_work_counted(
    called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "write_scores", lambda *_: 1 / 0)
    run = Run()
    with pytest.raises(ZeroDivisionError):
        nightly.replay_window(lake(), RUNS, Window(), run)  # type: ignore[arg-type]
    assert "mark" not in called
    assert run.counts == RunCounts(7, 3)

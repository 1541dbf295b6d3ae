"""Which broker and time an answer names, with all logs and with some missing, held to the faults of recordings."""

import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.lake.arrow_read import read_columns
from tests.answers_bench import Benched, Matrix, bench, lake_of_logs, with_evidence
from tests.figures_in_answers import check_figures
from tests.said_in_answers import wrongly_last_seen
from tests.spark.broker_logs import TRACES, traces

NETWORK: Final = Path(__file__).parents[1] / "golden" / "network"
OTHERS: Final = (
    "k2.8.2", "k3.2.3", "k3.6.2", "k3.7.2-operations", "k3.9.1", "k4.2.1-network", "k4.4.0", "old-0.10.1.1",
    "old-2.1.1", "r12-stuck-min-isr", "r2-follower-stop", "r3-throttle", "r4-leader-stop",
)  # fmt: skip
"""The recordings with drops by leaders."""
RIGHT, WRONG, WRONG_WITH_LESS = 0.95, 0.01, 0.02
"""Least share of right answers with all logs, and largest shares of wrong ones with all and with fewer logs."""
NOT_ALL_LEADERS: Final = "no logs of one broker"
"""State in which drops by one leader are not known at all."""
Record = Callable[[str, object], None]


def test_answers_point_at_the_broker_at_fault(record_property: Record) -> None:
    found = bench(NETWORK)
    record_property("answers", _plain(found.matrix))
    _hold(found)
    for state, kinds in found.matrix.items():
        counts = sum(kinds.values(), Counter())
        some = counts["right"] if state == NOT_ALL_LEADERS else counts.total()
        assert counts["right"] >= RIGHT * some > 0, (state, "its leaders note removals in state-change.log")


@traces
@pytest.mark.nightly
@pytest.mark.traces
@pytest.mark.parametrize("name", OTHERS)
def test_so_they_do_about_other_recordings(
    name: str, record_property: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bench(TRACES / name)
    with capsys.disabled():
        sys.stdout.write(f"\n{found.in_a_line(name)}")
    record_property("answers to others", _plain(found.matrix))
    _hold(found)


def test_restarts_are_replayed_without_the_metadata_log(tmp_path: Path) -> None:
    """The brokers' own lines say when they shut down, register and are unfenced."""
    logs = with_evidence(Path(__file__).parents[2] / "data" / "samples" / "restart", bool, tmp_path / "logs")
    lake = lake_of_logs(logs, tmp_path / "lake")
    assert Counter(read_columns(lake, "replay_check", ["status"])["status"].to_pylist()) == Counter(matched=120)
    # Two brokers were killed, and removed six seconds later, when their sessions had ended.
    killed = {3: "2026-11-21 16:49:59.331", 1: "2026-11-21 16:50:52.315"}
    seen = {one["fault_id"]: one["since_us"] for one in own_shrinks(lake).incidents if one["seen_us"]}
    for broker, time in killed.items():
        killed_us = datetime.fromisoformat(f"{time}+00:00").timestamp() * 1e6
        assert killed_us - 500_000 <= seen.pop(broker) <= killed_us
    assert not seen
    assert check_figures(lake).wrong == []
    assert [*wrongly_last_seen(lake, "Broker 3 was last seen at 16:50:00.")]


def _plain(found: Matrix) -> dict[str, dict[str, dict[str, int]]]:
    return {state: {kind: dict(counts) for kind, counts in kinds.items()} for state, kinds in found.items()}


def _hold(found: Benched) -> None:
    assert found.wrong == []
    totals = {state: sum(kinds.values(), Counter()) for state, kinds in found.matrix.items()}
    whole = totals["all logs"]
    assert whole["right"] >= RIGHT * whole.total() > 0, whole
    assert whole["wrong"] <= WRONG * whole.total(), whole
    for state, counts in totals.items():
        assert counts["wrong"] <= WRONG_WITH_LESS * counts.total(), (state, counts)
    for state, kinds in found.matrix.items():
        for kind, counts in kinds.items():
            assert counts["right"] <= found.matrix["all logs"][kind]["right"], (
                "more logs, a worse answer",
                state,
                kind,
            )

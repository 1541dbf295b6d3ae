"""Which broker an answer points at, with all logs and with some missing, held to the faults of a recording."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.answers_bench import bench

RECORDING = Path(__file__).parents[1] / "golden" / "network"
RIGHT, WRONG, WRONG_WITH_LESS = 0.95, 0.01, 0.02
"""Least share of right answers with all logs, and largest shares of wrong ones with all and with fewer logs."""


def test_answers_point_at_the_broker_at_fault(record_property: Callable[[str, object], None]) -> None:
    found = bench(RECORDING)
    plain = {state: {kind: dict(counts) for kind, counts in kinds.items()} for state, kinds in found.items()}
    record_property("answers", plain)
    totals = {state: sum(kinds.values(), Counter()) for state, kinds in found.items()}
    whole = totals["all logs"]
    assert whole["right"] >= RIGHT * whole.total(), whole
    assert whole["wrong"] <= WRONG * whole.total(), whole
    for state, counts in totals.items():
        assert counts["wrong"] <= WRONG_WITH_LESS * counts.total(), (state, counts)
    for state, kinds in found.items():
        for kind, counts in kinds.items():
            assert counts["right"] <= found["all logs"][kind]["right"], ("more logs, a worse answer", state, kind)

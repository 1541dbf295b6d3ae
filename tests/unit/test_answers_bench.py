"""Which broker an answer points at, with all logs and with some missing, held to the faults of recordings."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers_bench import bench
from tests.spark.broker_logs import TRACES

RECORDINGS = [
    Path(__file__).parents[1] / "golden" / "network",
    *(TRACES / name for name in ("k4.2.1-network", "r4-leader-stop", "k4.4.0", "k3.7.2-operations")),
]
RIGHT, WRONG, WRONG_WITH_LESS = 0.95, 0.01, 0.02
"""Least share of right answers with all logs, and largest shares of wrong ones with all and with fewer logs."""


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_answers_point_at_the_broker_at_fault(
    recording: Path, record_property: Callable[[str, object], None]
) -> None:  # fmt: skip
    if not recording.is_dir():
        pytest.skip("the recorded clusters are not here: ../shared/traces")
    found = bench(recording)
    record_property("answers", found)
    totals = {state: sum(kinds.values(), Counter()) for state, kinds in found.items()}
    whole = totals["all logs"]
    assert whole["right"] >= RIGHT * whole.total(), whole
    assert whole["wrong"] <= WRONG * whole.total(), whole
    for state, counts in totals.items():
        assert counts["wrong"] <= WRONG_WITH_LESS * counts.total(), (state, counts)
    for state, kinds in found.items():
        for kind, counts in kinds.items():
            assert counts["right"] <= found["all logs"][kind]["right"], ("more logs, a worse answer", state, kind)

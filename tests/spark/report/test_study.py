"""Verdicts of the recorded shrinks, by code that follows docs/verdicts.md and shares nothing with the kernel."""

import pytest

from docs.generate.study_constants import AS_THEY_ARE, CONSTANTS, judged_again
from isr_batch.lake.lake import Lake
from isr_batch.scoring.broker_pairs import SUMMED, sums_of_broker_pairs


def test_the_samples_are_judged_the_same_from_the_fetches(sample_lake: Lake) -> None:
    rows = judged_again(sample_lake, {AS_THEY_ARE: CONSTANTS[AS_THEY_ARE]}).to_pylist()
    assert sum(row["shrinks"] for row in rows) > 1000
    assert [row for row in rows if row["judged"] != row["replayed"]] == []


def test_pairs_sum_up_to_the_scores(sample_lake: Lake) -> None:
    """By the tables that the replay writes, summed up by rule alone."""
    rows = sums_of_broker_pairs(sample_lake).to_pylist()
    expected, _ = sample_lake.query("""
        SELECT rule, sum(spurious) AS spurious, sum(genuine) AS genuine, sum(misses) AS misses, sum(early) AS early,
          sum(under_min_isr_seconds) * 1e6 AS under_min_isr_us, sum(metadata_writes) AS isr_writes
        FROM rule_scores WHERE event_date IS NULL AND topic IS NULL GROUP BY rule
    """)
    assert len(expected) > 20
    for row in expected:
        of_rule = [pair for pair in rows if pair["rule"] == row["rule"]]
        for name in {*SUMMED} & row.keys():
            assert sum(pair[name] for pair in of_rule) == pytest.approx(row[name], abs=1), (row["rule"], name)

"""Queries of the report in both engines: DuckDB's answers are Spark's."""

from typing import Any

import pytest

from isr_batch.incidents.own_shrinks import drops_of_incidents, own_shrinks
from isr_batch.lake import sizes
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.sql_files import sql_texts
from isr_batch.report.pictures import pictures, sql_of_picture
from isr_batch.report.shrinks_on_page import choose_shrinks_on_page


def test_answers_here_equal_sparks(sample_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query of the report, in both engines; the one that the page shows is Spark's."""
    ran = dict.fromkeys(("leader-stop", "restart", "follower-stop", "quiet"), "kafka-3.7")
    own = own_shrinks(sample_lake)
    _, shown = choose_shrinks_on_page(own, drops_of_incidents(own))
    values: dict[str, Any] = {"own": [*ran.items()], "rules": [("kafka-3.7",)], "shrinks": shown}
    asked = {one.name: sql_of_picture(one.name) for one in pictures(ran)} | {
        name: sql_of_picture(name) for name in ("facts", "lanes")
    }
    known = "cluster_id, known_by, verdict, primary_cause, lag_ms, true_lag_ms, avoiding_lag_time_ms"
    asked["evidence"] = f"SELECT {known} FROM ({sql_texts()['evidence_and_verdicts']}) ORDER BY ALL"
    with LakeSql(sample_lake) as sql:
        here = {name: sql(text, **values) for name, text in asked.items()}
    monkeypatch.setattr(sizes, "READ_BYTES", -1)
    with LakeSql(sample_lake) as sql:
        for name, text in asked.items():
            there = sql(text, **values)
            assert len(here[name]) == len(there), name
            for row, other in zip(here[name], there, strict=True):
                assert row == pytest.approx(other), name
    assert {name for name, rows in here.items() if not rows} == {"sweeps"}

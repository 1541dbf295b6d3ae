"""Ends of appends, from the offsets that lines name."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.requests.append_log import ASKED, PRODUCED, append_log
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.requests.in_force import epochs_in_force, with_log_stretch
from isr_batch.ingest.terms import isr_changes, leader_epochs, mid_term_rows
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, sources

OF_PARTITION = {"leader_id": 1, "topic": "t", "partition_id": 0, "leader_epoch": 0}
OF_REQUEST = {
    "acks": 1, "client_id": "p", "error_code": 0, "answered": True, "repeated": False, "source_file": "r",
}  # fmt: skip


def term(start_us: int, made_again: int) -> dict[str, Any]:
    return {**OF_PARTITION, "start_us": start_us, "in_force_us": start_us, "start_offset": 0, "made_again": made_again,
            "log_stretch": made_again}  # fmt: skip


def made(random: Random, start_us: int, made_again: int) -> list[dict[str, Any]]:
    """Appends of some records each, from the start of a topic on."""
    rows, at_us, offset = [], start_us, 0
    for line in range(random.randint(1, 8)):
        at_us += random.randint(1, SECOND)
        rows.append({**OF_PARTITION, **OF_REQUEST, "append_us": at_us, "handled_us": at_us - 100,
                     "acknowledged_us": at_us, "base_offset": offset, "log_stretch": made_again,
                     "source_line": start_us + line})  # fmt: skip
        offset += random.randint(1, 5)
    return rows


def appends(sql: ArrowSql, produced: list[dict[str, Any]], terms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    led = pa.Table.from_pylist(terms, mid_term_rows.settled_schema(leader_epochs.TERMS))
    shrinks = isr_changes.isr_shrinks_by_term(sources(sql), led)
    table = append_log(
        Here(sql), pa.Table.from_pylist(produced, PRODUCED), pa.Table.from_pylist([], ASKED.schema), shrinks, led, led,
        epochs_in_force(sql, led),
    )  # fmt: skip
    assert isinstance(table, pa.Table)
    return sorted(table.to_pylist(), key=lambda row: row["append_us"])


@pytest.mark.parametrize("seed", range(8))
def test_a_topic_made_again_has_the_appends_that_it_would_have_alone(sql: ArrowSql, seed: int) -> None:
    """Both topics have the same name, epochs and offsets; they are appended to one after the other."""
    random = Random(seed)
    terms = [term(SECOND, 0), term(100 * SECOND, 1)]
    topics = [made(random, each["start_us"], each["made_again"]) for each in terms]
    alone = [row for topic, of in zip(topics, terms, strict=True) for row in appends(sql, topic, [of])]
    assert appends(sql, [row for topic in topics for row in topic], terms) == alone


def test_a_stretch_ends_at_a_gap_and_where_the_topic_is_made_again(sql: ArrowSql) -> None:
    terms = [term(SECOND, 0), term(5 * SECOND, 1), term(9 * SECOND, 2)]
    known = epochs_in_force(sql, pa.Table.from_pylist(terms, leader_epochs.TERMS))
    others = {"leader_id": [2], "topic": ["t"], "partition_id": [0], "at_us": [20]}
    rows = pa.table({**{name: [OF_PARTITION[name]] * 5 for name in ("leader_id", "topic", "partition_id")},
                     "at_us": [int(at * SECOND) for at in (0.5, 2, 6, 8, 10)]})  # fmt: skip
    rows = pa.concat_tables([pa.table(others), rows], promote_options="permissive")
    stretches = [Stretch(1, 0, 6 * SECOND, True), Stretch(1, 7 * SECOND, 20 * SECOND, False)]
    numbers = with_log_stretch(rows, known, stretches, "at_us").sort_by("at_us")["log_stretch"].to_pylist()
    assert numbers == [0, 0, 0, 1, 2, 3]

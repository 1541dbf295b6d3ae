"""Fingerprints of days: the same by each engine, and another for each thing that a replay takes from its input."""

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.lake.arrow_sql import without_zones
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.replay.days import InputFingerprints, fingerprints, fingerprints_by


def test_both_engines_have_the_same(sample_lake: Lake) -> None:
    found = fingerprints(sample_lake)
    assert found.days() == [date(2026, 11, 21)]
    assert found == fingerprints_by(BySpark(sample_lake))


class Changed(InProcess):
    """One row of one table has another value."""

    change: tuple[str, str, Any]

    def table(self, name: str, columns: Any = ()) -> pa.Table:
        rows = self("SELECT * FROM {rows}", rows=super().table(name, columns))
        if name == self.change[0]:
            column, value = self.change[1:]
            meant = pa.array([row == 0 for row in range(rows.num_rows)])
            other = pc.if_else(meant, pa.scalar(value, rows[column].type), rows[column])
            rows = rows.set_column(rows.column_names.index(column), column, other)
        return without_zones(rows)


def changed(lake: Lake, table: str, column: str, value: Any) -> InputFingerprints:
    engine = Changed(lake)
    engine.change = (table, column, value)
    with engine:
        return fingerprints_by(engine)


@pytest.mark.parametrize(("table", "column", "value"), [
    ("fetch_segments", "checksum", 1), ("leader_epochs", "start_offset", 77), ("leader_epochs", "assigned", [1, 2]),
    ("leader_epochs", "held_at_start", [None, 5]), ("leader_epochs", "ends_mid_term", None),
    ("leader_epochs", "metadata_delay_ms", 99), ("broker_events", "kind", "shutting_down"),
])  # fmt: skip
def test_inputs_of_a_replay_change_the_fingerprint(sample_lake: Lake, table: str, column: str, value: Any) -> None:
    assert changed(sample_lake, table, column, value) != fingerprints(sample_lake)


def test_where_a_line_was_read_does_not_count(sample_lake: Lake) -> None:
    assert changed(sample_lake, "observed_isr_changes", "source_line", 1) == fingerprints(sample_lake)

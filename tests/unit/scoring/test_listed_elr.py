"""The eligible leader replicas at the start of a log, if only `kafka-topics --describe` shows them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_read import contract_of, contract_schema
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake_engine import Rows
from isr_batch.scoring.eligible_leaders import eligible_leaders

PARTITION: dict[str, Any] = {"cluster_id": "c", "topic": "t", "partition_id": 0}
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TERM = PARTITION | {
    "leader_epoch": 1, "leader_id": 1, "start_time": START, "end_time": START + timedelta(minutes=1),
    "assigned": [1, 2, 3], "isr_at_start": [1], "min_insync_replicas": 2, "broker_version": "4.4.0",
    "begins_mid_term": True, "ends_mid_term": True,
}  # fmt: skip
SCORE = PARTITION | {
    "leader_epoch": 1, "leader_id": 1, "rule": "kafka-3.7", "under_replicated_us": 1,
    "params_json": '{"min_insync_replicas": 2, "replica_lag_time_max_ms": 10000}',
}  # fmt: skip
LISTED = PARTITION | {"record_time": START, "kind": "listed"}


class Given(InProcess):
    """An engine with a few given rows, and no lake."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is read
        self.given = rows

    def table(self, name: str, columns: Any = ()) -> Rows:
        schema = contract_schema(name, columns or contract_of(name).column_names)
        return self.rows(pa.Table.from_pylist(self.given.get(name, []), schema))


@pytest.mark.parametrize(
    ("listed", "recorded", "elr", "source"),
    [
        ({"isr": [1], "elr": [2]}, None, [2], "snapshot"),
        ({"isr": [3, 1], "elr": [2]}, None, None, "snapshot"),  # made when the ISR was another one
        ({"isr": [1], "elr": []}, None, None, "unknown"),  # as a cluster without the feature prints it
        ({"isr": [1], "elr": [2]}, [3], [3], "snapshot"),
    ],
)
def test_a_log_begins_with_the_elr_of_a_listing(
    listed: dict[str, Any], recorded: list[int] | None, elr: list[int] | None, source: str
) -> None:
    record = LISTED | {"kind": "partition", "record_offset": 0, "elr": recorded}
    records = [LISTED | listed, *([record] if recorded else [])]
    with Given(leader_epochs=[TERM], partition_scores=[SCORE], controller_records=records) as engine:
        (row,) = engine.listed(eligible_leaders(engine, "auto"))
    assert (row["isr"], row["elr"], row["elr_source"]) == ([1], elr, source)
    assert row["heir_id"] == (elr[0] if elr else None)
    assert row["offline_if_leader_dies"] is (False if elr else None)

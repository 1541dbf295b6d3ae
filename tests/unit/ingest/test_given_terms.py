"""Terms of a table of terms, completed from the fetches of each day."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.own_tables import FETCH_DAYS, GIVEN_TERMS

BEGIN = datetime(2026, 11, 28)  # noqa: DTZ001 as the query has them
OF_PARTITION = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 0, "leader_id": 1}
CLUSTERS = pa.Table.from_pylist([{
    "cluster_id": "c", "replica_lag_time_max_ms": 4000, "min_insync_replicas": 1, "broker_version": "3.9.1",
    "lag_time_source": "given", "has_epochs": True, "has_previous": False,
}])  # fmt: skip


def spans(sql: ArrowSql, starts: list[int], last: int) -> list[tuple[int, int]]:
    """Starts and ends of terms of one leader and epoch; its follower fetches from the first start to ``last``."""
    given = [OF_PARTITION | {"start_time": BEGIN + timedelta(seconds=start)} for start in starts]
    fetched: dict[str, Any] = OF_PARTITION | {
        "replica_id": 2, "first_time": BEGIN + timedelta(seconds=starts[0]),
        "last_time": BEGIN + timedelta(seconds=last), "first_offset": 0, "fetches": 9, "span_number": 0,
    }  # fmt: skip
    tables = {
        table.name: without_zones(
            pa.Table.from_pylist(rows, pa.schema([
                field.with_nullable(True) for field in contract_schema(table.name, table.column_names)
            ]))
        )
        for table, rows in ((GIVEN_TERMS, given), (FETCH_DAYS, [fetched]))
    }  # fmt: skip
    text = text_of("isr_batch.ingest.own_table", "given_terms", gap_us=1, hole_us=1)
    rows = sql(text, clusters=CLUSTERS, **tables).to_pylist()
    found = sorted((row["start_time"], row["end_time"]) for row in rows)
    return [tuple(round((time - BEGIN).total_seconds()) for time in span) for span in found]


def test_a_term_ends_where_the_topic_is_made_again(sql: ArrowSql) -> None:
    """The new topic has the same epochs, and its fetches are not of the term before."""
    assert spans(sql, [0], 500) == [(0, 500)]
    assert spans(sql, [0, 300], 500) == [(0, 300), (300, 500)]
    assert spans(sql, [0, 300, 400], 500) == [(0, 300), (300, 400), (400, 500)]

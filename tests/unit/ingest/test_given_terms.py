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

OBSERVING = pa.Table.from_pylist([{"cluster_id": "c", "topic": "t", "partition_id": 0, "listed": [3]}])


def terms(sql: ArrowSql, starts: list[int], last: int, offsets: dict[int, int], **given: Any) -> list[dict[str, Any]]:
    """Terms of one leader and epoch; followers fetch from the first start to ``last``, first from ``offsets``."""
    rows = [OF_PARTITION | given | {"start_time": BEGIN + timedelta(seconds=start)} for start in starts]
    fetched = [
        OF_PARTITION | {
            "replica_id": replica, "first_time": BEGIN + timedelta(seconds=starts[0]),
            "last_time": BEGIN + timedelta(seconds=last), "first_offset": offset, "fetches": 9, "span_number": 0,
        } for replica, offset in offsets.items()
    ]  # fmt: skip
    tables = {
        table.name: without_zones(
            pa.Table.from_pylist(of_table, pa.schema([
                field.with_nullable(True) for field in contract_schema(table.name, table.column_names)
            ]))
        )
        for table, of_table in ((GIVEN_TERMS, rows), (FETCH_DAYS, fetched))
    }  # fmt: skip
    text = text_of("isr_batch.ingest.own_table", "given_terms", gap_us=1, hole_us=1)
    return list(sql(text, clusters=CLUSTERS, observing=OBSERVING, **tables).to_pylist())


def spans(sql: ArrowSql, starts: list[int], last: int) -> list[tuple[int, int]]:
    found = sorted((row["start_time"], row["end_time"]) for row in terms(sql, starts, last, {2: 0}))
    return [tuple(round((time - BEGIN).total_seconds()) for time in span) for span in found]


def test_a_term_ends_where_the_topic_is_made_again(sql: ArrowSql) -> None:
    """The new topic has the same epochs, and its fetches are not of the term before."""
    assert spans(sql, [0], 500) == [(0, 500)]
    assert spans(sql, [0, 300], 500) == [(0, 300), (300, 500)]
    assert spans(sql, [0, 300, 400], 500) == [(0, 300), (300, 400), (400, 500)]


def test_observers_are_not_in_an_isr_that_nobody_gave(sql: ArrowSql) -> None:
    """And the high watermark does not wait for them."""
    (term,) = terms(sql, [0], 500, {2: 70, 3: 40})
    assert (term["assigned"], term["isr_at_start"], term["observers"]) == ([1, 2, 3], [1, 2], [3])
    assert (term["start_offset"], term["start_high_watermark"]) == (70, 70)
    (term,) = terms(sql, [0], 500, {2: 70, 3: 40}, assigned=[3, 1, 2], isr_at_start=[1, 3])
    assert (term["isr_at_start"], term["observers"]) == ([1, 3], [3]), "promoted"

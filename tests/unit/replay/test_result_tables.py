"""Shrinks from results of a replay by plain Python, for few rows, are those of the query."""

from functools import partial

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.duckdb_engine import answered
from isr_batch.lake.tables.outputs import SHRINK_VERDICTS
from isr_batch.replay.result_tables import scored_result_tables, shrinks_of_results
from udfs.batches.results import RESULT_SCHEMA

FROM_US = 1_764_000_000_000_000
MOMENTS = st.tuples(
    st.sampled_from(["kafka-2.1", "kafka-3.7"]), st.integers(1, 2), st.integers(0, 5),
    st.sampled_from(["shrink", "expand", "relinquish", "doubt", "doubt"]),
    st.sampled_from([None, "check_time", "event_order"]),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(MOMENTS, max_size=40, unique_by=lambda row: row if row[3] == "doubt" else row[:4]))
def test_shrinks_by_query_and_by_python(rows: list[tuple[str, int, int, str, str | None]]) -> None:
    same = {"result": "change", "cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 5, "leader_id": 3}
    results = pa.Table.from_pylist(
        [
            {**same, "rule": rule, "params_json": "{}", "replica_id": replica, "time_us": FROM_US + at, "kind": kind,
             "depends_on": why if kind == "doubt" else None, "true_lag_ms": number}
            for number, (rule, replica, at, kind, why) in enumerate(rows)
        ],
        RESULT_SCHEMA,
    )  # fmt: skip
    schema = contract_schema(SHRINK_VERDICTS.name, SHRINK_VERDICTS.column_names)
    asked = scored_result_tables(partial(answered, log_sql(repeated=True)), results, [SHRINK_VERDICTS])[SHRINK_VERDICTS]
    by_query, by_python = (
        sorted(map(repr, table.cast(schema).to_pylist())) for table in (asked, shrinks_of_results(results))
    )
    assert by_python == by_query

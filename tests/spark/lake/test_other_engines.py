"""delta-rs, and DuckDB over Arrow, read every table: the same rows, and the same in every column."""

import deltalake
import duckdb
import pytest

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES

# By type of a column: the expression for Spark, and the one for DuckDB.
ASKED = {
    "BIGINT": ("sum(CAST({0} % 1000003 AS BIGINT))", "sum({0} % 1000003)"),
    "BOOLEAN": ("count_if({0})", "count_if({0})"),
    "STRING": ("sum(octet_length({0}))", "sum(strlen({0}))"),
    "BINARY": ("sum(octet_length({0}))", "sum(octet_length({0}))"),
    "TIMESTAMP": ("sum(unix_micros({0}) % 1000003)", "sum(epoch_us({0}) % 1000003)"),
    "DATE": ("sum(unix_date({0}))", "sum(CAST({0} AS DATE) - DATE '1970-01-01')"),
    "DOUBLE": ("max({0})", "max({0})"),
    "ARRAY": ("sum(size({0}))", "sum(len({0}))"),
    "MAP": ("sum(size({0}))", "sum(cardinality({0}))"),
}
ASKED["INT"] = ASKED["BIGINT"]


@pytest.mark.usefixtures("compiled_queries")
def test_every_table(sample_lake: Lake) -> None:
    read = []
    for table in TABLES.values():
        if not sample_lake.has(table.name):
            continue
        kinds = {column.name: column.type.partition("<")[0] for column in table.columns}
        of_spark, of_duckdb = ["count(*)"], ["count(*)"]
        for name, kind in kinds.items():
            of_spark += [f"count(`{name}`)", ASKED[kind][0].format(f"`{name}`")]
            of_duckdb += [f'count("{name}")', ASKED[kind][1].format(f'"{name}"')]
        stored = deltalake.DeltaTable(f"{sample_lake.root}/{table.name}")
        spark_says = tuple(sample_lake.read(table.name).selectExpr(*of_spark).collect()[0])
        assert stored.count() == spark_says[0], table.name
        if not stored.file_uris():
            assert spark_says[0] == 0, table.name
            continue
        # The files need not have the columns that the table is partitioned by: its log has them.
        rows = stored.to_pyarrow_dataset()
        duckdb_says = duckdb.connect().register("stored", rows).execute(f"SELECT {', '.join(of_duckdb)} FROM stored")
        assert duckdb_says.fetchone() == spark_says, table.name
        read.append(table.name)
    assert {"fetch_log", "fetch_segments", "isr_changes", "shrink_verdicts", "rule_scores", "replay_check"} <= set(read)

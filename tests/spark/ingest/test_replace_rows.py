"""One row that its table would not take does not hold up the others."""

import datetime as dt

from isr_batch.ingest.replace_rows import replace_covered_rows
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, QUARANTINE
from tests.spark.test_jobs import frame

AT = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_a_row_that_breaks_the_contract_is_in_quarantine(lake: Lake) -> None:
    spark = lake.spark
    good = {"log_end_offset": 5, "base_offset": 4, "acks": -1, "error_code": 0, "source_file": "broker-1/request.log",
            "append_time": AT, "event_date": AT.date()}  # fmt: skip
    bad = good | {"topic": "empty", "base_offset": 5}, good | {"topic": "nowhere", "source_file": None}
    appends = frame(spark, APPEND_LOG, good, *bad)
    events = spark.createDataFrame([], BROKER_EVENTS.schema_ddl)
    quarantine = spark.createDataFrame([], QUARANTINE.schema_ddl)
    tables = {APPEND_LOG.name: appends, BROKER_EVENTS.name: events, QUARANTINE.name: quarantine}
    read = {APPEND_LOG.name: "source_file IN ('broker-1/request.log')"}
    written, broken = replace_covered_rows(lake, tables, "c", replaced=read)
    assert (written, broken) == ({APPEND_LOG.name: 1, BROKER_EVENTS.name: 0, QUARANTINE.name: 2}, 2)
    assert lake.read(APPEND_LOG.name).select("topic").collect()[0][0] not in {"empty", "nowhere"}
    told = lake.read(QUARANTINE.name).orderBy("detail").select("source_file", "reason", "detail", "rows_kept")
    assert [tuple(row) for row in told.collect()] == [
        ("broker-1/request.log", "breaks the contract", "append_log: batch_not_empty", False),
        ("several files", "breaks the contract", "append_log: of no file or day that was read", False),
    ]
    assert '"nowhere"' in lake.read(QUARANTINE.name).where("source_file = 'several files'").collect()[0]["raw"]

"""Tables that the driver holds: which rows of the lake they replace, without Spark."""

import datetime as dt
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from isr_batch.ingest.replace_rows import replace_covered_rows
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.open import Days, DirectTable
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import BROKER_EVENTS, QUARANTINE
from isr_batch.lake.tables.leaders import COVERAGE


class Recorded(SmallTables):
    """Takes all tables, and notes what is to be replaced."""

    def __init__(self, sql: ArrowSql) -> None:
        super().__init__(SimpleNamespace(spark=None, run_id="r"), sql)  # type: ignore[arg-type]
        self.writes: dict[str, tuple[int, str, Days | None]] = {}

    def takes(self, _table: Table, _days: Days | None = None, _where: str | None = None) -> DirectTable:
        return DirectTable(Store("/nowhere"), str)

    def replace(
        self,
        table: Table,
        rows: pa.Table,
        where: str,
        days: Days | None = None,
        files: Sequence[FileOfWorker] = (),
        *,
        checked: bool = False,
    ) -> int:
        assert checked is (table.name != "quarantine")
        assert not files
        assert self.count_broken(table, rows, where) == 0
        self.writes[table.name] = rows.num_rows, where, days
        return int(rows.num_rows)


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, 23, 59, second, tzinfo=dt.UTC)


def made(table: Table, *rows: dict[str, Any]) -> pa.Table:
    common = {"cluster_id": "c", "broker_id": 1, "event_date": at(0).date()}
    return pa.Table.from_pylist([common | row for row in rows], arrow_schema(table))


def test_each_table_replaces_the_time_that_it_covers_except_kept_rows(sql: ArrowSql) -> None:
    small = Recorded(sql)
    event = {"kind": "check", "end_time": at(50)}
    tables = {
        BROKER_EVENTS.name: made(BROKER_EVENTS, *(event | {"event_time": at(second)} for second in (10, 20, 40))),
        COVERAGE.name: made(COVERAGE),
        QUARANTINE.name: made(
            QUARANTINE, {"source_file": "f", "reason": "r", "rows_kept": False, "ingest_run": "r"}
        ),
    }  # fmt: skip
    written, refused = replace_covered_rows(
        small.lake, tables, "c", small=small, replaced={QUARANTINE.name: "source_file NOT IN ('g')"},
        left_alone={BROKER_EVENTS.name: f"broker_id = 1 AND event_time > TIMESTAMP'{at(30):%Y-%m-%d %H:%M:%S}'"},
    )  # fmt: skip
    assert (written, refused) == ({BROKER_EVENTS.name: 2, COVERAGE.name: 0, QUARANTINE.name: 1}, 0)
    covered = (
        "cluster_id = 'c' AND (event_date BETWEEN DATE'2026-01-01' AND DATE'2026-01-01' AND event_time BETWEEN "
        "TIMESTAMP'2026-01-01 23:59:10.000000' AND TIMESTAMP'2026-01-01 23:59:40.000000') AND NOT (broker_id = 1 "
        "AND event_time > TIMESTAMP'2026-01-01 23:59:30')"
    )
    assert small.writes == {
        BROKER_EVENTS.name: (2, covered, ("2026-01-01", "2026-01-01")),
        COVERAGE.name: (0, "cluster_id = 'c' AND (true) AND NOT (false)", None),
        QUARANTINE.name: (1, "cluster_id = 'c' AND (source_file NOT IN ('g')) AND NOT (false)", None),
    }

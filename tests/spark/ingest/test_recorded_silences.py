"""Recorded clusters, of whose fetches only one instant is left: the silences are those that the whole logs show."""

from datetime import date, timedelta

import pyarrow as pa
import pytest

from isr_batch.ingest.own_table.broker_days import DAY_SECONDS, SECOND_US, FetchDay
from isr_batch.ingest.own_table.silences import LEAST_US, leader_silences, quiet_where_logs_grew
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.user_sql import _view_for_user_sql


@pytest.mark.parametrize("cluster", ["leader-stop", "follower-stop", "restart", "quiet"])
def test_one_instant_shows_the_silences_of_the_logs(sample_lake: Lake, cluster: str) -> None:
    def rows(table: str, *columns: str) -> pa.Table:
        of_view = {"fetch_log": _view_for_user_sql(sample_lake, "fetch_log")} if table == "fetches" else {}
        text = f"SELECT {', '.join(columns)} FROM {table} WHERE cluster_id = '{cluster}'"
        with ArrowSql() as sql:
            return sql(text, **of_view, **{table: _view_for_user_sql(sample_lake, table)})

    fetches = rows("fetches", "leader_id", "replica_id", "unix_micros(handled_time) AS handled_us", "topic",
                   "partition_id", "fetch_offset", "leader_log_end_offset")  # fmt: skip
    at_us = fetches["handled_us"].to_numpy()
    (day,) = set(at_us // (DAY_SECONDS * SECOND_US))
    of_day = FetchDay(date(1970, 1, 1) + timedelta(days=int(day)))
    of_day.add(fetches["leader_id"].to_numpy(), fetches["replica_id"].to_numpy(), at_us)
    terms = rows("leader_epochs", "leader_id", "unix_micros(start_time) AS start_us", "unix_micros(end_time) AS end_us")
    silences = leader_silences(of_day.broker_days(), terms)
    with ArrowSql() as sql:
        found = quiet_where_logs_grew(sql, silences, fetches).to_pylist()
    span = ("unix_micros(event_time) AS event_us", "unix_micros(end_time) AS end_us")
    logged = rows("broker_events", "broker_id", "kind", *span).to_pylist()
    silent = [row for row in logged if row["kind"] == "silent" and row["end_us"] - row["event_us"] >= LEAST_US]
    if cluster == "restart":
        # Broker 2 was stopped for so long that others took over all that it led.
        assert [row["broker_id"] for row in silent] == [2]
        silent = []
    silent.sort(key=lambda row: (row["broker_id"], row["event_us"]))
    assert [(row["kind"], row["broker_id"]) for row in found] == [("silent", row["broker_id"]) for row in silent]
    for one, other in zip(found, silent, strict=True):
        assert abs(one["event_us"] - other["event_us"]) < 100_000
        assert abs(one["end_us"] - other["end_us"]) < 100_000

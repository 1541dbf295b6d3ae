"""Partitions of a fetch session that was opened before the log."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.requests.fetch_log import IN_SESSIONS
from isr_batch.ingest.terms.session_partitions import members_before
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.batches.sessions import Members

SECOND = 1_000_000
TOPICS = pa.table({"topic_id": ["id-of-busy"], "topic": ["busy"]})


def term(**more: Any) -> dict[str, Any]:
    return {
        "leader_id": 1, "topic": "busy", "partition_id": 0, "start_us": 11 * SECOND, "end_us": 60 * SECOND,
        "begins_mid_term": True, "assigned": [1, 2, 3],
    } | more  # fmt: skip


def members(sql: ArrowSql, *led: dict[str, Any], **more: Any) -> Members:
    """Members of the session of follower 2 with leader 1, whose first request in the log was handled at 10.5 s."""
    first = {
        "broker_id": 1, "replica_id": 2, "session": 7, "session_epoch": 40, "error_code": 0, "partitions": b"",
        "handled_us": 10_500_000, "client_id": "broker-2-fetcher-0",
    } | more  # fmt: skip
    row = {name: first.get(name, "" if pa.types.is_string(IN_SESSIONS.field(name).type) else 0)
           for name in IN_SESSIONS.names}  # fmt: skip
    sessions = pa.Table.from_pylist([row], IN_SESSIONS)
    return members_before(Here(sql), sessions, led, TOPICS, {})


def test_all_that_the_leader_leads_and_the_follower_follows(sql: ArrowSql) -> None:
    led = [term(), term(partition_id=4), term(partition_id=5, assigned=[1, 3]), term(partition_id=6, leader_id=3)]
    assert members(sql, *led) == {(1, 7): [(["id-of-busy"], "busy", [(0, -1, -1), (4, -1, -1)])]}


@pytest.mark.parametrize(("begins_mid_term", "held"), [(True, [0]), (False, [])])
def test_partitions_that_the_leader_takes_over_later_are_listed_then(
    sql: ArrowSql, begins_mid_term: bool, held: list[int]
) -> None:
    """A log begins when its first request is completed, which was handled up to a second before."""
    found = members(sql, term(begins_mid_term=begins_mid_term))
    assert [[partition for partition, *_ in partitions] for _, _, partitions in found[1, 7]] == ([held] if held else [])


def test_a_session_that_begins_in_the_log(sql: ArrowSql) -> None:
    assert members(sql, term(), session_epoch=0) == {}

"""Coverage of a request log, from a few properties of its lines."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.requests.coverage import (
    NUMBERS,
    Stretch,
    coverage,
    coverage_rows,
    request_number_signs,
    stretches_of,
    with_process_starts,
    with_stretch_number,
)
from isr_batch.ingest.requests.request_log import REQUESTS
from isr_batch.ingest.terms.releases import oldest_release
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND

SPAN = (100 * SECOND, 200 * SECOND)
GAP = (140 * SECOND, 150 * SECOND)


def of_broker(**signs: list[tuple[int | None, int]]) -> list[Stretch]:
    given: dict[str, list[Any]] = {"gaps": [], "spanned": [], "breaks": []} | signs
    return stretches_of(1, SPAN, **given)


def test_a_log_without_signs_is_whole() -> None:
    assert of_broker() == [Stretch(1, *SPAN, from_start=True)]


def test_a_quiet_time_is_no_hole() -> None:
    assert of_broker(gaps=[GAP]) == [Stretch(1, *SPAN, from_start=True)]


def test_numbers_that_jump_across_a_gap_show_a_hole() -> None:
    jump = (GAP[0] - 200, GAP[1] + 300)
    before, after = of_broker(gaps=[GAP], breaks=[jump])
    assert (before.first_us, before.until_us, before.from_start) == (SPAN[0], GAP[0], True)
    assert (after.first_us, after.until_us, after.from_start) == (GAP[1], SPAN[1], False)


def test_numbers_that_go_on_across_a_gap_show_that_there_is_none() -> None:
    # One follower was stopped, and its numbers jump for another reason; the other one's follow each other.
    jump, goes_on = (GAP[0] - 200, GAP[1] + 300), (GAP[0], GAP[1])
    assert len(of_broker(gaps=[GAP], breaks=[jump], spanned=[goes_on])) == 1


def test_a_jump_without_a_gap_is_a_lost_line_and_no_hole() -> None:
    assert len(of_broker(breaks=[(120 * SECOND, 120 * SECOND + 900)])) == 1


def test_followers_in_the_middle_of_their_numbers_show_a_late_beginning() -> None:
    (stretch,) = of_broker(breaks=[(None, SPAN[0] + 10)])
    assert not stretch.from_start
    assert not stretch.has(SPAN[0] - 1)
    assert stretch.has(SPAN[0])


def test_a_log_from_its_start_vouches_for_the_time_before_its_first_line() -> None:
    (stretch,) = of_broker()
    assert stretch.has(SPAN[0] - 60 * SECOND)
    assert not stretch.has(SPAN[1] + 1)


@pytest.mark.parametrize(
    ("server_log_s", "starts_s", "from_start"),
    [
        (60, [60], True),
        (60, [60, 90], True),
        (10, [10, 60], False),  # the request log begins after a restart
        (-10, [60], False),  # server.log begins in the process before
        (10, [10], False),
        (60, [], False),
        (None, [], True),
    ],
)
def test_a_log_that_begins_after_a_restart_does_not_vouch_for_the_process_before(
    server_log_s: int | None, starts_s: list[int], from_start: bool
) -> None:
    first_us = None if server_log_s is None else server_log_s * SECOND
    files = pa.Table.from_pylist([{"kind": "server", "broker_id": 1, "first_us": first_us}])
    settings = pa.Table.from_pylist([{"broker_id": 1, "starts_us": [second * SECOND for second in starts_s]}])
    (stretch,) = with_process_starts(of_broker(), files, settings)
    assert stretch.from_start is from_start


def test_a_follower_that_shows_up_in_the_middle_after_a_gap_shows_a_hole_there() -> None:
    stretches = of_broker(gaps=[GAP], breaks=[(None, GAP[1] + 100)])
    assert [each.from_start for each in stretches] == [True, False]


def test_a_late_beginning_needs_no_hole_to_explain_others() -> None:
    # All were in the middle when the log began; one of them was stopped, and shows up late.
    stretches = of_broker(gaps=[GAP], breaks=[(None, SPAN[0] + 10), (None, GAP[1] + 100)])
    assert [(each.first_us, each.from_start) for each in stretches] == [(SPAN[0], False)]


BY_FILE = pa.schema([
    ("broker_id", pa.int32()), ("kind", pa.string()), ("reason", pa.string()), ("first_us", pa.int64()),
    ("last_us", pa.int64()), ("api_version", pa.int32()),
])  # fmt: skip
PAUSES = pa.schema([("broker_id", pa.int32()), ("before_done_us", pa.int64()), ("done_us", pa.int64())])
SIGNS = pa.schema([("broker_id", pa.int32()), ("sign", pa.string()), ("from_us", pa.int64()), ("until_us", pa.int64())])


def test_stretches_by_broker_from_aggregates() -> None:
    def request(broker: int, first: int, last: int, reason: str | None = None) -> dict[str, Any]:
        return {"broker_id": broker, "reason": reason, "first_us": first * SECOND, "last_us": last * SECOND}

    by_file = [request(2, 5, 9), request(1, 0, 10), request(1, 8, 60), request(1, 70, 99, "duplicate line"),
               {"broker_id": 3, "reason": "empty file"}]  # fmt: skip
    pauses = [
        {"broker_id": 1, "before_done_us": 20 * SECOND, "done_us": 40 * SECOND},
        {"broker_id": 1, "before_done_us": 50 * SECOND, "done_us": 51 * SECOND},  # too short
        {"broker_id": 2, "before_done_us": None, "done_us": 5 * SECOND},
    ]
    signs = [{"broker_id": 1, "sign": "break", "from_us": 20 * SECOND, "until_us": 40 * SECOND}]
    tables = (pa.Table.from_pylist(rows, schema) for rows, schema in
              ((by_file, BY_FILE), (pauses, PAUSES), (signs, SIGNS)))  # fmt: skip
    assert coverage(*tables) == [
        Stretch(1, 0, 20 * SECOND, True), Stretch(1, 40 * SECOND, 60 * SECOND, False),
        Stretch(2, 5 * SECOND, 9 * SECOND, True),
    ]  # fmt: skip


def test_rows_get_the_number_of_their_stretch() -> None:
    stretches = [Stretch(1, 0, 9, True), Stretch(1, 20, 29, False), Stretch(1, 40, 49, False), Stretch(2, 0, 99, True)]
    table = pa.table({"leader_id": pa.array([1, 1, 1, 1, 2], pa.int32()), "at_us": [5, 19, 20, 45, 50]})
    assert with_stretch_number(table, stretches, "leader_id", "at_us")["log_stretch"].to_pylist() == [0, 0, 1, 2, 0]


def test_the_table_has_the_time_of_each_log(sql: ArrowSql) -> None:
    files = pa.Table.from_pylist(
        [
            {"kind": "server", "broker_id": 1, "first_us": 5, "last_us": 9, "informs": True},
            {"kind": "server", "broker_id": 1, "first_us": 2, "last_us": 7, "informs": True},
            {"kind": "server", "broker_id": 1, "first_us": 0, "last_us": 99, "informs": False},
            {"kind": "server", "broker_id": 2, "first_us": 0, "last_us": 99, "informs": False},
            {"kind": "state-change", "broker_id": 1, "first_us": None, "last_us": None},
            {"kind": "metadata", "broker_id": None, "first_us": 1, "last_us": 2},
        ],
        pa.schema(
            [
                ("kind", pa.string()),
                ("broker_id", pa.int32()),
                ("first_us", pa.int64()),
                ("last_us", pa.int64()),
                ("informs", pa.bool_()),
            ]
        ),
    )
    rows = coverage_rows(sql, [Stretch(1, 3, 4, False)], files).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, "request", 3, 4, True), (1, "server", 2, 9, None)]


@pytest.mark.parametrize(("version", "release"), [(18, "4.1"), (13, "3.1"), (6, "0.11"), (1, None), (None, None)])
def test_the_oldest_release_follows_from_fetch_versions(version: int | None, release: str | None) -> None:
    rows = [{"kind": "follower fetch", "api_version": version}, {"kind": "follower fetch", "api_version": None},
            {"kind": "other fetch", "api_version": 99}]  # fmt: skip
    assert oldest_release(pa.Table.from_pylist(rows, BY_FILE)) == release


def fetch(second: float, number: int, *, session: int = 0, replica: int = 2, error: int = 0) -> dict[str, Any]:
    return {
        "kind": "follower fetch", "broker_id": 1, "source_line": round(second * 10), "replica_id": replica,
        "completed_us": round(second * SECOND), "asked_session": session, "given_session": session, "error_code": error,
        "session_epoch": number if session else -1, "correlation_id": number, "client_id": f"follower-{replica}",
    }  # fmt: skip


def signs_of(sql: ArrowSql, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = request_number_signs(
        Here(sql), Here(sql).sql(pa.Table.from_pylist(list(rows), REQUESTS), *NUMBERS)
    ).to_pylist()
    return sorted(
        (row["sign"], row["from_us"] and row["from_us"] / SECOND, row["until_us"] / SECOND) for row in found
    )  # fmt: skip


def test_numbers_of_a_session_that_jump_or_go_on(sql: ArrowSql) -> None:
    goes_on = [fetch(10, 1, session=7), fetch(20, 2, session=7)]
    assert signs_of(sql, *goes_on) == [("spanned", 10, 20)]
    assert signs_of(sql, fetch(10, 1, session=7), fetch(20, 9, session=7)) == [("break", 10, 20)]
    assert signs_of(sql, fetch(10, 5, session=7)) == [("break", None, 10)]
    assert signs_of(sql, fetch(10, 5, session=7, error=70)) == []


def test_a_follower_without_sessions_that_counts_from_0_again(sql: ArrowSql) -> None:
    """Numbers of its two connections are not one row of numbers: that would span all times between them."""
    first = [fetch(10 + n / 10, n) for n in range(60)]
    again = [fetch(100 + n / 10, n) for n in range(40)]
    assert signs_of(sql, *first, *again) == []
    with_a_hole = [each for each in first if not 20 <= each["correlation_id"] < 45]
    assert signs_of(sql, *with_a_hole, *again) == [("break", 11.9, 14.5)]
    late = [each for each in again if each["correlation_id"] >= 30]
    assert signs_of(sql, *first, *late) == [("break", 15.9, 103)]

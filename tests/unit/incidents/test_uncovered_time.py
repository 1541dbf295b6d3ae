from datetime import UTC, datetime, timedelta
from typing import Any

from isr_batch.incidents.uncovered_time import uncovered_time


def request_log(since: int, until: int, *, mid_term: bool = True) -> dict[str, Any]:
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    times = {"from_time": begin + timedelta(microseconds=since), "until_time": begin + timedelta(microseconds=until)}
    return {"broker_id": 1, "log": "request", "begins_mid_term": mid_term, **times}


def test_time_outside_the_request_log() -> None:
    first, after_a_hole = request_log(100, 400), request_log(500, 900)
    both = [after_a_hole, first, request_log(0, 1000) | {"log": "server"}]
    assert uncovered_time(both, 1, (50, 950)) == ((50, 100), (400, 500), (900, 950))
    assert uncovered_time(both, 1, (150, 450)) == ((400, 450),)
    assert uncovered_time(both, 1, (450, 800)) == ((450, 500),)
    assert uncovered_time([first], 1, (150, 400)) == ()
    assert uncovered_time([request_log(100, 400, mid_term=False)], 1, (50, 950)) == ((400, 950),)


def test_a_broker_without_one_has_nothing_and_other_tables_are_no_logs() -> None:
    assert uncovered_time([request_log(100, 400)], 2, (50, 950)) == ((50, 950),)
    assert uncovered_time([], 1, (50, 950)) == ()

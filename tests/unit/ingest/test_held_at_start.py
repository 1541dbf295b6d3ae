"""Log end of a follower at the start of the leader's log, without a fetch that shows it."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.terms.mid_term import LOGGED, IsrReport
from isr_batch.ingest.terms.mid_term_rows import _settle_mid_term, end_abandoned, end_in_pauses
from isr_batch.ingest.terms.partition_lines import PartitionEvidence
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import lines, sources
from udfs.records import AT_LOG_END, BEHIND

SECOND = 1_000_000
KEY = ("idle", 0)
UNNAMED = {
    "replica_id": 2, "first_us": 11 * SECOND, "answered_us": 11 * SECOND, "first_asked": None, "first_code": 0,
    "first_answered": None, "asked": None, "first_high_watermark": None, "highest": None,
}  # fmt: skip


def settled(
    *reports: IsrReport, asked: tuple[dict[str, Any], ...] = (UNNAMED,), observers: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A term of leader 1 from 10 s to 60 s, with a lag time of 4 s; follower 2 fetches, and follower 3 does not."""
    evidence = PartitionEvidence()
    evidence.isr[KEY].extend(reports)
    row = {
        "topic": "idle", "partition_id": 0, "leader_id": 1, "start_us": 10 * SECOND, "end_us": 60 * SECOND,
        "assigned": [1, 2, 3], "observers": [*observers], "replica_lag_time_max_ms": 4_000,
    }  # fmt: skip
    _settle_mid_term(row, evidence, [], list(asked), None)
    return row


def report(second: int, before: tuple[int, ...] | None, after: tuple[int, ...]) -> IsrReport:
    return IsrReport(second * SECOND, before, after, LOGGED)


@pytest.mark.parametrize(("dropped_at", "held"), [(30, int(AT_LOG_END)), (17, None)])
def test_whom_the_leader_keeps_for_two_lag_times_without_a_fetch_lacks_nothing(
    dropped_at: int, held: int | None
) -> None:
    row = settled(report(5, None, (1, 2, 3)), report(dropped_at, (1, 2, 3), (1, 2)))
    assert row["isr_at_start"] == [1, 2, 3]
    assert row["held_at_start"] == [None, int(AT_LOG_END), held]


def test_an_outsider_without_records_is_behind() -> None:
    row = settled(report(5, None, (1, 3)), report(30, (1, 3), (1,)))
    assert row["isr_at_start"] == [1, 3]
    assert row["held_at_start"] == [None, int(BEHIND), int(AT_LOG_END)]


def test_a_late_joiner_without_offsets_was_fenced_at_the_log_end() -> None:
    row = settled(report(5, None, (1, 3)), report(30, None, (1, 2, 3)))
    assert row["held_at_start"][1] == int(AT_LOG_END)
    named_later = UNNAMED | {"asked": 7}
    row = settled(report(5, None, (1, 3)), report(30, None, (1, 2, 3)), asked=(named_later,))
    assert row["held_at_start"][1] == int(BEHIND)


def test_without_a_line_a_follower_that_does_not_fetch_is_unknown() -> None:
    row = settled()
    assert (row["isr_at_start"], row["isr_source"]) == ([1, 2], "inferred")
    assert row["held_at_start"] == [None, int(AT_LOG_END), None]


def test_a_term_that_all_followers_leave_at_once_is_over() -> None:
    """Each goes on with another partition of the leader, without an append: request logs alone show no deletion."""

    def ended_s(first: float, second: float, other: float, append: float | None = None) -> float:
        row, rest = ({"leader_id": 1, "replica_lag_time_max_ms": 4_000, "end_us": 60 * SECOND} for _ in range(2))
        asked = [
            {"replica_id": replica, "last_us": round(at * SECOND)} for replica, at in ((2, first), (3, second))
        ]  # fmt: skip
        elsewhere = [{"replica_id": replica, "last_us": round(other * SECOND)} for replica in (2, 3)]
        appends = None if append is None else {"last_us": round(append * SECOND)}
        end_abandoned([(row, asked, appends), (rest, elsewhere, None)])
        assert rest["end_us"] == 60 * SECOND
        return row["end_us"] / SECOND

    assert ended_s(20, 20.5, 60) == 20.500001
    assert ended_s(20, 20.5, 60, append=19) == 20.500001
    assert ended_s(20, 20.5, 60, append=21) == 60
    assert ended_s(20, 23, 60) == 60
    assert ended_s(20, 20.5, 24) == 60
    assert ended_s(57, 57.5, 60) == 60


@pytest.mark.parametrize(
    ("level", "end", "over"), [("WARN", 40, 30), ("INFO", 40, 40), ("WARN", 60, 60), ("WARN", 71, 71)]
)
def test_a_term_that_is_over_in_a_long_pause_ends_with_the_last_request(
    sql: ArrowSql, level: str, end: int, over: int
) -> None:
    """Without lines at INFO nothing shows that the process was killed; there is no drop after its last request."""
    row = {"leader_id": 1, "replica_lag_time_max_ms": 4_000, "start_us": SECOND, "end_us": end * SECOND}
    gaps = [(30, 50), (70, 72)]
    pauses = pa.Table.from_pylist(
        [{"broker_id": 1, "before_us": before * SECOND, "first_us": first * SECOND} for before, first in gaps]
    )
    end_in_pauses([row], pauses, sources(sql, lines("anything", level=level)))
    assert row["end_us"] == over * SECOND


def test_an_observer_at_the_log_end_is_not_guessed_to_be_in_the_isr() -> None:
    assert settled()["isr_at_start"] == [1, 2]
    assert settled(observers=(2,))["isr_at_start"] == [1]
    promoted = settled(report(5, None, (1, 2, 3)), observers=(2,))
    assert (promoted["isr_at_start"], promoted["isr_source"]) == ([1, 2, 3], LOGGED)

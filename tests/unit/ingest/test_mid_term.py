"""Terms that had begun before the log: leader, ISR, log end."""

from types import SimpleNamespace
from typing import Any

import pytest

from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.terms.mid_term import (
    INFERRED,
    LOGGED,
    SNAPSHOT,
    Begun,
    FirstFetch,
    IsrReport,
    Led,
    Signs,
    is_passed,
    mid_term_fetcher,
    mid_term_high_watermark,
    mid_term_isr,
    mid_term_log_end,
    terms_in_progress,
)
from isr_batch.ingest.terms.mid_term_rows import vouched_for

MINUTE = 60_000_000
BEGIN = 10 * MINUTE
END = 20 * MINUTE
LATE = Stretch(1, BEGIN, END, from_start=False)
WHOLE = Stretch(1, BEGIN, END, from_start=True)


def start(us: int, epoch: int, *, leads: bool = True, partition: int = 0) -> dict[str, Any]:
    return {
        "broker_id": 1, "topic": "t", "partition_id": partition, "leader_epoch": epoch, "stamp_us": us, "leads": leads,
    }  # fmt: skip


def asked(first_us: int, epoch: int, stretch: int = 0, fetches: int = 100) -> dict[str, Any]:
    return {
        "broker_id": 1, "stretch": stretch, "topic": "t", "partition_id": 0, "leader_epoch": epoch,
        "first_us": first_us, "last_us": first_us + MINUTE, "fetches": fetches,
    }  # fmt: skip


def found(stretch: Stretch, **signs: Any) -> list[tuple[int, int, str]]:
    given = {"starts": [], "process_starts": {}, "fetched": [], "named": [], "led": {}} | signs
    return [
        (begun.stamp_us, begun.leader_epoch, begun.term_source)
        for begun in terms_in_progress([stretch], Signs(**given))
    ]


def test_the_broker_that_gets_fetches_leads_and_its_term_begins_with_the_log() -> None:
    assert found(LATE, fetched=[asked(BEGIN + 7, 4)]) == [(BEGIN, 4, INFERRED)]


def test_a_term_that_is_logged_goes_on_where_the_request_log_begins() -> None:
    assert found(LATE, starts=[start(MINUTE, 4)], fetched=[asked(BEGIN + 7, 4)]) == [(BEGIN, 4, LOGGED)]


def test_a_term_that_begins_inside_the_log_needs_nothing() -> None:
    inside = BEGIN + MINUTE
    assert found(LATE, starts=[start(inside, 4)], fetched=[asked(inside + 7, 4)]) == []


def test_a_term_before_the_logged_one_ends_with_it() -> None:
    inside = BEGIN + MINUTE
    seen = [asked(BEGIN + 7, 3), asked(inside + 7, 4)]
    assert found(LATE, starts=[start(inside, 4)], fetched=seen) == [(BEGIN, 3, INFERRED)]


def test_fetches_before_a_restart_begin_no_term_after_it() -> None:
    restarted = {1: [BEGIN - MINUTE]}
    assert found(LATE, starts=[start(MINUTE, 4)], process_starts=restarted) == []


def test_an_epoch_repeated_after_a_restart_began_before_it() -> None:
    again, restarted = start(BEGIN + 2 * MINUTE, 4), {1: [BEGIN + MINUTE]}
    seen = [asked(BEGIN + 7, 4)]
    assert found(WHOLE, starts=[again], fetched=seen, process_starts=restarted) == [(BEGIN + 7, 4, INFERRED)]
    # In KRaft up to 3.6 it says so again at every change of the ISR.
    assert found(WHOLE, starts=[again], fetched=seen) == [(BEGIN + 7, 4, INFERRED)]
    assert found(WHOLE, starts=[again], fetched=[asked(BEGIN + 2 * MINUTE - 7, 4)]) == []


def test_a_follower_leads_nothing() -> None:
    assert found(LATE, starts=[start(MINUTE, 4), start(2 * MINUTE, 5, leads=False)]) == []


def test_a_few_fetches_make_no_term() -> None:
    assert found(LATE, fetched=[asked(BEGIN + 7, 4, fetches=2)]) == []


def test_releases_that_tell_no_epoch_have_a_term_until_the_first_line() -> None:
    inside = BEGIN + MINUTE
    assert found(LATE, fetched=[asked(BEGIN + 7, -1)]) == [(BEGIN, -1, INFERRED)]
    assert found(LATE, starts=[start(inside, 4)], fetched=[asked(inside + 7, -1)]) == []


def test_without_terms_in_a_whole_log_they_begin_with_the_first_fetch() -> None:
    assert found(WHOLE, fetched=[asked(BEGIN + 7, 4)]) == [(BEGIN + 7, 4, INFERRED)]


def test_an_idle_partition_is_known_by_records_by_listings_and_by_lines() -> None:
    key = ("t", 0)
    assert found(LATE, led={key: [(MINUTE, 2, 3, LOGGED), (2 * MINUTE, 1, 4, LOGGED)]}) == [(BEGIN, 4, LOGGED)]
    assert found(LATE, led={key: [(MINUTE, 1, 3, LOGGED), (2 * MINUTE, 2, 4, LOGGED)]}) == []
    assert found(LATE, led={key: [(BEGIN, 1, -1, SNAPSHOT)]}) == [(BEGIN, -1, SNAPSHOT)]
    line = {"broker_id": 1, "topic": "t", "partition_id": 0, "at_us": BEGIN + MINUTE, "leader_epoch": -1}
    assert found(LATE, named=[line]) == [(BEGIN, -1, INFERRED)]
    assert found(LATE, named=[line, line | {"leader_epoch": 4}]) == [(BEGIN, 4, INFERRED)]
    assert found(LATE, fetched=[asked(BEGIN + 7, -1)], named=[line | {"leader_epoch": 4}]) == [(BEGIN, 4, INFERRED)]


def test_after_a_gap_a_term_goes_on_by_its_fetches() -> None:
    stretches = [Stretch(1, BEGIN, END, from_start=True), Stretch(1, END + MINUTE, 2 * END, from_start=False)]
    signs = Signs([start(BEGIN, 4)], {}, [asked(BEGIN + 7, 4), asked(END + MINUTE + 7, 6, stretch=1)], [], {})
    # Epoch 5 was another leader's, in the gap; epoch 4 went on until then at most.
    assert terms_in_progress(stretches, signs) == [
        Begun(1, "t", 0, 4, END + MINUTE, LOGGED),
        Begun(1, "t", 0, 6, END + MINUTE + 7, INFERRED),
    ]


TERM = Led(BEGIN, END, 1, (1, 2, 3))


def test_the_isr_follows_from_the_lines_before_and_after() -> None:
    reports = [
        IsrReport(MINUTE, (1, 2, 3), (1, 2), LOGGED),
        IsrReport(BEGIN + MINUTE, (1, 2), (1,), LOGGED),
    ]
    assert mid_term_isr(TERM, reports, [], {}) == ([1, 2], LOGGED)


def test_a_joiner_without_a_line_is_in_if_the_high_watermark_had_not_passed_it() -> None:
    reports = [
        IsrReport(MINUTE, (1, 2, 3), (1, 2), LOGGED),
        IsrReport(BEGIN + MINUTE, (1, 2, 3), (1, 3), LOGGED),
    ]
    assert mid_term_isr(TERM, reports, [], {2: True, 3: True}) == ([1, 2, 3], INFERRED)
    assert mid_term_isr(TERM, reports, [], {2: True, 3: False}) == ([1, 2], INFERRED)


def test_the_next_line_alone_shows_the_isr() -> None:
    reports = [IsrReport(BEGIN + MINUTE, (1, 2, 3), (1, 2), LOGGED)]
    # A follower that has not fetched between the two cannot have joined.
    assert mid_term_isr(TERM, reports, [], {2: True}) == ([1, 2, 3], LOGGED)
    assert mid_term_isr(TERM, reports, [], {2: True, 3: False}) == ([1, 2], INFERRED)
    # Who fetched at the log end was taken out in between.
    reports = [IsrReport(BEGIN + MINUTE, (1, 2), (1, 2, 3), LOGGED)]
    assert mid_term_isr(TERM, reports, [], {2: True, 3: True}) == ([1, 2, 3], INFERRED)


def test_a_line_with_only_the_result_leaves_the_rest_to_the_fetches() -> None:
    reports = [
        IsrReport(BEGIN + MINUTE, None, (1, 2, 3), LOGGED),
        IsrReport(BEGIN + 2 * MINUTE, (1, 2, 3), (1, 2), LOGGED),
    ]
    assert mid_term_isr(TERM, reports, [], {2: True, 3: False}) == ([1, 2], INFERRED)


def test_a_replica_dropped_after_the_snapshot_is_out_if_the_high_watermark_had_passed_it() -> None:
    reports = [IsrReport(MINUTE, None, (1, 2, 3), SNAPSHOT)]
    assert mid_term_isr(TERM, reports, [], {2: True}) == ([1, 2, 3], SNAPSHOT)
    assert mid_term_isr(TERM, reports, [], {2: True, 3: False}) == ([1, 2], INFERRED)


def test_a_gap_resets_the_known_state() -> None:
    reports = [IsrReport(MINUTE, (1, 2, 3), (1, 2), LOGGED)]
    hole = [(2 * MINUTE, BEGIN)]
    assert mid_term_isr(TERM, reports, [], {2: True, 3: True}) == ([1, 2], LOGGED)
    assert mid_term_isr(TERM, reports, hole, {2: True, 3: True}) == ([1, 2, 3], INFERRED)


def test_the_log_ends_where_the_first_append_begins() -> None:
    assert mid_term_log_end([90, 100], 100, [], [88]) == 100
    assert mid_term_high_watermark(100, [90, 100], [88]) == 88


def test_without_appends_the_furthest_follower_is_at_the_end() -> None:
    assert mid_term_log_end([90, 100], None, [], []) == 100
    assert mid_term_high_watermark(100, [100], []) == 100
    assert mid_term_high_watermark(100, [90, 100], []) == 90


def test_an_idle_partition_may_be_known_from_a_shrinking_line_or_not_at_all() -> None:
    assert mid_term_log_end([], None, [40], [40]) == 40
    assert mid_term_log_end([], None, [], []) is None
    assert mid_term_high_watermark(None, [], []) is None


FETCHED = FirstFetch(BEGIN + MINUTE, offset=90, sent=False, answered=None, highest=None)
SENT = FETCHED._replace(offset=None, sent=True)
APPENDED = BEGIN + 1


@pytest.mark.parametrize(
    ("fetch", "end", "appended_us", "passed"),
    [
        (FETCHED, 100, APPENDED, False),
        (FETCHED._replace(answered=90), 100, APPENDED, False),  # it may have held the high watermark itself
        (FETCHED._replace(answered=91), 100, APPENDED, True),
        (FETCHED._replace(highest=91), 100, APPENDED, True),
        (SENT._replace(highest=100), 100, APPENDED, False),  # it may have held all records
        (SENT._replace(highest=101), 100, APPENDED, True),
        (SENT._replace(answered=100), 100, BEGIN + 2 * MINUTE, True),  # all was committed, and it lacked something
        (SENT._replace(answered=99), 100, None, False),
        (SENT._replace(answered=100), None, None, False),
    ],
)
def test_a_replica_passed_by_the_high_watermark_was_not_in_sync(
    fetch: FirstFetch, end: int | None, appended_us: int | None, passed: bool
) -> None:  # fmt: skip
    assert is_passed(fetch, end, appended_us) is passed


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "thread"),
    [("busy", 0, 1, 0), ("polygenelubricants", 0, 7, 0), ("a", 0, 4, 3007 % 4), ("a", 3, 4, 3010 % 4)],
)
def test_a_partition_s_fetcher_follows_from_its_name(topic: str, partition: int, fetchers: int, thread: int) -> None:
    assert mid_term_fetcher(topic, partition, fetchers) == thread


@pytest.mark.parametrize(
    ("end_us", "kept"),
    [
        (END + 1_000_000, [(END + 1_000_000, False)]),  # requests in flight when the log ends
        (END + MINUTE, [(END, True)]),  # server.log goes on, and no request of that time is there
    ],
)
def test_a_term_is_known_as_long_as_its_request_log_lasts(end_us: int, kept: list[tuple[int, bool]]) -> None:
    nothing: Any = SimpleNamespace(replicas={}, isr={})
    term = {
        "leader_id": 1, "topic": "t", "partition_id": 0, "leader_epoch": 1, "start_us": BEGIN + MINUTE,
        "end_us": end_us, "next_us": end_us, "begins_mid_term": False, "made_again": 0, "assigned": [1, 2],
    }  # fmt: skip
    found = vouched_for([term], [WHOLE], nothing)
    assert [(row["end_us"], row["ends_mid_term"]) for row in found] == kept
    after = term | {"start_us": END + MINUTE, "end_us": END + 2 * MINUTE}
    assert vouched_for([after], [WHOLE], nothing) == [], "a term of which no request was logged"

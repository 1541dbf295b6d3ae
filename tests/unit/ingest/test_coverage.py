"""For which time a request log can vouch, from a few signs of its lines."""

from typing import Any

from isr_batch.ingest.kafka_logs.coverage import Stretch, stretches_of

SECOND = 1_000_000
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


def test_a_follower_that_shows_up_in_the_middle_after_a_gap_shows_a_hole_there() -> None:
    stretches = of_broker(gaps=[GAP], breaks=[(None, GAP[1] + 100)])
    assert [each.from_start for each in stretches] == [True, False]


def test_a_late_beginning_needs_no_hole_to_explain_others() -> None:
    # All were in the middle when the log began; one of them was stopped, and shows up late.
    stretches = of_broker(gaps=[GAP], breaks=[(None, SPAN[0] + 10), (None, GAP[1] + 100)])
    assert [(each.first_us, each.from_start) for each in stretches] == [(SPAN[0], False)]

"""The time zone that a command is asked for: named wherever a time is, the same instants in another one."""

import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from isr_batch.incidents.incident_card import incident_card, incident_markdown
from isr_batch.incidents.own_shrinks import drops_of_incidents, incident_key
from isr_batch.report.cluster_timeline import cluster_timeline
from isr_batch.shown_times import show_times_in, time_text, time_text_ms
from isr_batch.window import parse_asked_time
from tests.own_shrinks_log import BEGIN, Log, leader_was_silent
from tests.unit.command_line import Run

BEGIN_US = int(BEGIN.timestamp()) * 1_000_000


@pytest.fixture
def in_kathmandu() -> Iterator[None]:
    show_times_in("Asia/Kathmandu", ZoneInfo("Asia/Kathmandu"))
    yield
    show_times_in("UTC", ZoneInfo("UTC"))


@pytest.mark.usefixtures("in_kathmandu")
def test_instants_and_ticks_are_in_the_zone_and_it_is_named() -> None:
    assert time_text(BEGIN_US) == "2026-01-01 05:45:00"
    assert time_text_ms(BEGIN_US + 1_999) == "2026-01-01 05:45:00.001"
    log = Log()
    leader_was_silent(log)
    own = log.found()
    card = incident_card(own.incidents[0], drops_of_incidents(own)[incident_key(own.incidents[0])])
    assert re.search(r"When: 2026-01-01 05:45:\d\d to 05:45:16 Asia/Kathmandu", incident_markdown(card, "c"))
    assert "UTC" not in incident_markdown(card, "c")
    assert cluster_timeline(own, own.clusters[0], {}).ticks[0]["text"] == "05:45:15"


@pytest.mark.usefixtures("in_kathmandu")
def test_a_time_that_is_shown_is_found_again() -> None:
    for text in (time_text(BEGIN_US), "05:45:00", f"{BEGIN_US // 1000}", "2026-01-01T00:00:00Z"):
        assert parse_asked_time("--at", text).after_us(BEGIN_US) == 0, text


def test_an_hour_that_there_is_twice_has_two_offsets() -> None:
    show_times_in("Europe/Berlin", ZoneInfo("Europe/Berlin"))
    try:
        summer, winter = (time_text(us * 1_000_000) for us in (1792888200, 1792891800))
        assert summer == winter == "2026-10-25 02:30:00"
    finally:
        show_times_in("UTC", ZoneInfo("UTC"))


def test_a_zone_that_does_not_exist_is_refused_with_one_that_does(isr_batch: Run) -> None:
    for command in (["report", "--out", "r.html"], ["explain"], ["run", "--samples"], ["export", "incident"]):
        code, _, said = isr_batch(*command, "--lake", "nowhere", "--display-zone", "Europe/Helsinky")
        assert (code, "did you mean Europe/Helsinki?" in said) == (2, True), command

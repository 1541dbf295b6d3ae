"""Shrinks that depend on an order that the log lacks, by hand: when a check ran, and which of two events came first."""

import pytest

from tests.naive_rows import Change
from tests.naive_truth import APPEND, CHECK, FETCH, SILENCE, Row, Term
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import assert_agree, replay

START_US = 1_000_000_000
LAG_MS = 4_000
RUN = Setting("kafka-3.7", LAG_MS)
ASLEEP_MS = 2_500
"""Follower 2 fetches until then; checks are due every two seconds, so that it is dropped at 8,000."""
DROPPED_MS = 8_000


def at(ms: float) -> int:
    return START_US + round(ms * 1000)


def fetch(ms: float, offset: int, recorded_ms: float | None = None, answered_ms: float | None = None) -> Row:
    """A fetch of follower 2, handled 0.1 ms after its arrival."""
    done = recorded_ms if recorded_ms is not None else ms + 0.2
    answered = answered_ms if answered_ms is not None else done
    return Row(at(ms), FETCH, 2, offset, 0, -1, at(ms + 0.1), at(done), at(done), at(answered))


def log_end(ms: float) -> int:
    """The leader's log end then: a record every 100 ms."""
    return int(ms + 50) // 100


def caught_up(ms: float, recorded_ms: float | None = None) -> Row:
    return fetch(ms, log_end(ms), recorded_ms)


def awake() -> list[Row]:
    return [fetch(ms, ms // 100) for ms in range(100, ASLEEP_MS, 100)]


def appends() -> list[Row]:
    return [Row(at(ms - 50), APPEND, -1, ms // 100, -1) for ms in range(100, 12_000, 100)]


def shrink(
    *more: Row, phase_known: bool = True, end_ms: float = 12_000, run: Setting = RUN, dropped_ms: float = DROPPED_MS
) -> Change:
    """The one shrink of follower 2; the naive model says the same."""
    rows = tuple(sorted([*awake(), *appends(), *more], key=lambda row: (row.time_us, row.kind)))
    term = Term((1, 2), 1, START_US, at(end_ms), 0, 0, (1, 2), leader_is_new=True, rows=rows, phase_known=phase_known)
    log = Log((term,), LAG_MS)
    assert_agree(log, [run])
    (result,) = replay(log, [run])
    found: list[Change] = [change for change in result["changes"] if change.kind == "shrink"]
    assert found[0].time_us == at(dropped_ms)
    return found[0]


def test_a_follower_that_stays_away_is_dropped_for_certain() -> None:
    change = shrink()
    assert (change.depends_on, change.time_error_ms) == (None, 1), "the error of stamps"


@pytest.mark.parametrize(
    ("arrived_ms", "recorded_ms", "depends_on"),
    [
        (7_999.5, 8_002.0, "event_order"),  # inside while the check ran
        (8_000.4, 8_000.6, "event_order"),  # in the same millisecond
        (8_010.0, 8_010.2, None),
    ],
)
def test_a_fetch_of_the_same_moment(arrived_ms: float, recorded_ms: float, depends_on: str | None) -> None:
    assert shrink(caught_up(arrived_ms, recorded_ms)).depends_on == depends_on


def test_a_fetch_that_does_not_catch_up_changes_nothing() -> None:
    assert shrink(fetch(8_000.4, 30)).depends_on is None


def test_a_leader_that_is_late_with_fetches_is_late_with_its_check() -> None:
    late = fetch(6_000, 24, 6_000.2, answered_ms=6_400)  # the answer took 400 ms
    assert shrink(late, caught_up(8_300)).depends_on == "event_order"
    assert shrink(late).time_error_ms == 401
    assert shrink(late, caught_up(8_500)).depends_on is None


def test_a_leader_that_was_late_once_is_not_late_for_good() -> None:
    """Six seconds for an answer; then nothing for more than five seconds, as its follower is dead."""
    late = fetch(2_450, 25, 2_450.2, answered_ms=8_450)
    change = shrink(late, end_ms=22_000, run=Setting("kafka-3.7", 10_000), dropped_ms=15_000)
    assert (change.depends_on, change.time_error_ms) == (None, 1)
    change = shrink(late, end_ms=22_000, run=Setting("kafka-3.7", 8_000), dropped_ms=12_000)
    assert change.time_error_ms == 6_001, "less than five seconds later"


def test_a_line_that_names_the_follower_leaves_no_doubt() -> None:
    line = Row(at(7_999), CHECK, 2, -1, -1, until_us=at(DROPPED_MS))
    assert shrink(caught_up(8_000.4, 8_000.6), line).depends_on is None
    assert shrink(caught_up(8_000.4, 8_000.6), line._replace(replica_id=-1)).depends_on == "event_order"


def test_a_line_of_the_brokers_rule_does_not_settle_other_rules_conditions() -> None:
    """A fetch that is behind, and inside for a while, keeps its follower under KIP-501 alone."""
    behind = fetch(8_000.4, 30, 8_000.6, answered_ms=8_300)
    line = Row(at(7_999), CHECK, 2, -1, -1, until_us=at(DROPPED_MS))
    pending = Setting("kip-501-pending", LAG_MS)
    assert shrink(behind, line, run=pending).depends_on == "event_order"
    assert shrink(behind, line).depends_on is None


def test_a_leader_that_wakes_up() -> None:
    silence = Row(at(3_000), SILENCE, -1, -1, -1, until_us=at(DROPPED_MS))
    assert shrink(silence, caught_up(8_060)).depends_on == "check_time"
    assert shrink(silence, caught_up(8_160)).depends_on is None
    assert shrink(silence).time_error_ms == 101, "100 ms after the leader woke up"
    logged = Row(at(7_999), CHECK, -1, -1, -1, until_us=at(DROPPED_MS))
    assert shrink(silence, logged, caught_up(8_060)).depends_on is None, "a line tells when it ran"
    of_another = logged._replace(code=-2)
    assert shrink(silence, of_another, caught_up(8_060)).depends_on == "check_time", "a line about another partition"


def test_a_check_that_must_have_run_later() -> None:
    """It is due at 8,000, where no line says that it dropped anybody; what it drops at 8,700 is possible."""
    later = Row(at(7_999), CHECK, -1, -1, -3, until_us=at(8_700))
    change = shrink(later, caught_up(8_701), dropped_ms=8_700)
    assert (change.depends_on, change.time_error_ms) == ("check_time", 701)
    early = Row(at(7_998), CHECK, -1, -1, -3, until_us=at(7_999))
    change = shrink(early, dropped_ms=7_999)
    assert (change.depends_on, change.time_error_ms) == ("check_time", 1)


@pytest.mark.parametrize(
    ("named", "dropped", "appended_ms", "dropped_ms"),
    [
        (26, -1, 8_000.133, 8_000.133),  # the append that the line knows came first
        (-1, 2, 8_000.133, 8_000.133),  # the line names no log end; but it dropped a follower, which lacked something
        (-1, -1, 8_000.133, None),  # the line shows nothing
        (25, 2, 8_000.133, None),  # the line does not know the append yet
        (26, 2, 8_001.500, None),  # stamped later than the line allows: the check ran without it
    ],
)
def test_a_check_runs_after_the_append_that_its_line_knows(
    named: int, dropped: int, appended_ms: float, dropped_ms: float | None
) -> None:
    """A leader that was stopped wakes up: in one millisecond come an append, its check, and the follower's fetch."""
    line = Row(at(7_999), CHECK, dropped, named, -1, until_us=at(DROPPED_MS))
    grown = [row for row in appends() if row.time_us < at(ASLEEP_MS)] + [Row(at(appended_ms), APPEND, -1, 26, -1)]
    silence = Row(at(2_600), SILENCE, -1, -1, -1, until_us=at(DROPPED_MS))
    fetched = [fetch(2_520, 25), fetch(8_000.3, 25), fetch(8_001.7, 26)]
    rows = tuple(sorted([*awake(), *grown, silence, line, *fetched], key=lambda row: (row.time_us, row.kind)))
    log = Log((Term((1, 2), 1, START_US, at(12_000), 0, 0, (1, 2), leader_is_new=True, rows=rows),), LAG_MS)
    assert_agree(log, [RUN])
    (result,) = replay(log, [RUN])
    shrinks = [change.time_us for change in result["changes"] if change.kind == "shrink"]
    assert shrinks == ([at(dropped_ms)] if dropped_ms else [])


def test_the_phase_of_the_check_is_not_known() -> None:
    assert shrink(caught_up(9_500), phase_known=False).depends_on == "check_phase"
    assert shrink(caught_up(10_500), phase_known=False).depends_on is None, "a whole period later"
    assert shrink(phase_known=False).time_error_ms == LAG_MS // 2


@pytest.mark.parametrize(("behind", "isr_known", "depends_on"), [
    (3, False, "isr_at_start"), (3, True, None), (0, False, None),
])  # fmt: skip
def test_membership_of_a_follower_that_was_never_at_the_log_end_is_unknown(
    behind: int, isr_known: bool, depends_on: str | None
) -> None:  # fmt: skip
    asleep = at(ASLEEP_MS)
    rows = (*(row._replace(offset=row.offset + 10 - behind) for row in awake()),
            *(row._replace(offset=row.offset + 10) for row in appends() if row.time_us < asleep))  # fmt: skip
    term = Term(
        (1, 2), 1, START_US, at(12_000), 10, 10 - behind, (1, 2), leader_is_new=True, isr_known=isr_known,
        begins_mid_term=True, held_at_start=(10, 10 - behind),
        rows=tuple(sorted(rows, key=lambda row: (row.time_us, row.kind))),
    )  # fmt: skip
    log = Log((term,), LAG_MS)
    assert_agree(log, [RUN])
    (change,) = [change for change in replay(log, [RUN])[0]["changes"] if change.kind == "shrink"]
    assert change.depends_on == depends_on

"""Other readings of proposals, and rules that answer one question: examples by hand, in seconds from the start.

The lag time is 10 s, checks are at 5, 10, ... s and precede what else happens then, fetches take no time, and the log
begins at 100 with both followers at its end, unless an example says otherwise.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.kernel_ledger import LedgerOf
from tests.naive import Follower, Leader
from tests.naive_rules import Kafka10853Acked
from tests.naive_truth import APPEND, ELIGIBLE, FETCH, Row, Term
from tests.strategies import VARIANTS, Log, Setting, cases
from tests.unit.kernel.test_kernel_against_naive import replay, replay_naively
from udfs.rules import ALL_RULES, REGISTRY

START_US = 1_700_000_000_000_000
LAG_MS = 10_000
Change = tuple[float, str, int]


def us(seconds: float) -> int:
    return START_US + round(seconds * 1e6)


def append(seconds: float, end: int, acks: int = 1) -> Row:
    return Row(us(seconds), APPEND, offset=end, code=acks)


def fetch(seconds: float, replica: int, offset: int, recorded: float = 0, answered: float = 0) -> Row:
    recorded = max(seconds, recorded)
    times = (us(at) for at in (seconds, recorded, recorded, max(recorded, answered)))
    return Row(us(seconds), FETCH, replica, offset, 0, -1, *times)


def term(*rows: Row, end: float, **changed: Any) -> Term:
    begun = Term((1, 2, 3), 1, START_US, us(end), 100, 100, (1, 2, 3), leader_is_new=True)
    return begun._replace(rows=tuple(sorted(rows, key=lambda row: (row.time_us, row.kind))), **changed)


def result_of(rule: str, *terms: Term, **flags: int) -> Any:
    (result,) = replay(Log(terms), [Setting(rule, LAG_MS, flags=tuple(flags.items()))])
    return result


def changes(result: Any) -> list[Change]:
    return [((change.time_us - START_US) / 1e6, change.kind, change.replica_id) for change in result["changes"]]


def caught_up(result: Any, replica: int, seconds: float) -> float:
    """Second at which a follower was last caught up, by its latest row."""
    rows = [row for row in result["replica"] if row.replica_id == replica and row.time_us <= us(seconds)]
    return (rows[-1].last_caught_up_time_ms - START_US // 1000) / 1000  # type: ignore[no-any-return]


@pytest.fixture
def example(record_property: Any) -> Callable[[str], None]:
    def bear_witness(rule: str) -> None:
        record_property("rule", rule)
        record_property("witness", "example")

    return bear_witness


# -- any-fetch


def alive_and_behind() -> Term:
    """Ten records a second; the follower fetches every two seconds and gets five of them each time."""
    rows = [append(second, 100 + 10 * second) for second in range(1, 61)]
    rows += [fetch(2 * n + 2, 2, 100 + 5 * n) for n in range(30)]
    return term(*rows, end=60, replicas=(1, 2), isr=(1, 2))


def test_any_fetch_keeps_who_is_alive_and_behind(example: Callable[[str], None]) -> None:
    example("any-fetch")
    kept, today = result_of("any-fetch", alive_and_behind()), result_of("kafka-3.7", alive_and_behind())
    last = kept["partition"][-1]
    assert (changes(kept), last.high_watermark, last.log_end_offset) == ([], 245, 700)
    assert changes(today) == [(15, "shrink", 2)]
    dropped = today["changes"][0]
    assert (dropped.follower_log_end_offset, dropped.leader_log_end_offset) == (130, 240)
    assert today["partition"][-1].high_watermark == 700


def test_any_fetch_drops_who_is_silent(example: Callable[[str], None]) -> None:
    example("any-fetch")
    silent = term(append(1, 110), fetch(2, 2, 100), fetch(2, 3, 100), fetch(9, 3, 100), end=30)
    assert changes(result_of("any-fetch", silent)) == [(15, "shrink", 2), (20, "shrink", 3)]


@pytest.mark.parametrize(("outsiders", "high_watermark"), [(0, 105), (1, 110)])
def test_a_broker_that_is_back_stalls_the_high_watermark_if_all_its_fetches_count(
    outsiders: int, high_watermark: int, example: Callable[[str], None]
) -> None:
    example("any-fetch")
    back = term(append(1, 105), fetch(1, 2, 105), fetch(2, 3, 50), append(3, 110), fetch(3, 2, 110), end=4, isr=(1, 2))
    last = result_of("any-fetch", back, outsiders=outsiders)["partition"][-1]
    assert last.high_watermark == high_watermark


# -- acks-min-isr


def slow_member(*replicas: int) -> Term:
    """Follower 2 fetches 20 ms after each of two appends, and follower 3 seconds later, always within the lag time."""
    rows = [fetch(0.5, 2, 100), fetch(0.5, 3, 100), append(1, 110, -1), append(2, 120, -1)]
    rows += [fetch(1.02, 2, 110), fetch(2.02, 2, 120), fetch(6, 3, 110), fetch(12, 3, 120)]
    return term(*rows, end=13, replicas=replicas)


def acks_setting(**flags: int) -> Setting:
    return Setting("acks-min-isr", LAG_MS, 2, flags=tuple(({"quorum": 0, "counted": 0} | flags).items()))


def test_acks_min_isr_answers_before_the_high_watermark(example: Callable[[str], None]) -> None:
    example("acks-min-isr")
    (early,), (today,) = (
        replay(Log((slow_member(1, 2, 3),)), [setting]) for setting in (acks_setting(), Setting("kafka-3.7", LAG_MS, 2))
    )
    assert changes(early) == changes(today) == []
    ends = [(row.time_us, row.high_watermark, row.acknowledged) for row in early["partition"]]
    assert ends[-4:] == [(us(2), 100, 110), (us(2.02), 100, 120), (us(6), 110, 120), (us(12), 120, 120)]
    assert [(row.time_us, row.high_watermark) for row in today["partition"] if row.time_us in (us(6), us(12))] == [
        (us(6), 110), (us(12), 120),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "quorum", "longest_us", "lost", "at_risk"),
    [
        ((1, 2, 3), 0, 20_000, 0, (20, us(12) - us(1.02))), ((1, 3, 2), 0, 20_000, 20, (20, us(12) - us(1.02))),
        ((1, 3, 2), 3, 10_000_000, -1, (0, 0)),
    ],
)  # fmt: skip
def test_acks_min_isr_is_faster_and_its_heir_may_lack_records(
    ledger_of: LedgerOf, replicas: tuple[int, ...], quorum: int, longest_us: int, lost: int, at_risk: tuple[int, int]
) -> None:
    """A quorum of all three is Kafka's own rule. Consumers see no record that could be lost."""
    (score,) = ledger_of(Log((slow_member(*replicas),)), acks_setting(quorum=quorum)).scores
    found = score.acknowledged_appends, score.acks_all_latency_max_us, score.lost_by_heir_max
    assert found == (2, longest_us, lost)
    assert (score.loss_records_max, score.loss_exposed_us) == at_risk
    assert score.members_below_high_watermark == 0


def test_acks_min_isr_answers_acks_all_below_a_record_with_acks_1(ledger_of: LedgerOf) -> None:
    """That record is acknowledged at once, and does not count while the ISR has enough members."""
    rows = [fetch(0.5, 2, 100), fetch(0.5, 3, 100), append(1, 110, -1), append(1.5, 120, 1), fetch(2.5, 2, 110)]
    rows += [fetch(6, 3, 110), fetch(12, 2, 120), fetch(12, 3, 120)]
    (score,) = ledger_of(Log((term(*rows, end=13, replicas=(1, 3, 2)),)), acks_setting()).scores
    assert (score.acknowledged_appends, score.acks_all_latency_max_us) == (1, 1_500_000)
    assert (score.lost_by_heir_max, score.loss_records_max, score.loss_exposed_us) == (10, 10, 3_500_000)


@pytest.mark.parametrize(("counted", "acknowledged"), [(0, 100), (1, 110)])
def test_whether_a_copy_outside_the_isr_counts(counted: int, acknowledged: int) -> None:
    """Replica 3 may not join."""
    rows = Row(us(0.1), ELIGIBLE, 3, code=0), append(1, 110, -1), fetch(2, 3, 110)
    (found,) = replay(Log((term(*rows, end=3, isr=(1, 2)),)), [acks_setting(counted=counted)])
    assert found["partition"][-1].acknowledged == acknowledged


# -- fluss-0.9


def test_without_grace_the_first_check_of_a_term_drops_who_has_not_fetched(example: Callable[[str], None]) -> None:
    """The second term is the same leader's: positions are forgotten again."""
    example("fluss-0.9")
    first = term(fetch(0.2, 2, 100), fetch(6, 3, 100), end=6.999, start_us=us(0.1))
    again = term(append(7.5, 110), fetch(7.6, 2, 100), fetch(10.1, 2, 110), end=12, start_us=us(7), leader_is_new=False)
    found = result_of("fluss-0.9", first, again)
    assert changes(found) == [
        (5, "shrink", 3), (6, "expand", 3), (10, "shrink", 2), (10, "shrink", 3), (10.1, "expand", 2),
    ]  # fmt: skip
    assert [row.high_watermark for row in found["partition"] if row.time_us <= us(10)][-1] == 110
    assert caught_up(found, 2, 9.9) == -START_US / 1e6  # never, although it fetches
    whole = term(*first.rows, *again.rows, end=12)
    assert changes(result_of("kafka-3.7", whole)) == []


# -- KAFKA-4485, before the last edit of its description


def paused() -> Term:
    """Follower 3 pauses from 26.5 to 50.2 s, and lacks nothing after it; the other one pulls along."""
    ends = [(24.3, 400), (24.45, 1200), (26.1, 1300)]
    rows = [append(seconds, end) for seconds, end in ends]
    rows += [fetch(n / 4, 2, max([100, *(end for at, end in ends if at < n / 4)])) for n in range(220)]
    rows += [fetch(n / 4, 3, 100) for n in range(97)]
    steps = [(24.35, 400), (24.45, 400), (24.6, 1200), (26.4, 1200), (26.5, 1300), (50.2, 1300), (51, 1300)]
    return term(*rows, *(fetch(at, 3, offset) for at, offset in steps), end=54)


@pytest.mark.parametrize(
    ("caught_up_by", "caught_up_s", "left_and_back"),
    [
        (0, [24.6, 24.6, 26.5, 50.2, 51.0], [36.501, 50.2]),
        (1, [24.45, 24.6, 26.4, 26.5, 50.2], [36.401, 51.0]),
    ],
)
def test_by_the_earlier_text_of_4485_a_fetch_at_the_log_end_proves_nothing_by_itself(
    caught_up_by: int, caught_up_s: list[float], left_and_back: list[float], example: Callable[[str], None]
) -> None:
    example("kafka-4485-design")
    rule = "kafka-4485-design"
    found = result_of(rule, paused(), caught_up_by=caught_up_by)
    assert changes(found) == [(left_and_back[0], "shrink", 3), (left_and_back[1], "expand", 3)]
    (naive,) = replay_naively(Log((paused(),)), [Setting(rule, LAG_MS, flags=(("caught_up_by", caught_up_by),))])
    naive["replica"] = naive["states"]  # the timeline leaves out when one that lacks nothing fetches
    assert [caught_up(naive, 3, at) for at in (24.6, 26.4, 26.5, 50.2, 51.0)] == caught_up_s


BY_EARLIER_TEXT = ("kafka-4485-design", (("caught_up_by", 1),))


@settings(max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(VARIANTS.index(BY_EARLIER_TEXT)))
def test_the_earlier_text_of_4485_drops_no_later(case: tuple[Log, Setting]) -> None:
    """As long as both have the same ISR."""
    log, earlier = case
    later = earlier._replace(flags=(("caught_up_by", 0),))
    first_us = []
    for result in replay(log, [earlier, later]):
        by_rule = [change for change in result["changes"] if change.made_by == "rule"]
        first_us.append(by_rule[0].time_us if by_rule and by_rule[0].kind == "shrink" else None)
    if first_us[1] is not None and not any(change.kind == "expand" for change in replay(log, [earlier])[0]["changes"]):
        assert first_us[0] is not None
        assert first_us[0] <= first_us[1]


# -- KIP-501, the time of updateFetchState


def stuck_response() -> Term:
    """The follower's fetch is recorded at 1.001 s, and its response is stuck in the leader until 14 s."""
    rows = fetch(1, 2, 100, recorded=1.001, answered=14), append(2, 110), fetch(16, 2, 110)
    return term(*rows, end=17, replicas=(1, 2), isr=(1, 2))


def test_a_pending_fetch_that_counts_when_it_is_recorded_protects_only_while_it_is_stuck(
    example: Callable[[str], None],
) -> None:
    example("kip-501-pending")
    completed, recorded = (result_of("kip-501-pending", stuck_response(), caught_up_at=at) for at in (0, 1))
    assert changes(completed) == []
    assert caught_up(completed, 2, 15) == 14
    assert changes(recorded) == [(15, "shrink", 2), (16, "expand", 2)]
    assert recorded["changes"][0].lag_ms == 13_999


# -- KAFKA-10853, in four readings


class Noting(Leader):
    """A leader that notes when what had been acknowledged."""

    def begin(self, term: Term) -> None:
        self.noted: list[tuple[int, int]] = []
        super().begin(term)

    def write(self) -> None:
        super().write()
        self.noted.append((self.now_us, self.rule.acknowledged(self)))  # type: ignore[attr-defined]


class Read10853(Kafka10853Acked):
    """A follower that lacks nothing acknowledged is in sync; otherwise a time decides, which is ``reading``."""

    def __init__(self, reading: str) -> None:
        """Use the reading's name in the table of docs/readings-of-proposals.md."""
        super().__init__(LAG_MS)
        self.reading = reading

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        if self.reading == "bookkeeping" or follower.leo < 0 or follower.leo >= self.acknowledged(leader):
            return super().out_of_sync(follower, leader)
        assert isinstance(leader, Noting)
        appended = leader.truth.appends
        lacking_us = next(at for at, end in appended if end > follower.leo)
        last_us = next(at for at, end in appended if end >= self.acknowledged(leader))
        acknowledged_us = next(at for at, end in leader.noted if end > follower.leo)
        late_us = {
            "log time": last_us - lacking_us,
            "since the append": leader.now_us - last_us,
            "since the acknowledgement": leader.now_us - acknowledged_us,
        }
        return late_us[self.reading] > LAG_MS * 1000


def stops() -> Term:
    rows = fetch(0, 2, 100), append(1, 110), append(3, 120), append(5, 130)
    return term(*rows, end=120, replicas=(1, 2), isr=(1, 2))


def never_stops() -> Term:
    rows = [append(second, 100 + 5 * second) for second in range(1, 120, 2)]
    return term(fetch(0, 2, 100), *rows, end=120, replicas=(1, 2), isr=(1, 2))


def leader_stalls() -> Term:
    """The ticket's own case: one append with acks=all, and then no fetch is handled."""
    return term(fetch(0, 2, 100), fetch(0, 3, 100), append(1, 110, acks=-1), end=120)


@pytest.mark.parametrize(
    ("reading", "after_traffic_stops", "under_steady_traffic"),
    [
        ("bookkeeping", [(15, "shrink", 2)], [(15, "shrink", 2)]),
        ("log time", [], [(15, "shrink", 2)]),
        ("since the append", [(20, "shrink", 2)], []),
        ("since the acknowledgement", [(15, "shrink", 2)], [(15, "shrink", 2)]),
    ],
)
def test_read_literally_kafka_10853_keeps_a_dead_follower(
    reading: str, after_traffic_stops: list[Change], under_steady_traffic: list[Change]
) -> None:
    """With acks=1, it says, nothing changes: today's rule drops the follower at 15 s."""

    def played(begun: Term) -> list[Change]:
        leader = Noting(Read10853(reading))
        leader.begin(begun)
        leader.play(begun.rows, begun.end_us)
        return changes({"changes": leader.changes})

    assert played(stops()) == after_traffic_stops
    assert played(never_stops()) == under_steady_traffic
    assert played(leader_stalls()) == []
    for log in (stops(), never_stops()):
        assert changes(result_of("kafka-3.7", log)) == [(15, "shrink", 2)]


# -- rules on request


def test_all_leaves_out_rules_on_request() -> None:
    assert set(REGISTRY) - set(ALL_RULES) == {"acks-min-isr", "any-fetch", "fluss-0.9"}

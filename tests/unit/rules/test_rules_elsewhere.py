"""One worked example for each rule that other systems have, or that KAFKA-19996 proposes: by hand, to the ms.

The lag time is 1 s, so checks fall on multiples of 500 ms; leader 1 leads, and all are in the ISR unless it is said.
"""

from typing import Any

import pytest

from tests.naive_truth import SILENCE, Row, Term
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import START_US, append, assert_agree, fetch, replay, term
from udfs.rules import REGISTRY

Told = list[tuple[int, str, int]]
MS = 1000


def setting(rule: str, min_isr: int, lag_ms: int = 1000, **params: int) -> Setting:
    """A rule with its defaults, but for some parameters."""
    defaults = {name: param.default or 0 for name, param in REGISTRY[rule].params.items()}
    return Setting(rule, lag_ms, min_isr, 0, tuple({**defaults, **params}.items()))


def changes(rows: list[Row], run: Setting, **changed: Any) -> Told:
    """``(ms from the start, kind, replica)``; the naive model has to give the same."""
    log = Log((_term(rows, **changed),))
    assert_agree(log, [run])
    (result,) = replay(log, [run])
    return [((change.time_us - START_US) // MS, change.kind, change.replica_id) for change in result["changes"]]


def _term(rows: list[Row], end_ms: int = 4000, **changed: Any) -> Term:
    return term(*sorted(rows, key=lambda row: (row.time_us, row.kind)), end_us=START_US + end_ms * MS, **changed)


def example(record_property: Any, rule: str) -> None:
    record_property("rule", rule)
    record_property("witness", "example")


def followers_stop(*fetching: int) -> list[Row]:
    """All have a record at 100 ms and lack one since 200 ms; only those who go on fetching get it, at 300 ms."""
    rows = [append(0, 1), append(200 * MS, 2)] + [fetch(100 * MS, replica, 1) for replica in (2, 3)]
    return rows + [fetch(ms * MS, replica, 2) for replica in fetching for ms in range(300, 4000, 100)]


BOTH_STOP = followers_stop()
TWO_STOPS = followers_stop(3)
BOTH_DROPPED = [(1500, "shrink", 2), (1500, "shrink", 3)]
"""Caught up at 100 ms, out after 1100 ms."""


def test_kafka_19996_admits_no_follower_at_a_stale_high_watermark(record_property: Any) -> None:
    """The leader is alone under min.insync.replicas = 2 with 100 records; the follower has 0 of them, then 50."""
    rows = [append(0, 100), fetch(1 * MS, 2, 0), fetch(600 * MS, 2, 50), fetch(900 * MS, 2, 100)]
    alone = {"isr": (1,), "replicas": (1, 2), "end_ms": 1200}
    in_and_out = [(1, "expand", 2), (500, "shrink", 2), (600, "expand", 2)]
    assert changes(rows, setting("kafka-3.7", 2), **alone) == in_and_out
    assert changes(rows, setting("kafka-19996-expand", 2), **alone) == [(900, "expand", 2)]
    for rule in ("kafka-3.7", "kafka-19996-expand"):
        assert changes(rows, setting(rule, 1), **alone) == [(900, "expand", 2)], "the high watermark is the log end"
    example(record_property, "kafka-19996-expand")


def test_leader_health_is_patient_after_three_fetches_that_it_held(record_property: Any) -> None:
    """Last caught up at 1500 ms. Three fetches took 600 ms each: out after four lag times, not after one."""
    rows = [*(fetch(ms * MS, 2, 0, took_us=600 * MS) for ms in (0, 600, 1200)), append(1900 * MS, 1)]
    two = {"replicas": (1, 2), "isr": (1, 2), "end_ms": 8000}
    assert changes(rows, setting("kafka-3.7", 1), **two) == [(3000, "shrink", 2)]
    assert changes(rows, setting("leader-health", 1), **two) == [(6000, "shrink", 2)]
    assert changes(rows, setting("leader-health", 1, prompt_ms=600), **two) == [(3000, "shrink", 2)]
    assert changes(rows, setting("leader-health", 1, most_lateness=1), **two) == [(4000, "shrink", 2)]
    example(record_property, "leader-health")


@pytest.mark.parametrize(("until_ms", "dropped"), [(1600, []), (2200, [(2200, "shrink", 2)])])
def test_leader_health_takes_a_late_check_for_its_own_fault(until_ms: int, dropped: Told, record_property: Any) -> None:
    """It stops at 100 ms, after the append of a record; 3.7 drops the follower as soon as it wakes up."""
    woken = [fetch((until_ms + 1) * MS, 2, 1), fetch((until_ms + 501) * MS, 2, 1)]
    rows = [fetch(90 * MS, 2, 0), append(95 * MS, 1), Row(100 * MS, SILENCE, until_us=until_ms * MS), *woken]
    two = {"replicas": (1, 2), "isr": (1, 2), "end_ms": until_ms + 600}
    assert changes(rows, setting("kafka-3.7", 1), **two)[:1] == [(until_ms, "shrink", 2)]
    assert changes(rows, setting("leader-health", 1), **two)[:1] == dropped, "the lag time twice"
    example(record_property, "leader-health")


def test_phi_accrual_keeps_followers_that_fetch_and_drops_others(record_property: Any) -> None:
    """It fetches every 300 ms and gets nothing, until 3 s: phi is 8 after 8 ln 10 = 18.42 gaps of 500 ms."""
    rows = [fetch(0, 2, 0), append(100 * MS, 1), *(fetch(ms * MS, 2, 0) for ms in range(300, 3001, 300))]
    two = {"replicas": (1, 2), "isr": (1, 2), "end_ms": 13_000}
    caught_up = 0, *changes(rows, setting("kafka-3.7", 1), **two)[0]
    assert caught_up == (0, 1500, "shrink", 2)
    assert changes(rows, setting("phi-accrual", 1), **two) == [(12_500, "shrink", 2)]
    shorter = setting("phi-accrual", 1, least_mean_gap_ms=1)
    assert changes(rows, shorter, **two) == [(9000, "shrink", 2)], "after 5526 ms at a mean of 300 ms"
    example(record_property, "phi-accrual")


def test_phi_accrual_finds_the_silent_before_the_lag_time_if_that_is_enough(record_property: Any) -> None:
    """With a lag time of 20 s the check at 10 s finds phi = 8.2; 3.7 waits for the one at 30 s."""
    rows = [fetch(500 * MS, 2, 0), append(600 * MS, 1)]
    two = {"replicas": (1, 2), "isr": (1, 2), "end_ms": 31_000}
    for rule, params, at_ms in (("kafka-3.7", {}, 30_000), ("phi-accrual", {"silence_is": 1}, 10_000)):
        assert changes(rows, setting(rule, 1, 20_000, **params), **two) == [(at_ms, "shrink", 2)]
    example(record_property, "phi-accrual")


def test_peer_outlier_drops_one_that_stops_but_not_both(record_property: Any) -> None:
    assert changes(BOTH_STOP, setting("kafka-3.7", 1)) == BOTH_DROPPED
    assert changes(BOTH_STOP, setting("peer-outlier", 1)) == []
    assert changes(TWO_STOPS, setting("peer-outlier", 1)) == [(1500, "shrink", 2)]
    alone = changes(BOTH_STOP, setting("peer-outlier", 1), isr=(1, 2))
    assert alone == [(100, "expand", 3)], "who is back is a peer again"
    assert changes(BOTH_STOP[:3], setting("peer-outlier", 1), isr=(1, 2)) == [(1500, "shrink", 2)]
    example(record_property, "peer-outlier")


@pytest.mark.parametrize(
    ("lag_ms", "others_ms", "dropped"),
    [
        # The median is 4 s, and the median deviation 1 s: three medians are more than 4 + 3 * 1.4826 s.
        (12_000, (2_000, 4_000, 5_000), False),
        (12_000, (2_000, 3_999, 5_000), True),
        # The median is 2 s, the median deviation 1 s: 2 + 3 * 1.4826 = 6.4478 s.
        (6_447, (1_000, 2_000, 5_000), False),
        (6_448, (1_000, 2_000, 5_000), True),
    ],
)
def test_peer_outlier_takes_hadoops_limit(
    lag_ms: int, others_ms: tuple[int, ...], dropped: bool, record_property: Any
) -> None:
    """At the check at 12 s, with a lag time of 4 s; until 11 s no follower lacks anything."""
    rows = [append(11_001 * MS, 1), *(fetch(0, replica, 0) for replica in (2, 3, 4, 5))]
    rows += [fetch((12_000 - ms) * MS, replica, 0) for replica, ms in enumerate((lag_ms, *others_ms), start=2) if ms]
    five = {"replicas": (1, 2, 3, 4, 5), "isr": (1, 2, 3, 4, 5), "end_ms": 12_100}
    assert changes(rows, setting("peer-outlier", 1, 4_000), **five) == [(12_000, "shrink", 2)] * dropped
    example(record_property, "peer-outlier")


def test_linkedins_rules_shrink_only_down_to_min_isr(record_property: Any) -> None:
    """Of three members two are wanted. At 3 s the followers, forgotten at 1.5 s, are out of sync once more."""
    for rule, both_stop in (
        ("kafka-3.7", BOTH_DROPPED),
        ("no-shrink-under-min-isr", []),
        ("transfer-at-min-isr", [(1500, "relinquish", 1), (3000, "relinquish", 1)]),
    ):
        assert changes(BOTH_STOP, setting(rule, 2)) == both_stop
        assert changes(TWO_STOPS, setting(rule, 2)) == [(1500, "shrink", 2)]
        assert changes(BOTH_STOP, setting(rule, 1)) == BOTH_DROPPED
        example(record_property, rule)


@pytest.mark.parametrize("rule", ["no-shrink-under-min-isr", "transfer-at-min-isr"])
def test_linkedins_rules_take_min_isr_as_configured(rule: str, record_property: Any) -> None:
    """Three wanted of two replicas: what Kafka itself cuts to two."""
    two = {"replicas": (1, 2), "isr": (1, 2), "end_ms": 1600}
    shrinks = [what for what in changes(BOTH_STOP[:3], setting(rule, 3), **two) if what[1] == "shrink"]
    assert shrinks == []
    example(record_property, rule)


def test_transfer_to_one_that_is_in_sync_if_there_is_one(record_property: Any) -> None:
    in_sync = {"candidates": 1}
    assert changes(BOTH_STOP, setting("transfer-at-min-isr", 2, **in_sync)) == []
    relinquished = changes(TWO_STOPS, setting("transfer-at-min-isr", 3, **in_sync))
    assert relinquished[:1] == [(1500, "relinquish", 1)]
    example(record_property, "transfer-at-min-isr")


@pytest.mark.parametrize(("rows", "high_watermark"), [(TWO_STOPS, 2), (BOTH_STOP, 1)])
def test_majority_commits_records_on_two_of_three(rows: list[Row], high_watermark: int, record_property: Any) -> None:
    assert changes(rows, setting("majority", 2)) == []
    (result,) = replay(Log((_term(rows),)), [setting("majority", 2)])
    assert result["partition"][-1].high_watermark == high_watermark
    seen = [row.high_watermark for row in result["partition"] if row.time_us <= START_US + 300 * MS]
    assert seen[-1] == high_watermark, "at once, while 3.7 waits for the check"
    example(record_property, "majority")

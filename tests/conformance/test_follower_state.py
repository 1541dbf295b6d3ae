"""Our rules against the classes that Kafka released: a follower's state, to the ms, on random sequences of fetches.

A released class keeps the state and, if it has such a method, runs the check. The code between a request and the class
(which of its methods a term or a failed read calls) is in ``java/``, as in each release's Partition and ReplicaManager.
"""

import functools
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from tests.conformance.releases import Releases
from udfs.jit import entry
from udfs.kernel.state import PARAMS
from udfs.records import FETCH_STATE, FOLLOWER, LEADER
from udfs.rules import REGISTRY

pytestmark = pytest.mark.conformance

Longs = npt.NDArray[np.int64]


class Released(NamedTuple):
    """A release, the driver of its classes, and what is to decide like it."""

    version: str
    driver: str
    rule: str
    flags: tuple[tuple[str, int], ...] = ()


LAG_MESSAGES = 3
RELEASED = (
    Released("0.8.2.2", "At0_8_2", "kafka-0.8", (("replica_lag_max_messages", LAG_MESSAGES),)),
    Released("0.9.0.1", "From0_9", "kafka-0.9"),
    Released("0.10.1.1", "From0_9", "kafka-0.9"),
    Released("0.10.2.2", "From0_10_2", "kafka-0.10.2"),
    Released("2.0.1", "From0_10_2", "kafka-0.10.2", (("joins_from_epoch_start", 1),)),
    Released("2.1.1", "From0_10_2", "kafka-2.1"),
    Released("2.4.1", "From2_4", "kafka-2.1", (("errors_change_nothing", 1),)),
    Released("2.7.2", "From2_4", "kafka-2.7"),
    Released("3.3.2", "From2_4", "kafka-3.3"),
    Released("3.6.2", "From2_4", "kafka-3.3", (("only_eligible_hold_high_watermark", 1),)),
    Released("3.7.2", "From2_4", "kafka-3.7"),
    Released("4.1.0", "From2_4", "kafka-3.7"),
)
ROWS = 130_000
SEQUENCE = 200
"""Rows after which a new follower is taken."""
TERM, FETCH, FAILED_FETCH = range(3)
IN_ISR, LEADER_IS_NEW, FIRST = 1, 2, 4
BASE_OFFSETS = (0, 10, 2**31 - 2, 2**32 + 7, 2**53)
BASE_TIMES_MS = (1_000, 1_700_000_000_000)
LAG_TIMES_MS = (2, 7, 100, 30_000)


def sequences(seed: int, rows: int = ROWS) -> Longs:
    """Rows as ``java/Follower.java`` takes them: offsets and times at, and next to, where a rule changes its mind."""
    draw = np.random.default_rng(seed).integers(0, 2**31, (rows, 8))
    return np.array([row for begin in range(0, rows, SEQUENCE) for row in one(draw[begin : begin + SEQUENCE].tolist())])


def one(draws: list[list[int]]) -> Iterator[tuple[int, ...]]:
    first = draws[0]
    end = BASE_OFFSETS[first[0] % len(BASE_OFFSETS)]
    now_ms = BASE_TIMES_MS[first[1] % len(BASE_TIMES_MS)]
    lag_ms = LAG_TIMES_MS[first[2] % len(LAG_TIMES_MS)]
    seen = asked = end
    for number, (what, which, gap, took, grown, check_gap, check_end, flags) in enumerate(draws):
        end += (0, 0, 0, 1, 1, 2, 5, 2**31 if grown % 50 == 0 else 1)[grown % 8]
        # A leader's clock may be set back.
        now_ms += gaps(lag_ms, gap) if gap % 97 else -min(now_ms, gap % (2 * lag_ms))
        recorded_ms = now_ms + (0, 0, 1, took % lag_ms)[took % 4]
        offsets = (end, end, seen, seen, asked, end - 1, end - 4, seen - 1, end + 1, 0)
        offset = max(0, offsets[which % len(offsets)])
        kind = TERM if number == 0 or what % 25 == 0 else FAILED_FETCH if what % 10 == 9 else FETCH
        check_ms = recorded_ms + gaps(lag_ms, check_gap)
        known_end = max(
            0, (end, end, offset, offset + 1, offset + LAG_MESSAGES, offset + LAG_MESSAGES + 1)[check_end % 6]
        )
        value = offset if kind == FETCH else flags % 4 | (FIRST if number == 0 else 0)
        yield kind, value, end, now_ms, recorded_ms, known_end, check_ms, lag_ms
        if kind == FETCH:
            seen, asked = end, offset


def gaps(lag_ms: int, choice: int) -> int:
    return (0, 0, 1, 2, lag_ms - 1, lag_ms, lag_ms + 1, choice // 16 % (2 * lag_ms))[choice % 8]


@functools.cache
def player(rule_id: str) -> Callable[..., None]:
    """Compile the rule's functions into a loop that answers as ``java/Follower.java`` does."""
    rule = REGISTRY[rule_id]
    begin_term, on_recorded, out_of_sync = rule.begin_term, rule.on_recorded, rule.out_of_sync

    @entry
    def play(rows: Any, unheard_of: Any, follower: Any, leader: Any, fetch: Any, params: Any, results: Any) -> None:
        for i in range(len(rows)):
            row = rows[i]
            leader[0].log_end_offset = row[2]
            if row[0] == TERM:
                if row[1] & FIRST:
                    follower[0] = unheard_of[0]
                begin_term(follower[0], leader[0], row[1] & IN_ISR != 0, row[1] & LEADER_IS_NEW != 0, row[4], params[0])
            else:
                # The us below the ms must not matter.
                fetch[0].handled_us = row[3] * 1000 + i % 1000
                fetch[0].processed_us = row[4] * 1000 + (i + 7) % 1000
                fetch[0].leader_log_end_offset = row[2]
                fetch[0].fetch_offset = row[1]
                fetch[0].error_code = 0 if row[0] == FETCH else 6
                on_recorded(follower[0], leader[0], fetch[0], params[0])
            leader[0].log_end_offset = row[5]
            params[0].replica_lag_time_max_ms = row[7]
            results[i, 0] = follower[0].last_caught_up_time_ms
            results[i, 1] = follower[0].log_end_offset
            results[i, 2] = out_of_sync(follower[0], leader[0], fetch[0], row[6], params[0])

    return play


def play_by_rule(released: Released, rows: Longs) -> Longs:
    """Results of our rule."""
    assert released.rule in REGISTRY, f"there is no rule {released.rule}"
    rule = REGISTRY[released.rule]
    params = np.zeros(1, PARAMS)
    for name, param in rule.params.items():
        params[name] = param.default
    for name, value in released.flags:
        assert name in rule.params, f"the rule {released.rule} has no parameter {name}"
        params[name] = value
    unheard_of = np.zeros(1, FOLLOWER)
    for name in ("last_caught_up_time_ms", "log_end_offset"):
        unheard_of[name] = -1
    unheard_of["in_isr"] = unheard_of["in_maximal_isr"] = unheard_of["eligible"] = 1
    results = np.zeros((len(rows), 3), np.int64)
    play = player(released.rule)
    play(rows, unheard_of, np.zeros(1, FOLLOWER), np.zeros(1, LEADER), np.zeros(1, FETCH_STATE), params, results)
    return results


@pytest.mark.parametrize("released", RELEASED, ids=[released.version for released in RELEASED])
def test_a_rule_keeps_a_follower_s_state_as_its_release_does(
    released: Released, releases: Releases, record_property: Callable[[str, object], None]
) -> None:
    rows = sequences(seed=20_160_901)
    answer = releases.driver(released.version, released.driver).call("play", rows.astype("<i8").tobytes(), LAG_MESSAGES)
    expected = np.frombuffer(answer, "<i8").reshape(-1, 3)
    found = play_by_rule(released, rows)
    wrong = np.flatnonzero((expected != found).any(axis=1))
    if len(wrong):
        at = wrong[0]
        begin = at - at % SEQUENCE
        told = [
            f"{row} -> {kafka}, ours {ours}"
            for row, kafka, ours in zip(
                rows[begin : at + 1].tolist(),
                expected[begin : at + 1].tolist(),
                found[begin : at + 1].tolist(),
                strict=True,
            )
        ]
        pytest.fail(f"{len(wrong)} rows differ, first row {at}:\n" + "\n".join(told[-6:]))
    fetches = int((rows[:, 0] != TERM).sum())
    assert fetches >= 100_000
    # Were the check always of one mind, it would have shown nothing.
    assert 0.1 < expected[:, 2].mean() < 0.9
    record_property("rule", released.rule)
    record_property("witness", "class")
    record_property("release", released.version)
    record_property("count", fetches)


def test_the_sequences_tell_generations_apart() -> None:
    rows = sequences(seed=1, rows=20 * SEQUENCE)
    told_apart = [RELEASED[at] for at in (0, 1, 3, 5, 6, 8)]
    states = [play_by_rule(released, rows) for released in told_apart]
    for older, newer in pairwise(states):
        assert (older != newer).any()

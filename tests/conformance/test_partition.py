"""The whole replay against the Partition that Kafka released, on randomly generated lives.

After every step of a random life: log end, ISR, maximal ISR, high watermark, and of every follower its log end and
lastCaughtUpTimeMs, to the ms.
"""

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conformance.releases import Releases, modules
from tests.conformance.steps import Life, Longs, groups, life
from udfs.jit import entry
from udfs.kernel.replay import advance_replay, begin_replay_of_term, replay_room_for_a_row
from udfs.kernel.state import new_state
from udfs.records import Rows, new_kernel_output
from udfs.rules import REGISTRY

pytestmark = pytest.mark.conformance


class Released(NamedTuple):
    """A release, the driver of its Partition, and the rule that is to decide like it."""

    version: str
    driver: str
    rule: str
    flags: tuple[tuple[str, int], ...] = ()
    removes_within_a_term: bool = True
    """Before 3.3 whatever the controller says begins a term, a removal from the ISR too."""
    small_offsets: bool = False
    """Up to 2.3.1 the high watermark is computed on differences of offsets as ints, and jumps if they do not fit."""
    jars: Path | None = None
    """Folder of a build, instead of the release."""


JOINS_FROM_EPOCH_START = (("joins_from_epoch_start", 1),)
ERRORS_CHANGE_NOTHING = (("errors_change_nothing", 1),)
ONLY_ELIGIBLE = (("only_eligible_hold_high_watermark", 1),)
UNTIL_2_3: dict[str, Any] = {"removes_within_a_term": False, "small_offsets": True}
RELEASED = (
    Released("2.0.1", "LeaderFrom2_0", "kafka-0.10.2", JOINS_FROM_EPOCH_START, **UNTIL_2_3),
    Released("2.1.1", "LeaderFrom2_0", "kafka-2.1", **UNTIL_2_3),
    Released("2.4.1", "LeaderFrom2_4", "kafka-2.1", ERRORS_CHANGE_NOTHING, removes_within_a_term=False),
    Released("2.7.2", "LeaderFrom2_4", "kafka-2.7", removes_within_a_term=False),
    Released("3.3.2", "LeaderFrom2_4", "kafka-3.3"),
    Released("3.6.2", "LeaderFrom2_4", "kafka-3.3", ONLY_ELIGIBLE),
    Released("3.7.2", "LeaderFrom2_4", "kafka-3.7"),
    Released("4.1.0", "Leader4_1", "kafka-3.7"),
)
LIVES, LIVES_NIGHTLY = 60, 1500


@functools.cache
def walker() -> Callable[..., bool]:
    """Compile a loop that replays a term from time to time, and writes down the state at each."""
    advance: Any = advance_replay

    @entry
    def walk(state: Any, rows: Any, times: Any, after: Any, out: Any, seen: Any) -> bool:
        begin = 0
        leader = state.leaders[0]
        for i in range(len(times)):
            end = after[i]
            state.term[0].row = 0
            part = Rows(
                rows.time_us[begin:end], rows.kind[begin:end], rows.replica_id[begin:end], rows.offset[begin:end],
                rows.code[begin:end], rows.leader_log_end_offset[begin:end], rows.handled_us[begin:end],
                rows.processed_us[begin:end], rows.released_us[begin:end], rows.until_us[begin:end],
            )  # fmt: skip
            out.filled[:] = 0
            if advance(state, part, times[i], out) != 1:
                return False
            begin = end
            seen[i, 0] = leader.log_end_offset
            seen[i, 1] = leader.high_watermark
            seen[i, 2] = leader.isr
            seen[i, 3] = leader.isr
            for p in range(leader.replicas):
                if p != state.term[0].leader:
                    follower = state.followers[0, p]
                    seen[i, 3] |= follower.in_maximal_isr << p
                    seen[i, 4 + 2 * p] = follower.log_end_offset
                    seen[i, 5 + 2 * p] = follower.last_caught_up_time_ms
        return True

    return walk


def replay(drawn: Life, released: Released) -> tuple[Longs, Longs]:
    """State at the end of each time, and which step that is the last of."""
    rule = REGISTRY[released.rule]
    state = new_state([list(REGISTRY).index(rule.id)], drawn.replicas)
    state.fetches["replica_id"] = range(drawn.replicas)
    params = {name: param.default for name, param in rule.params.items()} | dict(released.flags)
    params |= {
        "replica_lag_time_max_ms": drawn.lag_ms,
        "min_insync_replicas": drawn.min_isr,
        "check_period_ms": drawn.lag_ms // rule.checks_per_lag_time,
        "check_phase_ms": drawn.phase_ms,
        "isr_write_latency_ms": drawn.latency_ms,
    }
    for name, value in params.items():
        state.params[name] = value
    out = new_kernel_output(4 * replay_room_for_a_row(1, drawn.replicas))
    found, lasts, steps = [], [], 0
    state.leaders["high_watermark"] = drawn.terms[0].start_offset
    for term in drawn.terms:
        state.term["leader"], state.term["replicas"] = drawn.leader, drawn.replicas
        state.term["start_us"], state.term["end_us"] = term.start_us, term.end_us
        state.term["start_offset"] = term.start_offset
        out.filled[:] = 0
        begin_replay_of_term(state, term.isr, int(state.leaders["high_watermark"][0]), term.leader_is_new, out)
        rows, times, after, last = groups(term)
        seen = np.zeros((len(times), 4 + 2 * drawn.replicas), np.int64)
        assert walker()(state, rows, times, after, out, seen)
        state.term["row"] = 0
        out.filled[:] = 0
        assert advance_replay(state, Rows(*(column[:0] for column in rows)), term.end_us, out)
        found.append(seen)
        lasts.append(last + steps)
        steps += len(term.steps)
    return np.concatenate(found), np.concatenate(lasts)


def compare(released: Released, releases: Releases, folder: Path, lives: int) -> int:
    """Let a release and our rule live the same lives; how many states were compared."""
    assert released.rule in REGISTRY, f"there is no rule {released.rule}"
    background = REGISTRY[released.rule].isr_write_in_background
    driver, compared, changes = releases.driver(released.jars or released.version, released.driver), 0, 0
    first = RELEASED.index(released) * LIVES_NIGHTLY if released in RELEASED else 0
    for seed in range(first, first + lives):
        drawn = life(seed, latency=background, removals=released.removes_within_a_term, small=released.small_offsets)
        answer = driver.call(
            "play", drawn.steps.astype("<i8").tobytes(), str(folder / str(seed)), drawn.replicas, drawn.leader,
            drawn.lag_ms, drawn.min_isr, drawn.latency_ms, drawn.terms[0].start_offset,
        )  # fmt: skip
        expected = np.frombuffer(answer, "<i8").reshape(-1, 4 + 2 * drawn.replicas)
        found, lasts = replay(drawn, released)
        wrong = np.flatnonzero((expected[lasts] != found).any(axis=1))
        if len(wrong):
            at = lasts[wrong[0]] + 1
            steps = zip(drawn.steps[:at].tolist(), expected[:at].tolist(), strict=True)
            told = "\n".join([f"{step} -> {state}" for step, state in steps][-12:])
            pytest.fail(f"{seed}: {drawn._replace(terms=[])}, ours {found[wrong[0]].tolist()}:\n{told}")
        compared += len(found)
        changes += int(np.count_nonzero(np.diff(found[:, 2])))
    assert changes > compared // 50, "in these lives nothing happens"
    return compared


AT_FIRST = ("2.1.1", "3.7.2", "4.1.0")
"""Releases of `make test`: the last rule with ZooKeeper's leaders, and the one in force; others are compared later."""
versions = pytest.mark.parametrize("released", RELEASED, ids=[released.version for released in RELEASED])


@pytest.mark.parametrize(
    "released",
    [pytest.param(each, id=each.version, marks=() if each.version in AT_FIRST else pytest.mark.long)
     for each in RELEASED],
)  # fmt: skip
def test_the_replay_equals_the_released_partition(
    released: Released, releases: Releases, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    compared = compare(released, releases, tmp_path, LIVES)
    record_property("rule", released.rule)
    record_property("witness", "partition")
    record_property("release", released.version)
    record_property("count", compared)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@versions
def test_the_replay_equals_the_released_partition_for_longer(
    released: Released, releases: Releases, tmp_path: Path
) -> None:
    compare(released, releases, tmp_path, LIVES_NIGHTLY)


@pytest.mark.skipif("KAFKA_JARS" not in os.environ, reason="KAFKA_JARS names no folder of a build")
@pytest.mark.timeout(3600)
def test_a_rule_equals_the_partition_in_your_own_jars(releases: Releases, tmp_path: Path) -> None:
    """The rule is ``KAFKA_RULE``, by default that of the newest release."""
    rule = os.environ.get("KAFKA_RULE", RELEASED[-1].rule)
    own = RELEASED[-1]._replace(rule=rule, jars=Path(os.environ["KAFKA_JARS"]))
    compare(own, releases, tmp_path, LIVES)


@pytest.mark.long
def test_jars_of_your_own_are_compared_with_any_rule(releases: Releases, tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    for module in modules(RELEASED[-1].version):
        if module.startswith("org.apache.kafka:"):
            shutil.copy(releases.jar(module), tmp_path / "libs")
    own = RELEASED[-1]._replace(jars=tmp_path)
    compare(own, releases, tmp_path, 3)
    with pytest.raises(pytest.fail.Exception, match="ours"):
        compare(own._replace(rule="kafka-0.10.2"), releases, tmp_path / "other", 3)

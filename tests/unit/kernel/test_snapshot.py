"""A replay that is put away and taken up again, at any instants, gives what it gives in one go."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies import Log, Setting, cases_of_all_rules, instants
from tests.unit.kernel.test_kernel_against_naive import append, begin, columns, each, fetch, new_replay, term
from udfs.kernel.replay import advance_replay, end_replay_of_term, replay_room_for_a_row
from udfs.kernel.snapshot import packed_snapshot, unpacked_snapshot
from udfs.kernel.state import State
from udfs.records import NEVER_US, KernelOutput, new_kernel_output

Scores = tuple[list[list[int]], ...]


def results(out: KernelOutput) -> Scores:
    replica, partition, change, score, follower = (int(filled) for filled in out.filled)
    parts = (out.replica[:replica], out.partition[:partition], out.change[:change], out.score[:score],
             out.follower_score[:follower], out.latency[:score])  # fmt: skip
    return tuple(part.tolist() for part in parts)


def replay(log: Log, runs: list[Setting], cuts: list[int], between: Callable[[State], State]) -> Scores:
    replicas = log.terms[0].replicas
    state = new_replay(runs, replicas)
    out = new_kernel_output(replay_room_for_a_row(len(runs), len(replicas)) + 30_000, 4096)
    for begun in log.terms:
        begin(state, begun, out)
        inside = [cut for cut in cuts if begun.start_us <= cut <= begun.end_us]
        for since, until in pairwise([-1, *inside, int(NEVER_US)]):
            rows = tuple(row for row in begun.rows if since <= row.time_us < until)
            state.term["row"] = 0
            assert advance_replay(state, columns(rows), until, out)
            state = between(state)
        end_replay_of_term(state, out)
    return results(out)


def put_away(state: State) -> State:
    return unpacked_snapshot(packed_snapshot(state))


@st.composite
def cut_logs(draw: st.DrawFn) -> tuple[Log, list[Setting], list[int]]:
    log, runs = draw(cases_of_all_rules())
    return log, runs, sorted(draw(st.lists(st.sampled_from(instants(log)), max_size=4)))


@settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cut_logs())
def test_any_cut_equals_one_replay(case: tuple[Log, list[Setting], list[int]]) -> None:
    log, runs, cuts = case
    assert replay(log, runs, cuts, put_away) == replay(log, runs, [], lambda state: state)


def some_state() -> State:
    kept: list[State] = []

    def keep(state: State) -> State:
        kept.append(state)
        return state

    rows = append(1000, 3), fetch(2000, 2, 3), append(3000, 9)
    replay(Log((term(*rows),)), each(), [10_002_500], keep)
    return kept[0]


def test_a_state_is_the_same_after_it_was_packed() -> None:
    state = some_state()
    assert packed_snapshot(put_away(state)) == packed_snapshot(state)
    assert len(packed_snapshot(state)) < 11_200 * len(each())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda data: data[:-1], "more than"),
        (lambda data: data[:10], "another version"),
        (lambda data: b"\\1" + data[1:], "another version"),
        (lambda _: b"", "another version"),
    ],
)
def test_bytes_of_anything_else_are_refused(spoil: Callable[[bytes], bytes], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        unpacked_snapshot(spoil(packed_snapshot(some_state())))


def test_nothing_of_the_state_is_left_out() -> None:
    """Every array that the kernel writes to is among the parts, or is scratch beyond what is in use."""

    def arrays(part: Any) -> int:
        return sum(map(arrays, part)) if isinstance(part, tuple) else 1

    state = some_state()
    assert arrays(state) == 14
    again = put_away(state)
    for name in ("term", "fetches", "followers", "leaders", "params", "codes", "active", "due_us"):
        assert np.array_equal(getattr(state, name), getattr(again, name)), name

"""The compiled replay against the naive model, cell by cell, on generated logs.

Both replay the same log under the same rules; every ISR change and every row of both timelines must agree.
``LOGS_A_VARIANT`` times the variants of ``tests.strategies`` is the budget of an ordinary run; the ``nightly``
mark spends more.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import naive
from tests.naive import CAUSES, Change, Leader, PartitionRow, ReplicaRow, Row, Term
from tests.naive_rules import RULES
from tests.strategies import VARIANTS, Log, Setting, logs, settings_of_runs
from udfs.records import CHANGE_KINDS, MADE_BY, Output, Rows, new_output
from udfs.replay import kernels, new_state, room_for_a_row
from udfs.rules import REGISTRY

LOGS_A_VARIANT = 3000
LOGS_A_VARIANT_NIGHTLY = 60_000
CODES = {rule: code for code, rule in enumerate(REGISTRY)}
NO_TIMERS = -1

Result = dict[str, list[Any]]


def replay_naively(log: Log, runs: list[Setting]) -> list[Result]:
    """Changes and timelines of every run by the naive model."""
    results = []
    for run in runs:
        rule = RULES[run.rule](
            run.replica_lag_time_max_ms, run.min_insync_replicas, run.check_phase_ms, **dict(run.flags)
        )
        leader = Leader(rule)
        for term in log.terms:
            leader.begin(term)
            leader.play(term.rows, term.end_us)
        results.append(
            {
                "changes": [comparable(change) for change in leader.changes],
                "partition": leader.partition_rows,
                "replica": sorted(leader.replica_rows, key=lambda row: row.replica_id),
            }
        )
    return results


def comparable(change: Change) -> Change:
    """Blank what is settled for shrinks by the rule only."""
    if change.kind == "shrink" and change.made_by == "rule":
        return change
    return change._replace(true_lag_ms=0, leader_held_ms=0, leader_silent_ms=0)


def replay(log: Log, runs: list[Setting], cuts: tuple[int, ...] = (), spare: int = 10_000) -> list[Result]:
    """Replay with the kernel, in stretches that end at ``cuts``, into a buffer with ``spare`` places too many."""
    replicas = log.terms[0].replicas
    state = new_state([CODES[run.rule] for run in runs], len(replicas))
    state.fetches["replica_id"] = replicas
    for params, run in zip(state.params, runs, strict=True):
        checks = REGISTRY[run.rule].checks_per_lag_time
        params["replica_lag_time_max_ms"] = run.replica_lag_time_max_ms
        params["min_insync_replicas"] = run.min_insync_replicas
        params["check_period_ms"] = run.replica_lag_time_max_ms // checks if checks else 0
        params["check_phase_ms"] = run.check_phase_ms
        for name, value in run.flags:
            params[name] = value
    out = new_output(room_for_a_row.py_func(len(runs), len(replicas)) + spare)
    results: list[Result] = [{"changes": [], "partition": [], "replica": []} for _ in runs]
    for term in log.terms:
        state.term["leader"] = replicas.index(term.leader)
        state.term["replicas"] = len(replicas)
        state.term["start_us"], state.term["end_us"] = term.start_us, term.end_us
        state.term["start_offset"] = term.start_offset
        isr = sum(1 << replicas.index(replica) for replica in term.isr)
        kernels().begin_term(state, isr, term.start_high_watermark, term.leader_is_new, out)
        for stretch, until_us in stretches(term, cuts):
            state.term["row"] = 0
            while not kernels().advance(state, stretch, until_us, out):
                collect(out, replicas, results)
        collect(out, replicas, results)
    for result in results:
        result["changes"] = [comparable(change) for change in result["changes"]]
        result["replica"].sort(key=lambda row: row.replica_id)
    return results


def stretches(term: Term, cuts: tuple[int, ...]) -> Iterator[tuple[Rows, int]]:
    """Rows of a term in pieces; only after the last piece does time pass until the end."""
    edges = [0, *sorted(min(cut, len(term.rows)) for cut in cuts), len(term.rows)]
    for begin, end in zip(edges, edges[1:], strict=False):
        yield columns(term.rows[begin:end]), NO_TIMERS
    yield columns(()), term.end_us


def columns(rows: tuple[Row, ...]) -> Rows:
    table = np.array(rows, np.int64).reshape(len(rows), len(Row._fields))
    return Rows(**{name: np.ascontiguousarray(table[:, Row._fields.index(name)]) for name in Rows._fields})


def collect(out: Output, replicas: tuple[int, ...], results: list[Result]) -> None:
    """Move the buffer's rows into ``results`` and empty it."""

    def members(bits: int) -> frozenset[int]:
        return frozenset(replica for position, replica in enumerate(replicas) if bits >> position & 1)

    for rule, position, time, leo, lag_ms, lag, cu, in_isr in out.replica[: out.filled[0]].tolist():
        results[rule]["replica"].append(ReplicaRow(time, replicas[position], leo, lag_ms, lag, cu, bool(in_isr)))
    for rule, time, leo, hw, isr in out.partition[: out.filled[1]].tolist():
        results[rule]["partition"].append(PartitionRow(time, leo, hw, members(isr)))
    for rule, time, kind, position, before, after, *states, by, true_lag, causes, held, silent in (
        out.change[: out.filled[2]].tolist()
    ):  # fmt: skip
        named = frozenset(cause for bit, cause in enumerate(CAUSES) if causes >> bit & 1)
        results[rule]["changes"].append(
            Change(
                time, CHANGE_KINDS[kind], replicas[position], members(before), members(after), *states, MADE_BY[by],
                true_lag, named, held, silent,
            )
        )  # fmt: skip
    out.filled[:] = 0


def assert_agree(log: Log, runs: list[Setting], cuts: tuple[int, ...] = (), spare: int = 10_000) -> None:
    """Both give the same, and a log cut into stretches gives the same as a whole one."""
    expected = replay_naively(log, runs)
    found = replay(log, runs, cuts, spare)
    for run, want, got in zip(runs, expected, found, strict=True):
        for what, rows in want.items():
            assert got[what] == rows, f"{run.rule}: {what}"


def against_naive(variant: int, examples: int) -> None:
    """Compare on ``examples`` generated logs, the variant first among three rules."""

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=examples == LOGS_A_VARIANT,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        logs(), settings_of_runs(variant), st.lists(st.integers(0, 60), max_size=3), st.sampled_from([10_000, 0, 1, 7])
    )
    def compare(log: Log, runs: list[Setting], cuts: list[int], spare: int) -> None:
        assert_agree(log, runs, tuple(cuts), spare)

    compare()


named = pytest.mark.parametrize(
    "variant", range(len(VARIANTS)), ids=["-".join([rule, *(str(v) for _, v in flags)]) for rule, flags in VARIANTS]
)


@named
def test_kernel_agrees_with_naive(variant: int) -> None:
    against_naive(variant, LOGS_A_VARIANT)


@pytest.mark.nightly
@named
def test_kernel_agrees_with_naive_on_many_more_logs(variant: int) -> None:
    against_naive(variant, LOGS_A_VARIANT_NIGHTLY)

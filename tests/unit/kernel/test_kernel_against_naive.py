"""The compiled replay against the naive model, cell by cell, on generated logs.

Both replay the same log under the same rules; every ISR change and every row of both timelines must agree.
Every log is replayed under all rules, each in a variant of ``tests.strategies``. ``LOGS`` of them are the budget
of `make test` and `make test-all` together; the ``nightly`` mark spends more.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive import CAUSES, Leader
from tests.naive_rows import Change, PartitionRow, ReplicaRow
from tests.naive_rules import RULES
from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, REMOVED, Row, Term
from tests.strategies import VARIANTS, Log, Setting, cases_of_all_rules
from udfs.kernel.doubts import DEPENDS_ON
from udfs.kernel.replay import advance_replay, begin_replay_of_term, replay_room_for_a_row
from udfs.kernel.state import State, new_state
from udfs.records import CHANGE_KINDS, DOUBT, MADE_BY, RUNS_A_ROW, KernelOutput, Rows, new_kernel_output
from udfs.rules import REGISTRY

LOGS = 6_000
LOGS_NIGHTLY = 300_000
PARTS = 24
PART_SECONDS = 9
"""CPU time of a part, nearly all of it the naive model's."""
TEST_SECONDS = 9
"""What `make test` has for them; `make test-all` runs the parts that are left."""
CODES = {rule: code for code, rule in enumerate(REGISTRY)}
NO_TIMERS = -1

Result = dict[str, list[Any]]


def replay_naively(log: Log, runs: list[Setting]) -> list[Result]:
    """Changes and timelines of every run by the naive model."""
    results: list[Result] = []
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
                "partition": list(leader.partition_rows),
                "states": leader.states,
            }
        )
    return results


def comparable(change: Change) -> Change:
    """Blank what is settled for shrinks by the rule only."""
    if change.kind == "shrink" and change.made_by == "rule":
        return change
    return change._replace(true_lag_ms=0, leader_held_ms=0, leader_silent_ms=0)


def new_replay(runs: Sequence[Setting], replicas: Sequence[int]) -> State:
    """State for these runs, before any term."""
    state = new_state([CODES[run.rule] for run in runs], len(replicas))
    state.fetches["replica_id"] = replicas
    for params, run in zip(state.params[: len(runs)], runs, strict=True):
        checks = REGISTRY[run.rule].checks_per_lag_time
        params["replica_lag_time_max_ms"] = run.replica_lag_time_max_ms
        params["min_insync_replicas"] = run.min_insync_replicas
        params["check_period_ms"] = run.replica_lag_time_max_ms // checks if checks else 0
        params["check_phase_ms"] = run.check_phase_ms
        for name, value in run.flags:
            params[name] = value
    return state


def begin(state: State, term: Term, out: KernelOutput) -> None:
    """Let a term begin."""
    state.term["leader"] = term.replicas.index(term.leader)
    state.term["replicas"], state.term["observers"] = len(term.replicas), len(term.observers)
    state.term["start_us"], state.term["end_us"] = term.start_us, term.end_us
    state.term["start_offset"] = term.start_offset
    state.term["begins_mid_term"], state.term["offsets_known"] = term.begins_mid_term, True
    state.term["ends_mid_term"] = term.ends_mid_term
    state.term["phase_unknown"], state.term["isr_inferred"] = not term.phase_known, not term.isr_known
    state.fetches["held_at_start"] = term.held_at_start or -1
    isr = sum(1 << term.replicas.index(replica) for replica in term.isr)
    begin_replay_of_term(state, isr, term.start_high_watermark, term.leader_is_new, out)


def replay(log: Log, runs: list[Setting], cuts: tuple[int, ...] = (), spare: int = 10_000) -> list[Result]:
    """Replay with the kernel, in stretches that end at ``cuts``, into a buffer with ``spare`` places too many."""
    replicas = log.terms[0].replicas
    state = new_replay(runs, replicas)
    room = replay_room_for_a_row(len(runs), len(replicas))
    out = new_kernel_output(room + spare)
    results: list[Result] = [{"changes": [], "partition": [], "replica": []} for _ in runs]
    for term in log.terms:
        begin(state, term, out)
        for stretch, until_us in stretches(term, cuts):
            state.term["row"] = 0
            while not advance_replay(state, stretch, until_us, out):
                collect(out, replicas, results)
        collect(out, replicas, results)
    for result in results:
        result["changes"] = [comparable(change) for change in result["changes"]]
        result["replica"].sort(key=lambda row: row.replica_id)
    return results


def stretches(term: Term, cuts: tuple[int, ...]) -> Iterator[tuple[Rows, int]]:
    """Rows of a term in pieces; only after the last piece does time pass until the end."""
    edges = [0, *sorted(min(cut, len(term.rows)) for cut in cuts), len(term.rows)]
    for begin, end in pairwise(edges):
        yield columns(term.rows[begin:end]), NO_TIMERS
    yield columns(()), term.end_us


def columns(rows: Sequence[tuple[Any, ...]]) -> Rows:
    """Rows of a log for the kernel; they can't be written to, as Arrow's can't: for others numba compiles again."""
    found = Rows(*np.array(rows, np.int64).reshape(len(rows), len(Rows._fields)).T.copy())
    for column in found:
        column.flags.writeable = False
    return found


def collect(out: KernelOutput, replicas: tuple[int, ...], results: list[Result]) -> None:
    """Move the buffer's rows into ``results`` and empty it."""

    def members(bits: int) -> frozenset[int]:
        return frozenset(replica for position, replica in enumerate(replicas) if bits >> position & 1)

    def having(runs: int) -> list[int]:
        return [48 * (runs >> 48) + bit for bit in range(48) if runs >> bit & 1]

    for runs, position, time, leo, _, lag, cu, in_isr in out.replica[: out.filled[0]].tolist():
        for run in having(runs):
            results[run]["replica"].append(ReplicaRow(time, replicas[position], leo, lag, cu, bool(in_isr)))
    for runs, time, leo, hw, isr, acknowledged in out.partition[: out.filled[1]].tolist():
        for run in having(runs):
            results[run]["partition"].append(PartitionRow(time, leo, hw, members(isr), acknowledged))
    for rule, time, kind, position, before, after, *rest in out.change[: out.filled[2]].tolist():
        changes = results[rule]["changes"]
        if kind == DOUBT:
            shrink = ("shrink", replicas[position], time)
            number = max(i for i, row in enumerate(changes) if (row.kind, row.replica_id, row.time_us) == shrink)
            changes[number] = changes[number]._replace(depends_on=DEPENDS_ON[rest[-1]])
            continue
        hw, leo, follower_leo, cu, lag_ms, by, true_lag_ms, causes, held_ms, silent_ms, error_ms, _ = rest
        named = frozenset(cause for bit, cause in enumerate(CAUSES) if causes >> bit & 1)
        changes.append(
            Change(
                time, CHANGE_KINDS[kind], replicas[position], members(before), members(after), hw, leo, follower_leo,
                cu, lag_ms, MADE_BY[by], true_lag_ms, named, held_ms,
                silent_ms if silent_ms >= 0 else None, error_ms or None, None,
            )
        )  # fmt: skip
    out.filled[:] = 0


def assert_agree(log: Log, runs: list[Setting], cuts: tuple[int, ...] = (), spare: int = 10_000) -> None:
    """Both give the same, and a log cut into stretches gives the same as a whole one."""
    expected = replay_naively(log, runs)
    found = replay(log, runs, cuts, spare)
    for run, want, got in zip(runs, expected, found, strict=True):
        for what in ("changes", "partition"):
            assert got[what] == want[what], f"{run.rule}: {what}"
        assert_rows_tell(want["states"], got["replica"], run.rule)


def assert_rows_tell(states: list[ReplicaRow], rows: list[ReplicaRow], rule: str) -> None:
    """Rows describe the past; the last row has a follower's log end, its membership, and when it was last caught up.

    The latter only while it is behind: for the rest, see tests/unit/replay/test_series.py.
    """
    whose = attrgetter("replica_id", "time_us")
    at_once = {key: [*some] for key, some in groupby(sorted(states, key=whose), whose)}
    written = {key: [*some] for key, some in groupby(sorted(rows, key=whose), whose)}
    if not states and not rows:
        return
    state, row = (states or rows)[0], (rows or states)[0]
    for key in sorted({*at_once, *written}):
        possible = [state[2:], *(each[2:] for each in at_once.get(key, []))]
        assert {each[2:] for each in written.get(key, [])} <= {*possible}, f"{rule}: rows of what was not so"
        state, row = at_once.get(key, [state])[-1], written.get(key, [row])[-1]
        if state.lag_messages == 0:
            row = row._replace(last_caught_up_time_ms=state.last_caught_up_time_ms)
        assert row[2:] == state._replace(lag_messages=row.lag_messages)[2:], f"{rule}: {state}"


def against_naive(part: int, examples: int) -> None:
    """Compare on ``examples`` generated logs, each under every rule."""

    @seed(part)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases_of_all_rules(), st.lists(st.integers(0, 60), max_size=3), st.sampled_from([10_000, 0, 1, 7]))
    def compare(case: tuple[Log, list[Setting]], cuts: list[int], spare: int) -> None:
        assert_agree(*case, tuple(cuts), spare)

    compare()


@pytest.mark.parametrize(
    "part",
    [pytest.param(n, marks=pytest.mark.long if n >= TEST_SECONDS // PART_SECONDS else ()) for n in range(PARTS)],
)
def test_kernel_agrees_with_naive(part: int, record_property: Any) -> None:
    against_naive(part, LOGS // PARTS)
    record_property("rules", list(RULES))
    record_property("witness", "naive")
    record_property("count", LOGS // PARTS)


@seed(48)
@settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cases_of_all_rules(), st.integers(1, 9), st.sampled_from([10_000, 0]))
def test_more_runs_than_a_row_of_the_timelines_can_stand_for(
    case: tuple[Log, list[Setting]], step_ms: int, spare: int
) -> None:
    """And more states at an instant than are looked through."""
    log, runs = case
    many = [
        run._replace(replica_lag_time_max_ms=run.replica_lag_time_max_ms + n * step_ms)
        for n in range(7)
        for run in runs
    ]
    assert len(many) > 2 * RUNS_A_ROW
    assert_agree(log, many, spare=spare)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS, 2 * PARTS))
def test_kernel_agrees_with_naive_on_many_more_logs(part: int) -> None:
    against_naive(part, LOGS_NIGHTLY // PARTS)


def test_every_rule_is_compared() -> None:
    assert RULES.keys() == REGISTRY.keys() == dict(VARIANTS).keys()


# Counterexamples that were met, shrunk by hand or by Hypothesis: each names what went wrong.

START_US = 10_000_000


def term(*rows: Row, **changed: Any) -> Term:
    """A term of leader 1 with followers 2 and 3 in the ISR of an empty log; ``rows`` are timed from its start."""
    begun = Term((1, 2, 3), 1, START_US, START_US + 1_000_000, 0, 0, (1, 2, 3), leader_is_new=True)
    return begun._replace(**changed, rows=tuple(at(row, changed.get("start_us", START_US)) for row in rows))


def at(row: Row, start_us: int) -> Row:
    moved = {name: getattr(row, name) + start_us for name in Row._fields if name.endswith("_us")}
    return row._replace(**moved)


def append(us: int, end: int, acks: int = -1) -> Row:
    return Row(us, APPEND, offset=end, code=acks)


def fetch(us: int, replica: int, offset: int, *, known: int = -1, took_us: int = 0, error: int = 0) -> Row:
    """A fetch that lay in the queue for half of ``took_us``, and was worked on for the other half."""
    end_us = us + took_us
    return Row(us, FETCH, replica, offset, error, known, us + took_us // 2, end_us, end_us, end_us)


def each(lag_ms: int = 100, **changed: Any) -> list[Setting]:
    """Every rule, with the same parameters."""
    return [Setting(rule, lag_ms, flags=flags, **changed) for rule, flags in VARIANTS]


def test_a_follower_that_falls_behind_by_an_append_is_written_then() -> None:
    rows = fetch(0, 2, 0), fetch(2000, 2, 0), append(3000, 1)
    assert_agree(Log((term(*rows),)), each())


def test_a_log_end_known_from_a_fetch_only_counts_as_appended_when_it_was_read() -> None:
    """Else the follower would seem to lack nothing until the next append."""
    rows = fetch(0, 2, 5, known=5), fetch(0, 3, 5), fetch(1000, 2, 5, known=9), append(2000, 9)
    assert_agree(Log((term(*rows, start_offset=5),)), each())
    assert_agree(Log((term(*rows, start_offset=5, isr=(1,)),)), each())


def test_a_fetch_that_the_next_one_overtook_leaves_no_negative_lag() -> None:
    """Stamps of a log can be late: by them the first was read after the second arrived, and after the append."""
    rows = fetch(0, 2, 0), fetch(1000, 2, 0, took_us=50_000), fetch(10_000, 2, 0), append(11_000, 1)
    log = Log((term(*rows),))
    assert_agree(log, each())


def test_after_an_error_the_high_watermark_waits_for_everybody() -> None:
    """Up to 2.3.1 it is then evaluated at time -1, when no follower has been behind for long."""
    rows = fetch(0, 2, 4, known=4), append(1000, 6), fetch(200_000, 2, 5, error=6)
    assert_agree(Log((term(*rows, start_offset=5, isr=(1,)),)), each())


def test_the_high_watermark_is_evaluated_at_the_time_of_the_read() -> None:
    """Read at the lag time and recorded after it: at the time of the read it still has to wait for replica 3."""
    rows = fetch(0, 2, 5), fetch(0, 3, 5), Row(1000, REMOVED, 3), append(2000, 6), fetch(90_000, 2, 6, took_us=20_000)
    assert_agree(Log((term(*rows, start_offset=5),)), each())


def test_a_replica_stays_ineligible_when_a_term_ends() -> None:
    first = term(Row(0, ELIGIBLE, 2, code=0), isr=(1, 3), end_us=START_US + 1000)
    second = term(fetch(0, 2, 0), isr=(1, 3), start_us=START_US + 2000, leader_is_new=False)
    assert_agree(Log((first, second)), each())


def test_a_follower_whose_log_got_shorter_is_overdue_now_not_earlier() -> None:
    rows = append(1000, 5), fetch(2000, 2, 5), fetch(300_000, 2, 0), append(301_000, 6)
    assert_agree(Log((term(*rows),)), each())


def test_a_follower_whose_log_got_shorter_lacked_nothing_until_then() -> None:
    rows = append(0, 5), fetch(0, 2, 5, took_us=1000), fetch(2000, 2, 0, took_us=1000)
    assert_agree(Log((term(*rows),)), each())


def test_a_follower_lacks_nothing_at_the_instant_of_an_append() -> None:
    rows = append(0, 5), append(3000, 6), fetch(3000, 2, 5, took_us=1000)
    assert_agree(Log((term(*rows),)), each())


def test_a_follower_that_lacks_nothing_was_not_held_up() -> None:
    assert_agree(Log((term(fetch(0, 2, 0, took_us=2000)),)), each())


def test_a_check_that_ran_a_little_early_does_not_run_again() -> None:
    """It is due at 150 ms, when the follower is overdue; the log has it at 149 ms, when the follower is not."""
    rows = fetch(49_000, 2, 0), append(49_500, 1), Row(149_000, CHECK, until_us=149_000)
    assert_agree(Log((term(*rows),)), each())


def test_while_an_isr_write_is_under_way_the_isr_does_not_change_again() -> None:
    """50 ms a write, so replica 3 has to come back for its turn."""
    rows = fetch(0, 2, 0), fetch(10_000, 3, 0), append(30_000, 1), fetch(40_000, 2, 1), fetch(60_000, 3, 1)
    run = Setting("kafka-3.7", 100, 1, 0, (("isr_write_latency_ms", 50),))
    (result,) = replay(Log((term(*rows, isr=(1,)),)), [run])
    joined = [
        (change.time_us - START_US, change.replica_id, sorted(change.isr_after)) for change in result["changes"][:2]
    ]
    assert joined == [(0, 2, [1, 2]), (60_000, 3, [1, 2, 3])]
    committed = [(row.time_us - START_US, sorted(row.isr)) for row in result["partition"]]
    isrs = [(time, isr) for n, (time, isr) in enumerate(committed) if n == 0 or isr != committed[n - 1][1]]
    assert isrs[:3] == [(0, [1]), (50_000, [1, 2]), (110_000, [1, 2, 3])]
    # The high watermark waits for the one that is about to join, before the write is answered.
    marks = {row.time_us - START_US: row.high_watermark for row in result["partition"]}
    assert marks[30_000] == 0
    assert marks[60_000] == 1


def test_a_leader_that_is_alone_gives_nothing_up() -> None:
    rows = append(0, 5), fetch(1000, 2, 0, took_us=90_000)
    assert_agree(Log((term(*rows, isr=(1,)),)), each())


def test_an_expansion_leaves_the_high_watermark_to_its_fetch() -> None:
    """At the time of the read it still has to wait for replica 3; when the ISR was written it would not."""
    late = Row(90_000, FETCH, 2, 6, 0, -1, 100_000, 110_000, 110_000, 110_000)
    rows = fetch(0, 3, 5), Row(1, REMOVED, 3), append(2000, 6), late
    assert_agree(Log((term(*rows, start_offset=5, isr=(1, 3)),)), each())


def test_a_leader_that_gives_up_leadership_goes_on_with_its_doubts() -> None:
    """Its ISR is whole again without a fetch; the one under way shows that the shrink before is in doubt."""
    slow = Row(1000, FETCH, 2, 10, 0, -1, 20_700, 34_490, 34_990, 34_990)
    begun = term(
        slow, replicas=(1, 2), isr=(1, 2), start_offset=10, start_high_watermark=5, leader_is_new=False,
        end_us=START_US + 60_000,
    )  # fmt: skip
    gives_up = ("follower_fetch_process_time_max_ms", 30), ("isr_write_latency_ms", 40)
    runs = [Setting("kip-501-relinquish", 5, 2, -5, gives_up), Setting("kip-501-pending", 5, 2)]
    assert_agree(Log((begun,)), runs)
    shrink, *_ = replay(Log((begun,)), runs)[0]["changes"]
    assert (shrink.kind, shrink.depends_on) == ("shrink", "event_order")


def test_runs_share_no_state_in_which_a_later_fetch_parts_them() -> None:
    """Since 3.3 a leader remembers where its log ended before it got shorter; older releases forget it."""
    rows = fetch(0, 2, 10, known=13), fetch(0, 2, 10, known=10), fetch(25_000, 2, 9, known=10), fetch(25_000, 2, 10)
    log = Log((term(*rows, start_offset=10, start_high_watermark=10, isr=(1, 2), replicas=(1, 2)),))
    for phase_ms in (0, 1):
        assert_agree(log, [Setting("kafka-0.10.2"), Setting("kafka-3.7", check_phase_ms=phase_ms)])

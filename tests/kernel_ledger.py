"""Scores that the compiled replay keeps for each term and day, in the form of ``tests.naive_ledger``."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.naive_ledger import ledger
from tests.naive_ledger_rows import FollowerScore, Ledger, Score
from tests.naive_waits import bucket
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import new_replay, stretches
from udfs.kernel.replay import (
    advance_replay,
    begin_replay_of_term,
    end_replay_of_term,
    replay_has_room,
    replay_room_for_a_row,
)
from udfs.records import BUCKETS, FOLLOWER_SCORE_COLUMNS, SCORE_COLUMNS, Int64Array, KernelOutput, new_kernel_output

SCORES = 1


def ledgers(log: Log, runs: Sequence[Setting], cuts: tuple[int, ...] = ()) -> list[Ledger]:
    """Replay a log with the kernel; return the ledger of each run, with buckets in place of exact latencies."""
    replicas = log.terms[0].replicas
    state = new_replay(runs, replicas)
    out = new_kernel_output(replay_room_for_a_row(len(runs), len(replicas)) + 100, SCORES * len(runs))
    found = [Ledger([], []) for _ in runs]
    for term in log.terms:
        state.term["leader"], state.term["replicas"] = replicas.index(term.leader), len(replicas)
        state.term["observers"] = len(term.observers)
        state.term["start_us"], state.term["end_us"] = term.start_us, term.end_us
        state.term["start_offset"] = term.start_offset
        state.term["begins_mid_term"] = term.begins_mid_term
        state.term["ends_mid_term"] = term.ends_mid_term
        state.fetches["held_at_start"] = term.held_at_start or -1
        isr = sum(1 << replicas.index(replica) for replica in term.isr)
        if not replay_has_room(state, out):
            collect(out, replicas, found)
        begin_replay_of_term(state, isr, term.start_high_watermark, term.leader_is_new, out)
        for stretch, until_us in stretches(term, cuts):
            state.term["row"] = 0
            while not advance_replay(state, stretch, until_us, out):
                collect(out, replicas, found)
        end_replay_of_term(state, out)
        collect(out, replicas, found)
    return found


def collect(out: KernelOutput, replicas: Sequence[int], found: list[Ledger]) -> None:
    """Move score rows from the kernel's output to the ledger of their run."""
    for row, latency in zip(out.score[: out.filled[3]], out.latency, strict=False):
        named = dict(zip(SCORE_COLUMNS, row.tolist(), strict=True))
        found[named.pop("rule")].scores.append(
            Score(**named, latencies=tuple(expanded(latency[:BUCKETS])), waits=(*latency[BUCKETS:].tolist(),))
        )
    for row in out.follower_score[: out.filled[4]]:
        named = dict(zip(FOLLOWER_SCORE_COLUMNS, row.tolist(), strict=True))
        replica = replicas[named.pop("position")]
        found[named.pop("rule")].followers.append(FollowerScore(replica, **named))
    out.filled[:] = 0


def expanded(histogram: Int64Array) -> Iterator[int]:
    """Turn a histogram into one bucket number for each append."""
    for place in np.flatnonzero(histogram).tolist():
        yield from [place] * int(histogram[place])


def in_buckets(found: Ledger) -> Ledger:
    """Round latencies of the naive ledger to the kernel's buckets, so that both can be compared."""
    scores = [score._replace(latencies=tuple(map(bucket, score.latencies))) for score in found.scores]
    return found._replace(scores=scores)


LedgerOf = Callable[[Log, Setting], Ledger]
IMPLEMENTATIONS: dict[str, LedgerOf] = {
    "naive": lambda log, setting: in_buckets(ledger(log, setting)),
    "kernel": lambda log, setting: ledgers(log, [setting])[0],
}

"""The kernel without Spark: rows a second of one core, against a loop by hand and against its own single rule."""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import by_hand
from benchmarks.arrow_log import as_batches
from benchmarks.log import (
    CLUSTER,
    LAG_TIME_MS,
    START_OFFSET,
    START_US,
    Log,
    Plan,
    chunks_of,
    log_of,
    replicas_of,
    term_of,
)
from benchmarks.measure import Contestant, checksum_of_changes, checksum_of_table, interleaved
from benchmarks.page import Section, Wait, rate
from isr_batch.replay.kernel_cache import keep_compiled
from udfs.batches.replay import SetReplay, replay_batches
from udfs.batches.results import KINDS, SCORED, STATES
from udfs.batches.rule_runs import RuleRun
from udfs.records import Rows
from udfs.rules import ALL_RULES, BASELINE

MOST_ROWS = 20_000_000
"""Log that is held in memory."""
SETS_OF_PARAMETERS = (1, 2, 5, 10, 50, 200)


class KernelAlone(SetReplay):
    """The replay of a log that is in memory already; results are counted and forgotten, not made Arrow."""

    def __init__(self, runs: Sequence[RuleRun], kinds: Collection[str] = tuple(KINDS)) -> None:
        super().__init__(runs, kinds)
        self.counts = np.zeros(len(KINDS), np.int64)
        self.changes: list[tuple[int, Any]] = []

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Keep the changes, with the partition that each stretch of them is of."""
        partition = self.key[2] if self.key else -1
        self.counts += self.out.filled
        self.changes.append((partition, self.out.change[: self.out.filled[2]].copy()))
        self.marks.clear()
        self.out.filled[:] = 0
        yield from ()

    def checksum(self, rule: int) -> tuple[int, int]:
        """Checksum of the changes by the run with this index."""
        of = np.concatenate([np.full(len(found), partition) for partition, found in self.changes])
        rows = np.concatenate([found for _, found in self.changes])
        mine = rows[:, 0] == rule
        return checksum_of_changes(of[mine], rows[mine])


def replay_in_memory(log: Log, runs: Sequence[RuleRun], keeping: type[KernelAlone] = KernelAlone) -> KernelAlone:
    """Replay every partition of the log through the production code, from its rows to its numbered results."""
    replay = keeping(runs)
    for partition, first, end in zip(log.partitions, log.starts, log.starts[1:], strict=False):
        replay.begin_set((CLUSTER, "topic", int(partition), replicas_of(int(partition))[0]))
        for _ in replay.begin_term(START_US, START_OFFSET, term_of(log.plan, int(partition))):
            pass
        for _ in replay.advance(Rows(*(column[first:end] for column in log.rows)), -1):
            pass
        for _ in replay.end_term():
            pass
        for _ in replay.flush():
            pass
    return replay


def expected_changes(plan: Plan) -> tuple[int, int]:
    """Changes of the ISR under kafka-3.7, by the loop written by hand; a log of any size."""
    found = [by_hand.replay(chunk) for chunk in chunks_of(plan)]
    return checksum_of_changes(
        np.concatenate([each.change_of for each in found]), np.concatenate([each.change for each in found])
    )


def runs_of_lag_times(number: int) -> list[RuleRun]:
    """So many parameter sets of the baseline; the first is what the log's own brokers have."""
    return [RuleRun(BASELINE, {"replica_lag_time_max_ms": LAG_TIME_MS + 250 * i}) for i in range(number)]


def measure(plan: Plan, rounds: int) -> list[Section]:
    """Group a. Seconds are CPU time of the one thread."""
    rows = min(plan.rows, MOST_ROWS)
    log = read_only(log_of(Plan(rows, max(2, plan.partitions * rows // plan.rows))))
    expected = by_hand.checksum(by_hand.replay(log))
    all_rules = [RuleRun(rule) for rule in ALL_RULES]
    keep_compiled()
    replay_in_memory(read_only(log_of(Plan(1000, 2))), all_rules)
    baseline = ALL_RULES.index(BASELINE)
    batches = list(as_batches(log))

    def through_arrow(runs: Sequence[RuleRun]) -> list[Any]:
        return [changes_of(batch) for batch in replay_batches(iter(batches), runs, SCORED, shared=list(STATES))]

    def by_arrow(found: list[Any]) -> tuple[int, int]:
        table = pa.concat_tables(changes for changes in found if changes is not None)
        return checksum_of_table(table)

    contestants = [
        Contestant("loop by hand in C++, kafka-3.7", lambda: by_hand.replay(log), by_hand.checksum, expected),
        Contestant("kernel, kafka-3.7", lambda: replay_in_memory(log, [RuleRun(BASELINE)]), _first, expected),
        Contestant(
            f"kernel, all {len(ALL_RULES)} rules in one pass",
            lambda: replay_in_memory(log, all_rules),
            lambda found: found.checksum(baseline),
            expected,
        ),
        Contestant(
            "with Arrow at both ends, kafka-3.7", lambda: through_arrow([RuleRun(BASELINE)]), by_arrow, expected
        ),
        Contestant(
            f"with Arrow at both ends, all {len(ALL_RULES)} rules", lambda: through_arrow(all_rules), by_arrow, expected
        ),
        *(
            Contestant(f"kernel, {rule}", lambda rule=rule: replay_in_memory(log, [RuleRun(rule)]))  # type: ignore[misc]
            for rule in ALL_RULES
            if rule != BASELINE
        ),
    ]
    interleaved(contestants, rounds, time.thread_time)
    by_name = {contestant.name: contestant for contestant in contestants}
    hand, one, fused, arrow_one, arrow_fused = contestants[:5]
    singles = sum(c.best for c in (one, *contestants[5:]))
    number = len(log.rows.time_us)
    section = Section(
        "Kernel alone",
        f"""{number:,} rows of {len(log.partitions):,} partitions in memory, one thread, its CPU time. The kernel is
        called through `udfs.batches.replay.SetReplay` as in production; results are counted and dropped. The kernel
        keeps the ledger and judges each shrink; the C++ loop does neither, and only handles three replicas and two
        kinds of rows. *With Arrow at both ends* is `replay_batches`, which reads record batches and returns results
        in the form in which files store them. The C++ loop only has kafka-3.7; for other rules, only times are
        compared.""",
        ["replayed by", "M rows/s, best round", "M rows/s, median round", "time per row, best round (ns)"],
        [[name, *rate(c, number), f"{1e9 * c.best / number:.0f}"] for name, c in by_name.items()],
        [
            (
                f"all {len(ALL_RULES)} rules in one pass, time relative to all of them one after the other",
                fused.best / singles,
            ),
            ("Arrow at both ends, all rules, relative to the kernel alone", arrow_fused.best / fused.best),
        ],
        [
            Wait(
                f"kernel, {len(ALL_RULES)} rules, per event",
                f"{1e9 * fused.best / number:.0f} ns",
                f"the C++ loop, run {len(ALL_RULES)} times",
                f"{1e9 * hand.best / number * len(ALL_RULES):.0f} ns",
                fused.best / hand.best / len(ALL_RULES),
                "350 ns",
            ),
            Wait(
                f"kernel, one rule ({BASELINE}), per event",
                f"{1e9 * one.best / number:.0f} ns",
                "the C++ loop, which judges nothing",
                f"{1e9 * hand.best / number:.0f} ns",
                one.best / hand.best,
                "2.2",
            ),
            Wait(
                "kernel with Arrow at both ends, one rule, per event",
                f"{1e9 * arrow_one.best / number:.0f} ns",
                "the kernel alone",
                f"{1e9 * one.best / number:.0f} ns",
                arrow_one.best / one.best,
                "1.5",
            ),
        ],
    )
    return [section, _parameter_sets(plan, rounds)]


def _parameter_sets(plan: Plan, rounds: int) -> Section:
    """Many sets of parameters of one rule, on a tenth of the rows."""
    log = read_only(log_of(Plan(min(plan.rows, MOST_ROWS) // 10, max(2, plan.partitions // 10))))
    expected = by_hand.checksum(by_hand.replay(log))
    contestants = [
        Contestant(str(n), lambda n=n: replay_in_memory(log, runs_of_lag_times(n)), _first, expected)  # type: ignore[misc]
        for n in SETS_OF_PARAMETERS
    ]
    interleaved(contestants, rounds, time.thread_time)
    first, number = contestants[0].best, len(log.rows.time_us)
    share = {c.name: (c.best - first) / first / (int(c.name) - 1) for c in contestants[1:]}
    return Section(
        "Parameter sets of kafka-3.7",
        f"""{number:,} rows of {len(log.partitions):,} partitions; lag times from {LAG_TIME_MS} ms on, in steps of 250
        ms.""",
        [
            "parameter sets in one pass",
            "M rows/s, best round",
            "M rows/s, median round",
            "time of a further set, relative to one set",
        ],
        [[c.name, *rate(c, number), f"{share[c.name]:.0%}" if c.name in share else ""] for c in contestants],
        [
            (
                f"a further parameter set, of {SETS_OF_PARAMETERS[-1]}, time relative to the first pass",
                share[str(SETS_OF_PARAMETERS[-1])],
            )
        ],
    )


def _first(found: KernelAlone) -> tuple[int, int]:
    return found.checksum(0)


def changes_of(batch: pa.RecordBatch) -> pa.Table | None:
    """Return the baseline's changes in a batch of results."""
    if batch.column("result")[0].as_py() != "change":
        return None
    table = pa.Table.from_batches([batch])
    return table.filter(pc.equal(table["rule"], BASELINE))


def read_only(log: Log) -> Log:
    """As Arrow's arrays are: numba would compile again for others."""
    for column in log.rows:
        column.flags.writeable = False
    return log

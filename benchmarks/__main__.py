"""``make bench``: every group in turn, tables on the terminal, a page at the end."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import alone, cluster, commands, end_to_end, first_minute, ingest, kernel, page, scale, tables, worker
from benchmarks.lakes import write_lake
from benchmarks.log import ORDINARY, SICK, Plan
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

PAGE = Path("docs", "benchmarks.md")
"""Page of a run of all groups of `BY_DEFAULT`."""
OTHER_PAGE = Path("build", "benchmarks.md")
"""Page of other groups."""
LARGER_RUNS = Path(__file__).with_name("larger_runs.md")
"""Last part of `PAGE`: figures of runs that take too long to be repeated."""
FOLDER = Path("build", "benchmarks").resolve()
FIRST, INGESTED = 0.02, 0.22
"""Shares of the lines: the first ones, and those of the log whose ingest is measured."""
LONGER = 4
ALONE = 2
"""Times as many rows as the log has are in the partition that is alone: 8 M where it has 4 M."""

MOST_COUNTED = 200_000_000
"""Rows of a log whose changes of the ISR are counted by the loop in C++ first, which has them in memory."""

GROUPS = (
    "commands",
    "first-minute",
    "ingest",
    "tables",
    "delta",
    "longer",
    "alone",
    "first-use",
    "kernel",
    "scale",
    "cluster",
)
BY_DEFAULT = [group for group in GROUPS if group not in {"scale", "cluster"}]
NEEDED = {
    "delta": ("zipf", "smaller"),
    "longer": ("warm", "zipf", "shorter"),
    "alone": ("warm", "zipf", "half", "alone"),
}
"""Logs by group."""


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, help="by default one in 10,000 rows")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the request log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--groups", nargs="+", choices=GROUPS, default=BY_DEFAULT, help="by default those of docs/benchmarks.md"
    )
    parser.add_argument("--stalls", type=float, default=SICK, help=f"of a follower a day; {ORDINARY:g} are ordinary")
    parser.add_argument("--page", type=Path, help="where the tables go")
    given = parser.parse_args()
    partitions = given.partitions or max(20, given.rows // 10_000)
    plan = Plan(given.rows, partitions, stalls_a_day=given.stalls)
    begun, load = time.perf_counter(), os.getloadavg()[2]
    sections = []
    for section in measured(plan, given.groups, given.rounds, given.lines):
        page.show(section)
        sys.stderr.write(f"{(time.perf_counter() - begun) / 60:.1f} minutes\n")
        sections.append(section)
    shutil.rmtree(FOLDER, ignore_errors=True)
    complete = set(BY_DEFAULT) <= set(given.groups)
    to = given.page or (PAGE if complete else OTHER_PAGE)
    groups = "" if given.groups == BY_DEFAULT else f" GROUPS='{' '.join(given.groups)}'"
    page.write(
        to,
        sections,
        f"make bench ROWS={plan.rows} PARTITIONS={plan.partitions} LINES={given.lines} ROUNDS={given.rounds}"
        f" STALLS={given.stalls:g}{groups}",
        f"""Unless the text says otherwise, the log is generated (`benchmarks/log.py`, seed {plan.seed}). It has about
        {plan.rows:,} fetches and appends of {plan.partitions:,} partitions in {plan.seconds:.0f} s, with rates by
        Zipf's law, three replicas and long polls of 500 ms. 40 % of the partitions are idle. Each follower stalls
        {plan.stalls_a_day:g} times per day, for 5 to 60 s.{_changes(plan)}""",
        load,
        time.perf_counter() - begun,
    )
    if complete:
        with to.open("a", encoding="utf-8") as text:
            text.write(f"\n{LARGER_RUNS.read_text(encoding='utf-8')}")


def measured(  # noqa: C901, PLR0912 one after the other
    plan: Plan, groups: Collection[str], rounds: int, lines: int
) -> Iterator[page.Section]:
    """Measure some of GROUPS, one after the other."""
    if "commands" in groups:
        yield commands.measure(round(FIRST * lines), lines, FOLDER / "commands", rounds)
    if "first-minute" in groups:
        yield first_minute.of_the_samples(rounds)
    if "ingest" in groups:
        yield ingest.of_the_scanner(rounds)
        yield ingest.of_a_long_log(round(FIRST * lines), round(INGESTED * lines), FOLDER / "long-log", rounds)
    if "tables" in groups:
        yield from tables.measure(plan.rows, FOLDER / "tables")
    plans = {
        "warm": Plan(20_000, 10),
        "zipf": plan,
        "smaller": _at_most(plan, end_to_end.WARM_ROWS),
        "shorter": replace(plan, rows=plan.rows // LONGER),
        "half": replace(plan, shape="half"),
        "alone": replace(plan, rows=ALONE * plan.rows, partitions=1, shape="alone"),
    }
    names = {name for group in groups for name in NEEDED.get(group, ())}
    if names:
        spark = start_session(SparkSettings())
        lakes = {name: (FOLDER / name, write_lake(spark, plans[name], FOLDER / name)) for name in sorted(names)}
        if "delta" in groups:
            given = end_to_end.Given(spark, *lakes["zipf"], kernel.expected_changes(plan), lakes["smaller"][0])
            yield end_to_end.against_the_floor(given, rounds)
        spark.stop()
        if "warm" in lakes:
            jobs = alone.Jobs(lakes["warm"][0], 1)
        if "longer" in groups:
            yield alone.longer(jobs, lakes["zipf"], lakes["shorter"])
        if "alone" in groups:
            yield alone.cores_and_skew(jobs, lakes["zipf"], lakes["half"], lakes["alone"])
    if "first-use" in groups:
        yield alone.first_use(rounds)
    if "kernel" in groups:
        yield from kernel.measure(plan, rounds)
        yield worker.measure(plan, rounds)
    if "scale" in groups:
        yield scale.measure(plan, FOLDER / "scale")
    if "cluster" in groups:
        yield from cluster.measure(plan, FOLDER / "cluster", rounds)


def _changes(plan: Plan) -> str:
    few = plan.rows <= MOST_COUNTED
    return f" Under kafka-3.7, the log has {kernel.expected_changes(plan)[0]} changes of the ISR." if few else ""


def _at_most(plan: Plan, rows: int) -> Plan:
    partitions = min(plan.partitions, max(20, rows // 10_000))
    return replace(plan, rows=min(plan.rows, rows), partitions=partitions)


if __name__ == "__main__":
    main()

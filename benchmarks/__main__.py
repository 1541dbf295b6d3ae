"""``make bench``: every group in turn, tables on the terminal, a page of docs at the end."""

import argparse
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import alone, cluster, commands, end_to_end, first_minute, ingest, kernel, page, scale, tables, worker
from benchmarks.lakes import write_lake
from benchmarks.log import ORDINARY, SICK, Plan
from benchmarks.s3_server import MOTO
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

PAGE = Path("docs", "benchmarks.md")
FOLDER = Path("build", "benchmarks").resolve()
LONGER = 4
ALONE = 5
"""Times as many rows as the log has are in the partition that is alone: 100 M where it has 20 M."""

MOST_COUNTED = 200_000_000
"""Rows of a log whose changes of the ISR are counted by the loop in C++ first, which has them in memory."""

GROUPS = (
    "kernel",
    "delta",
    "longer",
    "alone",
    "first-use",
    "ingest",
    "first-minute",
    "commands",
    "scale",
    "cluster",
    "tables",
)
BY_DEFAULT = GROUPS if MOTO else [group for group in GROUPS if group != "cluster"]
NEEDED = {
    "delta": ("zipf", "smaller"),
    "longer": ("warm", "zipf", "shorter"),
    "alone": ("warm", "zipf", "half", "alone"),
}
"""Logs by group."""


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, help="by default one in 10,000 rows")
    parser.add_argument("--lines", type=int, default=280_000, help="of the request log that is ingested")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=BY_DEFAULT, help="all take most of an hour")
    parser.add_argument("--stalls", type=float, default=SICK, help=f"of a follower a day; {ORDINARY:g} are ordinary")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the tables go")
    given = parser.parse_args()
    partitions = given.partitions or max(20, given.rows // 10_000)
    plan = Plan(given.rows, partitions, stalls_a_day=given.stalls)
    begun = time.perf_counter()
    sections = []
    for section in measured(plan, given.groups, given.rounds, given.lines):
        page.show(section)
        sections.append(section)
    shutil.rmtree(FOLDER, ignore_errors=True)
    left_out = [group for group in GROUPS if group not in given.groups]
    page.write(
        given.page,
        sections,
        f"make bench ROWS={plan.rows} PARTITIONS={plan.partitions} LINES={given.lines} ROUNDS={given.rounds}"
        f" STALLS={given.stalls:g} GROUPS='{' '.join(given.groups)}'"
        f"{f' PAGE={given.page}' if given.page != PAGE else ''}",
        f"""{f"Groups of measurements that were left out: {', '.join(left_out)}." if left_out else ""} The log is
        generated (`benchmarks/log.py`, seed {plan.seed}). It has about {plan.rows:,} fetches and appends of
        {plan.partitions:,} partitions in {plan.seconds:.0f} s, with rates by Zipf's law, three replicas and long polls
        of 500 ms. 40 % of the partitions are idle. Each follower stalls {plan.stalls_a_day:g} times per day, for 5 to
        60 s.{_changes(plan)}""",
        time.perf_counter() - begun,
    )


def measured(  # noqa: C901, PLR0912 one after the other
    plan: Plan, groups: Collection[str], rounds: int, lines: int
) -> Iterator[page.Section]:
    """Measure some of GROUPS, one after the other."""
    if "kernel" in groups:
        yield from kernel.measure(plan, rounds)
        yield worker.measure(plan, rounds)
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
            jobs = alone.Jobs(lakes["warm"][0], rounds)
        if "longer" in groups:
            yield from alone.longer(jobs, lakes["zipf"], lakes["shorter"])
        if "alone" in groups:
            yield alone.cores_and_skew(jobs, lakes["zipf"], lakes["half"], lakes["alone"])
    if "first-use" in groups:
        yield alone.first_use(rounds)
    if "ingest" in groups:
        yield ingest.of_the_scanner(rounds)
        yield ingest.of_a_long_log(lines, FOLDER / "long-log")
    if "first-minute" in groups:
        yield first_minute.of_the_samples(rounds)
    if "commands" in groups:
        yield commands.measure(lines, FOLDER / "commands", rounds)
    if "scale" in groups:
        yield scale.measure(plan, FOLDER / "scale")
    if "tables" in groups:
        yield from tables.measure(FOLDER / "tables")
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

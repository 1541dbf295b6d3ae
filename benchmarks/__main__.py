"""``make bench``: every group in turn, tables on the terminal, docs/benchmarks.md at the end."""

import argparse
import shutil
import time
from pathlib import Path

from benchmarks import alone, end_to_end, ingest, kernel, page
from benchmarks.lakes import write_lake
from benchmarks.log import Plan
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

FOLDER = Path("build", "benchmarks").resolve()
LONGER = 4
PANDAS_ROWS = 250_000
"""A group and its results have to fit into a worker as pandas frames."""


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, help="by default one in 10,000 rows")
    parser.add_argument("--lines", type=int, default=600_000, help="of the request log that is ingested")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    plan = Plan(given.rows, given.partitions or max(20, given.rows // 10_000))
    begun = time.perf_counter()
    sections: list[page.Section] = []

    def add(*found: page.Section) -> None:
        for section in found:
            page.show(section)
            sections.append(section)

    add(*kernel.measure(plan, given.rounds))
    plans = {
        "warm": Plan(20_000, 10),
        "zipf": plan,
        "few": Plan(min(plan.rows, PANDAS_ROWS), min(plan.partitions, max(20, PANDAS_ROWS // 10_000))),
        "shorter": Plan(plan.rows // LONGER, plan.partitions),
        "half": Plan(plan.rows, plan.partitions, "half"),
        "alone": Plan(plan.rows, 1, "alone"),
    }
    spark = start_session(SparkSettings())
    lakes = {name: (FOLDER / name, write_lake(spark, each, FOLDER / name)) for name, each in plans.items()}
    expected = kernel.expected_changes(plan)
    given_lake = end_to_end.Given(spark, *lakes["zipf"], expected)
    add(end_to_end.against_the_floor(given_lake, given.rounds))
    few = end_to_end.Given(spark, *lakes["few"], kernel.expected_changes(plans["few"]))
    add(end_to_end.against_pandas(few, 1))
    spark.stop()
    warm = lakes["warm"][0]
    add(alone.scaling_and_skew(warm, lakes["zipf"], lakes["shorter"], lakes["half"], lakes["alone"], given.rounds))
    add(alone.first_use(given.rounds))
    add(ingest.of_a_long_log(given.lines, FOLDER / "long-log"))
    for lake, _ in lakes.values():
        shutil.rmtree(lake)
    page.write(
        sections,
        f"make bench ROWS={plan.rows} PARTITIONS={plan.partitions}",
        f"""Generated log (`benchmarks/log.py`, seed {plan.seed}): about {plan.rows:,} fetches and appends of
        {plan.partitions:,} partitions in {plan.seconds:.0f} s, Zipf rates, 40 % of the partitions idle, three
        replicas, long polls of 500 ms, stalls of 5 to 60 s; {expected[0]} changes of the ISR under kafka-3.7.""",
        time.perf_counter() - begun,
    )


if __name__ == "__main__":
    main()

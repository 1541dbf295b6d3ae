"""From Delta to Delta in one Spark session: every way in turn, on the same lake."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import ways
from benchmarks.lakes import changes_in, copy_of, remove_copies
from benchmarks.measure import Contestant, CpuOfTree, interleaved
from benchmarks.page import Section, Wait
from benchmarks.single_machine import Script, changes_of_script, cores
from udfs.rules import ALL_RULES, BASELINE

ALL = f"{len(ALL_RULES)} rules"
WARM_ROWS = 1_000_000
HEADINGS = ("program", "wall time, best (s)", "wall time, median (s)", "M rows/s", "M rows/s per core", "CPU time (s)")


@dataclass
class Given:
    """A lake, its rows, and the changes that a way must find in it."""

    spark: SparkSession
    lake: Path
    rows: int
    expected: tuple[int, int]
    smaller: Path
    """Another lake, for a first run of each way."""

    def warmed(
        self, name: str, run: Callable[[Path], Any], check: Callable[[Any], Any] | None = None, lake: Path | None = None
    ) -> Contestant:
        """A way that works on a copy of the lake (or of another one), fresh in each round; its code is generated."""
        copies = [copy_of(self.smaller)]
        run(copies[-1])

        def prepare() -> None:
            copies.append(copy_of(lake or self.lake))

        def tidy() -> None:
            remove_copies(*copies)

        tidy()
        return Contestant(
            name, lambda: run(copies[-1]), check or (lambda _: self.expected), self.expected, prepare, tidy
        )

    def written(self, lake: Path) -> tuple[int, int]:
        """Checksum of the changes in the tables that a way wrote."""
        return changes_in(self.spark, lake)

    def row(self, contestant: Contestant) -> list[str]:
        """A line of the table."""
        speed = self.rows / contestant.best / 1e6
        times = [f"{seconds:.1f}" for seconds in (contestant.best, contestant.median)]
        return [contestant.name, *times, f"{speed:.2f}", f"{speed / cores():.2f}", f"{min(contestant.cpu_seconds):.0f}"]


def against_the_floor(given: Given, rounds: int) -> Section:
    """Group b: ours, Spark doing nothing, DuckDB, SQL."""
    spark = given.spark
    every, baseline = ways.runs_of("all"), ways.runs_of(BASELINE)
    script = Script(cores(), given.rows, every)
    packed = ways.packed(spark, copy_of(given.lake))
    contestants = [
        given.warmed(f"isr-batch, {ALL}", lambda lake: ways.ours(spark, lake, every), given.written, packed),
        given.warmed(
            f"isr-batch, {ALL}, no timelines", lambda lake: ways.ours(spark, lake, every, "none"), given.written, packed
        ),
        given.warmed(
            f"isr-batch, {ALL}, compared and scored as well",
            lambda lake: ways.whole_command(spark, lake, every),
            given.written,
            packed,
        ),
        given.warmed("isr-batch, one rule", lambda lake: ways.ours(spark, lake, baseline), given.written, packed),
        given.warmed(f"isr-batch, {ALL}, not packed yet", lambda lake: ways.ours(spark, lake, every), given.written),
        given.warmed("Spark that only moves rows", lambda lake: ways.floor_to_nowhere(spark, lake)),
        given.warmed("Spark that only moves and writes rows", lambda lake: ways.floor_to_delta(spark, lake)),
        given.warmed(f"DuckDB and isr-batch's kernel, {ALL}, to Parquet", script.replay, changes_of_script),
        given.warmed("SQL windows, lag of one rule", lambda lake: ways.sql_windows(spark, lake)),
    ]
    interleaved(contestants, rounds, cpu=CpuOfTree())
    script.pool.shutdown()
    compared, different = _check_windows(given)
    remove_copies(packed)
    ours, bare, whole, one, unpacked, nowhere, to_delta, duck, windows = contestants
    return Section(
        "From Delta to Delta",
        f"""This table has replays of {given.rows:,} fetches and appends with local[{cores()}], in a Spark session
        in which each way had already run on a small log of up to {WARM_ROWS:,} rows. The figures are wall time,
        and CPU time of all processes. *isr-batch* is `isr_batch.replay.replay.replay`: it writes timelines,
        changes, verdicts and the ledger into six tables, from segments that the ingest has packed. *Not packed yet*
        is the same replay, but it has to pack rows into segments first. *Compared and scored as well* is everything
        that the command `isr-batch replay` does in its session. *Spark that only moves rows* computes nothing:
        it reads the rows, shuffles and sorts them by set and time, and passes them to Python and back. *DuckDB*
        sorts in {cores()} processes that are already running, with the partitions in {script.shares} shares;
        isr-batch's kernel replays the sorted rows, and the results are plain Parquet files, not tables. *SQL
        windows* compute lag and lastCaughtUpTimeMs of one rule at each fetch, but no ISR, high watermark or
        shrinks, because each of these states depends on the one before. On the small log, {compared:,} instants
        are also in the timeline of isr-batch; {different} differ.""",
        HEADINGS,
        [given.row(each) for each in contestants],
        [
            (f"isr-batch, {ALL}, relative to Spark that only moves rows", ours.best / nowhere.best),
            (f"isr-batch, {ALL}, no timelines, relative to Spark that only moves rows", bare.best / nowhere.best),
            (
                f"isr-batch, {ALL}, no timelines, relative to Spark that only moves rows, CPU",
                min(bare.cpu_seconds) / min(nowhere.cpu_seconds),
            ),
            (
                f"isr-batch, {ALL}, compared and scored as well, relative to Spark that only moves rows",
                whole.best / nowhere.best,
            ),
            (f"isr-batch, {ALL}, not packed yet, relative to Spark that only moves rows", unpacked.best / nowhere.best),
            (f"isr-batch, {ALL}, relative to Spark that only moves and writes rows", ours.best / to_delta.best),
            ("isr-batch, one rule, relative to Spark that only moves rows", one.best / nowhere.best),
            (f"DuckDB and isr-batch's kernel, {ALL}, relative to isr-batch", duck.best / ours.best),
            (f"DuckDB and isr-batch's kernel, {ALL}, relative to isr-batch not packed yet", duck.best / unpacked.best),
            ("SQL windows, relative to isr-batch with one rule, which does more", windows.best / one.best),
        ],
        [
            _cpu_wait(f"replay of packed events by Spark, {ALL}, all timelines", ours, nowhere),
            Wait(
                f"comparison and scores of {ALL}, after that replay",
                f"{min(whole.cpu_seconds) - min(ours.cpu_seconds):.1f} CPU s",
                "the replay",
                f"{min(ours.cpu_seconds):.1f} CPU s",
                min(whole.cpu_seconds) / min(ours.cpu_seconds) - 1,
                "0.15",
            ),
        ],
    )


def _cpu_wait(work: str, ours: Contestant, peer: Contestant) -> Wait:
    cpu, of_peer = min(ours.cpu_seconds), min(peer.cpu_seconds)
    return Wait(work, f"{cpu:.1f} CPU s", peer.name, f"{of_peer:.1f} CPU s", cpu / of_peer)


def _check_windows(given: Given) -> tuple[int, int]:
    lake = ways.sql_windows(given.spark, copy_of(given.smaller))
    ways.ours(given.spark, lake, ways.runs_of(BASELINE))
    found = ways.differences_of_windows(given.spark, lake, BASELINE)
    remove_copies(lake)
    return found

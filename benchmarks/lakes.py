"""Lakes of a generated log, and copies of them that share their files."""

import itertools
import os
import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.arrow_log import write_parquet
from benchmarks.log import CLUSTER, Plan
from benchmarks.measure import checksum_of_table
from isr_batch.lake.lake import Lake
from isr_batch.simulation.generate_scenario import write_generated_input
from udfs.rules import BASELINE

TIME_OF = {"fetch_log": "handled_time", "append_log": "append_time", "leader_epochs": "start_time"}
_numbers = itertools.count()


def write_lake(spark: SparkSession, plan: Plan, folder: Path) -> int:
    """Write the log as an ingest's tables, in order of time as an ingest does; returns the number of rows."""
    raw = folder.with_name(f"{folder.name}.parquet")
    for former in (folder, raw):
        shutil.rmtree(former, ignore_errors=True)
    rows = write_parquet(plan, raw)
    # Partitions of a broker are logged side by side; rows that lie sorted by partition would flatter every sort.
    frames = {name: spark.read.parquet(str(raw / name)).orderBy(time) for name, time in TIME_OF.items()}
    write_generated_input(Lake(spark, str(folder)), CLUSTER, frames)
    shutil.rmtree(raw)
    return rows


def copy_of(lake: Path) -> Path:
    """A lake with the same input files and no results.

    No path is used twice: Spark and Delta remember what they saw at one.
    """
    copy = lake.with_name("copies") / f"{os.getpid()}-{next(_numbers)}"
    shutil.copytree(lake, copy, copy_function=os.link)
    return copy


def remove_copies(*copies: Path) -> None:
    """Make room for the next ones; the lakes themselves keep their files."""
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)


def changes_in(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """Checksum of the baseline's changes in the table that a replay wrote."""
    changes = Lake(spark, str(folder)).read("isr_changes").where(F.col("rule") == BASELINE)
    return checksum_of_table(changes.withColumn("time_us", F.unix_micros("change_time")).toArrow())

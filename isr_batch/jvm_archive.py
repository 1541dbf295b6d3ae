"""Write an archive of Java classes with which Spark's JVM starts faster: ``python -m isr_batch.jvm_archive``."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F

from isr_batch.jvm import LITTLE, NO_WORD, class_archive
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

_AT_MOST_S: Final = 300


def write_class_archive() -> Path | None:
    """Write the archive of the classes that commands need, by starting a Spark session that loads them.

    Returns the path of the archive, or None if it could not be written.
    """
    archive = class_archive()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, archive.name)
        java = f"{LITTLE} -XX:ArchiveClassesAtExit={made} {NO_WORD}"
        command = [sys.executable, "-m", "isr_batch.jvm_archive", "--load", folder]
        # The archive is replaced atomically, because another process may be starting with it.
        part = archive.with_suffix(f".{os.getpid()}")
        try:
            archive.unlink(missing_ok=True)
            subprocess.run(
                command,
                env=os.environ | {"SPARK_SUBMIT_OPTS": java},
                check=True,
                capture_output=True,
                timeout=_AT_MOST_S,
            )
            shutil.copy(made, part)
            part.replace(archive)
        except (OSError, subprocess.SubprocessError):
            part.unlink(missing_ok=True)
            return None
    return archive


def _load(folder: str) -> None:
    """Make the JVM load the classes of most commands: write and query a Delta table in ``folder``, with workers."""
    spark = start_session(SparkSettings(driver_memory="1g", shuffle_partitions=2))
    table = f"{folder}/table"
    days = spark.range(100).selectExpr(
        "date_add(DATE'2026-01-01', CAST(id % 7 AS INT)) AS event_date", "concat('rule-', id % 3) AS rule",
        "'' AS runs", "'' AS line", "'' AS run_id", "timestamp_micros(id) AS replayed_time",
    )  # fmt: skip
    through = days.repartition("rule").sortWithinPartitions("replayed_time").mapInArrow(lambda rows: rows, days.schema)
    for _ in range(2):
        through.write.format("delta").mode("overwrite").option("replaceWhere", "true").save(table)
    there = spark.read.format("delta").load(table)
    last = F.expr("lag(replayed_time) OVER (PARTITION BY rule ORDER BY replayed_time)")
    joined = there.withColumn("last", last).join(F.broadcast(there.groupBy("rule").count()), "rule")
    joined.join(there.select("event_date").distinct(), "event_date").orderBy("rule").toArrow()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 the JVM writes the archive when it ends
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        _load(sys.argv[2])
    elif written := write_class_archive():
        sys.stdout.write(f"{written}\n")
    else:
        sys.stdout.write("Java did not write the class archive: Spark will start somewhat slower\n")

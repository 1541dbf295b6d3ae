"""Options for the JVM of a local session: a fast start for small inputs.

The JVM's compiler takes a third of a short run, and loading classes half of the start. Small inputs do not need the C2
compiler or a parallel collector, and classes are loaded from an archive made by ``python -m isr_batch.jvm`` (`make
setup`). A JVM ignores an archive that does not match it.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

_LITTLE: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
NO_PERF_DATA: Final = "-XX:-UsePerfData"
_NO_WORD: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""Suppresses the warning about a mismatched archive, which the JVM would print among a command's results on stdout."""
_AT_MOST_S: Final = 300
_GIVEN: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def jvm_options(*, little: bool) -> str:
    """Options of the JVM.

    Parameters
    ----------
    little : bool
        Whether there is little to do.
    """
    # Two collectors, or two levels of the compiler, are an error.
    given = any("-XX:" in os.environ.get(name, "") for name in _GIVEN)
    found = [NO_PERF_DATA, *([_LITTLE] if little and not given else [])]
    if class_archive().exists():
        found += [shlex.join([f"-XX:SharedArchiveFile={class_archive()}"]), _NO_WORD]
    return " ".join(found)


def java_command() -> str | None:
    """Path at which Spark would look for Java; None if it does not exist."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


def class_archive() -> Path:
    """Path of the class archive, next to Spark's jars, from which it is made."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return Path(home) / "isr-batch-classes.jsa"


def write_class_archive() -> Path | None:
    """Make the archive by a session that loads what commands load; None where that cannot be done."""
    archive = class_archive()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, archive.name)
        java = f"{_LITTLE} -XX:ArchiveClassesAtExit={made} {_NO_WORD}"
        command = [sys.executable, "-m", "isr_batch.jvm", "--load", folder]
        # Another process may be starting with it: there is all of it, or nothing.
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
    """Have the classes loaded that most commands need: Delta's, those of queries, and of Python's workers."""
    from pyspark.sql import functions as F

    from isr_batch.session import start_session
    from isr_batch.settings import SparkSettings

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
        sys.stdout.write("Java makes no archive of classes: Spark will start somewhat slower\n")

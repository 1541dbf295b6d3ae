"""Start a Spark session: by default a local one, and under spark-submit that of the cluster. Also find Delta's jars."""

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeAlias

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, is_remote

from isr_batch import jvm
from isr_batch.errors import UsageError
from isr_batch.settings import SparkSettings
from isr_batch.shown_times import ZONES_OF_UTC

Session: TypeAlias = SparkSession

_NEEDS_JAVA: Final = "it needs Java 17 or newer; `isr-batch doctor` says what this machine lacks"
_OF_TIMES: Final = {
    # Broker logs are in UTC, days are UTC days.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings of days and times, which affect the results of queries."""
_EVERYWHERE: Final = {
    **_OF_TIMES,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A flipped bit in a data file must cause an error, not a wrong number.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Constraint propagation needs most of the planner's memory, and few of our joins profit from it.
    "spark.sql.constraintPropagation.enabled": "false",
    # No limit in bytes: to know the size of a batch, Spark goes through all its lists again for each row that it adds.
    # If rows are large, `isr_batch.lake.spark_engine.rows_at_a_time` limits their number instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Write rows to the files of a few days without sorting; by default, each task first sorts its rows by day.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    # The Spark UI is off, so records of queries and jobs would only fill the heap.
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps the classes of 100 compiled queries by default; a nightly run has more.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # By default, Delta reads a table's log with 50 tasks, which takes longer on one machine than reading the data.
    "spark.databricks.delta.snapshotPartitions": "2",
    # VACUUM lists a table's folders with as many tasks as this; the default of 10,000 takes 24 s for two folders.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Each sort, window and aggregate of a task holds a page. With the default page size of 64 MB, an ingest of six
    # million lines filled the default heap. A page of this size, with the header of Java's array, exactly fills two
    # regions of the G1 collector. A page of 2 MB needs three, with which a sort of 20 M rows filled the heap.
    "spark.buffer.pageSize": f"{2 * 2**20 - 16}b",
    # The driver's address is given, because the machine's own name may not resolve, as in containers.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# The jars that Delta needs in addition to Spark's. Its other dependencies come with Spark, or are for other catalogs.
_NEEDED_JARS: Final = ("delta-spark", "delta-storage")
_NOT_NEEDED: Final = ("org.*", "com.*", "javax.*", "commons-*", "io.airlift", "io.unitycatalog")


def start_session(
    settings: SparkSettings, *, java: str | None = None, tasks: int | None = None, **options: str
) -> SparkSession:
    """Return the running Spark session, or start one.

    Under spark-submit, the job's configuration takes precedence, and our options only apply where it sets none. Options
    about times are the exception: days and times are always in UTC.

    Parameters
    ----------
    settings : SparkSettings
        The section ``spark`` of the settings.
    java : str, optional
        Options of a local session's JVM, from `isr_batch.jvm.jvm_options`; by default those for large input.
    tasks : int, optional
        Number of shuffle tasks under spark-submit, if neither the job's configuration nor the settings define it; by
        default Spark's 200.
    **options : str
        Further Spark options for a local session.

    Raises
    ------
    UsageError
        If no Java is found, or if it cannot start Spark.
    """
    # PySpark logs the traceback of every refused query, in addition to raising the error.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_remote():  # over Spark Connect, where the server is configured
        return SparkSession.builder.getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted_session(settings, tasks)

    if jvm.java_command() is None:
        raise UsageError("Spark does not start: there is no Java", _NEEDS_JAVA)
    # Without this option, each JVM would leave a file in /tmp.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.NO_PERF_DATA)
    # By default, workers would run the first `python3` on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("isr-batch").master(settings.master)
    for key, value in {
        **_EVERYWHERE,
        **_session_options(settings),
        **(_local_options() if settings.master.startswith("local") else {}),
        **shuffle_options(settings),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={files('isr_batch') / 'log4j2.properties'} "
        + (java if java is not None else jvm.jvm_options(little=False)),
        **options,
    }.items():
        builder = builder.config(key, value)
    if not delta_jars():
        builder = configure_spark_with_delta_pip(builder)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UsageError(
            f"Spark does not start: {str(error).partition(chr(10))[0]}",
            _NEEDS_JAVA,
        ) from error


def in_utc(session: SparkSession) -> SparkSession:
    """Return a session, which a user may have started, after checking that its queries use UTC days and times.

    Raises
    ------
    UsageError
        If a setting of the session differs. The message shows how to set it.
    """
    for name, value in _OF_TIMES.items():
        given = session.conf.get(name)
        if given != value and not (value == "UTC" and given in ZONES_OF_UTC):
            raise UsageError(
                f"{name} of the Spark session is {given}, and the days and times of a lake are in UTC",
                f'`spark.conf.set("{name}", "{value}")` before this call',
            )
    return session


def shuffle_options(settings: SparkSettings) -> dict[str, str]:
    """Return Spark's option for the number of shuffle tasks: the setting or, by default, 4 per core, at least 8."""
    local = re.fullmatch(r"local(?:\[(\*|\d+).*\])?", settings.master)
    cores = len(os.sched_getaffinity(0)) if local and local[1] == "*" else int((local and local[1]) or 1)
    return {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions or max(8, 4 * cores))}


def running_tasks(spark: SparkSession) -> tuple[tuple[int, ...], int, int]:
    """Return (ids of Spark's running stages, number of their completed tasks, number of all their tasks).

    Over Spark Connect, this is unknown, and the result is ((), 0, 0).
    """
    if is_remote():
        return (), 0, 0
    tracker = spark.sparkContext.statusTracker()
    stages = tuple(sorted(tracker.getActiveStageIds()))
    known = [info for info in map(tracker.getStageInfo, stages) if info]
    return stages, sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)


def delta_jars() -> list[Path]:
    """Return Delta's jars in Spark's folder, where sessions find them without Maven; [] unless all are there."""
    jars = [path for name in _NEEDED_JARS for path in _jar_folder().glob(f"{name}[_-]*{version('delta-spark')}.jar")]
    return jars if len(jars) == len(_NEEDED_JARS) else []


def fetch_delta_jars() -> list[Path]:
    """Download Delta's jars to Spark's folder of jars, unless they are there, using Spark's own Maven client.

    Raises
    ------
    UsageError
        If they cannot be downloaded.
    """
    if delta_jars():
        return delta_jars()
    conf = SparkConf(loadDefaults=False)
    spark_version = ".".join(pyspark.__version__.split(".")[:2])
    conf.set("spark.jars.packages", f"io.delta:delta-spark_{spark_version}_2.13:{version('delta-spark')}")
    conf.set("spark.jars.excludes", ",".join(f"{group}:*" for group in _NOT_NEEDED))
    with tempfile.TemporaryFile("w+") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            log.seek(0)
            lines = [line.strip() for line in log if line.strip()]
            raise UsageError(
                "Delta's jars could not be fetched: " + "\n  ".join(lines[-5:]),
                "let Java reach a Maven repository (spark.jars.ivySettings configures one behind a proxy), or copy "
                f"the jars {' and '.join(_NEEDED_JARS)} to {_jar_folder()}",
            ) from error
        # Only the JVM that downloaded the jars knows their paths. No Spark context is needed to ask it.
        resolved = SparkConf(_jvm=gateway.jvm).get("spark.jars", "") or ""
        gateway.shutdown()
    for path in (Path(uri.removeprefix("file://")) for uri in resolved.split(",")):
        name = path.name.partition("_")[2]  # Ivy puts the group in front: io.delta_delta-storage-4.4.0.jar
        if name.startswith(_NEEDED_JARS):
            shutil.copy(path, _jar_folder() / name)
    return delta_jars()


def _jar_folder() -> Path:
    """Return the folder of Spark's own jars."""
    return Path(os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)) / "jars"


def _local_options() -> dict[str, str]:
    """Return the Spark options that only a local session needs."""
    return {
        **_LOCAL,
        # Workers must find udfs, even if nothing is installed and the job was started in another folder.
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        # By default, Spark creates this folder in the working folder, even if it is not used.
        "spark.sql.warehouse.dir": _empty_folder(),
    }


def _empty_folder() -> str:
    """Create an empty temporary folder with an unpredictable name, which is deleted when this process exits."""
    folder = tempfile.mkdtemp(prefix="isr-batch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _session_options(settings: SparkSettings) -> dict[str, str]:
    """Return the Spark options that the settings define for every session."""
    return {"spark.sql.execution.arrow.maxRecordsPerBatch": str(settings.arrow_batch_rows)}


def _submitted_session(settings: SparkSettings, tasks: int | None) -> SparkSession:
    """Return the session of a job under spark-submit, with our options where the job's configuration sets none.

    ``tasks`` is the number of shuffle tasks if the settings contain none.
    """
    # SparkConf contains the options of spark-submit only after this call; there is no public API for it.
    SparkContext._ensure_initialized()  # noqa: SLF001
    conf = SparkConf()
    local = (conf.get("spark.master", "local") or "").startswith("local")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    options = {**_EVERYWHERE, **_session_options(settings), **(_local_options() if local else {})}
    if settings.shuffle_partitions or tasks:
        options["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions or tasks)
    for key, value in options.items():
        if key in _OF_TIMES or not conf.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    if sys.argv[1:] != ["--fetch-jars"]:
        sys.exit("usage: python -m isr_batch.session --fetch-jars")
    try:
        jars = fetch_delta_jars()
    except UsageError as error:
        sys.exit(f"{error.message}\n  {error.hint}")
    sys.stdout.write("".join(f"{jar}\n" for jar in jars))

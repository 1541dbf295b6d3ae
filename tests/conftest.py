"""Fixtures of all tests: one lazy Spark session, empty lakes, and a guard that unit tests start no JVM."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # importing pyspark takes a second that unit tests need not spend
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

    from isr_batch.lake.lake import Lake

os.environ["TZ"] = "UTC"
time.tzset()


def pytest_configure(config: pytest.Config) -> None:
    """Let kernels compiled by any process on this machine be used again."""
    from isr_batch.replay.kernel_cache import keep_compiled

    keep_compiled()
    config.pluginmanager.register(Witnesses())


UNIT = Path(__file__).parent / "unit"


COMPILES = ("kernel", "rules", "simulation", "batches", "replay", "test_windows.py", "test_benchmarks.py",
            "test_documents.py")  # fmt: skip
"""Folders and files of unit tests that need compiled kernels, or draw many pages; `make check` leaves them out."""

LONG = {
    "spark/api/test_notebook.py": "analyzes frames in Spark and in this process, and runs the page's blocks",
    "spark/api/test_connect.py": "starts a server of Spark Connect",
    "spark/api/test_session_settings.py": "analyzes frames in sessions with other settings",
    "spark/test_submit.py": "starts a JVM for a job, as spark-submit does",
    "spark/lake/test_other_engines.py": "has other engines read every table",
    "spark/lake/test_sql_cookbook.py": "asks each query of the cookbook by two engines",
    "spark/lake/test_user_sql.py": "asks each query of the cookbook, and starts commands",
    "spark/replay/test_timeline_files.py": "replays a sample a dozen times",
    "spark/lake/test_engines.py": "explains each kind of shrink by Spark, and without it",
    "spark/lake/test_small_tables.py": "writes input tables in two ways",
    "unit/ingest/test_table_kills.py": "starts a dozen commands, and kills most of them",
    "spark/ingest/test_own_table.py": "exports logs as three kinds of table, and replays them again",
    "spark/replay/test_both_engines.py": "replays in this process and in Spark",
    "spark/scoring/test_broker_check.py": "compares with the brokers in this process and in Spark",
    "spark/scoring/test_eligible_leaders.py": "finds who could lead in this process and in Spark",
    "spark/lake/test_hostile_sql.py": "asks made-up statements by Spark",
    "spark/lake/test_silent_damage.py": "starts each command on damaged files",
    "spark/replay/test_packing.py": "packs the same rows in the driver, in workers and in Spark",
    "spark/replay/test_what_is_not_known.py": "replays a log seven times in Spark",
    "spark/lake/test_lake_sql.py": "has Spark plan each query of the report",
    "spark/report/test_browser.py": "opens the report in Chromium, which test-all installs where it may",
    "spark/ingest/test_engine.py": "ingests recorded clusters in the driver and in Spark",
    "spark/ingest/test_mid_term.py": "ingests recorded clusters again for each of some cuts",
    "spark/ingest/test_worker_files.py": "writes the same tables in three ways, five times",
    "unit/ingest/test_nights.py": "ingests recorded logs night by night",
    "spark/test_nights.py": "runs four nights in containers that are killed",
    "spark/test_odd_paths.py": "starts a JVM for the commands of a night",
    "spark/replay/test_kills.py": "starts a JVM for each of the commands that it kills",
    "spark/replay/test_windows.py": "replays each log in one go and day by day",
    "spark/replay/test_soak.py": "replays until memory would show a leak",
    "spark/scoring/test_recorded_clusters.py": "ingests and replays every recorded cluster",
    "spark/ingest/test_hostile_logs.py": "reads 100,000 mutated lines",
    "spark/test_cluster.py": "starts a cluster of processes",
    "spark/test_first_minute.py": "runs the main job on the samples once more",
    "test_as_a_user.py": "starts every command as a process of its own",
    "unit/test_answers_bench.py": "replays recorded clusters with some of their logs missing",
    "spark/test_operators_runs.py": "replays five folders of operators, and a sample twice",
}
"""Files whose tests take long, and why: `make test-all` runs them."""

LONGEST_FIRST = (
    "test_nights.py", "test_broker_check.py", "test_engine.py", "test_windows.py", "test_eligible_leaders.py",
    "test_recorded_clusters.py", "test_engines.py", "test_worker_files.py", "test_timeline_files.py",
    "test_small_tables.py", "test_both_engines.py", "test_kills.py", "test_table_kills.py", "test_own_table.py",
    "test_notebook.py", "test_kafka_logs.py", "test_partition.py", "test_analyze.py",
    "test_operators_cases.py", "test_cli.py",
)  # fmt: skip
"""Files whose tests take longest in all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use Spark, and run them last, so that a quick mistake shows quickly.

    Several processes run them first: none should still have minutes to go when nothing is left for the others.
    """
    for item in items:
        if "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        parts = item.path.relative_to(UNIT.parent).parts
        if "/".join(parts) in LONG:
            item.add_marker("long")
        if parts[0] == "conformance" or (parts[0] == "unit" and parts[1] in COMPILES):
            item.add_marker("compiles")
    first = {name: place for place, name in enumerate(LONGEST_FIRST)}
    one_of_several = hasattr(config, "workerinput")

    def place(item: pytest.Item) -> tuple[bool, int]:
        spark = item.get_closest_marker("spark") is not None
        return spark is not one_of_several, first.get(item.path.name, len(first)) if one_of_several else 0

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give all tests of a file to one worker, and all tests of releases, which fetch jars, to one as well.

    Tests of kernels take long, and share nothing but what is on disk: each goes to whichever process is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # in the order of `pytest_collection_modifyitems`

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = Path(nodeid.partition("::")[0])
            if path.parts[1] == "conformance":
                return "conformance"
            return nodeid if path.parts[1] == "unit" and path.parts[2] in COMPILES else str(path)

    return Together(config, log)


@pytest.fixture(autouse=True)
def _no_spark_in_unit_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point SPARK_HOME at a folder without Spark in unit tests, so that starting a session fails."""
    if request.path.is_relative_to(UNIT):
        monkeypatch.setenv("SPARK_HOME", "/tests-in-tests-unit-must-not-start-spark")


@pytest.fixture(scope="session")
def spark_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Start the one Spark session of this test run, when first used."""
    from isr_batch.session import start_session
    from isr_batch.settings import SparkSettings

    scratch = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch / "local")
    # No test has a heap for a collector of several threads. The JVM's second compiler took a third of a test of a few
    # seconds; only the long ones have enough rows for it.
    little = not any(item.get_closest_marker("long") for item in request.session.items)
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{'-XX:TieredStopAtLevel=1 ' if little else ''}-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
    )
    session = start_session(
        SparkSettings(master="local[2]", shuffle_partitions=2, driver_memory="2g"),
        tasks=None,
        **{
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # Tests have a handful of rows: planning again between stages costs more than it saves.
            "spark.sql.adaptive.enabled": "false",
            # Nor are they worth a Java class a query, nor one an expression; `make sample`, the processes that tests
            # start, and the tests with `compiled_...` do.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # A wrong Arrow type from a function fails there instead of being read as something else.
            "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
            "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: "SparkSession") -> "Iterator[SparkSession]":
    """The shared Spark session; temporary views and cached data that a test leaves are dropped after it."""
    yield spark_session
    spark_session.catalog.clearCache()
    # Not by a query, which each of some hundred tests would wait for.
    views = spark_session._jsparkSession.sessionState().catalog().listLocalTempViews("*")
    for name in [views.apply(number).table() for number in range(views.size())]:
        spark_session.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def compiled_expressions(spark_session: "SparkSession") -> "Iterator[None]":
    """Switch code generation of expressions on: interpreted, Delta's statistics of some 100,000 rows take too long."""
    spark_session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    yield
    spark_session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


@pytest.fixture
def compiled_queries(spark_session: "SparkSession") -> "Iterator[None]":
    """Switch whole-stage code generation on: interpreted, queries over all columns or joins took half a minute."""
    spark_session.conf.set("spark.sql.codegen.wholeStage", "true")
    spark_session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    yield
    spark_session.conf.set("spark.sql.codegen.wholeStage", "false")
    spark_session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path) -> "Lake":
    """An empty lake in a folder of the test's own."""
    from isr_batch.lake.lake import Lake

    return Lake(spark, str(tmp_path / "lake"), "test-run")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """Keep what a test has shown in a form that xdist can send to the main process."""
    report = yield
    report.user_properties = json.loads(json.dumps(report.user_properties))
    return report


class Witnesses:
    """Collects what passed tests report as shown, and writes it to a file by the marks that were asked for."""

    def __init__(self) -> None:
        self.told: list[dict[str, object]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and report.user_properties:
            self.told.append(dict(report.user_properties))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # One of several processes of a run leaves it to the one that gets all their reports.
        if self.told and not hasattr(session.config, "workerinput"):
            build = session.config.rootpath / "build" / "witnesses"
            build.mkdir(parents=True, exist_ok=True)
            name = f"{session.config.option.markexpr.replace(' ', '-')}.json"
            (build / name).write_text(json.dumps(self.told, indent=1))

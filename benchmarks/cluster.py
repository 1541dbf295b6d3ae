"""Group h: a lake on S3 and on HDFS, a standalone cluster, and the model of more executors checked with two.

One core is a worker's, but this machine may have no more than two, which workers, driver and S3 server then share. So
both numbers of workers are measured in turns as well (`benchmarks.standalone.in_turns`).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
from pyarrow.fs import LocalFileSystem, copy_files

from benchmarks import hdfs_server
from benchmarks.cluster_job import PARTS, RULES
from benchmarks.executors import ExecutorModel, Timed, executors_modelled
from benchmarks.hdfs_server import JAR
from benchmarks.lakes import copy_of
from benchmarks.log import Plan
from benchmarks.measure import WrongAnswerError
from benchmarks.page import Section
from benchmarks.s3_server import BUCKET, INSTALL, MOTO, s3_server, store_on, submit_arguments, upload
from benchmarks.scale import write_packed_lake
from benchmarks.standalone import ROOT, TURN_S, Cluster, in_turns, standalone_cluster
from benchmarks.ways import runs_of
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.stores import Store

FOLDER, S3, HDFS = "folder", "S3", "HDFS"
SHORTER = 4
TURNS = 2
Replay = tuple[str, str]
"""Log, and which timelines."""
COMPARED = ("isr_changes", "shrink_verdicts")
OF_RUN = ("run_id", "replayed_time")
"""Columns that say which run wrote a row."""
LOGS = ("shorter", "log")
WARM = (("warm", "all"), ("warm", "none"))
WITH_TIMELINES = "shorter", "all"
WITHOUT = (("log", "none"), ("shorter", "none"))
"""Logs, and which timelines are written. The two that the model is made of come last, when the JVM has compiled."""


@dataclass(frozen=True)
class Case:
    """Where the lake lies, and who replays it.

    Attributes
    ----------
    workers : int
        Of a standalone cluster; 0 is local[2].
    place : str
        FOLDER, S3 or HDFS.
    turns : bool
        Whether workers go on in turns.
    """

    workers: int = 0
    place: str = S3
    turns: bool = False

    @property
    def measured(self) -> Sequence[Replay]:
        """Replays of one round; turns are for the model, which is of those without timelines."""
        return WITHOUT if self.turns else (WITH_TIMELINES, *WITHOUT)

    def __str__(self) -> str:
        """As a table has it."""
        who = f"{self.workers} worker{'s' * (self.workers > 1)}" if self.workers else "local[2]"
        return f"{who}{', in turns' * self.turns}, {self.place}"


BY_PLACE = {place: Case(place=place) for place in (FOLDER, S3, HDFS)}
ONE, TWO, ONE_IN_TURNS, TWO_IN_TURNS = (Case(n, turns=turns) for turns in (False, True) for n in (1, 2))
CASES = (*BY_PLACE.values(), ONE, TWO, ONE_IN_TURNS, TWO_IN_TURNS)


@dataclass(frozen=True)
class Took:
    """Times of a replay in its best round."""

    seconds: float
    cpu: Mapping[str, float]
    task_ms: Sequence[int] = ()

    @property
    def executors_cpu(self) -> float:
        """CPU seconds of what more executors would share."""
        return self.cpu["executors"] + self.cpu["workers"]

    @property
    def without_server(self) -> float:
        """CPU seconds but for those of S3 or HDFS."""
        return sum(self.cpu.values()) - self.cpu["server"]


Found = Mapping[Case, Mapping[Replay, Took]]


def measure(plan: Plan, folder: Path, rounds: int) -> Iterator[Section]:
    """Replay two logs, packed already, in each case, and compare what was decided with that of the folder."""
    if not MOTO or not JAR:
        sys.stderr.write(f"the group cluster is left out: {INSTALL}; {hdfs_server.INSTALL}\n")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # else the cluster would go on
    shutil.rmtree(folder, ignore_errors=True)
    plans = {"warm": Plan(20_000, 10), "shorter": replace(plan, rows=plan.rows // SHORTER), "log": plan}
    rows = {name: write_packed_lake(each, folder / name) for name, each in plans.items()}
    found: dict[Case, Mapping[Replay, Took]] = {}
    expected: dict[Replay, object] = {}
    for case in CASES:
        found[case], answers = _measured(case, folder, rounds)
        expected = expected or answers
        if any(answers[each] != expected[each] for each in answers):
            raise WrongAnswerError(f"{case}: {answers}, not {expected}")
    yield _stores_and_clusters(found, rows)
    yield _two_from_one(found, rows)
    yield _more_executors(found, rows)


def _measured(case: Case, folder: Path, rounds: int) -> tuple[Mapping[Replay, Took], dict[Replay, object]]:
    """Run a new session, warmed up by a small log; best round of each replay, and checksums of its decisions."""
    replays = [*WARM, *(each for _ in range(rounds) for each in case.measured)]
    scratch = folder / "case"
    scratch.mkdir()
    with ExitStack() as running:
        server = ""
        if case.place == S3:
            server = running.enter_context(s3_server(scratch / "s3.log"))
        elif case.place == HDFS:
            server = running.enter_context(hdfs_server.running(str(JAR), scratch))
        stores = [_copied(folder / log, case, server, number) for number, (log, _) in enumerate(replays)]
        cluster = Cluster("local[2]", ())
        if case.workers:
            cluster = running.enter_context(standalone_cluster(scratch / "cluster", case.workers))
        if case.turns:
            running.enter_context(in_turns(cluster.workers, TURNS))
        lakes = [store.uri.replace("s3:", "s3a:", 1) for store in stores]
        given = [[lake, timelines] for lake, (_, timelines) in zip(lakes, replays, strict=True)]
        reports = _in_a_process(cluster.master, given, server if case.place == S3 else "", scratch)
        seconds = ", ".join(f"{one['seconds']:.1f} s" for one in reports)
        sys.stderr.write(f"{case}: {seconds}\n")
        best: dict[Replay, Took] = {}
        answers: dict[Replay, object] = {}
        for each, store, one in list(zip(replays, stores, reports, strict=True))[len(WARM) :]:
            if case.workers and (len(one["tasks"]) < case.workers or not all(one["tasks"])):
                raise WrongAnswerError(f"{case}: tasks by executor: {one['tasks']}")
            took = Took(one["seconds"], one["cpu"], one["task_ms"])
            best[each] = min(took, best.get(each, took), key=lambda took: took.seconds)
            answers[each] = one["rows"], [_checksum(store, name) for name in COMPARED]
    shutil.rmtree(scratch)
    shutil.rmtree(folder / "copies", ignore_errors=True)
    return best, answers


def _copied(lake: Path, case: Case, server: str, number: int) -> Store:
    """A copy of a lake, which no replay was written to."""
    if case.place == FOLDER:
        return Store(str(copy_of(lake)))
    if case.place == HDFS:
        store = Store(f"{server}/{number}/{lake.name}")
        copy_files(str(lake), "", source_filesystem=LocalFileSystem(), destination_filesystem=store.files())
        return store
    address = f"s3a://{BUCKET}/{number}/{lake.name}"
    upload(lake, server, address)
    return store_on(server, address)


def _in_a_process(
    master: str, replays: Sequence[Sequence[str]], endpoint: str, scratch: Path
) -> Sequence[Mapping[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.cluster_job", master, str(os.getpid()), json.dumps(replays)]
    variables = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(scratch / "local")}
    if endpoint:
        variables["PYSPARK_SUBMIT_ARGS"] = submit_arguments(endpoint)
    with (scratch / "job.log").open("w+") as log:
        done = subprocess.run(
            command, env=os.environ | variables, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.seek(0)
        said = log.read()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{said[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def _checksum(lake: Store, name: str) -> tuple[int, str]:
    """Rows of a table and a sum over them, which does not depend on their order."""
    rows = deltalake.DeltaTable(f"{lake.uri}/{name}", storage_options=lake.options or None).to_pyarrow_table()
    rows = rows.drop_columns([column for column in OF_RUN if column in rows.column_names])
    with ArrowSql() as sql:
        found = sql("SELECT count(*) AS n, CAST(sum(CAST(hash(r) AS HUGEINT)) AS VARCHAR) AS of FROM r", r=rows)
    return found["n"][0].as_py(), found["of"][0].as_py()


def _stores_and_clusters(found: Found, rows: Mapping[str, int]) -> Section:
    table = []
    for case, of_case in found.items():
        for (log, timelines), took in of_case.items():
            parts = [f"{took.cpu[part]:.1f}" for part in PARTS[:-1]]
            table.append([str(case), f"{rows[log]:,}", timelines, f"{took.seconds:.1f}", *parts])
    ratios = [
        (f"local[2], a {place} relative to a local folder, {rows[log]:,} rows, timelines {timelines}: {what}", ratio)
        for place in (S3, HDFS)
        for log, timelines in BY_PLACE[place].measured
        for of_place, of_folder in [[found[BY_PLACE[each]][log, timelines] for each in (place, FOLDER)]]
        for what, ratio in (
            ("time", of_place.seconds / of_folder.seconds),
            ("CPU without the server's", of_place.without_server / of_folder.without_server),
        )
    ]
    ratios += [
        (f"{two}, relative to {one.workers}, {rows['log']:,} rows, timelines none: time", ratio)
        for one, two in ((ONE, TWO), (ONE_IN_TURNS, TWO_IN_TURNS))
        for ratio in [found[two]["log", "none"].seconds / found[one]["log", "none"].seconds]
    ]
    return Section(
        "A lake on S3 and on HDFS, and a standalone cluster",
        f"""`replay` ran with {len(runs_of(RULES))} rules by Spark, from packed segments, in a new session that a
        small log had warmed up. A worker of the cluster is one executor with one core. CPU seconds are those of
        Spark's Python workers, of the executors' JVMs (with local[2] the driver's JVM is the only one), of the
        driver's JVM and Python, and of the server: moto, in Python, for S3; one name node and one data node for
        HDFS. HDFS writes are slow here: a file is complete when the data node has reported its block to the
        name node. A client that asks before that, as nearly all do here, asks again after half a second.
        All processes share {len(os.sched_getaffinity(0))} cores. An executor with one core keeps more than one
        core busy: its JVM, its Python worker, the driver and the S3 server. So the wall time of two executors
        on two cores does not show how two machines would perform. *In turns* means that of every {
            TURNS * TURN_S * 1000:.0f} ms each worker has {
            TURN_S * 1000:.0f} with all cores to itself and is stopped for
        the rest, as if it were a separate machine at half speed. ISR changes and verdicts (by number and
        checksum) and the number of rows of all tables are the same in all cases.""",
        (
            "Spark's master and the store",
            "rows",
            "timelines",
            "wall time (s)",
            "Python workers (CPU s)",
            "executors' JVMs (CPU s)",
            "driver's JVM (CPU s)",
            "driver's Python (CPU s)",
            "server (CPU s)",
        ),
        table,
        ratios,
    )


def _model(of_case: Mapping[Replay, Took], rows: Mapping[str, int]) -> ExecutorModel:
    log, shorter = (Timed(rows[name], of_case[name, "none"].seconds) for name in ("log", "shorter"))
    return ExecutorModel.fitted(log, shorter)


def _further_cpu(of_case: Mapping[Replay, Took], rows: Mapping[str, int]) -> float:
    """CPU seconds of executors and their Python that a further row takes: each JVM compiles for itself, once."""
    log, shorter = (of_case[name, "none"].executors_cpu for name in ("log", "shorter"))
    return (log - shorter) / (rows["log"] - rows["shorter"])


def _two_from_one(found: Found, rows: Mapping[str, int]) -> Section:
    table, ratios, fits = [], [], []
    for name, one, two in (("sharing the cores", ONE, TWO), ("in turns", ONE_IN_TURNS, TWO_IN_TURNS)):
        model = _model(found[one], rows)
        fits.append(f"for workers {name} they are {model}")
        for log in LOGS:
            took, of_one = found[two][log, "none"], found[one][log, "none"]
            predicted = model.seconds(rows[log], 2)
            table.append([
                name, f"{rows[log]:,}", f"{of_one.seconds:.1f}", f"{predicted:.1f}", f"{took.seconds:.1f}",
                f"{took.seconds / predicted:.2f}", f"{max(took.task_ms) / sum(took.task_ms):.2f}",
                *(f"{each.executors_cpu / rows[log] * 1e6:.2f}" for each in (of_one, took)),
            ])  # fmt: skip
            what = f"two workers, {name}, {rows[log]:,} rows"
            ratios += [
                (f"{what}: measured time relative to predicted time", took.seconds / predicted),
                (f"{what}: executors' CPU relative to one worker's", took.executors_cpu / of_one.executors_cpu),
            ]  # fmt: skip
        further = [_further_cpu(found[case], rows) for case in (two, one)]
        ratios.append(
            (f"two workers, {name}: executors' CPU per further row, relative to one worker's", further[0] / further[1])
        )
    of_models = "; ".join(fits)
    return Section(
        "Two workers, as predicted from one",
        f"""The model has two parameters, fitted to both logs on one worker, without timelines: {of_models}. The model
        predicts that two workers take the fixed time, and half of the executor time. The model applies to other
        machines under two conditions. First, a further row takes no more CPU of two executors (JVM and Python) than of
        one; both arrangements check this. Second, executors do not wait for each other; on this machine, only the
        arrangement in turns can check this.""",
        (
            "how the workers run", "rows", "one worker (s)", "two workers, predicted (s)", "two workers, measured (s)",
            "measured / predicted", "busier worker's share of task time", "one worker (CPU s per M rows)",
            "two workers (CPU s per M rows)",
        ),
        table,
        ratios,
    )  # fmt: skip


def _more_executors(found: Found, rows: Mapping[str, int]) -> Section:
    log = "log", "none"
    in_turns_model = _model(found[ONE_IN_TURNS], rows)
    error = found[TWO_IN_TURNS][log].seconds / in_turns_model.seconds(rows["log"], 2)
    return executors_modelled(
        _model(found[ONE], rows),
        rows["log"],
        "executors of one core",
        f"""Both figures are from one worker on S3 ({len(runs_of(RULES))} rules, no timelines). The two measured
        executors share the cores with the driver and the S3 server. Executors that run in turns do not share the
        cores; two such executors took {error:.2f} times the modelled time. Four and eight executors were not measured.
        Spark divides the replica sets among tasks, and merges small ones; times of a network and of a real store are
        left out.""",
        {case.workers: found[case][log].seconds for case in (ONE, TWO)},
    )

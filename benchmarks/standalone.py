"""A standalone cluster of Spark on loopback: a master, and workers of one core each."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from benchmarks.s3_server import free_port

ROOT = Path(__file__).resolve().parents[1]
_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_STARTS_S = 60
EXECUTOR_MEMORY = "1g"
TURN_S = 0.02
"""How long a worker goes on before it is another's turn."""
_LOOKS = 50
"""Turns after which the processes of a worker are looked for again."""


class Cluster(NamedTuple):
    """Address of its master, and the processes of its workers, each with a separate process session."""

    master: str
    workers: Sequence[int]


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Keep a cluster while it is needed, with its logs and working files in a folder.

    Its processes are children of this one.

    Raises
    ------
    RuntimeError
        When it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(
            _daemon(folder, "master", f"{_DEPLOY}.master.Master", ["--host", "127.0.0.1", "--port", str(port)])
        )
        pids = []
        for number in range(workers):
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "2g"]
            options += ["--work-dir", str(folder / f"work-{number}"), master]
            worker = _daemon(folder, f"worker-{number}", f"{_DEPLOY}.worker.Worker", options)
            pids.append(running.enter_context(worker))
        until = time.monotonic() + _STARTS_S
        while (folder / "master.log").read_text().count("Registering worker") < workers:
            if time.monotonic() > until:
                raise RuntimeError(f"no cluster of {workers} workers: {(folder / 'master.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield Cluster(master, pids)


@contextmanager
def _daemon(folder: Path, name: str, of_class: str, options: Sequence[str]) -> Iterator[int]:
    environment = os.environ | {
        "SPARK_HOME": str(_HOME), "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "local"),
    }  # fmt: skip
    command = [str(_HOME / "bin" / "spark-class"), of_class, "--webui-port", "0", *options]
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield process.pid
        finally:
            process.terminate()


@contextmanager
def in_turns(workers: Sequence[int], turns: int) -> Iterator[None]:
    """Let one worker at a time run, with its executor and Python, while the others are stopped.

    So each has all cores of this machine for its share of the time, as if it were a slower, separate machine:
    otherwise two executors on two cores would also wait for each other, for the driver and for the store.

    Parameters
    ----------
    workers : sequence of int
        Processes that lead a session.
    turns : int
        A worker runs in one of this many; at least the number of workers.
    """
    ended = threading.Event()

    def take_turns() -> None:
        groups: list[set[int]] = []
        for number in itertools.count():
            if number % _LOOKS == 0:  # Python's workers come and go
                groups = [_process_groups(worker) for worker in workers]
            if ended.is_set():
                break
            turn = number % turns
            for worker, of_worker in enumerate(groups):
                _send(signal.SIGCONT if worker == turn else signal.SIGSTOP, of_worker)
            ended.wait(TURN_S)

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for worker in workers:
            _send(signal.SIGCONT, _process_groups(worker))


def _process_groups(session: int) -> set[int]:
    """Process groups of a session: Python's daemon forms a separate one."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                _, _, group, of_session, *_ = (entry / "stat").read_text().rpartition(") ")[2].split()
                if int(of_session) == session:
                    found.add(int(group))
    return found


def _send(sent: signal.Signals, groups: Iterable[int]) -> None:
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, sent)


def executor_options() -> dict[str, str]:
    """Options of Spark for a session whose executors are on this machine and have its Python and its checkout."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.databricks.delta.snapshotPartitions": "2",
    }


class Executor(NamedTuple):
    """Tasks that an executor has completed, and milliseconds that all of its tasks took."""

    tasks: int
    task_ms: int


def executors_of(spark: SparkSession) -> dict[str, Executor]:
    """Tasks of each executor, by its number; the driver of a cluster runs none."""
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(False)  # noqa: SLF001 there is no public way
    each = [executors.apply(number) for number in range(executors.size())]
    return {
        executor.id(): Executor(int(executor.completedTasks()), int(executor.totalDuration()))
        for executor in each
        if executor.id() != "driver"
    }

"""Whose turn it is to write results: runs that die, that sleep too long, and that live in containers."""

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from isr_batch.errors import WriteConflictError
from isr_batch.lake import lease
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import RUN_LEASE

IN_A_CONTAINER = """
import sys, time
from datetime import timedelta
from isr_batch.lake import lease
from isr_batch.lake.lake import Lake
lease.BEAT, lease.EXPIRY = timedelta(seconds=0.5), timedelta(seconds=float(sys.argv[3]))
with lease.leased(Lake(lambda: 1 / 0, sys.argv[1], sys.argv[2])):
    print("taken", flush=True)
    time.sleep(float(sys.argv[4]))
"""


def no_spark() -> object:
    raise AssertionError("Spark is asked for")


def lake_of(folder: Path, run_id: str) -> Lake:
    return Lake(no_spark, str(folder), run_id)  # type: ignore[arg-type]


def in_a_container(folder: Path, run_id: str, expiry: float, sleep: float) -> "subprocess.Popen[str]":
    """Take the lease in a new pid namespace, as process 1, under this machine's name."""
    return subprocess.Popen(
        ["unshare", "-pf", "--mount-proc", sys.executable, "-c", IN_A_CONTAINER, str(folder), run_id, str(expiry),
         str(sleep)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def killed(run: "subprocess.Popen[str]") -> None:
    """Kill what `unshare` has started, and with it its namespace."""
    assert run.stdout
    assert run.stdout.readline() == "taken\n", run.stderr and run.stderr.read()
    (child,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    run.communicate()


def test_one_at_a_time_and_one_after_the_other(tmp_path: Path) -> None:
    first, second = lake_of(tmp_path, "first"), lake_of(tmp_path, "second")
    with lease.leased(first) as turn:
        with lease.leased(first) as again:
            assert again == turn
        with pytest.raises(WriteConflictError, match=rf"run first \(process {os.getpid()} on .* is writing"), \
                lease.leased(second):  # fmt: skip
            pass
        turn.require()
    with lease.leased(second) as turn:
        assert turn.number == 2


def test_a_number_that_another_process_has_now_is_not_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died is known by its start: its number may be given again."""
    with monkeypatch.context() as died:
        died.setattr(lease, "_started", lambda _pid: "1")
        lease._this_process_of_lease.cache_clear()
        first = lake_of(tmp_path, "first")
        first.ensure(RUN_LEASE)
        lease._write_turn_of_lease(first, 1, "begins")
        lease._this_process_of_lease.cache_clear()
    with lease.leased(lake_of(tmp_path, "second")) as turn:
        assert turn.number == 2


def test_a_run_gives_signs_of_life_and_expires_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere nothing else is known of it, however long it takes."""
    monkeypatch.setattr(lease, "BEAT", timedelta(seconds=0.1))
    monkeypatch.setattr(lease, "EXPIRY", timedelta(seconds=1))
    monkeypatch.setattr(lease._LeaseProcess, "is_gone", lambda *_: False)
    first, second = lake_of(tmp_path, "first"), lake_of(tmp_path, "second")
    with lease.leased(first) as turn:
        time.sleep(1.5)
        with pytest.raises(WriteConflictError), lease.leased(second):
            pass
        # It sleeps for longer than that, and another takes its turn.
        monkeypatch.setattr(lease, "_is_lease_turn_over", lambda _row: True)
        with lease.leased(second) as other:
            other.require()
            with pytest.raises(WriteConflictError, match=r"run second .* has taken the lock"):
                turn.require()
    rows = read_columns(first, RUN_LEASE.name, ["turn", "given_back"]).to_pylist()
    assert sum(not row["given_back"] for row in rows if row["turn"] == 1) > 3


def test_a_lake_of_an_earlier_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have the name of the machine alone."""
    old = lake_of(tmp_path, "old")
    old.ensure(RUN_LEASE)
    with monkeypatch.context() as then:
        then.setattr(lease, "_this_process_of_lease", lambda: lease._LeaseProcess.parse("elsewhere"))
        then.setattr(lease._LeaseProcess, "__str__", lambda self: self.host)
        lease._write_turn_of_lease(old, 1, "begins")
    with pytest.raises(WriteConflictError, match="on elsewhere"), lease.leased(lake_of(tmp_path, "new")):
        pass


@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make namespaces",
)
def test_runs_that_are_process_1_of_containers(tmp_path: Path) -> None:
    """One that was killed blocks the next until it expires, and two never write at once, though all are process 1."""
    killed(in_a_container(tmp_path, "first", 3, 60))
    second = in_a_container(tmp_path, "second", 60, 0)
    _, err = second.communicate()
    assert second.returncode == 1
    assert "run first (process 1 on " in err
    time.sleep(3)
    third = in_a_container(tmp_path, "third", 3, 0)
    _, err = third.communicate()
    assert third.returncode == 0, err

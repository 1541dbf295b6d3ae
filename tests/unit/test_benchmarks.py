"""Benchmarks: the hand-written loop decides as the kernel does, logs are reproducible, the page has what it shows."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import arrow_log, by_hand, page
from benchmarks.executors import ExecutorModel, Timed, executors_modelled
from benchmarks.kernel import KernelAlone, read_only, replay_in_memory
from benchmarks.log import Plan, Shape, log_of
from benchmarks.measure import CpuOfTree
from benchmarks.standalone import in_turns
from udfs.batches.rule_runs import RuleRun
from udfs.records import APPEND, EXPAND, FETCH, SHRINK
from udfs.rules import BASELINE

PLANS = [Plan(40_000, 8), Plan(40_000, 8, "half"), Plan(20_000, 1, "alone")]


class Everything(KernelAlone):
    """Keeps the timelines as well."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.timelines: list[tuple[Any, Any]] = []

    def flush(self) -> Any:
        filled = self.out.filled
        self.timelines.append((self.out.replica[: filled[0]].copy(), self.out.partition[: filled[1]].copy()))
        return super().flush()


@pytest.mark.skipif(shutil.which("g++") is None, reason="the loop by hand needs g++")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.shape)
def test_the_loop_by_hand_and_the_kernel_write_the_same_rows(plan: Plan) -> None:
    log = read_only(log_of(plan))
    kernel = replay_in_memory(log, [RuleRun(BASELINE)], Everything)
    hand = by_hand.replay(log, 1 << 17)
    changes = np.concatenate([found for _, found in kernel.changes])
    assert plan.partitions == 1 or {SHRINK, EXPAND} == set(changes[:, 2].tolist())
    np.testing.assert_array_equal(hand.change, changes[:, : by_hand.CHANGE_COLUMNS])
    assert by_hand.checksum(hand) == kernel.checksum(0)
    for mine, written in zip(zip(*kernel.timelines, strict=True), (hand.replica, hand.partition), strict=True):  # type: ignore[attr-defined]
        # The loop keeps no acknowledged offset, the last column of the partition's rows.
        np.testing.assert_array_equal(written, np.concatenate(mine)[:, : written.shape[1]])


@pytest.mark.parametrize("shape", ["zipf", "half", "alone"])
def test_a_log_has_about_as_many_rows_as_were_asked_for_and_is_in_order(shape: Shape) -> None:
    plan = Plan(30_000, 10, shape)
    log = log_of(plan)
    assert 0.85 < len(log.rows.time_us) / plan.rows < 1.15
    for first, end in zip(log.starts, log.starts[1:], strict=False):
        assert (np.diff(log.rows.time_us[first:end]) > 0).all()
    for column, again in zip(log.rows, log_of(plan).rows, strict=True):
        np.testing.assert_array_equal(column, again)


def test_a_long_partition_is_written_in_several_tables_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_log, "ROWS_A_CHUNK", 1000)
    plan = Plan(10_000, 1, "alone")
    rows = log_of(plan).rows
    assert arrow_log.write_parquet(plan, tmp_path) == len(rows.time_us)
    assert len(list((tmp_path / "fetch_log").iterdir())) == -(-int((rows.kind == FETCH).sum()) // 1000) > 1
    for table, kind, time, offset in (
        ("fetch_log", FETCH, "arrival_time", "fetch_offset"),
        ("append_log", APPEND, "append_time", "log_end_offset"),
    ):
        written = pq.read_table(tmp_path / table)
        of_kind = rows.kind == kind
        np.testing.assert_array_equal(written[time].cast(pa.int64()), rows.time_us[of_kind])
        np.testing.assert_array_equal(written[offset], rows.offset[of_kind])


BUSY = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_a_process_that_has_ended_has_its_cpu_time_counted_once() -> None:
    look = CpuOfTree()
    before = look()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = look()
    assert told - before > 0.25
    assert 0 <= look() - told < 0.25


def test_kinds_of_processes_are_counted_apart() -> None:
    look = CpuOfTree(kind_of=lambda _, command: "busy" if "process_time" in command else "others")
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 0.25 < look.by_kind()["busy"] < 1


def test_the_model_of_executors_is_exact_for_its_own_measurements() -> None:
    model = ExecutorModel.fitted(Timed(4_000_000, 50.0), Timed(1_000_000, 20.0))
    assert (model.seconds(4_000_000, 1), model.seconds(1_000_000, 1)) == pytest.approx((50, 20))
    assert model.seconds(4_000_000, 2) == pytest.approx(30)
    section = executors_modelled(model, 4_000_000, "executors", "A note.", {1: 50.0, 2: 33.0})
    assert [row[:4] for row in section.rows[:3]] == [
        ["1", "50.0", "50.0", "1.00"], ["2", "30.0", "33.0", "1.10"], ["4", "20.0", "", ""],
    ]  # fmt: skip


FOR_TWO_SECONDS = "import time; begun = time.time()\nwhile time.time() < begun + 2: pass\nprint(time.process_time())"


def test_of_two_workers_in_turns_each_has_at_most_half_of_the_time() -> None:
    command = [sys.executable, "-c", FOR_TWO_SECONDS]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)]
    with in_turns([worker.pid for worker in workers], 2):
        seconds = [float(worker.communicate()[0]) for worker in workers]
    assert max(seconds) < 1.3
    assert [worker.returncode for worker in workers] == [0, 0]


def test_what_users_wait_for_is_the_first_table_of_the_page(tmp_path: Path) -> None:
    sections = [
        page.Section("Kernel", "A note.", ("who", "ns"), [["ours", "247"]], [("ours relative to C++", 4.1)]),
        page.Section(
            "Commands", "Another note.", ("who", "s"), [["`status`", "1"]],
            waits=[page.Wait("`status`", "1.00 CPU s", "its imports alone", "0.40 CPU s", 2.5, "1 CPU s")],
        ),
    ]  # fmt: skip
    to = tmp_path / "build" / "page.md"
    page.write(to, sections, "make bench ROWS=1", "The log is generated.", 0.25, 60)
    text = to.read_text()
    tables = [part.split("\n\n")[0].splitlines()[2:] for part in text.split("\n\n| ")[1:]]
    assert tables[0] == ["| `status` | 1.00 CPU s | its imports alone | 0.40 CPU s | 2.50 | 1 CPU s |"]
    assert [rows[-1] for rows in tables[1:]] == [
        "| ours | 247 |",
        "| ours relative to C++ | 4.10 |",
        "| `status` | 1 |",
    ]
    assert re.search(r"`make bench ROWS=1` on \S+ in 1 minutes,\sat\scommit\s\w+", text)

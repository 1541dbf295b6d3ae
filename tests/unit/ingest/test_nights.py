"""Nights of a log that rotates leave the tables that one ingest of all its files leaves, without Spark."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.broker_logs import IngestOfBrokerLogs, ingest_broker_logs
from isr_batch.lake.lake import Lake
from tests.log_nights import RecordedRun, Rotation, differences, rows_of

ALL_SMALL = ("server", "state-change")
SAMPLES = Path(__file__).parents[3] / "data" / "samples"


def no_spark() -> None:
    raise AssertionError("Spark is asked for")


def ingested(lake: Path, logs: Path) -> IngestOfBrokerLogs:
    return ingest_broker_logs(Lake(no_spark, str(lake), "a run"), logs, "c")  # type: ignore[arg-type]


def in_order(count: int) -> list[int]:
    return [*range(count)]


def one_twice(count: int) -> list[int]:
    return [0, 1, 1, *range(2, count)]


def one_late(count: int) -> list[int]:
    return [0, 2, 1, *range(3, count)]


@pytest.mark.timeout(1800)  # thirty ingests, on a busy machine
@pytest.mark.parametrize(
    ("sample", "count", "rotation", "overlap", "order"),
    [
        pytest.param("restart", 4, Rotation(), 1, in_order, marks=pytest.mark.nightly),
        ("restart", 5, Rotation(numbered=True, packed=True), 2, in_order),
        ("follower-stop", 5, Rotation(packed=True), 1, one_twice),
        ("leader-stop", 4, Rotation(packed=True), 2, one_late),
        ("leader-stop", 3, Rotation({"request": 20, "server": 45, "state-change": 30}, closed=True), 1, in_order),
        pytest.param("restart", 30, Rotation(), 1, in_order, marks=pytest.mark.nightly),
    ],
)
def test_nights_are_as_one_ingest(
    tmp_path: Path, sample: str, count: int, rotation: Rotation, overlap: int, order: Callable[[int], list[int]]
) -> None:
    run = RecordedRun(SAMPLES / sample)
    times = run.nights(count)
    for turn, night in enumerate(order(count)):
        since = times[night - overlap] if night >= overlap else 0
        ingested(tmp_path / "nights", run.folder_at(times[night], tmp_path / f"{turn}", rotation, since))
    ingested(tmp_path / "whole", run.folder_at(times[-1], tmp_path / "all", rotation))
    assert differences(tmp_path / "nights", tmp_path / "whole") == {}


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(24))
def test_nights_at_any_times_are_as_one_ingest(tmp_path: Path, seed: int) -> None:
    """Any cut and any rotation; most have a night that is read again, at once or later, and some one that is late."""
    chosen = random.Random(seed)
    run = RecordedRun(SAMPLES / chosen.choice(["restart", "follower-stop", "leader-stop"]))
    count, overlap = chosen.randint(3, 6), chosen.choice([1, 1, 2])
    times = [*sorted(chosen.uniform(run.first, run.last) for _ in range(count - 1)), float("inf")]
    every = {"request": chosen.uniform(8, 40), "server": chosen.uniform(10, 60), "state-change": chosen.uniform(10, 80)}
    # A first copy without a line of some log knows less for good: nothing is read again.
    closed = chosen.random() < 0.5 and run.first + max(every.values()) < times[0]
    rotation = Rotation(every, chosen.random() < 0.4, chosen.random() < 0.5, closed=closed)
    order = in_order(count)
    if overlap > 1 and chosen.random() < 0.5:
        late = chosen.randrange(1, count - 1)
        order[late], order[late + 1] = late + 1, late
    if chosen.random() < 0.6:
        again = chosen.randrange(count)
        order.insert(chosen.randint(order.index(again) + 1, count), again)
    for turn, night in enumerate(order):
        since = times[night - overlap] if night >= overlap else 0
        there = run.folder_at(times[night], tmp_path / f"{turn}", rotation, since)
        # In a night without a rotation, a copy of closed files has no log.
        with nullcontext() if any(there.glob("*/*.log*")) else pytest.raises(NoInputError):
            ingested(tmp_path / "nights", there)
    ingested(tmp_path / "whole", run.folder_at(times[-1], tmp_path / "all", rotation))
    assert differences(tmp_path / "nights", tmp_path / "whole") == {}


@pytest.mark.parametrize("first", [(), ("server", "state-change")])
def test_logs_that_grow_beside_requests_that_rotate(tmp_path: Path, first: tuple[str, ...]) -> None:
    """The first copy has requests further than the other logs, or these alone; the second has the other logs whole."""
    run, rotation = (
        RecordedRun(SAMPLES / "leader-stop"),
        Rotation(every={"request": 40.0, **dict.fromkeys(ALL_SMALL, 1e6)}),
    )
    early = run.folder_at(run.first + 80.5, tmp_path / "early", rotation)
    whole = run.folder_at(float("inf"), tmp_path / "all", rotation)
    for broker in sorted(early.iterdir()):
        for log in ALL_SMALL:
            text = (broker / f"{log}.log").read_bytes()
            (broker / f"{log}.log").unlink()
            if log in first:
                (broker / f"{log}.log").write_bytes(b"".join(text.splitlines(keepends=True)[: text.count(b"\n") // 2]))
    late = tmp_path / "late"
    shutil.copytree(whole, late)
    for rotated in late.glob("*/request.log.2026-11-21-0[12]"):
        rotated.unlink()
    for folder in (early, late):
        ingested(tmp_path / "nights", folder)
    ingested(tmp_path / "whole", whole)
    assert differences(tmp_path / "nights", tmp_path / "whole", ("observed_isr_changes", "shrink_evidence")) == {}


def test_a_night_without_a_broker_keeps_what_it_led(tmp_path: Path) -> None:
    """Its folder is not there for a night, and no folder has its server.properties but the first."""
    run, rotation, lake = RecordedRun(SAMPLES / "restart"), Rotation(), tmp_path / "nights"
    times = run.nights(4)
    there = [run.folder_at(at, tmp_path / f"{n}", rotation, times[n - 2] if n > 1 else 0) for n, at in enumerate(times)]
    shutil.rmtree(there[1] / "broker-1")
    ingested(lake, there[0])
    led = [row for row in rows_of(lake, "leader_epochs") if row["leader_id"] == 1]
    for logs in there[1:]:
        for settings in logs.glob("*/server.properties"):
            settings.unlink()
        ingested(lake, logs)
        of_broker = [row for row in rows_of(lake, "leader_epochs") if row["leader_id"] == 1]
        assert {row["start_time"] for row in led} <= {row["start_time"] for row in of_broker}
        assert {row["lag_time_source"] for row in of_broker} == {"properties"}
    ingested(tmp_path / "whole", run.folder_at(times[-1], tmp_path / "all", rotation))
    found = differences(lake, tmp_path / "whole")
    assert {row["reason"] for row in found.pop("quarantine")[0]} == {"no server.properties"}
    assert found == {}


def test_a_night_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    """Lines after it are not known to continue those before: as in one ingest of the others."""
    run = RecordedRun(SAMPLES / "leader-stop")
    times, rotation = run.nights(4), Rotation(every=dict.fromkeys(("request", "server", "state-change"), 10.0))
    there = [run.folder_at(times[n], tmp_path / f"{n}", rotation, times[n - 1] if n else 0) for n in (0, 2, 3)]
    for logs in there:
        ingested(tmp_path / "nights", logs)
    ingested(tmp_path / "whole", run.folder_at(times[-1], tmp_path / "all", rotation))
    found = differences(tmp_path / "nights", tmp_path / "whole")
    assert set(found) >= {"fetch_log", "coverage", "leader_epochs"}
    after = [
        row for row in found["coverage"][0] if row["log"] == "request" and row["from_time"] > "2026-11-21 16:31:30"
    ]
    assert after
    assert all(row["begins_mid_term"] == "True" for row in after)


def test_a_night_that_fills_a_gap_late_loses_no_fetch_and_names_stale_days(tmp_path: Path) -> None:
    """Its last file is a shorter copy of the first one of the night after it."""
    run = RecordedRun(SAMPLES / "leader-stop")
    times, lake = run.nights(4)[:3], tmp_path / "nights"
    for night in (0, 2, 1):
        since = times[night - 1] if night else 0
        done = ingested(lake, run.folder_at(times[night], tmp_path / f"{night}", Rotation(), since))
    ingested(tmp_path / "whole", run.folder_at(times[-1], tmp_path / "all", Rotation()))
    whole, filled = (
        Counter((row["leader_id"], row["replica_id"], row["topic"], row["partition_id"], row["completed_time"])
                for row in rows_of(each, "fetch_log")) for each in (tmp_path / "whole", lake)
    )  # fmt: skip
    assert filled == whole
    notes = {note.about: note.found for note in done.notes}
    for broker in (1, 2, 3):
        assert f"broker-{broker}/request.log" in notes["files"]
    lacking = sum(row["fetch_offset"] is None for row in rows_of(lake, "fetch_log"))
    assert lacking
    assert f"{lacking:,} fetches have no offset" in notes["late files"]

"""Which rows a further ingest replaces, decided from fingerprints and times alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from isr_batch import __version__
from isr_batch.ingest.folder.log_folder import REQUEST, LogFile, LogFolder
from isr_batch.ingest.ingested_files import (
    IngestedFile,
    ReadFiles,
    Span,
    beginnings_of_file,
    plan_files_to_ingest,
    time_covered_by_files,
)
from isr_batch.ingest.log_files.content import Fingerprint

START = datetime(2026, 1, 1, tzinfo=UTC)


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


def first_hashes(content: str) -> list[int]:
    return [hash(content[: 1 << n]) for n in range(len(content).bit_length())]


def file(name: str, content: str, *began_as: str) -> LogFile:
    hashes = tuple(first_hashes(content))
    held = Fingerprint(len(content), len(content), content, 1, ((0, 1),), frozenset(began_as), hashes)
    return LogFile(REQUEST, 1, name, f"/{name}", held)


def known(name: str, content: str, first: float = 0, last: float = 1, version: str = __version__) -> IngestedFile:
    days = {START.date(): START}
    size = len(content)
    return IngestedFile(
        name, REQUEST, 1, size, size, content, 1, hour(first), hour(last), days, first_hashes(content), version, "run"
    )


def folder(*files: LogFile) -> LogFolder:
    return LogFolder(list(files))


def times(**of: tuple[float, float]) -> dict[str, dict[str, Any]]:
    days = [START.date()]
    return {n: {"first_time": hour(a), "last_time": hour(b), "days": days} for n, (a, b) in of.items()}


def test_nothing_is_new_when_all_files_are_as_they_were() -> None:
    assert plan_files_to_ingest(folder(file("a", "AA")), [known("a", "AA"), known("elsewhere", "Z")]).nothing_new
    assert not plan_files_to_ingest(folder(file("a", "AAA", "AA")), [known("a", "AA")]).nothing_new
    assert not plan_files_to_ingest(folder(file("b", "AA")), [known("a", "AA")]).nothing_new
    assert not plan_files_to_ingest(folder(file("a", "AA"), file("b", "B")), [known("a", "AA")]).nothing_new
    assert not plan_files_to_ingest(folder(file("a", "AA")), [known("a", "AA", version="0.0")]).nothing_new


def test_a_rotated_log_is_known_by_its_beginning_and_one_that_is_gone_keeps_its_name() -> None:
    work = plan_files_to_ingest(
        folder(file("log", "NEW"), file("log.1", "OLD AND MORE", "OLD")), [known("log", "OLD"), known("x", "X")]
    )
    assert [record.source_file for record in work.superseded] == ["log"]
    assert [record.source_file for record in work.gone] == ["x"]
    assert [f.name for f in work.found.files] == ["log", "log.1"]
    work = plan_files_to_ingest(folder(file("log", "NEW")), [known("log", "OLD")])
    assert [f.name for f in work.found.files] == ["log (2)"]
    both = [known("log", "OLD"), known("log (2)", "NEW")]
    assert plan_files_to_ingest(folder(file("log", "NEW")), both).nothing_new
    assert [f.name for f in plan_files_to_ingest(folder(file("log", "THIRD")), both).found.files] == ["log (3)"]
    assert beginnings_of_file(both, file("log", "")) == [3, 3]


def test_a_shorter_copy_of_an_ingested_file_is_not_read() -> None:
    lake = [known("log.1", "A LONG LOG"), known("other", "ANOTHER")]
    work = plan_files_to_ingest(folder(file("log", "A LONG"), file("other", "ANOTHER")), lake)
    assert [f.name for f in work.shorter] == ["log"]
    assert [f.name for f in work.found.files] == ["other"]
    assert [record.source_file for record in work.gone] == ["log.1"]
    assert work.nothing_new
    for content in ("A LIE", "A LONG LOG AND MORE", ""):
        work = plan_files_to_ingest(folder(file("log", content, "A LONG LOG")), lake)
        assert not work.shorter
    # A folder that has both is read.
    both = plan_files_to_ingest(folder(file("log", "A LONG"), file("log.1", "A LONG LOG")), lake)
    assert not both.shorter


def test_a_log_of_another_broker_is_another_log() -> None:
    work = plan_files_to_ingest(folder(file("a", "AA")), [IngestedFile(**{**vars(known("b", "AA")), "broker_id": 2})])
    assert not work.superseded


@pytest.mark.parametrize(
    ("read", "gone", "expected"),
    [
        ([(0, 1), (2, 3)], [], [(None, None)]),
        ([(0, 1), (2, 3)], [(1.2, 1.8)], [(None, 1), (1.8, None)]),
        ([(0, 1), (2, 3)], [(4, 5)], [(None, 3)]),
        ([(0, 5), (2, 3), (6, 7)], [(1, 2), (-2, -1)], [(-1, None)]),
        ([(1, 2)], [(0, 5)], [(1, 2)]),
        ([], [(0, 1)], []),
    ],
)
def test_time_that_belongs_to_the_files_that_are_read(read: list[Any], gone: list[Any], expected: list[Any]) -> None:
    def spans(pairs: list[Any]) -> list[Span]:
        return sorted((hour(first), hour(last)) for first, last in pairs)

    found = time_covered_by_files(spans(read), spans(gone))
    told = [tuple(bound and round((bound - START) / timedelta(hours=1), 6) for bound in bounds) for bounds in found]
    assert told == expected


def test_conditions_name_files_and_time_and_nothing_in_a_name_ends_them() -> None:
    name = "it's\\"
    work = plan_files_to_ingest(folder(file(name, "NEW")), [known("gone", "OLD", -5, -4)])
    told = ReadFiles(work, times(**{name: (0, 1)})).rows(["completed_time"])
    assert told == (
        r"(source_file IN ('it\'s\\')) AND event_date BETWEEN DATE'2025-12-31' AND DATE'2026-01-02'"
    )  # fmt: skip
    kept = ReadFiles(work, times(**{name: (0, 1)})).time_of_gone_files("leader_id", "t")
    assert kept == "(leader_id = 1 AND NOT (t > TIMESTAMP'2025-12-31 20:00:00.000000'))"
    nothing_gone = ReadFiles(plan_files_to_ingest(folder(file("a", "A")), []), times(a=(0, 1)))
    assert nothing_gone.time_of_gone_files("leader_id", "t") == "false"


def test_copies_that_overlap_go_where_they_are_read_again_and_not_at_a_rotation() -> None:
    for last, overlaps in ((0.5, True), (0.0001, False)):
        work = plan_files_to_ingest(folder(file("a", "NEW")), [known("gone", "OLD", -1, last)])
        assert (
            "'gone' AND (completed_time BETWEEN" in ReadFiles(work, times(a=(0, 1))).rows(["completed_time"])
        ) == overlaps
    swallowed = plan_files_to_ingest(folder(file("a", "NEW")), [known("gone", "OLD", 0.2, 0.5)])
    assert [r.source_file for r in ReadFiles(swallowed, times(a=(0, 1))).records("run-2", hour(9))] == ["a"]


def test_a_day_keeps_the_time_of_its_last_change() -> None:
    before = known("log", "OLD", 0, 30)
    later = START.date() + timedelta(days=1)
    before.days[later] = START
    work = plan_files_to_ingest(folder(file("log", "OLD AND MORE", "OLD")), [before])
    now = {"log": {"first_time": hour(0), "last_time": hour(40), "days": [START.date(), later]}}
    (row,) = ReadFiles(work, now).records("run-2", hour(50))
    assert row.days == {START.date(): START, later: hour(50)}
    (row,) = ReadFiles(plan_files_to_ingest(folder(file("log.1", "OLD")), [before]), {"log.1": now["log"]}).records(
        "run-2", hour(50)
    )
    assert row.days == {START.date(): START, later: START}

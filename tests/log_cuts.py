"""Copies of recorded logs with a part left out: what an operator has whose logging was switched on late, or has a gap.

A line belongs to the time of the last timestamp before it, as lines without a timestamp follow one that has.
"""

import gzip
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

REQUEST, SERVER, STATE_CHANGE = "request", "server", "state-change"
ALL_LOGS = (REQUEST, SERVER, STATE_CHANGE)
_STAMP = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3})\]")

Keep = Callable[[float], bool]
"""Whether to keep what was logged at an instant, in seconds since the epoch."""


def after(second: float) -> Keep:
    """Keep only lines from an instant on."""
    return lambda at: at >= second


def before(second: float) -> Keep:
    """Keep only lines before an instant."""
    return lambda at: at < second


def between(first: float, last: float) -> Keep:
    """Keep only lines of a span of time."""
    return lambda at: first <= at < last


def without(first: float, last: float) -> Keep:
    """Leave out the lines of a span of time."""
    return lambda at: not first <= at < last


def copy_of(
    run: Path,
    target: Path,
    keep: Keep,
    logs: Collection[str] = ALL_LOGS,
    *,
    brokers: Collection[int] = (),
    metadata: bool = True,
) -> Path:
    """Write a copy of a recorded run.

    Parameters
    ----------
    run, target : Path
        Folders.
    keep : callable
        What is kept of the logs named.
    logs : collection of str
        Logs from `ALL_LOGS`; the others are kept whole.
    brokers : collection of int
        Left out altogether.
    metadata : bool
        Whether the decoded metadata log comes along, whole.
    """
    target.mkdir(parents=True)
    for folder in sorted(run.glob("broker-*")):
        if int(folder.name.rpartition("-")[2]) in brokers:
            continue
        to = target / folder.name
        to.mkdir()
        shutil.copyfile(folder / "server.properties", to / "server.properties")
        for log in ALL_LOGS:
            lines = gzip.decompress((folder / f"{log}.log.gz").read_bytes()).splitlines(keepends=True)
            kept = lines if log not in logs else list(_kept(lines, keep))
            (to / f"{log}.log").write_bytes(b"".join(kept))
    if metadata:
        for dump in run.glob("metadata-dump.txt.gz"):
            shutil.copyfile(dump, target / dump.name)
    return target


def span(run: Path) -> tuple[float, float]:
    """First and last timestamp of all request logs, in seconds since the epoch."""
    stamps = [
        second(line)
        for path in run.glob("broker-*/request.log.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
        if _STAMP.match(line)
    ]
    return min(stamps), max(stamps)


def second(line: bytes) -> float:
    """Time in seconds since 1970 of a log line that begins with a timestamp."""
    match = _STAMP.match(line)
    assert match
    text = match[1].decode().replace(",", ".")
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()


def _kept(lines: list[bytes], keep: Keep) -> Iterator[bytes]:
    at = None
    for line in lines:
        if _STAMP.match(line):
            at = second(line)
        if at is not None and keep(at):
            yield line

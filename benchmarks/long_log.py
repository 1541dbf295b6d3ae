"""A broker's logs of any length: the steady part of a sample, again and again, while its clock and offsets go on.

Correlation ids, session epochs and the offsets of each partition go on from where the last round left them, so that
sessions and logs stay whole.
"""

import gzip
import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "samples" / "quiet"
BROKER = "broker-1"
LINES_A_FILE = 1_000_000
_OFFSETS = ("fetchOffset", "highWatermark", "lastStableOffset", "baseOffset")
_STAMP = "%Y-%m-%d %H:%M:%S,%f"


class Line(NamedTuple):
    """A line cut at the numbers that go on: ``texts`` around them, their values, and what they count."""

    time: datetime
    texts: list[str]
    values: list[int]
    counters: list[tuple[Any, ...]]


def write_long_log(folder: Path, lines: int) -> int:
    """Write the folder of a cluster with one broker and a minimum of request log lines; returns how many."""
    broker = folder / BROKER
    broker.mkdir(parents=True)
    for path in [*SAMPLE.glob("*dump*"), *(path for path in (SAMPLE / BROKER).iterdir() if "request" not in path.name)]:
        shutil.copy(path, broker if path.parent.name == BROKER else folder)
    with gzip.open(SAMPLE / BROKER / "request.log.gz", "rt", encoding="utf-8") as log:
        given = [_cut(text) for text in log]
    before, part = given[: len(given) // 3], given[len(given) // 3 : len(given) * 9 // 10]
    reached = _last(before)
    steps = {counter: value - reached.get(counter, value) for counter, value in _last([*before, *part]).items()}
    length = part[-1].time - before[-1].time
    rounds = max(1, -(-(lines - len(before)) // len(part)))
    text = _texts(before, part, rounds, steps, length)
    written = 0
    for number in range((len(before) + rounds * len(part)) // LINES_A_FILE, -1, -1):
        path = broker / (f"request.log.{number}" if number else "request.log")
        with path.open("w", encoding="utf-8") as out:
            for _, line in zip(range(LINES_A_FILE), text, strict=False):
                out.write(line)
                written += 1
    return written


def _texts(
    before: list[Line], part: list[Line], rounds: int, steps: dict[tuple[Any, ...], int], length: timedelta
) -> Iterator[str]:
    yield from (_written(line, 0, steps, timedelta()) for line in before)
    for n in range(rounds):
        yield from (_written(line, n, steps, length) for line in part)


def _written(line: Line, n: int, steps: dict[tuple[Any, ...], int], length: timedelta) -> str:
    numbers = [str(value + n * steps[counter]) for value, counter in zip(line.values, line.counters, strict=True)]
    stamp = f"{line.time + n * length:{_STAMP}}"[:-3]
    return f"[{stamp}" + "".join(a + b for a, b in zip(line.texts, [*numbers, ""], strict=True))


def _cut(text: str) -> Line:
    """Numbers that go on become marks between which the text is cut."""
    begin, end = text.index("{"), text.rindex("}") + 1
    request = json.loads(text[begin:end])
    found: list[tuple[int, tuple[Any, ...]]] = []

    def mark(node: Any, topic: Any) -> Any:
        if isinstance(node, list):
            return [mark(entry, topic) for entry in node]
        if not isinstance(node, dict):
            return node
        topic = node.get("topicId") or topic
        partition = node.get("partition", node.get("partitionIndex", node.get("index")))
        return {key: counted(key, value, topic, partition) for key, value in node.items()}

    def counted(key: str, value: Any, topic: Any, partition: Any) -> Any:
        if key in _OFFSETS and value >= 0:
            counter: tuple[Any, ...] = (topic, partition)
        elif key == "sessionEpoch" and value > 0:
            counter = ("session", request["request"]["sessionId"])
        elif key == "correlationId":
            counter = ("connection", request["connection"])
        else:
            return mark(value, topic)
        found.append((value, counter))
        return "\0"

    body = json.dumps(mark(request, None), separators=(",", ":"))
    texts = (text[len("[2026-01-01 00:00:00,000") : begin] + body + text[end:]).split('"\\u0000"')
    return Line(
        datetime.strptime(text[1:24], _STAMP), texts, [value for value, _ in found], [counter for _, counter in found]
    )


def _last(lines: list[Line]) -> dict[tuple[Any, ...], int]:
    """The highest value of each counter."""
    highest: dict[tuple[Any, ...], int] = {}
    for line in lines:
        for value, counter in zip(line.values, line.counters, strict=True):
            highest[counter] = max(highest.get(counter, value), value)
    return highest

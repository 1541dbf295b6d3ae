"""Kafka's own unit tests of the ISR, the high watermark and lastCaughtUpTimeMs, replayed through the kernel.

``tests/vectors/*.yaml`` has the times, offsets and outcomes of those tests, in files named after the test class. A
story is a table of a time in ms and what happens then, or after ``=`` what must hold then:

============================================  ======================================================================
append 15                                     the leader's log ends at 15
fetch 10 by 1                                 handled at once; ``failed``: with an error; ``reads 6``: the log end
                                              that the test hands in
check                                         isr-expiration runs, and at no other time
remove 1                                      the controller takes 1 out of the ISR, or refuses to take it in
bar 1, admit 1                                1 is fenced or shutting down, and no longer
lead again with 0 1, lead on with 0 1          next leader epoch, ISR 0 1: after another leader, or after itself
= isr 0 1, = hw 10                            committed ISR, high watermark
= asks for 0 1                                the leader asks for this ISR; all that it asks for must be named so
= replica 1 at 5, = replica 1 unknown         recorded log end, perhaps with ``caught up 500``, or ``never``
============================================  ======================================================================

Lines of the same ms happen one after the other. Replicas are numbered from the leader, 0, on.
"""

import math
import re
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, REMOVED, Row, Term
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import Result, replay

START_MS = 10**9
"""Long after 1970: that is when a follower was last caught up if it never was."""
START_US = START_MS * 1000
NEVER_MS = 10**9

GENERATIONS: dict[str, tuple[str, dict[str, int]]] = {
    "0.8.0": ("kafka-0.8", {"recorded_before_read": 1, "idle_followers_stay": 1}),
    "0.8.1": ("kafka-0.8", {"recorded_before_read": 1}),
    "0.8.2": ("kafka-0.8", {}),
    "0.9": ("kafka-0.9", {}),
    "0.10.2": ("kafka-0.10.2", {}),
    "2.0.1": ("kafka-0.10.2", {"joins_from_epoch_start": 1}),
    "2.1": ("kafka-2.1", {}),
    "2.4": ("kafka-2.1", {"errors_change_nothing": 1}),
    "2.7": ("kafka-2.7", {}),
    "3.1": ("kafka-2.7", {"advances_on_commit": 1}),
    "3.3": ("kafka-3.3", {}),
    "3.5": ("kafka-3.3", {}),
    "3.6": ("kafka-3.3", {"only_eligible_hold_high_watermark": 1}),
    "3.7": ("kafka-3.7", {}),
}
"""The first release of each generation, and the rule that it runs. 3.5 has the rule of 3.3, but other tests."""


class Line(NamedTuple):
    """A line of a story; ``us`` is never the same for two lines."""

    us: int
    ms: int
    words: str


class Vector(NamedTuple):
    """A test of Kafka in the form that it has in some generations."""

    name: str
    generations: tuple[str, ...]
    lines: tuple[Line, ...]
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_end: int = 0
    high_watermark: int = 0
    lag_ms: int = 10_000
    max_messages: int = 4000
    min_isr: int = 1
    isr_write_ms: int = 0


def numbers(words: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", words))


def vector_of(test_class: str, case: dict[str, str]) -> Vector:
    """Read a case of a file."""
    first, _, last = case.pop("in").partition(" - ")
    known = list(GENERATIONS)
    generations = known[known.index(first) : known.index(last or first) + 1]
    if first != "3.5" and "3.5" in generations:
        generations.remove("3.5")  # with 3.3 in the range it would be the same once more
    lines = []
    for number, line in enumerate(case.pop("story").splitlines()):
        ms, words = line.split(maxsplit=1)
        lines.append(Line(START_US + int(ms) * 1000 + number, int(ms), words))
    name, replicas, isr = f"{test_class}.{case.pop('test')}", numbers(case.pop("replicas")), numbers(case.pop("isr"))
    others = {key: NEVER_MS if value == "never" else int(value) for key, value in case.items()}
    return Vector(name, tuple(generations), tuple(lines), replicas, isr, **others)


def row_of(line: Line) -> Row | None:
    """Event of a line; None for a line that starts a term or states a condition."""
    values = numbers(line.words)
    match line.words.split()[0]:
        case "append":
            return Row(line.us, APPEND, offset=values[0], code=-1)
        case "fetch":
            known = values[2] if "reads" in line.words else -1
            error = 74 if "failed" in line.words else 0
            return Row(line.us, FETCH, values[1], values[0], error, known, line.us, line.us, line.us, line.us)
        case "check":  # due at the full ms, it runs when its line has its turn
            return Row(START_US + line.ms * 1000 - 1, CHECK, until_us=line.us)
        case "remove":
            return Row(line.us, REMOVED, values[0])
        case "bar" | "admit":
            return Row(line.us, ELIGIBLE, values[0], code=int(line.words.startswith("admit")))
    assert line.words.startswith(("=", "lead again", "lead on")), line
    return None


def log_of(vector: Vector) -> Log:
    """Terms and their rows; a term that is not the first starts with what the story says holds then."""
    begun = Term(
        vector.replicas, vector.replicas[0], START_US, vector.lines[-1].us, vector.log_end, vector.high_watermark,
        vector.isr, leader_is_new=True,
    )  # fmt: skip
    terms = [begun]
    rows: list[Row] = []
    for line in vector.lines:
        if line.words.startswith("lead"):
            former = terms[-1]._replace(rows=tuple(sorted(rows)), end_us=line.us - 1)
            end = max([former.start_offset, *(row.offset for row in rows if row.kind == APPEND)])
            marks = [numbers(said.words)[0] for said in vector.lines if said.us < line.us and "= hw" in said.words]
            begun = begun._replace(
                start_us=line.us, start_offset=end, start_high_watermark=marks[-1] if marks else vector.high_watermark,
                isr=numbers(line.words), leader_is_new=line.words.startswith("lead again"),
            )  # fmt: skip
            terms[-1:], rows = [former, begun], []
        elif row := row_of(line):
            rows.append(row)
    terms[-1] = begun._replace(rows=tuple(sorted(rows)))
    return Log(tuple(terms))


def setting_of(vector: Vector, generation: str) -> Setting:
    """Choose the rule, with a check period that makes the checks fall due where the story has them."""
    rule, flags = GENERATIONS[generation]
    checks = [line.ms for line in vector.lines if line.words == "check"]
    period_ms = math.gcd(*checks) or NEVER_MS
    assert not checks or set(range(period_ms, max(checks) + 1, period_ms)) <= set(checks)
    flags = {**flags, "check_period_ms": period_ms}
    if rule == "kafka-0.8":
        flags["replica_lag_max_messages"] = vector.max_messages
    if list(GENERATIONS).index(generation) >= list(GENERATIONS).index("2.7"):
        flags["isr_write_latency_ms"] = vector.isr_write_ms
    return Setting(rule, vector.lag_ms, vector.min_isr, START_MS % period_ms, tuple(flags.items()))


def found(result: Result, line: Line) -> str:
    """Say what holds at the time of a line, in the words that the line would have."""
    partition = [row for row in result["partition"] if row.time_us <= line.us][-1]
    if line.words.startswith("= hw"):
        return f"= hw {partition.high_watermark}"
    if line.words.startswith("= isr"):
        return " ".join(["= isr", *(str(replica) for replica in sorted(partition.isr))])
    if line.words.startswith("= asks"):
        return line.words  # compared as a whole
    replica = numbers(line.words)[0]
    row = [row for row in result["replica"] if row.replica_id == replica and row.time_us <= line.us][-1]
    words = f"= replica {replica} " + (f"at {row.log_end_offset}" if row.log_end_offset >= 0 else "unknown")
    if "caught up" not in line.words:
        return words
    caught_up_ms = row.last_caught_up_time_ms
    return f"{words} caught up " + (str(caught_up_ms - START_MS) if caught_up_ms > 0 else "never")


def asked(result: Result) -> list[tuple[int, str]]:
    """When the leader itself requested an ISR, and which."""
    changes = [(change.time_us, sorted(change.isr_after)) for change in result["changes"] if change.made_by == "rule"]
    # A shrink that drops several replicas gives one change per replica.
    once = [change for change, _ in groupby(changes)]
    return [((us - START_US) // 1000, " ".join(["= asks for", *(str(r) for r in isr)])) for us, isr in once]


VECTORS = [
    vector_of(path.name.partition(".")[0], case)
    for path in sorted((Path(__file__).parents[2] / "vectors").glob("*.yaml"))
    for case in yaml.load(path.read_text(), yaml.BaseLoader)
]
CASES = {
    f"{vector.name}[{generation}]": (vector, generation) for vector in VECTORS for generation in vector.generations
}


@pytest.mark.parametrize(("vector", "generation"), CASES.values(), ids=CASES)
def test_the_rule_decides_as_kafka_tests_say(vector: Vector, generation: str, record_property: Any) -> None:
    record_property("rule", GENERATIONS[generation][0])
    record_property("witness", "vector")
    (result,) = replay(log_of(vector), [setting_of(vector, generation)])
    said = [line for line in vector.lines if line.words.startswith("=")]
    assert [(line.ms, found(result, line)) for line in said] == [(line.ms, line.words) for line in said]
    assert asked(result) == [(line.ms, line.words) for line in said if line.words.startswith("= asks")]


def test_every_generation_has_witnesses_and_no_case_hides_another() -> None:
    assert {generation for _, generation in CASES.values()} == set(GENERATIONS)
    assert len(CASES) == sum(len(vector.generations) for vector in VECTORS)

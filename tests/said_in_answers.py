"""Brokers and times that the sentences of an answer name, to compare with the faults of a recording."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tests.recorded_faults import SECOND_MS, RecordedFault, faults_of_drop

_TIME: Final = r"\d\d:\d\d:\d\d"
STOOD_STILL: Final = "stood still"
OUT_OF_REACH: Final = "out of reach"
_KINDS: Final = {
    OUT_OF_REACH: r"could not be reached|did not get through|did not get (?:its|the) responses",
    STOOD_STILL: r"was silent|was starved|stopped fetching",
}
"""Kinds that exclude each other for one broker at one time; "stopped or slow" fits both."""


class Said(NamedTuple):
    """A broker, the first and the last time of day at which something happened to it, and its kind if that is said."""

    broker: int
    first: str
    last: str
    kind: str | None = None

    def fits(self, fault: RecordedFault) -> bool:
        """Whether it leads to a fault: its broker, and a time in it within a second."""
        begins, ends = (
            f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"
            for ms in (fault.from_ms - SECOND_MS, fault.until_ms + SECOND_MS)
        )
        return self.broker in fault.brokers and self.first <= ends and begins <= self.last


def said_in(sentences: Iterable[str]) -> list[Said]:
    """Read the brokers and times of sentences, clause by clause; of two brokers in a clause the first is meant."""
    found = []
    for sentence in sentences:
        without_notes = re.sub(r"\([^()]*\)", "", sentence)
        broker: int | None = None
        for clause in re.split(r"[;:] ", without_notes):
            named = re.search(r"\b[Bb]roker (\d+)", clause)
            broker = int(named[1]) if named else broker
            if broker is None:
                continue
            kind = next((kind for kind, words in _KINDS.items() if re.search(words, clause)), None)
            ranges = re.findall(rf"from ({_TIME}) to ({_TIME})", clause)
            times = re.findall(rf"(?<!from )(?<!to )\b({_TIME})", re.sub(rf"from {_TIME} to {_TIME}", "", clause))
            found += [Said(broker, first, last, kind) for first, last in (*ranges, *((one, one) for one in times))]
    return found


def unnamed_drops(
    sentences: Iterable[str], faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """List the drops to whose broker and time no sentence leads."""
    said = said_in(sentences)
    return [
        drop for drop in drops if not any(one.fits(fault) for fault in faults_of_drop(faults, drop) for one in said)
    ]


def contradictions(said: Sequence[Said]) -> list[tuple[Said, Said]]:
    """List pairs of statements about one broker at one time that cannot both be true."""
    return [
        (one, other)
        for one in said for other in said
        if one.kind == STOOD_STILL and other.kind == OUT_OF_REACH
        and one.broker == other.broker and one.first <= other.last and other.first <= one.last
    ]  # fmt: skip

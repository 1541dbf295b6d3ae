"""Brokers and times that the sentences of an answer name, to compare with the faults of a recording."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tests.recorded_faults import SECOND_MS, RecordedFault, faults_of_drop

_TIME: Final = r"\d\d:\d\d:\d\d"
_RANGE: Final = rf"(?:from|between) ({_TIME}) (?:to|and) ({_TIME})"
STOOD_STILL: Final = "stood still"
OUT_OF_REACH: Final = "out of reach"
_KINDS: Final = {
    OUT_OF_REACH: r"could not be reached|did not get through|did not get (?:its|the) responses",
    STOOD_STILL: r"was silent|was starved|stopped fetching",
}
"""Kinds that exclude each other for one broker at one time; "stopped or slow" fits both."""


class Said(NamedTuple):
    """A claim of a sentence about a broker: from when to when (time of day), and the kind of fault if it says so."""

    broker: int
    first: str
    last: str
    kind: str | None = None

    def fits(self, fault: RecordedFault) -> bool:
        """Whether the claim fits a fault: it names a broker at fault, and a time within a second of the fault."""
        begins, ends = (
            f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"
            for ms in (fault.from_ms - SECOND_MS, fault.until_ms + SECOND_MS)
        )
        return self.broker in fault.brokers and self.first <= ends and begins <= self.last


def said_in(sentences: Iterable[str]) -> list[Said]:
    """Read the claims about brokers and their times in sentences, clause by clause.

    If a clause names two brokers, the claim is about the first.
    """
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
            ranges = re.findall(_RANGE, clause)
            times = re.findall(rf"(?<!from )(?<!to )\b({_TIME})", re.sub(_RANGE, "", clause))
            found += [Said(broker, first, last, kind) for first, last in (*ranges, *((one, one) for one in times))]
    return found


def unnamed_drops(
    sentences: Iterable[str], faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Drops for which no sentence names a broker and a time that fit the fault behind them."""
    said = said_in(sentences)
    return [
        drop for drop in drops if not any(one.fits(fault) for fault in faults_of_drop(faults, drop) for one in said)
    ]


def contradictions(said: Sequence[Said]) -> list[tuple[Said, Said]]:
    """Pairs of claims about one broker at one time that cannot both be true."""
    return [
        (one, other)
        for one in said for other in said
        if one.kind == STOOD_STILL and other.kind == OUT_OF_REACH
        and one.broker == other.broker and one.first <= other.last and other.first <= one.last
    ]  # fmt: skip

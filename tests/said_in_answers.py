"""Brokers and times that the sentences of an answer name, to compare with the faults of a recording."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from isr_batch.lake.lake import Lake
from isr_batch.lake.user_sql import answer
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


_LAST_SEEN: Final = r"[Bb]roker (\d+) (?:was|at [\d:]+ \(\d+,) last seen at ([\d:]+)"


def wrongly_last_seen(lake: Lake, text: str) -> Iterator[str]:
    """Name brokers that a sentence calls last seen at a time, unless they fetched or led then, and not for a second."""
    for broker, time in re.findall(_LAST_SEEN, text):
        query = (
            "WITH signs AS (SELECT arrival_time AS t FROM fetches WHERE replica_id = {0} "
            "UNION ALL SELECT end_time FROM leader_epochs WHERE leader_id = {0}) "
            "SELECT count_if(strftime(t, '%H:%M:%S') = '{1}') AS then, "
            "count_if(strftime(t - INTERVAL 1 second, '%H:%M:%S') = '{1}') AS later FROM signs"
        )
        (row,), _ = answer(lake, query.format(broker, time))
        if not row["then"] or row["later"]:
            yield f"broker {broker} was not last seen at {time}: {row}"

"""Answer the questions that people ask about shrinks, each with its lines and how sure the answer is."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from isr_batch.evidence.answer import (
    SUSPICION,
    Row,
    Storm,
    avoiding_lag_time,
    back_again,
    behind,
    clock,
    count_of,
    span,
    storms,
    under_min_isr,
    used_rows,
    who,
)
from isr_batch.evidence.before import ELECTION, RESTART, TOPIC_CREATED
from isr_batch.evidence.shrinks import AT_MOST, CONTROLLER, FAILED
from isr_batch.evidence.suspects import STRONG
from isr_batch.evidence.trouble import KINDS

NOT_IN_LOGS: Final = "not told by these logs: "
PRINTED: Final = "printed"
BOUND: Final = "bound"
UNKNOWN: Final = "unknown"
MOST_LINES: Final = 3
"""Lines that are named as the evidence of an answer."""
_EVENTS = {TOPIC_CREATED: "the topic's creation", RESTART: "a restart", ELECTION: "an election"}


class Answered(NamedTuple):
    """A question, its answer, the first lines that it rests on (``file:line``), and how sure it is.

    ``how_sure`` is strong evidence, weak evidence or no evidence for a suspicion; printed where lines say it; bound
    where they only limit it; unknown where they do not tell.
    """

    question: str
    answer: str
    how_sure: str
    lines: list[str]

    @property
    def known(self) -> bool:
        """Whether these logs tell."""
        return self.how_sure != UNKNOWN


def questions(evidence: pa.Table) -> list[Answered]:
    """Answer every question, in the order in which people ask; none where no leader dropped a replica.

    Parameters
    ----------
    evidence : pa.Table
        Rows of one cluster, as `isr_batch.evidence.table.evidence_of` gives them.
    """
    rows = [row for row in used_rows(evidence) if not row["retry"] and row["made_by"] != CONTROLLER]
    if not rows:
        return []
    found = storms(evidence)
    return [
        _suspect(rows), _first(found[0]), _behind(rows), _whole(rows), _client(), _lag_time(rows), _trouble(rows),
        _event(rows), _min_isr(rows),
    ]  # fmt: skip


def _suspect(rows: Sequence[Row]) -> Answered:
    counts = Counter((row["suspect"], row["suspect_broker"], row["strength"]) for row in rows)
    parts = [
        f"{(suspect or 'nobody').replace('_', ' ')}{'' if broker is None else f' {broker}'}: "
        f"{count_of(number, 'replica')}, {SUSPICION.get(strength, 'no evidence')}"
        for (suspect, broker, strength), number in counts.most_common()
    ]
    best = max(rows, key=lambda row: row["strength"] == STRONG)
    strengths = {SUSPICION.get(row["strength"], "no evidence") for row in rows}
    sure = strengths.pop() if len(strengths) == 1 else "as said of each"
    return Answered("Leader, follower, or the link?", "; ".join(parts), sure, best["evidence_lines"][:MOST_LINES])


def _first(storm: Storm) -> Answered:
    since = clock(storm.since) if storm.since_is_printed else f"some time before {clock(storm.first)}"
    return Answered(
        "Which broker dropped out first, and when?", _capital(f"{who(storm)}, {since} UTC"),
        SUSPICION.get(storm.strength, "no evidence"), storm.lines[:MOST_LINES],
    )  # fmt: skip


def _behind(rows: Sequence[Row]) -> Answered:
    printed = [row for row in rows if row["records_behind"] is not None or row["lag_ms"] is not None]
    question = "Were they really behind, and by how much?"
    if not printed:
        return _unknown(question, "records behind are printed since 2.2, the time since 3.6")
    return Answered(question, behind(rows), PRINTED, _places(printed))


def _whole(rows: Sequence[Row]) -> Answered:
    question = "How long until the ISR was whole again?"
    back = [row for row in rows if row["returned_ms"] is not None]
    if not back:
        # A failed write leaves the ISR as it was.
        if all(row["write_outcome"] == FAILED for row in rows):
            return Answered(question, "It stayed whole: no shrink was written", PRINTED, _places(rows))
        return _unknown(question, "no replica is seen to come back")
    bound = any(row["returned_source"] == AT_MOST for row in back)
    return Answered(question, back_again(rows), BOUND if bound else PRINTED, _places(back))


def _client() -> Answered:
    return _unknown("Which client wrote when it happened?", "only request logs name the clients of produce requests")


def _lag_time(rows: Sequence[Row]) -> Answered:
    question = "What lag time would have avoided it?"
    printed = [row for row in rows if row["lag_ms"] is not None]
    if not printed:
        return _unknown(
            question, "lastCaughtUpTimeMs is printed since 3.6; more than the present one is all that is sure"
        )
    return Answered(question, avoiding_lag_time(rows), BOUND, _places(printed, by="lag_ms"))


def _trouble(rows: Sequence[Row]) -> Answered:
    question = "Why could the follower not fetch?"
    there = [row for row in rows if row["trouble"]]
    if not there:
        return _unknown(question, "no line of a follower in the minute before says why")
    counts = Counter(row["trouble"] for row in there)
    parts = [f"{KINDS[kind]} ({count_of(number, 'replica')})" for kind, number in counts.most_common()]
    rest = f"; of {len(rows) - len(there)} no line says" if len(there) < len(rows) else ""
    lines = list(dict.fromkeys(row["trouble_line"] for row in there))
    return Answered(question, _capital(f"{'; '.join(parts)}{rest}"), "weak evidence", lines[:MOST_LINES])


def _event(rows: Sequence[Row]) -> Answered:
    question = "Right after an election, a restart or a topic's creation?"
    there = [row for row in rows if row["after_event"]]
    if not there:
        return _unknown(question, "no line says that one came within two lag times before")
    parts = []
    for event, said in _EVENTS.items():
        times = [row["after_event_ms"] for row in there if row["after_event"] == event]
        if times:
            parts.append(f"{count_of(len(times), 'replica')} left {span(times)} ms after {said}")
    rest = f"; of {len(rows) - len(there)} no line says so" if len(there) < len(rows) else ""
    return Answered(question, f"{'; '.join(parts)}{rest}", PRINTED, _places(there))


def _min_isr(rows: Sequence[Row]) -> Answered:
    question = "How long under min ISR?"
    known = [row for row in rows if row["under_min_isr"] is not None]
    under = [row for row in known if row["under_min_isr"]]
    unknown = len(rows) - len(known)
    rest = f" Of {count_of(unknown, 'replica')} min.insync.replicas is not known." if unknown else ""
    if not known:
        return _unknown(question, "min.insync.replicas is printed at a topic's creation and at a broker's start")
    if not under:
        return Answered(question, f"None of those of which it is known.{rest}", PRINTED, _places(known))
    bound = any(row["under_min_isr_source"] == AT_MOST for row in under)
    return Answered(question, f"{under_min_isr(rows)}{rest}", BOUND if bound else PRINTED, _places(under))


def _unknown(question: str, reason: str) -> Answered:
    return Answered(question, NOT_IN_LOGS + reason, UNKNOWN, [])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _places(rows: Iterable[Row], by: str | None = None) -> list[str]:
    """Name the lines of the first rows, or of those with the largest number of a column."""
    ordered = sorted(rows, key=lambda row: -row[by]) if by else rows
    return list(dict.fromkeys(f"{row['source_file']}:{row['source_line']}" for row in ordered))[:MOST_LINES]

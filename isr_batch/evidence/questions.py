"""Answer the questions that operators ask about shrinks. An answer names its evidence and says how certain it is."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final, NamedTuple

import pyarrow as pa

from isr_batch.evidence.answer import (
    BOUNDS,
    answer_avoiding_lag_time,
    answer_back_in_isr,
    answer_line_how_far_behind,
    answer_of_times,
    answer_under_min_isr,
)
from isr_batch.evidence.events_before import EVENTS
from isr_batch.evidence.evidence_table import Row, rows_of_evidence_table
from isr_batch.evidence.shrinks import CONTROLLER, FAILED, LEADER
from isr_batch.evidence.storms import Storm, storm_suspect, storms
from isr_batch.evidence.suspects import STRONG, suspicion_in_words
from isr_batch.evidence.trouble import KINDS
from isr_batch.phrases import count_of, least_to_largest
from isr_batch.shown_times import time_of_day, zone_name

NOT_IN_LOGS: Final = "not in these logs: "
PRINTED: Final = "printed"
BOUND: Final = "bound"
REPLAYED: Final = "replayed"
UNKNOWN: Final = "unknown"
MOST_CLIENTS: Final = 3
MOST_LINES: Final = 3
"""Maximum number of lines that an answer names as evidence."""


class AnsweredQuestion(NamedTuple):
    """A question and its answer.

    Attributes
    ----------
    question, answer : str
    how_sure : str
        If the answer names a suspect: strong evidence, weak evidence or no evidence; "as said of each" if that differs
        between the suspects. For any other answer: ``printed`` if log lines state it, ``bound`` if they only show an
        upper or lower bound, ``replayed`` if a replay computed it, ``unknown`` if nothing shows it.
    lines : list of str
        The first log lines that support the answer, as ``file:line``.
    """

    question: str
    answer: str
    how_sure: str
    lines: list[str]

    @property
    def known(self) -> bool:
        """Whether the logs answer the question."""
        return self.how_sure != UNKNOWN


class RequestsForQuestions(NamedTuple):
    """Facts about shrinks that only request logs show. `isr_batch.evidence.questions_with_requests` collects them.

    Attributes
    ----------
    verdicts : list of dict
        Verdicts on shrinks from view evidence_and_verdicts, with the keys known_by, verdict, primary_cause, lag_ms,
        true_lag_ms and avoiding_lag_time_ms.
    clients : list of dict
        Clients that wrote to a partition after its follower was last caught up and before the follower was dropped,
        those with most records first. Keys: client_id, topic, appends, records, drops (number of shrinks), first
        (dict with source_file and source_line of the client's first append).
    """

    verdicts: list[Row]
    clients: list[Row]


NO_REQUESTS: Final = RequestsForQuestions([], [])


def answer_questions(evidence: pa.Table, requests: RequestsForQuestions = NO_REQUESTS) -> list[AnsweredQuestion]:
    """Answer all questions about the shrinks of one cluster. The list is empty if no replica left an ISR.

    If only the controller removed replicas, as in a rolling restart, the questions about lag are left out.

    Parameters
    ----------
    evidence : pa.Table
        Rows of one cluster, from `isr_batch.evidence.evidence_table.evidence_rows`.
    requests : RequestsForQuestions, optional
        What the request logs show. By default, there are no request logs.
    """
    every = [row for row in rows_of_evidence_table(evidence) if not row["retry"]]
    rows = [row for row in every if row["made_by"] == LEADER and row["storm_time"] is not None]
    removed = [row for row in every if row["made_by"] == CONTROLLER]
    if not rows:
        return _questions_of_removed(removed) if removed else []
    found = storms(evidence)
    return [
        _question_of_suspect(rows, requests), _question_of_first_broker(found[0]),
        _question_how_far_behind(rows, requests), _question_when_whole(rows, removed), _question_which_client(requests),
        _question_which_lag_time(rows, requests), _question_of_trouble(every), _question_after_event(every),
        _question_under_min_isr(rows),
    ]  # fmt: skip


def question_rows(asked: Iterable[AnsweredQuestion]) -> list[dict[str, str]]:
    """Convert answered questions to dicts with the keys question, answer, ``how sure`` and lines (joined by commas)."""
    return [
        {"question": one.question, "answer": one.answer, "how sure": one.how_sure, "lines": ", ".join(one.lines)}
        for one in asked
    ]


def _question_of_suspect(rows: Sequence[Row], requests: RequestsForQuestions) -> AnsweredQuestion:
    """Answer which brokers were at fault, and add the replay's verdicts."""
    counts = Counter((row["suspect"], row["suspect_broker"], row["strength"]) for row in rows)
    parts = [
        f"{(suspect or 'nobody').replace('_', ' ')}{'' if broker is None else f' {broker}'}: "
        f"{count_of(number, 'replica')}, {suspicion_in_words(strength)}"
        for (suspect, broker, strength), number in counts.most_common()
    ]
    best = max(rows, key=lambda row: row["strength"] == STRONG)
    strengths = {suspicion_in_words(row["strength"]) for row in rows}
    sure = strengths.pop() if len(strengths) == 1 else "as said of each"
    causes = Counter((row["verdict"], row["primary_cause"]) for row in requests.verdicts)
    by_replay = [
        f"{number} {verdict}{'' if verdict == cause else f' ({cause})'}"
        for (verdict, cause), number in causes.most_common()
    ]
    more = f". By the replay: {', '.join(by_replay)}" if by_replay else ""
    return AnsweredQuestion(
        "Leader, follower, or the link?", "; ".join(parts) + more, sure, best["evidence_lines"][:MOST_LINES]
    )


def _question_of_first_broker(storm: Storm) -> AnsweredQuestion:
    """Answer which broker stopped first in a storm (group of related shrinks)."""
    since = time_of_day(storm.since) if storm.since_is_printed else f"some time before {time_of_day(storm.first)}"
    question = "Which broker dropped out first, and when?"
    if storm.broker is None:
        return _unanswered_question(question, storm.reason)
    return AnsweredQuestion(
        question,
        _capitalised_answer(f"{storm_suspect(storm)}, {since} {zone_name()}"),
        suspicion_in_words(storm.strength), storm.lines[:MOST_LINES],
    )  # fmt: skip


def _question_how_far_behind(rows: Sequence[Row], requests: RequestsForQuestions) -> AnsweredQuestion:
    """Answer how many records and ms the dropped followers lagged, by the replay or else by their leaders."""
    printed = [row for row in rows if row["records_behind"] is not None or row["lag_ms"] is not None]
    question = "Were they really behind, and by how much?"
    lags = [row["true_lag_ms"] for row in requests.verdicts if row["true_lag_ms"] is not None]
    if lags:
        none = lags.count(0)
        answer = (
            f"By their own fetches they lagged {least_to_largest(lags)} ms; {none} of {len(lags)} had all the records"
        )
        return AnsweredQuestion(
            question, f"{answer}. {answer_line_how_far_behind(rows)}", REPLAYED, _lines_of_answer(printed)
        )
    if not printed:
        return _unanswered_question(question, "records behind are printed since 2.2, the time since 3.6")
    return AnsweredQuestion(question, answer_line_how_far_behind(rows), PRINTED, _lines_of_answer(printed))


def _questions_of_removed(removed: Sequence[Row]) -> list[AnsweredQuestion]:
    """Answer the questions that make sense if only the controller removed replicas."""
    counts = Counter(row["replica_id"] for row in removed)
    parts = ", ".join(f"broker {broker}: {count_of(number, 'replica')}" for broker, number in sorted(counts.items()))
    first = removed[0]
    late = first["earliest_time"] is not None
    return [
        AnsweredQuestion(
            "Leader, follower, or the link?",
            f"None of them: the controller removed the replicas (shutdown, fencing or reassignment); {parts}", PRINTED,
            _lines_of_answer(removed),
        ),
        AnsweredQuestion(
            "Which broker dropped out first, and when?",
            f"Broker {first['replica_id']}, {'by ' if late else ''}{time_of_day(first['change_time'])} {zone_name()}",
            BOUND if late else PRINTED, _lines_of_answer([first]),
        ),
        _question_when_whole([], removed), _question_after_event(removed), _question_under_min_isr(removed),
    ]  # fmt: skip


def _question_when_whole(rows: Sequence[Row], removed: Sequence[Row]) -> AnsweredQuestion:
    """Answer after what time dropped or removed replicas were back in the ISR."""
    question = "How long until the ISR was whole again?"
    every = [*rows, *removed]
    back = [row for row in every if row["returned_ms"] is not None]
    if not back:
        # A shrink whose write failed did not change the ISR.
        if all(row["write_outcome"] == FAILED for row in every):
            return AnsweredQuestion(
                question, "It stayed whole: no shrink was written", PRINTED, _lines_of_answer(every)
            )
        return _unanswered_question(question, "no replica is seen to come back")
    out = {(row["topic"], row["partition_id"]) for row in every
           if row["returned_ms"] is None and row["write_outcome"] != FAILED}  # fmt: skip
    end = f"At the end {count_of(len(out), 'partition')} had not been seen whole again." if out else ""
    bound = any(row["returned_source"] in BOUNDS for row in back)
    said = " ".join(filter(None, (answer_back_in_isr(rows), _removed_again(removed), end)))
    return AnsweredQuestion(question, said, BOUND if bound else PRINTED, _lines_of_answer(back))


def _removed_again(removed: Sequence[Row]) -> str:
    """Say how soon the brokers that the controller removed were back in the ISRs; empty if none was back.

    In a rolling restart, this shows how long to wait before the next broker is restarted.
    """
    back: dict[int, list[Row]] = {}
    for row in removed:
        if row["returned_ms"] is not None:
            back.setdefault(row["replica_id"], []).append(row)
    parts = [f"broker {broker} after {answer_of_times(each, 'returned')} ms" for broker, each in sorted(back.items())]
    return f"Removed by the controller, and back: {', '.join(parts)}." if parts else ""


def _question_which_client(requests: RequestsForQuestions) -> AnsweredQuestion:
    """Answer which clients sent produce requests while the followers fell behind."""
    question = "Which client wrote when it happened?"
    named = [row for row in requests.clients if row["client_id"] is not None]
    if not named and requests.verdicts:
        return _unanswered_question(
            question, "no append in the time before a shrink could be tied to a logged produce request"
        )
    if not named:
        return _unanswered_question(question, "only request logs name the clients of produce requests")
    parts = [
        f"{row['client_id']} to {row['topic']} ({count_of(row['records'], 'record')}, before "
        f"{count_of(row['drops'], 'shrink')})"
        for row in named[:MOST_CLIENTS]
    ]
    rest = f"; {len(named) - MOST_CLIENTS} more" if len(named) > MOST_CLIENTS else ""
    nobody = sum(row["records"] for row in requests.clients if row["client_id"] is None)
    unnamed = f"; {count_of(nobody, 'record')} without a logged request" if nobody else ""
    lines = [f"{row['first']['source_file']}:{row['first']['source_line']}" for row in named[:MOST_LINES]]
    return AnsweredQuestion(question, f"Most: {', '.join(parts)}{rest}{unnamed}", PRINTED, lines)


def _question_which_lag_time(rows: Sequence[Row], requests: RequestsForQuestions) -> AnsweredQuestion:
    """Answer which replica.lag.time.max.ms would have avoided the shrinks, by the replay and by the leaders' lines."""
    question = "Which lag time would have avoided it?"
    printed = [row for row in rows if row["lag_ms"] is not None]
    lines = _lines_of_answer(printed, by="lag_ms")
    enough = [row["avoiding_lag_time_ms"] for row in requests.verdicts if row["avoiding_lag_time_ms"] is not None]
    if enough:
        missing = len(requests.verdicts) - len(enough)
        rest = f"; of {missing} the log or the term ends before it did" if missing else ""
        answer = (
            f"By the replay, {max(enough)} ms is enough for all {len(enough)} shrinks whose follower caught up, "
            f"and {median_low(enough)} ms for half of them{rest}"
        )
        return AnsweredQuestion(question, f"{answer}. {answer_avoiding_lag_time(rows)}", REPLAYED, lines)
    if not printed:
        return _unanswered_question(
            question, "lastCaughtUpTimeMs is printed since 3.6; more than the present one is all that is sure"
        )
    return AnsweredQuestion(question, answer_avoiding_lag_time(rows), BOUND, lines)


def _question_of_trouble(rows: Sequence[Row]) -> AnsweredQuestion:
    """Answer whether the followers' own logs show why they could not fetch."""
    question = "Why could the follower not fetch?"
    there = [row for row in rows if row["trouble"]]
    if not there:
        return _unanswered_question(question, "no line of a follower in the minute before says why")
    counts = Counter(row["trouble"] for row in there)
    parts = [f"{KINDS[kind]} ({count_of(number, 'replica')})" for kind, number in counts.most_common()]
    rest = f"; of {len(rows) - len(there)} no line says" if len(there) < len(rows) else ""
    lines = list(dict.fromkeys(row["trouble_line"] for row in there))
    return AnsweredQuestion(
        question, _capitalised_answer(f"{'; '.join(parts)}{rest}"), "weak evidence", lines[:MOST_LINES]
    )


def _question_after_event(rows: Sequence[Row]) -> AnsweredQuestion:
    """Answer whether an election, a restart or the creation of the topic happened shortly before the shrinks."""
    question = "Right after an election, a restart or a topic's creation?"
    there = [row for row in rows if row["after_event"]]
    if not there:
        return _unanswered_question(question, "no line says that one came within two lag times before")
    parts = []
    for event, said in EVENTS.items():
        times = [row["after_event_ms"] for row in there if row["after_event"] == event]
        if times:
            parts.append(f"{count_of(len(times), 'replica')} left {least_to_largest(times)} ms after {said}")
    rest = f"; of {len(rows) - len(there)} no line says so" if len(there) < len(rows) else ""
    return AnsweredQuestion(question, f"{'; '.join(parts)}{rest}", PRINTED, _lines_of_answer(there))


def _question_under_min_isr(rows: Sequence[Row]) -> AnsweredQuestion:
    """Answer for how long partitions were below min.insync.replicas."""
    question = "How long under min ISR?"
    known = [row for row in rows if row["under_min_isr"] is not None]
    under = [row for row in known if row["under_min_isr"]]
    unknown = len(rows) - len(known)
    rest = f" For {count_of(unknown, 'replica')}, min.insync.replicas is unknown." if unknown else ""
    if not known:
        return _unanswered_question(
            question, "min.insync.replicas is printed at a topic's creation and at a broker's start"
        )
    if not under:
        return AnsweredQuestion(
            question, f"None of those with a known min.insync.replicas.{rest}", PRINTED, _lines_of_answer(known)
        )
    bound = any(row["under_min_isr_source"] in BOUNDS for row in under)
    return AnsweredQuestion(
        question, f"{answer_under_min_isr(rows)}{rest}", BOUND if bound else PRINTED, _lines_of_answer(under)
    )


def _unanswered_question(question: str, reason: str) -> AnsweredQuestion:
    """Return an answer which says that the logs do not answer the question, and why (``reason``)."""
    return AnsweredQuestion(question, NOT_IN_LOGS + reason, UNKNOWN, [])


def _capitalised_answer(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lines_of_answer(rows: Iterable[Row], by: str | None = None) -> list[str]:
    """Return the positions of at most `MOST_LINES` rows as ``file:line``, without duplicates.

    If ``by`` is given, the rows with the largest values in this column come first.
    """
    ordered = sorted(rows, key=lambda row: -row[by]) if by else rows
    return list(dict.fromkeys(f"{row['source_file']}:{row['source_line']}" for row in ordered))[:MOST_LINES]

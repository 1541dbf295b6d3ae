"""Infer terms that began before the log, and their state when the log begins: ISR, log end, high watermark.

The input consists of few rows, as dicts: terms, lines about ISRs, and the followers' first fetches. Each result has a
source: ``logged`` (an earlier line or record, without a gap after it), ``snapshot`` (an operator's listing of
partitions) or ``inferred`` (the followers' fetches).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.requests.in_force import EARLY_US

Row = Mapping[str, Any]
Partition = tuple[str, int]
LOGGED, SNAPSHOT, INFERRED = "logged", "snapshot", "inferred"
UNKNOWN_EPOCH = -1
LONG_BEFORE_US = 1_000_000
"""If a leader served fetches with a leader epoch more than this many microseconds before the line about the epoch's
beginning, the epoch had begun before that line."""
SEEN_OFTEN = 3
"""This many successful fetches with a leader epoch prove that the leader led in this epoch, even if no line shows
it."""


class Begun(NamedTuple):
    """A term that began before the log. ``stamp_us`` is the time from which on the log covers the term."""

    broker_id: int
    topic: str
    partition_id: int
    leader_epoch: int
    stamp_us: int
    term_source: str


class IsrReport(NamedTuple):
    """A line or record that shows a partition's ISR ``after`` a change and, perhaps, ``before`` it."""

    at_us: int
    before: tuple[int, ...] | None
    after: tuple[int, ...]
    source: str


def partition_of(row: Row) -> Partition:
    """Return the topic and partition of a row, to use as a key."""
    return row["topic"], row["partition_id"]


def may_begin_before(stretches: Iterable[Stretch], starts: Iterable[Row], fetched: Iterable[Row]) -> bool:
    """Return whether any term may have begun before the log, given ``starts`` and ``fetched`` as in `Signs`.

    This is so if a covered period begins after its broker's start, or if fetches show a term without a logged start.
    """
    if not all(stretch.from_start for stretch in stretches):
        return True
    logged = {(row["broker_id"], *partition_of(row), row["leader_epoch"]) for row in starts if row["leads"]}
    partitions = {key[:-1] for key in logged}
    for row in fetched:
        partition = (row["broker_id"], *partition_of(row))
        unlogged = (
            (*partition, row["leader_epoch"]) not in logged
            if row["leader_epoch"] >= 0
            else (partition not in partitions)
        )
        if unlogged and row["fetches"] >= SEEN_OFTEN:
            return True
    return False


class Signs(NamedTuple):
    """The lines and fetches that show terms whose start is not logged.

    Parameters
    ----------
    starts : sequence of dict
        Lines in which brokers begin to lead (``leads``) or follow: broker_id, topic, partition_id, leader_epoch,
        stamp_us.
    process_starts : mapping of int to sequence of int
        Times at which each broker was started, sorted. A restart ends all its terms.
    fetched : sequence of dict
        Numbers of fetches that leaders served without an error: broker_id, stretch (number of the covered period),
        topic, partition_id, leader_epoch, first_us, last_us, fetches.
    named : sequence of dict
        Lines of leaders about their partitions: broker_id, topic, partition_id, at_us, leader_epoch (or UNKNOWN_EPOCH).
    led : mapping of (topic, partition) to sequence of (at_us, leader_id, leader_epoch, source)
        Leaders in metadata records and listings, in chronological order.
    """

    starts: Sequence[Row]
    process_starts: Mapping[int, Sequence[int]]
    fetched: Sequence[Row]
    named: Sequence[Row]
    led: Mapping[Partition, Sequence[tuple[int, int, int, str]]]


class OfPartition(NamedTuple):
    """The part of `Signs` about one partition on one broker.

    ``asked`` contains the fetches in one covered period, and ``lines`` pairs of time and leader epoch.
    """

    boundaries: Sequence[Row]
    restarts: Sequence[int]
    asked: Sequence[Row]
    lines: Sequence[tuple[int, int]]
    led: Sequence[tuple[int, int, int, str]]


def terms_in_progress(stretches: Iterable[Stretch], signs: Signs) -> list[Begun]:
    """Find the terms whose start is not logged.

    Parameters
    ----------
    stretches : iterable of Stretch
        Periods that the brokers' request logs cover.
    signs : Signs
    """
    boundaries: dict[tuple[int, Partition], list[Row]] = defaultdict(list)
    for row in sorted(signs.starts, key=lambda row: row["stamp_us"]):
        boundaries[row["broker_id"], partition_of(row)].append(row)
    asked: dict[tuple[int, int, Partition], list[Row]] = defaultdict(list)
    for row in signs.fetched:
        asked[row["broker_id"], row["stretch"], partition_of(row)].append(row)
    lines: dict[tuple[int, Partition], list[tuple[int, int]]] = defaultdict(list)
    for row in signs.named:
        lines[row["broker_id"], partition_of(row)].append((row["at_us"], row["leader_epoch"]))
    partitions: dict[int, set[Partition]] = defaultdict(set)
    for broker, key in [*boundaries, *lines, *((broker, key) for broker, _, key in asked)]:
        partitions[broker].add(key)
    for key, leaders in signs.led.items():
        for _, leader, *_ in leaders:
            partitions[leader].add(key)
    number: dict[int, int] = defaultdict(int)
    found: list[Begun] = []
    for stretch in stretches:
        broker = stretch.broker_id
        for key in sorted(partitions[broker]):
            of_key = OfPartition(
                boundaries[broker, key], signs.process_starts.get(broker, ()), asked[broker, number[broker], key],
                sorted(lines[broker, key]), signs.led.get(key, ()),
            )  # fmt: skip
            for at_us, epoch, source in _of_partition(stretch, of_key):
                found.append(Begun(broker, *key, epoch, at_us, source))
        number[broker] += 1
    return found


def _of_partition(stretch: Stretch, of_key: OfPartition) -> list[tuple[int, int, str]]:
    boundaries = of_key.boundaries
    begin_us = stretch.first_us
    started = [us for us in of_key.restarts if us <= begin_us]
    alive = [row for row in boundaries if not started or row["stamp_us"] >= started[-1]]
    before = [] if stretch.from_start else [row for row in alive if row["stamp_us"] <= begin_us]
    later = [row["stamp_us"] for row in boundaries if stretch.from_start or row["stamp_us"] > begin_us]
    limit_us = min([stretch.until_us, *(us - EARLY_US for us in later[:1])])
    logged: dict[int, int] = {}
    for row in boundaries:
        if row["leads"]:
            logged.setdefault(row["leader_epoch"], row["stamp_us"])
    first_us: dict[int, int] = {}
    fetches: dict[int, int] = defaultdict(int)
    for row in of_key.asked:
        epoch = row["leader_epoch"]
        first_us[epoch] = min(row["first_us"], first_us.get(epoch, row["first_us"]))
        fetches[epoch] += row["fetches"]

    found: list[tuple[int, int, str]] = []
    if before and before[-1]["leads"]:
        found.append((begin_us, before[-1]["leader_epoch"], LOGGED))
    unlogged = sorted(
        epoch for epoch, times in fetches.items()
        if is_unlogged(first_us[epoch], logged.get(epoch), of_key.restarts)
        and epoch >= 0 and times >= SEEN_OFTEN and (not found or epoch > found[0][1])
    )  # fmt: skip
    if not found and not unlogged and first_us.get(UNKNOWN_EPOCH, limit_us) < limit_us:
        unlogged = [UNKNOWN_EPOCH]
    for epoch in unlogged:
        at_us = first_us[epoch]
        begins_here = not found and not stretch.from_start and not _epoch_before(boundaries, at_us, epoch)
        found.append((begin_us if begins_here else at_us, epoch, INFERRED))
    if not found and not stretch.from_start:
        found += _by_other_evidence(stretch, limit_us, [us for us, _ in of_key.lines], of_key.led)
    # If fetches do not show the leader epoch, a line of the leader may show it.
    named = [epoch for us, epoch in of_key.lines if begin_us <= us < limit_us and epoch >= 0]
    epoch_named = named[0] if named else UNKNOWN_EPOCH
    return sorted((us, epoch_named if epoch == UNKNOWN_EPOCH else epoch, source) for us, epoch, source in found)


def is_unlogged(first_us: int, logged_us: int | None, restarts: Sequence[int]) -> bool:
    """Return whether the log lacks the start of a term.

    A line about the epoch need not be the term's start, because a leader may log the same epoch again: after a restart,
    and with KRaft up to 3.6 at every ISR change.

    Parameters
    ----------
    first_us : int
        Time of the first fetch with the leader epoch, in microseconds since 1970.
    logged_us : int or None
        Time of the line about the epoch's beginning; None without such a line.
    restarts : sequence of int
        Times at which the broker was started.
    """
    return (
        logged_us is None
        or first_us < logged_us - LONG_BEFORE_US
        or any(first_us < restart <= logged_us for restart in restarts)
    )


def _epoch_before(boundaries: Sequence[Row], at_us: int, epoch: int) -> bool:
    return any(row["stamp_us"] < at_us and row["leader_epoch"] < epoch for row in boundaries)


def _by_other_evidence(
    stretch: Stretch, limit_us: int, lines: Sequence[int], led: Sequence[tuple[int, int, int, str]]
) -> list[tuple[int, int, str]]:
    """Return the term of a partition that a broker led without fetches: [(start time, leader epoch, source)], or [].

    ``led`` are the partition's leaders, as in `Signs`. The last one before the period ``stretch`` decides, or else a
    listing. Without both, any log line about the partition's ISR before ``limit_us`` (times ``lines``) shows that the
    broker leads, with an unknown epoch.
    """
    known = [entry for entry in led if entry[0] <= stretch.first_us] or [
        entry for entry in led if entry[3] == SNAPSHOT
    ][:1]
    if known:
        at_us, leader, epoch, source = known[-1]
        moved = any(other != stretch.broker_id and stretch.first_us < us <= at_us for us, other, *_ in led)
        return [(stretch.first_us, epoch, source)] if leader == stretch.broker_id and not moved else []
    if any(stretch.first_us <= us < limit_us for us in lines):
        return [(stretch.first_us, UNKNOWN_EPOCH, INFERRED)]
    return []


# -- the state when the covered period begins


class Led(NamedTuple):
    """A term, cut to the time that its leader's request log covers. ``assigned`` includes the leader."""

    start_us: int
    end_us: int
    leader: int
    assigned: tuple[int, ...]


def mid_term_isr(
    term: Led, reports: Sequence[IsrReport], holes: Sequence[tuple[int, int]], seems_in: Mapping[int, bool]
) -> tuple[list[int], str]:
    """Return the ISR of a partition at the start of a term that began before the log, and the source of this ISR.

    Parameters
    ----------
    term : Led
    reports : sequence of IsrReport
        Reports about the partition, in chronological order.
    holes : sequence of (int, int)
        Gaps in the log, as (start, end). ISR changes in them may be missing.
    seems_in : mapping of int to bool
        Whether each follower that fetched seems to be in sync, judging by its first fetches and the high watermark.

    Returns
    -------
    list of int
        The ISR, sorted.
    str
        Its source: ``LOGGED``, ``SNAPSHOT`` or ``INFERRED``.
    """
    times = [each.at_us for each in reports]
    upto = bisect_right(times, term.start_us)
    last = reports[upto - 1] if upto else None
    if last and last.source != SNAPSHOT and any(b < term.start_us and e > last.at_us for b, e in holes):
        last = None
    # The line about the first change after the start may show the ISR before it, which is the ISR at the start.
    following = reports[upto].before if upto < len(reports) and reports[upto].at_us <= term.end_us else None
    guess = {f for f in term.assigned if f == term.leader or seems_in.get(f, False)}
    if last is None and following is None:
        return sorted(guess), INFERRED
    if last and following:
        # All shrinks are logged, but not all expands. A replica that is only in the later ISR may have joined after the
        # start.
        agreed, doubtful = set(last.after) & set(following), set(following) - set(last.after)
    else:
        # A replica that lacked records below the high watermark at the start was not in the ISR then, even if the
        # listing or the next line shows it there: it was dropped after the listing, or joined just before the line.
        listed = set(last.after if last else following or ())
        passed = {f for f in listed if seems_in.get(f) is False and f != term.leader}
        doubtful = passed if last is None or last.source == SNAPSHOT else set()
        agreed = listed - doubtful
        if last is None:
            # A replica that fetched at the log end is not in the next line's ISR. It would have rejoined at once, so
            # the controller must have removed it after the start.
            removed = guess - listed
            agreed, doubtful = agreed | removed, doubtful | removed
    source = INFERRED if doubtful else last.source if last else LOGGED
    return sorted(agreed | (doubtful & guess) | {term.leader}), source


class FirstFetch(NamedTuple):
    """A follower's first fetch in a covered period, with the high watermarks that the leader had sent up to then.

    Parameters
    ----------
    answered_us : int
        Time at which the response was sent. If the fetch waited, it contains records that were appended meanwhile.
    offset : int or None
        Fetch offset; None if it is not logged.
    sent : bool
        Whether the fetch offset is not logged and the response contained records.
    answered : int or None
        High watermark in the response.
    highest : int or None
        Highest high watermark in earlier responses, to any follower.
    """

    answered_us: int
    offset: int | None
    sent: bool
    answered: int | None
    highest: int | None


def is_passed(fetch: FirstFetch, log_end_offset: int | None, appended_us: int | None) -> bool:
    """Return whether the high watermark was beyond a follower's log end, so that the follower was not in the ISR.

    Parameters
    ----------
    fetch : FirstFetch
    log_end_offset : int or None
        The leader's log end offset at the start of the covered period. No follower's can be higher.
    appended_us : int or None
        Time of the first append in the covered period.
    """
    most = fetch.offset if fetch.offset is not None else log_end_offset
    if most is None:
        return False
    watermarks = [each for each in (fetch.answered, fetch.highest) if each is not None]
    if any(each > most for each in watermarks):
        return True
    # The follower received records although none had been appended, so it lacked records at the start.
    nothing_new = appended_us is None or appended_us > fetch.answered_us
    return fetch.sent and nothing_new and any(each >= most for each in watermarks)


def mid_term_log_end(
    asked: Iterable[int], first_appended: int | None, printed_ends: Sequence[int], high_watermarks: Iterable[int]
) -> int | None:
    """Return the leader's log end offset at the start of a covered period; None if no line shows an offset.

    Parameters
    ----------
    asked : iterable of int
        First fetch offset of each follower.
    first_appended : int or None
        Base offset of the first append in the period.
    printed_ends : sequence of int
        Log end offsets in Shrinking lines.
    high_watermarks : iterable of int
        The first logged high watermarks.
    """
    if first_appended is not None:
        return first_appended
    return max([*asked, *high_watermarks, *printed_ends[:1]], default=None)


def mid_term_high_watermark(
    log_end_offset: int | None, held: Iterable[int], high_watermarks: Iterable[int]
) -> int | None:
    """Return the high watermark at the start of a covered period; None if the log end offset is unknown.

    It is the minimum of the log end offsets of ISR members (``held``) and of later high watermarks.
    """
    return None if log_end_offset is None else min([log_end_offset, *held, *high_watermarks])


# -- partitions of a fetch session that was opened before the log


def mid_term_fetcher(topic: str, partition: int, fetchers: int) -> int:
    """Return the number, from 0, of the fetcher thread that fetches a partition. ``fetchers`` is num.replica.fetchers.

    This is AbstractFetcherManager.getFetcherId of Kafka 0.9 to 4.4: Utils.abs of the 32-bit number ``31 *
    topic.hashCode() + partition``, modulo the number of threads. Utils.abs turns the smallest negative number into 0.
    """
    java_hash = 0
    for unit in _utf16_units_of_topic(topic):
        java_hash = (31 * java_hash + unit) & 0xFFFF_FFFF
    number = (31 * java_hash + partition) & 0xFFFF_FFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % fetchers


def _utf16_units_of_topic(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [data[i] << 8 | data[i + 1] for i in range(0, len(data), 2)]

"""Terms that had begun before the log: who led, since when the log can tell, and how things stood then.

Plain functions over small tables (rows are dicts): terms, lines about ISRs, and what followers asked for first. Each
answer says where it comes from: ``logged`` (a line or a record of before, nothing in between), ``snapshot`` (a listing
that an operator made) or ``inferred`` (what followers did).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from isr_batch.kafka_logs.coverage import Stretch

Row = Mapping[str, Any]
Partition = tuple[str, int]
LOGGED, SNAPSHOT, INFERRED = "logged", "snapshot", "inferred"
UNKNOWN_EPOCH = -1
EARLY_US = 100_000
"""State-change lines are written up to so much after the term began."""
SEEN_OFTEN = 3
"""A leader epoch of which no line tells is believed after so many fetches without an error."""


class Begun(NamedTuple):
    """A term that goes on at ``stamp_us``, the first instant at which the log can vouch for it."""

    broker_id: int
    topic: str
    partition_id: int
    leader_epoch: int
    stamp_us: int
    term_source: str


class IsrTold(NamedTuple):
    """A line or a record about a partition's ISR: what it was until then (None: not told) and from then on."""

    at_us: int
    before: tuple[int, ...] | None
    after: tuple[int, ...]
    source: str


def partition_of(row: Row) -> Partition:
    """Topic and number."""
    return row["topic"], row["partition_id"]


def may_begin_before(stretches: Iterable[Stretch], starts: Iterable[Row], fetched: Iterable[Row]) -> bool:
    """Whether there may be terms of which no line tells the beginning; of a log that is whole there are none."""
    if not all(stretch.from_start for stretch in stretches):
        return True
    logged = {(row["broker_id"], *partition_of(row), row["leader_epoch"]) for row in starts if row["leads"]}
    partitions = {key[:-1] for key in logged}
    for row in fetched:
        partition = (row["broker_id"], *partition_of(row))
        untold = (
            (*partition, row["leader_epoch"]) not in logged
            if row["leader_epoch"] >= 0
            else (partition not in partitions)
        )
        if untold and row["fetches"] >= SEEN_OFTEN:
            return True
    return False


def terms_in_progress(
    stretches: Iterable[Stretch],
    starts: Iterable[Row],
    process_starts: Mapping[int, Sequence[int]],
    fetched: Iterable[Row],
    named: Iterable[Row],
    led: Mapping[Partition, Sequence[tuple[int, int, int, str]]],
) -> list[Begun]:
    """Find the terms of which no line in the log tells the beginning.

    Parameters
    ----------
    stretches : iterable of Stretch
    starts : iterable of dict
        Logged beginnings of terms, as leader (``leads``) or follower: broker_id, topic, partition_id, leader_epoch,
        stamp_us.
    process_starts : mapping of int to sequence of int
        Instants at which each broker started, sorted; no term outlives that.
    fetched : iterable of dict
        What followers asked a leader for without an error: broker_id, stretch (its number among those of the broker),
        topic, partition_id, leader_epoch, first_us, last_us, fetches.
    named : iterable of dict
        Lines of a leader about a partition of its own: broker_id, topic, partition_id, at_us.
    led : mapping of (topic, partition) to sequence of (at_us, leader_id, leader_epoch, source)
        Who led, by the controller's records and snapshots, in order of time.
    """
    boundaries: dict[tuple[int, Partition], list[Row]] = defaultdict(list)
    for row in starts:
        boundaries[row["broker_id"], partition_of(row)].append(row)
    asked: dict[tuple[int, int, Partition], list[Row]] = defaultdict(list)
    for row in fetched:
        asked[row["broker_id"], row["stretch"], partition_of(row)].append(row)
    lines: dict[tuple[int, Partition], list[int]] = defaultdict(list)
    for row in named:
        lines[row["broker_id"], partition_of(row)].append(row["at_us"])
    number: dict[int, int] = defaultdict(int)
    found: list[Begun] = []
    for stretch in stretches:
        broker = stretch.broker_id
        mine = number[broker]
        number[broker] += 1
        keys = {key for at, key in boundaries if at == broker} | {key for at, key in lines if at == broker}
        keys |= {key for at, n, key in asked if (at, n) == (broker, mine)}
        keys |= {key for key, leaders in led.items() if any(leader == broker for _, leader, *_ in leaders)}
        for key in sorted(keys):
            own = sorted(boundaries[broker, key], key=lambda row: row["stamp_us"])
            restarts = process_starts.get(broker, ())
            of_key = asked[broker, mine, key], sorted(lines[broker, key]), led.get(key, ())
            for at_us, epoch, source in _of_partition(stretch, own, restarts, *of_key):
                found.append(Begun(broker, *key, epoch, at_us, source))
    return found


def _of_partition(
    stretch: Stretch,
    boundaries: Sequence[Row],
    restarts: Sequence[int],
    asked: Sequence[Row],
    lines: Sequence[int],
    led: Sequence[tuple[int, int, int, str]],
) -> list[tuple[int, int, str]]:
    """Instant, leader epoch and source of the terms that the lines leave out in a stretch of one partition."""
    begin_us = stretch.first_us
    started = [us for us in restarts if us <= begin_us]
    alive = [row for row in boundaries if not started or row["stamp_us"] >= started[-1]]
    before = [row for row in alive if row["stamp_us"] <= begin_us] if not stretch.from_start else []
    later = [row for row in boundaries if begin_us < row["stamp_us"] <= stretch.until_us] or [None]
    first_later = later[0] if not stretch.from_start else (boundaries or [None])[0]
    limit_us = min(first_later["stamp_us"] - EARLY_US if first_later else stretch.until_us, stretch.until_us)
    logged = {row["leader_epoch"] for row in boundaries if row["leads"]}
    epochs: dict[int, list[Row]] = defaultdict(list)
    for row in asked:
        epochs[row["leader_epoch"]].append(row)
    first_us = {epoch: min(row["first_us"] for row in rows) for epoch, rows in epochs.items()}
    often = {epoch: sum(row["fetches"] for row in rows) >= SEEN_OFTEN for epoch, rows in epochs.items()}

    found: list[tuple[int, int, str]] = []
    if before and before[-1]["leads"]:
        found.append((begin_us, before[-1]["leader_epoch"], LOGGED))
    unlogged = sorted(
        epoch for epoch in epochs
        if epoch not in logged and epoch >= 0 and often[epoch] and (not found or epoch > found[0][1])
    )  # fmt: skip
    if not found and UNKNOWN_EPOCH in epochs and first_us[UNKNOWN_EPOCH] < limit_us and not unlogged:
        unlogged = [UNKNOWN_EPOCH]
    for epoch in unlogged:
        at_us = first_us[epoch]
        begins_here = not found and not stretch.from_start and not _epoch_before(boundaries, at_us, epoch)
        found.append((begin_us if begins_here else at_us, epoch, INFERRED))
    if not found and not stretch.from_start:
        found += _told_otherwise(stretch, limit_us, lines, led)
    return sorted(found)


def _epoch_before(boundaries: Sequence[Row], at_us: int, epoch: int) -> bool:
    """Whether a line tells of an earlier term of the partition on this broker before that instant."""
    return any(row["stamp_us"] < at_us and row["leader_epoch"] < epoch for row in boundaries)


def _told_otherwise(
    stretch: Stretch, limit_us: int, lines: Sequence[int], led: Sequence[tuple[int, int, int, str]]
) -> list[tuple[int, int, str]]:
    """Nobody listed the partition: a record, a snapshot, or a line about its ISR may say that the broker led it."""
    known = [told for told in led if told[0] <= stretch.first_us] or [told for told in led if told[3] == SNAPSHOT][:1]
    if known:
        at_us, leader, epoch, source = known[-1]
        moved = any(other != stretch.broker_id and stretch.first_us < us <= at_us for us, other, *_ in led)
        return [(stretch.first_us, epoch, source)] if leader == stretch.broker_id and not moved else []
    if any(stretch.first_us <= us < limit_us for us in lines):
        return [(stretch.first_us, UNKNOWN_EPOCH, INFERRED)]
    return []


# -- how things stood


def isr_at(
    start_us: int,
    assigned: Sequence[int],
    leader: int,
    told: Sequence[IsrTold],
    holes: Sequence[tuple[int, int]],
    until_us: int,
    seems_in: Mapping[int, bool],
) -> tuple[list[int], str]:
    """Tell who was in the ISR at an instant.

    Parameters
    ----------
    start_us, until_us : int
        The instant, and the end of the time in which the log can vouch.
    assigned : sequence of int
    leader : int
    told : sequence of IsrTold
        Of the partition, in order of time.
    holes : sequence of (int, int)
        When changes may have happened of which no line is there.
    seems_in : mapping of int to bool
        Of each follower, what its first fetches and the high watermark say; nothing of those that never fetched.

    Returns
    -------
    list of int, str
        Sorted; where the answer comes from.
    """
    times = [each.at_us for each in told]
    last = told[bisect_right(times, start_us) - 1] if bisect_right(times, start_us) else None
    after = [each for each in told[bisect_left(times, start_us + 1) :] if each.at_us <= until_us]
    following = next((each.before for each in after if each.before is not None), None)
    if last and any(begin < start_us and end > last.at_us for begin, end in holes):
        last = last._replace(source=SNAPSHOT) if last.source == SNAPSHOT else None
    guess = {f for f in assigned if f == leader or seems_in.get(f, False)}
    if last is None and following is None:
        return sorted(guess), INFERRED
    # Shrinks are always logged, expands are not: who is in the next list but not in the last has joined in between.
    agreed = set(last.after) & set(following) if last and following else set(last.after if last else following or ())
    doubtful = (set(following) - set(last.after)) if last and following else set()
    if last is None:  # some may have joined since, of which no line tells: they were below the high watermark
        doubtful = {f for f in agreed if seems_in.get(f) is False and f != leader}
        agreed -= doubtful
    isr = agreed | (doubtful & guess) | {leader}
    return sorted(isr), last.source if last and not doubtful else (LOGGED if not doubtful else INFERRED)


class Offsets(NamedTuple):
    """Where the leader's log ended and what was committed; None: no line names an offset."""

    log_end_offset: int | None
    high_watermark: int | None


def offsets_at(
    asked: Mapping[int, int], isr: Sequence[int], first_appended: int | None, told_ends: Iterable[int],
    high_watermarks: Iterable[int],
) -> Offsets:  # fmt: skip
    """Tell where the log ended at the beginning of a stretch.

    Parameters
    ----------
    asked : mapping of int to int
        The first offset that each follower asked for.
    isr : sequence of int
        In-sync replicas.
    first_appended : int or None
        First offset of the first append in the stretch.
    told_ends, high_watermarks : iterable of int
        What the first lines name that print them.
    """
    ends = list(told_ends)
    watermarks = list(high_watermarks)
    if first_appended is not None:
        end = first_appended
    elif asked:
        end = max([*asked.values(), *watermarks])
    elif ends or watermarks:
        end = max([*ends[:1], *watermarks[:1]])
    else:
        return Offsets(None, None)
    held = [offset for follower, offset in asked.items() if follower in isr]
    return Offsets(end, min([end, *held, *watermarks]))


# -- what a session held before the log


def fetcher_of(topic: str, partition: int, fetchers: int) -> int:
    """Number of the fetcher thread that fetches a partition: AbstractFetcherManager.getFetcherId, 0.8 to 4.4.

    Utils.abs of the 32-bit ``31 * topic.hashCode() + partition``: the least negative number becomes 0.
    """
    java_hash = 0
    for unit in memoryview(topic.encode("utf-16-be")).cast("B").tolist()[1::2] if topic.isascii() else _units(topic):
        java_hash = (31 * java_hash + unit) & 0xFFFF_FFFF
    number = (31 * java_hash + partition) & 0xFFFF_FFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % fetchers


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [data[i] << 8 | data[i + 1] for i in range(0, len(data), 2)]

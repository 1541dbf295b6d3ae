"""Read the lines of server.log and state-change.log that are evidence about ISR shrinks.

A shrink is as `shrink_line` says. An expand is "Expanding ISR" (ZooKeeper) or "ISR updated". A write of the ISR
that failed is "Cached zkVersion" (ZooKeeper) or "Failed to alter partition" (AlterPartition; at INFO only
where the controller refused the replicas or gave an unexpected error).
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.records import (
    AttemptLine,
    EvidencePosition,
    FailedWriteLine,
    FoundLines,
    IsrStateLine,
    ReplicaInLine,
)
from isr_batch.broker_lines.shrink_line import INT, INTS, OUT_OF_SYNC, SHRINK
from isr_batch.broker_lines.trouble import TROUBLE, trouble_in_line

LINES: Final = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("stamp_us", pa.int64()),
    ("message", pa.string()),
])  # fmt: skip
"""Columns of the lines: ``message`` is the line in Kafka's own layout; ``stamp_us``, in epoch microseconds, is null
where the line has no time, such as a setting."""

MAX_INT = (1 << 31) - 1
_ONE_START_US = 60_000_000

_PARTITION = rf"\[Partition (\S+)-({INT}) broker=({INT})\] "
_SHRINKS = re.compile(SHRINK)
_EXPANDS = re.compile(rf"{_PARTITION}Expanding ISR (?:for partition \S+ )?from ({INTS}) to ({INTS})(?!\d)")
_OUT_OF_SYNC = re.compile(OUT_OF_SYNC)
# Where the release prints whether the ISR is under min ISR, two blanks say that it is not.
_UPDATED = re.compile(
    rf"{_PARTITION}ISR updated (?:from AlterIsr )?to \[?({INTS})\]?( \(under-min-isr\)|  and)?"
    rf".*ersion updated to \[?({INT})"
)
_WRITE_FAILED = re.compile(
    rf"{_PARTITION}(Cached zkVersion |(?:Controller f|F)ailed to (?:update ISR|alter partition) to |"
    r"Failed to enqueue ISR change)"
)
_STARTS = re.compile(rf"(?:Leader |{_PARTITION})(\S+)-({INT}) .*?starts at [Ll]eader [Ee]poch {INT} from offset")
_STARTED_ISR = re.compile(rf"(?:with partition epoch ({INT})[, ].*)?high watermark -?\d+,? ISR \[((?:{INTS})?)\]")
_STAYED = re.compile(rf"Skipped the become-leader state change for (\S+)-({INT}) ")
_RECEIVED = re.compile(
    r"eceived LeaderAndIsr request (?:LeaderAndIsr)?PartitionState"
    rf"\((?:topicName='([^']*)', partitionIndex=({INT}), )?"
    rf"controllerEpoch=\d+, leader=(-?{INT}), leaderEpoch={INT}, isr=\[?((?:{INTS})?)\]?, "
    rf"(?:zkVersion|partitionEpoch)=({INT})"
)
_BROKER = re.compile(rf"\[Broker id=({INT})\]|\bBroker ({INT}) received|^\S+ \S+ \w+ \[Partition \S+ broker=({INT})\]")
_FOR_PARTITION = re.compile(rf"for partition (\S+)-({INT})(?!\S*\d)")
_LISTED_ISR = re.compile(rf"\bisr=\[((?:{INTS})?)\]")
_LISTED_EPOCH = re.compile(rf"\bpartitionEpoch=({INT})")
_CREATED = re.compile(rf"Created log for partition (\S+)-({INT}) in ")
_CREATED_MIN_ISR = re.compile(r"[{ ]min\.insync\.replicas(?:=| -> )(\d{1,9})\b")
_VERSION = re.compile(r"Kafka version ?: (\S+)")
_SETTING = re.compile(r"^\s+(replica\.lag\.time\.max\.ms|min\.insync\.replicas) = (\d{1,18})\s*$")
_PROCESS = r"Log4jController|Transition from SHUTDOWN to STARTING|\] INFO starting \(kafka\.server\.KafkaServer\)"

_OLD_PARTITION = re.compile(r"\bpartition \[([^\],]+),(\d+)\]")
_OLD_IDENT = re.compile(r"Partition \[([^\],]+),(\d+)\] on broker (\d+):")


class _Line(NamedTuple):
    broker_id: int
    place: EvidencePosition
    at_us: int
    text: str


def find_line_forms(lines: pa.Table, span_us: dict[int, tuple[int, int]] | None = None) -> FoundLines:
    """Find the evidence in the lines of all brokers.

    Parameters
    ----------
    lines : pa.Table
        Columns of `LINES`, in any order; lines of no interest may be among them.
    span_us : dict of int to (int, int), optional
        Times of the first and the last line of each broker's logs; by default, of the given lines.
    """
    found = FoundLines()
    if span_us is None:
        stamped = lines.filter(pc.is_valid(lines["stamp_us"]))
        spans = stamped.group_by("broker_id").aggregate([("stamp_us", "min"), ("stamp_us", "max")])
        span_us = {row["broker_id"]: (row["stamp_us_min"], row["stamp_us_max"]) for row in spans.to_pylist()}
    found.span_us = span_us
    wanted = lines.filter(pc.match_substring_regex(lines["message"], OF_INTEREST))
    wanted = wanted.sort_by([("stamp_us", "ascending"), ("source_file", "ascending"), ("source_line", "ascending")])
    first_in: dict[tuple[int, int, str], str] = {}
    for batch in wanted.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            place = EvidencePosition(row["source_file"], row["source_line"])
            if row["stamp_us"] is None:
                _take_setting(found, row["broker_id"], row["message"])
                continue
            # Copies of a log may overlap.
            line = row["broker_id"], row["stamp_us"], row["message"]
            if first_in.setdefault(line, place.source_file) == place.source_file:
                _take(found, _Line(row["broker_id"], place, row["stamp_us"], _in_new_words(row["message"])))
    # Clients in a broker print the version too, so it is a start only where nothing better is in the log.
    found.process_starts = {
        broker_id: _first_of_each(marks) for broker_id, marks in (found.version_lines | found.process_starts).items()
    }
    _find_elections(found)
    return found


def _take(found: FoundLines, line: _Line) -> None:
    for marker, take in _READERS:
        if marker.search(line.text):
            take(found, line)
            return


def _take_setting(found: FoundLines, broker_id: int, text: str) -> None:
    if match := _SETTING.search(text):
        found.settings[broker_id, match[1]] = int(match[2])


def _take_attempt(found: FoundLines, line: _Line) -> None:
    attempt = _attempt(line)
    if attempt is None:
        found.unread.append(line.place)
        return
    found.attempts.append(attempt)
    for replica in attempt.replicas.values():
        if attempt.shrinks and replica.last_caught_up_ms is not None:
            lag_ms = attempt.at_us // 1000 - replica.last_caught_up_ms
            found.least_lag_ms[attempt.leader_id] = min(lag_ms, found.least_lag_ms.get(attempt.leader_id, lag_ms))


def _attempt(line: _Line) -> AttemptLine | None:
    shrink, expand = _SHRINKS.search(line.text), _EXPANDS.search(line.text)
    match = shrink or expand
    if not match:
        return None
    topic, partition, leader, before, after = match.groups()[:5]
    isr_before, isr_after = _ints(before), _ints(after)
    changed = set(isr_before) - set(isr_after) if shrink else set(isr_after) - set(isr_before)
    if max(int(partition), int(leader), *isr_before, *isr_after) > MAX_INT or not changed:
        return None
    high_watermark, end_offset, out_of_sync = shrink.groups()[5:] if shrink else (None, None, None)
    printed = {
        int(number): ReplicaInLine(_known(offset, 0), _known(caught_up, 1))
        for number, offset, caught_up in _OUT_OF_SYNC.findall(out_of_sync or "")
    }
    return AttemptLine(
        line.place, line.at_us, int(leader), (topic, int(partition)), bool(shrink), isr_before, isr_after,
        _known(high_watermark, 0), _known(end_offset, 0),
        {number: printed.get(number, ReplicaInLine(None, None)) for number in sorted(changed)},
    )  # fmt: skip


def _take_updated(found: FoundLines, line: _Line) -> None:
    if match := _UPDATED.search(line.text):
        topic, partition, leader, isr, flag, epoch = match.groups()
        under = None if flag is None else flag != "  and"
        found.states.append(
            IsrStateLine(
                line.place, line.at_us, int(leader), (topic, int(partition)), _ints(isr), int(epoch), "updated", under
            )
        )


def _take_failed(found: FoundLines, line: _Line) -> None:
    if match := _WRITE_FAILED.search(line.text):
        pending = re.search(r"\bPending(Shrink|Expand)Isr\b", line.text)
        shrinks = pending[1] == "Shrink" if pending else None
        found.failed.append(FailedWriteLine(line.place, line.at_us, int(match[3]), (match[1], int(match[2])), shrinks))


def _take_stayed(found: FoundLines, line: _Line) -> None:
    match, isr, epoch = (form.search(line.text) for form in (_STAYED, _LISTED_ISR, _LISTED_EPOCH))
    if match and isr:
        found.states.append(_state(line, (match[1], match[2]), (isr[1], epoch and epoch[1]), "stayed"))


def _take_received(found: FoundLines, line: _Line) -> None:
    """Read a LeaderAndIsr request that a broker received as leader: the controller's word on the ISR."""
    match = _RECEIVED.search(line.text)
    if not match:
        return
    named = match if match[1] else _FOR_PARTITION.search(line.text, match.end())
    if named:
        state = _state(line, (named[1], named[2]), (match[4], match[5]), "started")
        if state.leader_id == int(match[3]):
            found.states.append(state)


def _take_start(found: FoundLines, line: _Line) -> None:
    if match := _STARTS.search(line.text):
        isr = _STARTED_ISR.search(line.text)
        found.states.append(_state(line, (match[4], match[5]), (isr and isr[2], isr and isr[1]), "started"))


def _state(line: _Line, partition: tuple[str, str], state: tuple[str | None, str | None], source: str) -> IsrStateLine:
    """Make a state of the broker whose line it is from the texts of the ISR and of the partition epoch."""
    isr, epoch = state
    named = _BROKER.search(line.text)
    broker_id = int(named[1] or named[2] or named[3]) if named else line.broker_id
    return IsrStateLine(
        line.place, line.at_us, broker_id, (partition[0], int(partition[1])), None if isr is None else _ints(isr),
        int(epoch) if epoch else None, source,
    )  # fmt: skip


def _take_created(found: FoundLines, line: _Line) -> None:
    if match := _CREATED.search(line.text):
        found.created.setdefault((match[1], int(match[2])), []).append((line.at_us, line.place))
        if number := _CREATED_MIN_ISR.search(line.text):
            found.min_isr[match[1]] = int(number[1])


def _take_version(found: FoundLines, line: _Line) -> None:
    if match := _VERSION.search(line.text):
        found.releases[line.broker_id] = match[1]
        found.version_lines.setdefault(line.broker_id, []).append((line.at_us, line.place))


def _take_process(found: FoundLines, line: _Line) -> None:
    found.process_starts.setdefault(line.broker_id, []).append((line.at_us, line.place))


def _take_trouble(found: FoundLines, line: _Line) -> None:
    if trouble := trouble_in_line(line.text, line.broker_id, line.place, line.at_us):
        found.troubles.append(trouble)


_MARKERS: Final[dict[str, Callable[[FoundLines, _Line], None]]] = {
    r"(?:Shrinking|Expanding) ISR ": _take_attempt,
    r"\bISR updated ": _take_updated,
    r"Cached zkVersion |ailed to (?:update ISR|alter partition) to |Failed to enqueue ISR change": _take_failed,
    r"become-leader state change for ": _take_stayed,
    r"eceived LeaderAndIsr request ": _take_received,
    r"Leader .*starts at leader epoch |starts at Leader Epoch ": _take_start,
    r"Created log for partition ": _take_created,
    r"Kafka version ?: ": _take_version,
    _PROCESS: _take_process,
    TROUBLE: _take_trouble,
}
_READERS: Final = [(re.compile(marker), take) for marker, take in _MARKERS.items()]
OF_INTEREST: Final = "|".join([*_MARKERS, r"^\s+(?:replica\.lag\.time\.max\.ms|min\.insync\.replicas) = "])
"""Pattern of all lines that are read here, for RE2: without lookaround."""


def _find_elections(found: FoundLines) -> None:
    leaders: dict[tuple[str, int], int] = {}
    for state in found.states:
        if state.source == "started" and leaders.get(state.partition) != state.leader_id:
            found.elections.setdefault(state.partition, []).append(state.at_us)
        leaders[state.partition] = state.leader_id


def _first_of_each(marks: list[tuple[int, EvidencePosition]]) -> list[tuple[int, EvidencePosition]]:
    """Keep the first line of each start of a process, which prints several."""
    starts: list[tuple[int, EvidencePosition]] = []
    for at_us, place in marks:
        if not starts or at_us - starts[-1][0] > _ONE_START_US:
            starts.append((at_us, place))
    return starts


def _known(text: str | None, least: int) -> int | None:
    # A leader prints -1 for a follower that it has not heard of in its term, and 0 for a time that it never had.
    return int(text) if text and text != "unknown" and int(text) >= least else None


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _in_new_words(text: str) -> str:
    """Rewrite the partitions of releases before 1.0 in the later form."""
    if "artition [" in text:
        text = _OLD_PARTITION.sub(r"partition \1-\2", text)
        text = _OLD_IDENT.sub(r"[Partition \1-\2 broker=\3]", text)
    return text

"""Find the brokers that write local timestamps without a time zone, which would be misread as UTC.

Two comparisons show a shift. In a Shrinking line (since 3.6), lastCaughtUpTimeMs is in UTC, whereas the line's
timestamp is in the broker's zone. And all brokers log the beginning of a leader epoch within milliseconds of each
other, so their timestamps should agree. A shift is a multiple of 15 minutes, as the offsets of time zones are.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from isr_batch.broker_lines.forms import CAUGHT_UP, FOLLOWER, LEADER
from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE
from isr_batch.errors import UsageError
from isr_batch.ingest.folder.log_folder import LogFile
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.layout_converter import LayoutConverter
from isr_batch.ingest.log_files.limits import BadFileError

LOOK_AT_BYTES = 16 << 20
"""Number of bytes at the beginning of each file that are searched, unless `MAX_LINES` lines are found earlier."""
MAX_LINES = 2_000
QUARTER_MS = 900_000
_AGREE = 0.9
_NEAR_MS = 5_000
"""Maximum difference, in milliseconds, between the times at which brokers in the same time zone log a leader epoch. It
allows for clocks that differ slightly."""
_STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)[,.](\d{3})\]")
_CAUGHT_UP = re.compile(CAUGHT_UP)
_TERMS = "|".join({LEADER.mark, FOLLOWER.mark})
_MARKS = {SERVER: re.compile(b"lastCaughtUpTimeMs: "), STATE_CHANGE: re.compile(_TERMS.encode())}


@dataclass(frozen=True)
class Shift:
    """By how many minutes a broker's timestamps are ahead of UTC, or of another broker's, and the evidence in words."""

    broker_id: int
    minutes: int
    evidence: str

    @property
    def zone(self) -> str:
        """The shift as an offset from UTC, such as ``+02:00``."""
        hours, minutes = divmod(abs(self.minutes), 60)
        return f"{'-' if self.minutes < 0 else '+'}{hours:02}:{minutes:02}"


def time_zone_shifts(files: Iterable[LogFile]) -> list[Shift]:
    """Find the brokers whose timestamps are not in UTC, using the beginnings of their logs. Return their shifts.

    Parameters
    ----------
    files : iterable of LogFile
        Log files. Their layouts contain the time zones that the operator gave, which are applied first.
    """
    behind: dict[int, list[int]] = defaultdict(list)
    begun: dict[tuple[str, ...], dict[int, int]] = defaultdict(dict)
    for file in files:
        if file.broker_id is None or file.kind not in _MARKS:
            continue
        for ms, line in _lines_with_mark(file, _MARKS[file.kind]):
            if file.kind == SERVER:
                behind[file.broker_id] += [ms - int(text) for text in _CAUGHT_UP.findall(line)]
            elif term := LEADER.read(line) or FOLLOWER.read(line):
                key = term["topic"], term["partition_id"], term["leader_epoch"]
                begun[key].setdefault(file.broker_id, ms)
    found_out = [shift for broker_id, ahead in sorted(behind.items()) if (shift := _from_utc(broker_id, ahead))]
    for shift in found_out:
        for at in begun.values():
            if shift.broker_id in at:
                at[shift.broker_id] -= shift.minutes * 60_000
    return found_out + [each for each in _between_brokers(begun, behind) if each.broker_id not in behind]


def require_utc(files: Iterable[LogFile], cluster: str | None = None) -> None:
    """Raise an error if a broker's timestamps are in a local time zone that the operator has not stated.

    Parameters
    ----------
    files : iterable of LogFile
        Log files of one cluster.
    cluster : str, optional
        Name of the cluster for the message, if there are several clusters.

    Raises
    ------
    UsageError
        If there is such a broker. The message shows the shift, the evidence, and the option to give.
    """
    files = list(files)
    found = time_zone_shifts(files)
    if not found:
        return
    brokers = {file.broker_id for file in files if file.broker_id is not None}
    zones = {shift.zone for shift in found}
    # An option for all brokers is only suggested if all have this shift. It would spoil correct timestamps.
    is_same = len(zones) == 1 and {shift.broker_id for shift in found} == brokers
    options = [zones.pop()] if is_same else [f"{shift.broker_id}={shift.zone}" for shift in found]
    given = " ".join(f"--time-zone {option}" for option in options)
    evidence = "; ".join(shift.evidence for shift in found)
    raise UsageError(
        f"{cluster}: {evidence}" if cluster else evidence,
        f"give {'its folder alone, and ' if cluster else ''}{given}, or the name of the zone, as in --time-zone "
        f"{'' if is_same else f'{found[0].broker_id}='}Europe/Helsinki",
    )


def _lines_with_mark(file: LogFile, mark: re.Pattern[bytes]) -> Iterator[tuple[int, str]]:
    """Search the beginning of a file. Yield each line that matches ``mark`` as (timestamp in ms since 1970, line)."""
    lines: list[str] = []
    read, tail = 0, b""
    try:
        for chunk in content_chunks(file.path):
            text = tail + chunk
            cut = text.rfind(b"\n") + 1
            if mark.search(text):
                lines += [line.decode("utf-8", "replace") for line in text[:cut].split(b"\n") if mark.search(line)]
            tail = text[cut:] if len(text) - cut <= LOOK_AT_BYTES else b""
            read += len(chunk)
            if read > LOOK_AT_BYTES or len(lines) > MAX_LINES:
                break
    except BadFileError:
        pass  # reported when the lines are read
    if mark.search(tail):
        lines.append(tail.decode("utf-8", "replace"))
    if not lines:
        return
    converted = LayoutConverter(file.layout, file.source).convert(pa.array(lines, pa.string()), np.arange(len(lines)))
    for line in converted.values.to_pylist():
        stamp = _STAMP.match(line)
        if stamp:
            instant = datetime.fromisoformat(f"{stamp[1]} {stamp[2]}.{stamp[3]}").replace(tzinfo=UTC)
            yield round(instant.timestamp() * 1000), line


def _from_utc(broker_id: int, ahead_ms: list[int]) -> Shift | None:
    """Derive a broker's shift from UTC from its Shrinking lines; return None if they show no shift.

    The timestamp of such a line should be some seconds after the line's lastCaughtUpTimeMs, which is in UTC.

    Parameters
    ----------
    broker_id : int
    ahead_ms : list of int
        For each dropped replica in these lines, the line's timestamp minus lastCaughtUpTimeMs.
    """
    quarters, times = Counter(ms // QUARTER_MS for ms in ahead_ms).most_common(1)[0] if ahead_ms else (0, 0)
    if not quarters or times < _AGREE * len(ahead_ms):
        return None
    shift = Shift(broker_id, quarters * 15, "")
    how = f"{_zone_hours_in_words(shift.minutes)} {'ahead of' if quarters > 0 else 'behind'} lastCaughtUpTimeMs"
    return Shift(
        broker_id, shift.minutes,
        f"the timestamps of broker {broker_id} are {how} at {'all ' if times == len(ahead_ms) else ''}{times} dropped "
        f"replicas, so that its logs are in UTC{shift.zone}",
    )  # fmt: skip


def _between_brokers(begun: dict[tuple[str, ...], dict[int, int]], known: Container[int]) -> list[Shift]:
    """Compare when brokers logged the same leader epochs; return their shifts from a reference broker.

    The reference is the broker that logged most leader epochs, among the brokers in ``known`` if they logged any.

    Parameters
    ----------
    begun : dict
        For each leader epoch of a partition, the time in ms at which each broker logged its beginning.
    known : container of int
        Brokers whose shift from UTC is known.
    """
    counts = Counter(broker_id for at in begun.values() for broker_id in at)
    counts = Counter({broker_id: n for broker_id, n in counts.items() if broker_id in known}) or counts
    if not counts:
        return []
    reference = counts.most_common(1)[0][0]
    ahead: dict[int, list[int]] = defaultdict(list)
    for at in begun.values():
        for broker_id, ms in at.items():
            if reference in at and broker_id != reference:
                quarters = round((ms - at[reference]) / QUARTER_MS)
                near = abs(ms - at[reference] - quarters * QUARTER_MS) <= _NEAR_MS
                ahead[broker_id].append(quarters if near else 0)
    found = []
    for broker_id, all_quarters in sorted(ahead.items()):
        most, times = Counter(all_quarters).most_common(1)[0]
        if most and times >= _AGREE * len(all_quarters):
            way = "ahead of" if most > 0 else "behind"
            found.append(Shift(
                broker_id, most * 15,
                f"broker {broker_id} logs the same {times} leader epochs "
                f"{_zone_hours_in_words(most * 15)} {way} broker {reference}",
            ))  # fmt: skip
    return found


def _zone_hours_in_words(minutes: int) -> str:
    """Return minutes as text, such as ``5 h 30 min``, without the sign."""
    hours, rest = divmod(abs(minutes), 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{rest} min"] if rest else [])])

"""Parse a file with the output of ``kafka-topics --describe`` (a listing), which an operator has put next to the logs.

=========  ==============================================================================================
release    format
=========  ==============================================================================================
0.8 - 2.x  line of a partition: ``Topic: t  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2,3``
2.8 on     the line of a topic also has ``TopicId``
3.7 on     the line of a partition also has ``Elr:`` and ``LastKnownElr:``, each a list or ``N/A``. During a
           reassignment, ``Adding Replicas:`` and ``Removing Replicas:`` come before them
=========  ==============================================================================================

A listing has no timestamp.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.limits import BadFileError

MAX_BYTES = 256 << 20
LOOK_AT_BYTES = 1 << 14

_FIELD = re.compile(
    r"(?:^|\s)(Topic|TopicId|Partition|PartitionCount|Leader|(?:(?:Adding|Removing) )?Replicas|Isr|Elr|LastKnownElr"
    r"|Configs): ?([^\s]*)"
)
_MIN_ISR = re.compile(r"\bmin\.insync\.replicas=(\d{1,9})\b")


class Listed(NamedTuple):
    """A partition in a listing. ``leader_id`` is -1 without a leader; ``elr`` is None if the line shows no ELR."""

    topic: str
    partition_id: int
    leader_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class Listing(NamedTuple):
    """The content of a listing: its partitions, topic names by topic id, and min.insync.replicas by topic."""

    partitions: list[Listed]
    topic_ids: dict[str, str]
    min_isr: dict[str, int]


def is_listing(path: Path | str) -> bool:
    """Return whether the first lines of a file look like the output of ``kafka-topics --describe``."""
    text, _ = _read_listing(path, LOOK_AT_BYTES)
    return any(_listed_partition(line) for line in text.splitlines())


def read_listing(path: Path | str) -> tuple[Listing, BadFileError | None]:
    """Parse a file with a listing, up to any damage. Lines in other formats are skipped.

    Returns
    -------
    Listing
    BadFileError or None
        The damage that stopped reading; None if the file was read completely.
    """
    text, bad = _read_listing(path, MAX_BYTES)
    return parse_listing(text.splitlines()), bad


def _read_listing(path: Path | str, most_bytes: int) -> tuple[str, BadFileError | None]:
    """Return up to ``most_bytes`` of a file as text, and the error that stopped reading, if there was one."""
    data, bad = b"", None
    try:
        for chunk in content_chunks(str(path)):
            data += chunk
            if len(data) >= most_bytes:
                break
    except BadFileError as error:
        bad = error
    return data[:most_bytes].decode(errors="replace"), bad


def parse_listing(lines: Iterable[str]) -> Listing:
    """Parse the lines of a listing. Lines in other formats are skipped."""
    found = Listing([], {}, {})
    for line in lines:
        fields = _fields_of_listing(line)
        topic = fields.get("Topic")
        if partition := _listed_partition(line):
            found.partitions.append(partition)
        elif topic and "PartitionCount" in fields:
            if len(fields.get("TopicId", "")) == _ID_CHARACTERS:
                found.topic_ids[fields["TopicId"]] = topic
            if match := _MIN_ISR.search(line):
                found.min_isr[topic] = int(match[1])
    return found


def listing_sentence(name: str, listing: Listing) -> str:
    """Return a sentence that names the replicas outside the ISR in a listing, and the file ``name`` of the listing."""
    out: dict[int, list[str]] = {}
    for each in listing.partitions:
        for broker in sorted(set(each.replicas) - set(each.isr)):
            out.setdefault(broker, []).append(f"{each.topic}-{each.partition_id}")
    of = [
        f"broker {broker} of {', '.join(names[:_NAMED])}"
        + (f" and {len(names) - _NAMED} more" if names[_NAMED:] else "")
        for broker, names in sorted(out.items())
    ]
    whom = f"Out of the ISR by {name}: {'; '.join(of)}" if out else f"By {name} all replicas are in their ISR"
    without = [f"{each.topic}-{each.partition_id}" for each in listing.partitions if each.leader_id < 0]
    none = f" Without a leader: {', '.join(without[:_NAMED])}{', ...' if without[_NAMED:] else ''}." if without else ""
    return (
        f"{whom} ({len(listing.partitions)} partitions).{none} A listing shows one moment: since when and why is in "
        "server.log of the leaders."
    )


_NAMED = 5
"""Maximum number of partitions that a sentence names for each broker."""
_ID_CHARACTERS = 22
_NOT_LISTED = "N/A"


def _fields_of_listing(line: str) -> dict[str, str]:
    """Return the fields in a line of a listing, by name."""
    return dict(_FIELD.findall(line))


def _listed_partition(line: str) -> Listed | None:
    """Parse a line about a partition; return None for any other line."""
    fields = _fields_of_listing(line)
    try:
        replicas, isr = (_listed_brokers(fields[name]) for name in ("Replicas", "Isr"))
        leader = -1 if fields["Leader"] in {"none", "-1"} else _listed_number(fields["Leader"])
        partition = _listed_number(fields["Partition"])
        elr, last_known = (
            None if fields.get(name, _NOT_LISTED) == _NOT_LISTED else _listed_brokers(fields[name])
            for name in ("Elr", "LastKnownElr")
        )
        return Listed(fields["Topic"], partition, leader, replicas, isr, elr, last_known) if replicas else None
    except (KeyError, ValueError):
        return None


def _listed_brokers(text: str) -> tuple[int, ...]:
    return tuple(_listed_number(number) for number in text.split(",") if number)


def _listed_number(text: str) -> int:
    """Parse the id of a broker or partition. Raise ValueError if the text is not a number of up to nine digits."""
    if not re.fullmatch(r"\d{1,9}", text):
        message = f"{text} is not the number of a broker or partition"
        raise ValueError(message)
    return int(text)

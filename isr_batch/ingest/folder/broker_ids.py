"""Find the broker that wrote the lines of a file, from the lines, files next to it, and names."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from isr_batch.ingest.folder.settings_files import int_setting
from isr_batch.ingest.log_files.look import Look, SeenByLook


@dataclass(frozen=True)
class Refused:
    """A file, line or setting that is not used or is doubtful, with the reason."""

    source_file: str
    reason: str
    detail: str | None


@dataclass(frozen=True)
class Candidate:
    """Lines of one file that one broker has written: all of them, or those of one container or host.

    Parameters
    ----------
    name : str
        Name of the file in the lake.
    folder : Path
        Folder of the file.
    label : str
        Name of ``folder`` in messages; empty for the top folder.
    look : Look
        Result of examining the whole file.
    default : str
        The kind of log that the file's name suggests.
    known_name : bool
        Whether the file has a usual name of a Kafka log.
    source : str or None
        Container or host that wrote the lines; None for all lines of a file.
    seen : SeenByLook
        Result of examining these lines.
    """

    name: str
    folder: Path
    label: str
    look: Look
    default: str
    known_name: bool
    source: str | None
    seen: SeenByLook

    @property
    def stem(self) -> str:
        """The part of the file's name that all logs of its broker share.

        Folder, kind of log, date and suffix are removed from the name.
        """
        text = self.source or Path(self.name).name
        text = re.sub(r"(kafka-)?(request|server|state-change|stdout)|\.(log|txt|out|gz|zst|xz|bz2|json)\b", "", text)
        return _name_without_dates(text).strip(".-_ ")

    @property
    def in_names(self) -> int | None:
        """The number in a name that may be the broker's id; None if no name contains one.

        The names of the container, the folders and the file are tried in this order. The number must be at the name's
        end, or follow a hyphen or underscore.
        """
        folders = [_name_without_dates(name) for name in reversed(self.label.split("/"))]
        stem = "" if self.label and self.stem.isdigit() else self.stem  # a pod's 0.log has the number of a restart
        for text in (self.source or "", *folders, stem):
            # For example, kafka-1, my-kafka-1_uid and b-1.cluster.example.com.
            found = re.search(r"(\d+)$", text) or re.search(r"[-_](\d+)(?=[_.])", text)
            if found:
                return int_setting(found[1])
        return None


DATE = r"20\d\d-?\d\d-?\d\d([-T._ ]?\d\d(?!\d)|[-T_]\d{6}(?!\d))*"


def _name_without_dates(name: str) -> str:
    return re.sub(DATE, "", name)


NO_PROPERTIES = "no server.properties"
SHARED = 2
"""A folder belongs to several brokers if its files have lines of at least this many."""


class Owner(NamedTuple):
    """The broker that wrote a candidate's lines, or None, and remarks on missing or contradictory evidence."""

    broker_id: int | None
    remarks: list[Refused]


def broker_ids(candidates: Sequence[Candidate], properties: Mapping[Path, Mapping[str, str]]) -> list[Owner]:
    """Find the broker that wrote the lines of each candidate.

    The evidence is tried in this order, until a broker is found:

    1. the candidate's own lines;
    2. the lines of other files in its folder, if they all name one broker;
    3. the lines of files in other folders with the same `Candidate.stem` (the part of a name that identifies a broker),
       if they all name one broker, and if the candidate's folder contains files with different stems;
    4. server.properties in its folder;
    5. a number in the name of the container, a folder or the file.

    Parameters
    ----------
    candidates : sequence of Candidate
    properties : mapping of Path to mapping
        Settings in server.properties, by folder.

    Returns
    -------
    list of Owner
        One per candidate, in the same order.
    """
    by_folder: dict[Path, Counter[int]] = {}
    by_stem: dict[str, Counter[int]] = {}
    stems: dict[Path, set[str]] = defaultdict(set)
    for each in candidates:
        if each.seen.broker_id is not None:
            by_folder.setdefault(each.folder, Counter())[each.seen.broker_id] += 1
            by_stem.setdefault(each.stem, Counter())[each.seen.broker_id] += 1
        stems[each.folder].add(each.stem)
    found, noted = [], set()
    for each in candidates:
        beside = set(by_folder.get(each.folder, ()))
        # A file's name identifies its broker only in a folder that several brokers share.
        alike = set(by_stem.get(each.stem, ())) if len(stems[each.folder]) > 1 else set()
        own = properties.get(each.folder)
        stated = int_setting(broker_id_of(own)) if own else None
        by_lines = each.seen.broker_id
        for numbers in (beside, alike):
            if by_lines is None and len(numbers) == 1:
                (by_lines,) = numbers
        # If the id in server.properties is invalid, the number in the folder's name may be wrong as well.
        in_names = None if own and stated is None else each.in_names
        broker_id = next((n for n in (by_lines, stated, in_names) if n is not None), None)
        first = each.folder not in noted and each.source is None
        noted.add(each.folder)
        # If several brokers share a folder, its name identifies none of them.
        name_says = in_names if len(beside) < SHARED else None
        remarks = list(_remarks_on_broker_id(each.label, by_lines, stated, name_says, sorted(beside))) if first else []
        found.append(Owner(broker_id, remarks))
    return found


def _remarks_on_broker_id(
    label: str, by_lines: int | None, stated: int | None, in_names: int | None, beside: Sequence[int]
) -> Iterator[Refused]:
    properties = str(Path(label, "server.properties"))
    if by_lines is None and stated is None and in_names is None:
        yield Refused(label or "the folder", "no broker id", "its logs were left out")
    elif stated is None:
        how = (
            f"broker {by_lines} according to its log lines"
            if by_lines is not None
            else f"broker {in_names} according to the folder's name"
        )
        if len(beside) >= SHARED:
            how = f"brokers {', '.join(map(str, beside))} according to their log lines"
        yield Refused(properties, NO_PROPERTIES, f"assigned to {how}")
    elif by_lines not in {None, stated}:
        detail = f"it is of broker {stated}, but the lines of the logs next to it are of broker {by_lines}"
        yield Refused(properties, "another broker's server.properties", detail)
    if by_lines is not None and in_names not in {None, by_lines}:
        detail = f"the lines are of broker {by_lines}, the name says {in_names}"
        yield Refused(label or "the folder", "a name with another number", detail)


def broker_id_of(properties: Mapping[str, str]) -> str:
    """Return the text of node.id or broker.id in server.properties; empty if both are missing."""
    return properties.get("node.id") or properties.get("broker.id") or ""

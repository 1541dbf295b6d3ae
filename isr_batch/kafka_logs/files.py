"""Which files of a folder are broker logs, and what the brokers' server.properties say."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from isr_batch.errors import NoInputError

REQUEST, SERVER, STATE_CHANGE, METADATA = "request", "server", "state-change", "metadata"

LOG_NAMES = {
    REQUEST: re.compile(r"(kafka-)?request\.log(\..+)?"),
    SERVER: re.compile(r"server\.log(\..+)?"),
    STATE_CHANGE: re.compile(r"state-change\.log(\..+)?"),
}
"""What log4j and log rotation call the files; Kafka's own configuration writes kafka-request.log."""

METADATA_NAME = re.compile(r".*metadata.*\.(txt|log|json)(\.gz)?")
LAG_TIME, MIN_ISR = "replica.lag.time.max.ms", "min.insync.replicas"


@dataclass(frozen=True)
class LogFile:
    """A file to read; ``name`` is its path relative to the folder, ``broker_id`` is None beside the folders."""

    kind: str
    broker_id: int | None
    name: str
    path: str


@dataclass(frozen=True)
class Refused:
    """A file, or a line of it, that could not be used, and why."""

    source_file: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Broker:
    """A broker and the two settings that matter here; None where its server.properties does not say."""

    broker_id: int
    replica_lag_time_max_ms: int | None
    min_insync_replicas: int | None


@dataclass
class LogFolder:
    """What a folder holds."""

    files: list[LogFile] = field(default_factory=list)
    brokers: dict[int, Broker] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[LogFile]:
        """Files of one kind."""
        return [file for file in self.files if file.kind == kind]


def find_logs(folder: Path) -> LogFolder:
    """List the brokers' logs in ``folder``: a folder a broker, metadata dumps beside them.

    Raises
    ------
    NoInputError
        When there is no broker log.
    """
    found = LogFolder()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.is_dir():
            _add_broker(found, folder, entry)
        elif METADATA_NAME.fullmatch(entry.name):
            found.files.append(LogFile(METADATA, None, entry.name, str(entry.resolve())))
    if not any(file.broker_id is not None for file in found.files):
        raise NoInputError(
            f"No broker logs in {folder}",
            "Looked for folders, one a broker, that hold request.log, server.log or state-change.log "
            "(also rotated or .gz) and server.properties.",
        )
    return found


def _add_broker(found: LogFolder, root: Path, folder: Path) -> None:
    logs = list(_logs_in(folder))
    if not logs:
        return
    properties = folder / "server.properties"
    settings = _read_properties(properties) if properties.is_file() else {}
    number = settings.get("node.id") or settings.get("broker.id") or "".join(re.findall(r"\d+$", folder.name))
    if not properties.is_file():
        detail = f"taken for broker {number} by the folder's name" if number else "and the folder's name has no number"
        found.refused.append(Refused(str(properties.relative_to(root)), "no server.properties", detail))
    if not number.isdecimal():
        found.refused.append(Refused(folder.name, "no broker id", "its logs were left out"))
        return
    broker_id = int(number)
    found.brokers.setdefault(broker_id, Broker(broker_id, _number(settings, LAG_TIME), _number(settings, MIN_ISR)))
    found.files += [LogFile(kind, broker_id, str(path.relative_to(root)), str(path.resolve())) for kind, path in logs]


def _logs_in(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        for kind, name in LOG_NAMES.items():
            if path.is_file() and name.fullmatch(path.name):
                yield kind, path


def _read_properties(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text(errors="replace").splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _number(settings: dict[str, str], name: str) -> int | None:
    value = settings.get(name, "")
    return int(value) if value.isdecimal() else None

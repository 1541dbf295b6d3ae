"""Find the broker logs in a folder, and read server.properties and cluster.yaml."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isr_batch.errors import NoInputError, UsageError
from isr_batch.ingest.kafka_logs.file_content import Fingerprint
from isr_batch.ingest.kafka_logs.partition_listing import is_listing

REQUEST, SERVER, STATE_CHANGE, METADATA = "request", "server", "state-change", "metadata"
KINDS = (REQUEST, SERVER, STATE_CHANGE, METADATA)
PROPERTIES, SNAPSHOT = "properties", "snapshot"

LOG_NAMES = {
    REQUEST: re.compile(r"(kafka-)?request\.log(\..+)?"),
    SERVER: re.compile(r"server\.log(\..+)?"),
    STATE_CHANGE: re.compile(r"state-change\.log(\..+)?"),
}
"""File names as log4j and log rotation write them; Kafka's own configuration writes kafka-request.log."""

METADATA_NAME = re.compile(r".*(metadata|checkpoint).*\.(txt|log|json)(\.gz|\.zst)?")
TEXT_NAME = re.compile(r".*\.(txt|log|out)(\.gz)?|[^.]+")
LAG_TIME, MIN_ISR, FETCHERS = "replica.lag.time.max.ms", "min.insync.replicas", "num.replica.fetchers"
CLUSTER_FILE = "cluster.yaml"
PROPERTIES_BYTES = 1 << 20
MAX_INT = (1 << 31) - 1


@dataclass(frozen=True)
class LogFile:
    """A file to read; ``name`` is its path relative to the folder, ``broker_id`` is None outside a broker's folder.

    ``held`` is its fingerprint, None until it has been computed.
    """

    kind: str
    broker_id: int | None
    name: str
    path: str
    held: Fingerprint | None = None


@dataclass(frozen=True)
class Refused:
    """A file, or a line of it, that could not be used, and why."""

    source_file: str
    reason: str
    detail: str | None


@dataclass(frozen=True)
class Broker:
    """A broker's settings for a replay; None where server.properties does not have them."""

    broker_id: int
    replica_lag_time_max_ms: int | None
    min_insync_replicas: int | None
    num_replica_fetchers: int | None = None


@dataclass(frozen=True)
class ClusterSettings:
    """Release and settings given by the operator, in ``cluster.yaml`` or by an option: for what no log has."""

    release: str | None = None
    replica_lag_time_max_ms: int | None = None
    min_insync_replicas: int | None = None
    num_replica_fetchers: int | None = None


@dataclass
class LogFolder:
    """The broker logs and settings found in a folder.

    ``earlier`` are the last terms of logs that were ingested before, as dicts: leader_id, topic, partition_id,
    leader_epoch, assigned, start_us, end_us, and ``isr`` at the end.
    """

    files: list[LogFile] = field(default_factory=list)
    brokers: dict[int, Broker] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    given: ClusterSettings = ClusterSettings()
    earlier: list[dict[str, Any]] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[LogFile]:
        """List the files of one kind."""
        return [file for file in self.files if file.kind == kind]


def find_logs(folder: Path) -> LogFolder:
    """List the broker logs in ``folder``: one subfolder per broker, metadata dumps beside them.

    Anything with a log's name that is not a plain file inside the folder is listed in ``refused`` and never opened.

    Raises
    ------
    NoInputError
        If there is no broker log.
    UsageError
        If ``cluster.yaml`` has anything but a release and settings.
    """
    found = LogFolder()
    root = folder.resolve()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name == CLUSTER_FILE and not _why_not(root, entry):
            found.given = read_cluster_settings(entry)
            _add_file(found, root, PROPERTIES, None, entry)
        elif TEXT_NAME.fullmatch(entry.name) and not _why_not(root, entry) and is_listing(entry):
            _add_file(found, root, SNAPSHOT, None, entry)
        elif METADATA_NAME.fullmatch(entry.name):
            _add_file(found, root, METADATA, None, entry)
        elif entry.is_dir():
            _add_broker(found, root, entry)
    if not any(file.broker_id is not None for file in found.files):
        raise NoInputError(
            f"No broker logs in {folder}",
            "Expected one folder per broker, with request.log, server.log or state-change.log "
            "(also rotated, .gz or .zst) and server.properties.",
        )
    return found


def read_cluster_settings(path: Path) -> ClusterSettings:
    """Read ``cluster.yaml``: ``release``, and settings by their Kafka names.

    Raises
    ------
    UsageError
        With every mistake.
    """
    import yaml  # executors read lines of logs, and have no YAML

    names = {"release": "release", LAG_TIME: "replica_lag_time_max_ms", MIN_ISR: "min_insync_replicas",
             FETCHERS: "num_replica_fetchers"}  # fmt: skip
    try:
        stated = yaml.safe_load(path.read_bytes()[:PROPERTIES_BYTES].decode(errors="replace")) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path.name} is not YAML", str(error).replace("\n", " ")) from error
    if not isinstance(stated, dict):
        raise UsageError(
            f"{path.name} has no settings", "write lines like `release: 3.6.2` or `replica.lag.time.max.ms: 30000`"
        )
    mistakes = [f"{name}: unknown setting" for name in stated if name not in names]
    values: dict[str, Any] = {}
    for name, field_name in names.items():
        if name not in stated:
            continue
        text = str(stated[name])
        values[field_name] = text if name == "release" else _int(text)
        if name == "release" and not is_release(text):
            mistakes.append(f"release: {text} does not look like 3.6.2")
        elif values[field_name] is None:
            mistakes.append(f"{name}: {text} is not a number")
    if mistakes:
        raise UsageError(f"{path.name}: {'; '.join(mistakes)}", f"the known settings are {', '.join(names)}")
    return ClusterSettings(**values)


def is_release(text: str) -> bool:
    """Whether a text is the number of a Kafka release from 0.8 on, the first with a rule."""
    numbers = [int(number) for number in text.split(".")] if re.fullmatch(r"\d{1,2}(\.\d{1,3}){1,3}", text) else []
    return numbers >= [0, 8]


def require_release(text: str | None) -> None:
    """Fail if the value of an option is not a Kafka release.

    Raises
    ------
    UsageError
        With an example of a release.
    """
    if text is not None and not is_release(text):
        raise UsageError(f"{text} is not a Kafka release from 0.8 on", "write it like 3.6.2")


def _add_broker(found: LogFolder, root: Path, folder: Path) -> None:
    try:
        logs = list(_logs_in(folder))
    except OSError as error:
        found.refused.append(Refused(_printable(folder.name), "unreadable folder", error.strerror))
        return
    if not logs:
        return
    if not folder.resolve().is_relative_to(root):
        found.refused.append(Refused(_printable(folder.name), "link out of the folder", "its logs were left out"))
        return
    properties = folder / "server.properties"
    settings = _read_properties(root, properties)
    number = settings.get("node.id") or settings.get("broker.id") or "".join(re.findall(r"\d+$", folder.name))
    if not settings:
        detail = f"taken for broker {number} by the folder's name" if number else "and the folder's name has no number"
        found.refused.append(Refused(_printable(f"{folder.name}/{properties.name}"), "no server.properties", detail))
    broker_id = _int(number)
    if broker_id is None:
        found.refused.append(Refused(_printable(folder.name), "no broker id", "its logs were left out"))
        return
    numbers = (_number(settings, name) for name in (LAG_TIME, MIN_ISR, FETCHERS))
    found.brokers.setdefault(broker_id, Broker(broker_id, *numbers))
    if settings:
        _add_file(found, root, PROPERTIES, broker_id, properties)
    for kind, path in logs:
        _add_file(found, root, kind, broker_id, path)


def _logs_in(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        for kind, name in LOG_NAMES.items():
            if name.fullmatch(path.name):
                yield kind, path


def _add_file(found: LogFolder, root: Path, kind: str, broker_id: int | None, path: Path) -> None:
    name = path.name if broker_id is None else f"{path.parent.name}/{path.name}"
    reason = _why_not(root, path)
    if reason:
        found.refused.append(Refused(_printable(name), reason, None))
    else:
        found.files.append(LogFile(kind, broker_id, name, str(path.resolve())))


def _why_not(root: Path, path: Path) -> str | None:
    """Say why a file must not be opened, without opening it: opening a FIFO would block."""
    try:
        if _printable(str(path.resolve())) != str(path.resolve()):
            return "file name is not text"
        if not path.resolve().is_relative_to(root):
            return "link out of the folder"
        return None if path.is_file() else "not a file"
    except (OSError, RuntimeError):  # a link to itself
        return "broken link"


def _printable(name: str) -> str:
    # Names are bytes to the system; those that are no UTF-8 would fail wherever the name is written.
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _read_properties(root: Path, path: Path) -> dict[str, str]:
    if _why_not(root, path):
        return {}
    try:
        with path.open("rb") as stream:
            text = stream.read(PROPERTIES_BYTES).decode(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _number(settings: dict[str, str], name: str) -> int | None:
    return _int(settings.get(name, ""))


def _int(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,10}", text) and int(text) <= MAX_INT else None

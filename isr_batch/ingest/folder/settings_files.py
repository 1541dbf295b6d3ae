"""Read the settings next to the logs: a broker's server.properties, and the user's cluster.yaml."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isr_batch.broker_lines.forms import LAG_TIME, MIN_ISR
from isr_batch.errors import UsageError
from isr_batch.ingest.folder.listed_observers import Observers, parse_observers
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.events import EventFields

FETCHERS = "num.replica.fetchers"
FETCH_WAIT = "replica.fetch.wait.max.ms"
BROKER_NUMBERS = (LAG_TIME, MIN_ISR, FETCHERS, FETCH_WAIT)
"""Names of the numeric settings that are read from server.properties, in the order of `Broker`'s fields."""
PROPERTIES_BYTES = 1 << 20
MAX_INT = (1 << 31) - 1
EVENTS = "events"
OBSERVERS = "observers"
_EVENT_FIELDS = {"time": "stamp", "message": "message", "logger": "logger", "level": "level", "source": "source"}


@dataclass(frozen=True)
class Broker:
    """The settings of a broker that a replay needs. A setting that is not in server.properties is None."""

    broker_id: int
    replica_lag_time_max_ms: int | None
    min_insync_replicas: int | None
    num_replica_fetchers: int | None = None
    replica_fetch_wait_max_ms: int | None = None


@dataclass(frozen=True)
class ClusterSettings:
    """The release, the settings and the fields of JSON events that the user gave in ``cluster.yaml`` or as options."""

    release: str | None = None
    replica_lag_time_max_ms: int | None = None
    min_insync_replicas: int | None = None
    num_replica_fetchers: int | None = None
    replica_fetch_wait_max_ms: int | None = None
    observers: Observers = field(default_factory=dict)
    """Brokers whose replicas fetch but never join an ISR."""
    events: EventFields | None = None


def read_cluster_settings(path: Path) -> ClusterSettings:
    """Read ``cluster.yaml``.

    The file may contain ``release``, settings under their Kafka names, ``observers`` (see `parse_observers`), and
    ``events``, which names the fields of JSON events.

    Raises
    ------
    UsageError
        If the file cannot be read or is invalid. The message lists all mistakes in it.
    """
    import yaml  # imported here, because executors read lines of logs without YAML

    from isr_batch.yaml_files import load_yaml

    names = {"release": "release", LAG_TIME: "replica_lag_time_max_ms", MIN_ISR: "min_insync_replicas",
             FETCHERS: "num_replica_fetchers", FETCH_WAIT: "replica_fetch_wait_max_ms"}  # fmt: skip
    try:
        stated = load_yaml(path) or {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "give this user the right to read it") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path.name} is not YAML", str(error).replace("\n", " ")) from error
    if not isinstance(stated, dict):
        raise UsageError(
            f"{path.name} has no settings", "write lines like `release: 3.6.2` or `replica.lag.time.max.ms: 30000`"
        )
    mistakes = [f"{name}: unknown setting" for name in stated if name not in {*names, EVENTS, OBSERVERS}]
    values: dict[str, Any] = {EVENTS: _event_fields(stated.get(EVENTS))}
    values[OBSERVERS] = _listed_observers(stated.get(OBSERVERS, {}), mistakes)
    if EVENTS in stated and not values[EVENTS]:
        mistakes.append(f"{EVENTS}: expected {{time: FIELD, message: FIELD, logger: FIELD}}")
    for name, field_name in names.items():
        if name not in stated:
            continue
        text = str(stated[name])
        values[field_name] = text if name == "release" else int_setting(text)
        if name == "release" and not is_release(text):
            mistakes.append(f"release: {text} does not look like 3.6.2")
        elif values[field_name] is None:
            mistakes.append(f"{name}: {text} is not a number")
    if mistakes:
        raise UsageError(
            f"{path.name}: {'; '.join(mistakes)}", f"the known settings are {', '.join([*names, OBSERVERS, EVENTS])}"
        )
    return ClusterSettings(**values)


def _listed_observers(stated: object, mistakes: list[str]) -> Observers:
    """Parse ``observers`` in ``cluster.yaml``. If it is wrong, add the reason to ``mistakes``."""
    try:
        return parse_observers(stated)
    except ValueError as error:
        mistakes.append(f"{OBSERVERS}: {error}")
        return {}


def _event_fields(stated: object) -> EventFields | None:
    """Parse ``events`` in ``cluster.yaml``: paths of fields in JSON events, with slashes for nesting.

    Return None unless it is a mapping with the keys ``time`` and ``message`` and no unknown keys.
    """
    if not isinstance(stated, dict) or not {"time", "message"} <= stated.keys() <= _EVENT_FIELDS.keys():
        return None
    if not all(isinstance(field, str) and field for field in stated.values()):
        return None
    return EventFields(**{_EVENT_FIELDS[name]: field for name, field in stated.items()})


def is_release(text: str) -> bool:
    """Return whether a text is the number of a Kafka release (for example, 3.6.2), from 0.8 on."""
    numbers = [int(number) for number in text.split(".")] if re.fullmatch(r"\d{1,2}(\.\d{1,3}){1,3}", text) else []
    return numbers >= [0, 8]


def require_release(text: str | None) -> None:
    """Raise an error if the value of an option is neither None nor a Kafka release (`is_release`).

    Raises
    ------
    UsageError
        If the value is not a release. The message shows an example.
    """
    if text is not None and not is_release(text):
        raise UsageError(f"{text} is not a Kafka release from 0.8 on", "write it like 3.6.2")


class Properties(NamedTuple):
    """A properties file: its path (on disk or in an archive), and its settings by name."""

    path: str
    settings: dict[str, str]


def read_properties(path: str) -> Properties:
    """Read the settings in a properties file.

    Raises
    ------
    BadFileError
        If the file cannot be read.
    """
    read = b""
    for chunk in content_chunks(path):
        read += chunk
        if len(read) >= PROPERTIES_BYTES:
            break
    text = read[:PROPERTIES_BYTES].decode(errors="replace")
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return Properties(path, {key.strip(): value.strip() for key, equals, value in pairs if equals})


def number_setting(settings: dict[str, str], name: str) -> int | None:
    """Return a setting as a number; None if it is missing or not a number from 0 to 2^31 - 1."""
    return int_setting(settings.get(name, ""))


def int_setting(text: str) -> int | None:
    """Parse a whole number from 0 to 2^31 - 1; return None for any other text."""
    return int(text) if re.fullmatch("[0-9]{1,10}", text) and int(text) <= MAX_INT else None

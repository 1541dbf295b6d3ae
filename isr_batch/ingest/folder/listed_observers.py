"""Parse the list of observers that an operator gives, and say which replicas of a partition are observers by it.

The list is either a list of brokers, whose replicas all observe, or a mapping with such a list for some topics and
partitions.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from isr_batch.errors import UsageError
from isr_batch.phrases import did_you_mean

Observers: TypeAlias = Mapping[str, tuple[int, ...]]
"""Brokers by name of a topic (``t``) or partition (``t-0``). The name `EVERY` stands for all partitions."""
EVERY: Final = ""
_EXPECTED: Final = "expected a list of broker ids, such as [4, 5], or a list for each topic or partition: {t: [4, 5]}"
_MAX_ID: Final = (1 << 31) - 1


def parse_observers(stated: object) -> Observers:
    """Parse the value of ``observers`` in ``cluster.yaml`` or in a mapping.

    Raises
    ------
    ValueError
        If it is not a list of broker ids, or a mapping with such lists. The message names the part that is wrong.
    """
    if not isinstance(stated, Mapping):
        return {EVERY: _parse_ids(stated, "")}
    if any(str(name) == EVERY for name in stated):
        raise ValueError(f"a topic has no name: {_EXPECTED}")
    return {str(name): _parse_ids(ids, f"of {name} ") for name, ids in stated.items()}


def _parse_ids(stated: object, whose: str) -> tuple[int, ...]:
    ids = [str(each) for each in stated] if isinstance(stated, list | tuple) else ["none"]
    if wrong := [each for each in ids if not re.fullmatch("[0-9]{1,10}", each) or int(each) > _MAX_ID]:
        shown = f"{stated!r}" if wrong == ["none"] else wrong[0]
        raise ValueError(f"{whose}{shown} is not {'a list' if wrong == ['none'] else 'a broker id'}: {_EXPECTED}")
    return tuple(sorted({int(each) for each in ids}))


def observers_of_partition(listed: Observers, topic: str, partition_id: int) -> tuple[int, ...]:
    """Return the brokers whose replicas of a partition observe. The partition's own list replaces its topic's."""
    names = (f"{topic}-{partition_id}", topic, EVERY)
    return next((listed[name] for name in names if name in listed), ())


def mark_observers(terms: Iterable[dict[str, Any]], listed: Observers) -> None:
    """Add ``observers`` to rows of leader_epochs: those of the assigned replicas that observe."""
    for row in terms:
        brokers = observers_of_partition(listed, row["topic"], row["partition_id"])
        row["observers"] = [replica for replica in row["assigned"] if replica in brokers]


def sentences_on_idle_observers(listed: Observers, terms: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on listed brokers for which the list changes nothing, in a list; an empty list without any.

    ``terms`` are rows of leader_epochs with ``observers`` and ``isr_at_start``.
    """
    pairs = {(broker, broker in row["isr_at_start"]) for row in terms for broker in row["observers"] or ()}
    idle = sorted({broker for brokers in listed.values() for broker in brokers} - {broker for broker, _ in pairs})
    promoted = sorted({broker for broker, _ in pairs} - {broker for broker, in_isr in pairs if not in_isr})
    why = dict.fromkeys(idle, "has no replica to which the list applies")
    why |= dict.fromkeys(promoted, "was in the ISR at the start of each term, so it is treated as any other replica")
    return [f"The list of observers changes nothing for broker {broker}: it {said}." for broker, said in why.items()]


def require_known_names(listed: Observers, partitions: Iterable[tuple[str, int]], where: str) -> None:
    """Raise an error if a list of observers names a topic or partition that does not exist.

    Parameters
    ----------
    listed : mapping
        Result of `parse_observers`.
    partitions : iterable of (str, int)
        Topic and number of each partition in the logs or tables.
    where : str
        The file or mapping with the list, for the message.

    Raises
    ------
    UsageError
        If no partition has a name. The message says which. It is also raised if a name fits both a topic and a
        partition of another one.
    """
    known = {*partitions}
    topics, numbered = {topic for topic, _ in known}, {f"{topic}-{number}" for topic, number in known}
    if unknown := sorted(listed.keys() - topics - numbered - {EVERY}):
        raise UsageError(
            f"observers in {where}: no topic or partition is named {' or '.join(unknown)}",
            did_you_mean(unknown[0], sorted(topics)),
        )
    if both := sorted(listed.keys() & topics & numbered):
        raise UsageError(
            f"observers in {where}: {both[0]} is a topic and also a partition of another topic",
            "list each partition that you mean by its own name",
        )


def observers_as_json(listed: Observers) -> str:
    """Return a list of observers as JSON, as it is stored in table mapped_clusters."""
    return json.dumps(listed)


def observers_from_json(text: str | None) -> Observers:
    """Return the list of observers that `observers_as_json` has written. None stands for an empty list."""
    return {name: tuple(ids) for name, ids in json.loads(text or "{}").items()}

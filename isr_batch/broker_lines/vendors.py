"""Find the Apache Kafka release behind the version that a broker logs, and the defaults of the release."""

import re

from isr_batch.broker_lines.forms import LAG_TIME_MS, OLD_LAG_TIME_MS

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_CONFLUENT = {5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}
"""Kafka release of minor release 0 of Confluent Platform, by its major release. The minor numbers of both advance
together."""
_LAST_CONFLUENT_6 = 2
"""The last minor release of Confluent Platform 6, which has Kafka 2.8."""
_NEWEST = (4, 99)
_OLD_MAJOR = 0
"""Major number of releases before 1.0, which have four numbers."""


def vendor_release(printed: str) -> str | None:
    """Return the Kafka release behind a version that a broker logged; None if it is unknown.

    Apache's own versions are returned unchanged. Others get the Kafka release in brackets: ``7.6.1-ccs (Kafka 3.6)``
    for Confluent Platform, ``2.5.0.7.1.7.0-551 (Kafka 2.5.0)`` for distributions that append a number to Kafka's.
    """
    found = _NUMBERS.match(printed)
    if not found:
        return None
    major, minor = int(found[1]), int(found[2])
    if major in _CONFLUENT:
        since = _CONFLUENT[major]
        if major == 6 and minor > _LAST_CONFLUENT_6:  # noqa: PLR2004 the line of 2.6 to 2.8
            return None
        return f"{printed} (Kafka {since[0]}.{since[1] + minor})"
    if (major, minor) > _NEWEST:
        return None
    release = ".".join(found.groups("")[: 4 if major == _OLD_MAJOR else 3]).strip(".")
    is_apaches = re.fullmatch(rf"{re.escape(release)}(-SNAPSHOT|-rc\d+|-IV\d+)?", printed)
    return printed if is_apaches else f"{printed} (Kafka {release})"


def apache_release(named: str) -> str:
    """Return the Kafka release in a result of `vendor_release`."""
    found = re.search(r"\(Kafka ([\d.]+)\)$", named)
    return found[1] if found else named


def numbers_of_release(named: str) -> list[int]:
    """Return the numbers of the Kafka release in a result of `vendor_release`. Releases are compared by them."""
    return [int(number) for number in re.findall(r"\d+", apache_release(named))]


def default_lag_time_ms(named: str | None) -> int:
    """Return a release's default of replica.lag.time.max.ms: 10 s before 2.5, 30 s since (KIP-537) or if unknown."""
    return OLD_LAG_TIME_MS if named is not None and numbers_of_release(named) < [2, 5] else LAG_TIME_MS

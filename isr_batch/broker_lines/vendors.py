"""Map the version that a broker logs, such as Confluent Platform's, to a Kafka release, and know Kafka's defaults."""

import re

from isr_batch.broker_lines.forms import LAG_TIME_MS, OLD_LAG_TIME_MS

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_CONFLUENT = {5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}
"""For each major release of Confluent Platform, the Kafka release that its minor release 0 contains. Both minor numbers
advance together: 7.0 contains Kafka 3.0, and 7.6 contains 3.6."""
_LAST_CONFLUENT_6 = 2
"""The last minor release of Confluent Platform 6. It contains Kafka 2.8."""
_NEWEST = (4, 99)
_OLD_MAJOR = 0
"""Major number of the Kafka releases before 1.0, whose versions have four numbers (0.10.2.1)."""


def vendor_release(printed: str) -> str | None:
    """Return the version that a broker logged, with the Kafka release added if the version is not Apache's.

    If the Kafka release is unknown, return None.

    Apache's own versions are returned unchanged. Other versions are followed by the Kafka release in brackets, for
    example ``7.6.1-ccs (Kafka 3.6)`` for Confluent Platform, or ``2.5.0.7.1.7.0-551 (Kafka 2.5.0)`` for a distribution
    that appends a number to Kafka's.
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
    """Return only the Kafka release, such as ``3.6``, from a result of `vendor_release`."""
    found = re.search(r"\(Kafka ([\d.]+)\)$", named)
    return found[1] if found else named


def numbers_of_release(named: str) -> list[int]:
    """Return the numbers of the Kafka release in a result of `vendor_release`, such as ``[3, 6]``."""
    return [int(number) for number in re.findall(r"\d+", apache_release(named))]


def default_lag_time_ms(named: str | None) -> int:
    """Return the default of replica.lag.time.max.ms in a release: 10,000 before 2.5, otherwise 30,000 (KIP-537).

    ``named`` is a result of `vendor_release`. For None, the default is 30,000.
    """
    return OLD_LAG_TIME_MS if named is not None and numbers_of_release(named) < [2, 5] else LAG_TIME_MS

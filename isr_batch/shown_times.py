"""Format times for people, in the time zone that the user has chosen, or by default in UTC."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

ZONES_OF_UTC: Final = {"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "GMT", "Etc/GMT", "Z", "+00:00"}
"""Names of time zones that are equal to UTC, in Spark and Java."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN: dict[str, tzinfo] = {"UTC": UTC}
"""The time zone in which times are formatted, as its only value, with its name as key. A command sets it once."""


def show_times_in(name: str, zone: tzinfo) -> None:
    """Set the time zone in which times are formatted from now on, and its name."""
    _SHOWN.clear()
    _SHOWN[name] = zone


def zone_name() -> str:
    """Return the name of the time zone in which times are formatted."""
    return next(iter(_SHOWN))


def zone_note() -> list[str]:
    """Return a list with a sentence on the time zone, for texts whose times do not show it; [] if the zone is UTC."""
    return [] if zone_name() == "UTC" else [f"Times are in {zone_name()}."]


def shown_zone() -> tzinfo:
    """Return the time zone in which times are formatted."""
    return _SHOWN[zone_name()]


def in_shown_zone(time: datetime) -> datetime:
    """Convert a time to the time zone in which times are formatted. A time without a zone is taken to be in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(shown_zone())


def time_text(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a time, given in epoch microseconds, in the user's time zone with the ``strftime`` format ``form``."""
    return f"{in_shown_zone(_EPOCH + timedelta(seconds=us // 1_000_000)):{form}}"


def time_text_ms(us: int) -> str:
    """Format a time, given in epoch microseconds, in the user's time zone: date, and time with milliseconds."""
    return day_and_time(_EPOCH + timedelta(microseconds=us))


def day_and_time(time: datetime) -> str:
    """Format a time in the user's time zone: date, and time with milliseconds."""
    return f"{in_shown_zone(time):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def time_of_day(time: datetime) -> str:
    """Format a time in the user's time zone: time of day with milliseconds, without the date."""
    return f"{in_shown_zone(time):%H:%M:%S.%f}"[:-3]


def offset_us(us: int) -> int:
    """Return by how many microseconds the user's time zone is ahead of UTC at the time ``us`` (epoch microseconds)."""
    ahead = in_shown_zone(_EPOCH + timedelta(microseconds=us)).utcoffset() or timedelta()
    return ahead // timedelta(microseconds=1)

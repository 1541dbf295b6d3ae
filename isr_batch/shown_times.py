"""Format instants for people, in the time zone that the user has chosen; by default UTC."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

ZONES_OF_UTC: Final = {"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "GMT", "Etc/GMT", "Z", "+00:00"}
"""Names of UTC in Spark and Java."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN: dict[str, tzinfo] = {"UTC": UTC}
"""The time zone in which instants are formatted, by its name. A command sets it once."""


def show_times_in(name: str, zone: tzinfo) -> None:
    """Set the time zone in which all later instants are formatted."""
    _SHOWN.clear()
    _SHOWN[name] = zone


def zone_name() -> str:
    """Return the name of the time zone, to be shown next to instants."""
    return next(iter(_SHOWN))


def zone_note() -> list[str]:
    """Return a sentence with the time zone, for texts with instants that do not show it; no sentence for UTC."""
    return [] if zone_name() == "UTC" else [f"Times are in {zone_name()}."]


def shown_zone() -> tzinfo:
    """Return the time zone in which instants are formatted."""
    return _SHOWN[zone_name()]


def in_shown_zone(time: datetime) -> datetime:
    """Convert an instant to the time zone in which instants are formatted. An instant without a zone is read as UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(shown_zone())


def time_text(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return an instant, given in microseconds since 1970, as text."""
    return f"{in_shown_zone(_EPOCH + timedelta(seconds=us // 1_000_000)):{form}}"


def time_text_ms(us: int) -> str:
    """Return an instant, given in microseconds since 1970, as text with milliseconds."""
    return day_and_time(_EPOCH + timedelta(microseconds=us))


def day_and_time(time: datetime) -> str:
    """Return the date and time of an instant as text with milliseconds."""
    return f"{in_shown_zone(time):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def time_of_day(time: datetime) -> str:
    """Return the time of day of an instant as text with milliseconds."""
    return f"{in_shown_zone(time):%H:%M:%S.%f}"[:-3]


def offset_us(us: int) -> int:
    """Return how far the chosen time zone is ahead of UTC at an instant, in microseconds, for charts in UTC."""
    ahead = in_shown_zone(_EPOCH + timedelta(microseconds=us)).utcoffset() or timedelta()
    return ahead // timedelta(microseconds=1)

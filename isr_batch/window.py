"""The window of UTC days on which a command works. Also parse the times that users give in options."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from isr_batch.errors import UsageError
from isr_batch.shown_times import offset_us, shown_zone, zone_name

DAY_US: Final = 86_400_000_000


@dataclass(frozen=True)
class Window:
    """A range of UTC days from ``start`` to the day before ``end``, such as "2026-01-31". None means no limit."""

    start: str | None = None
    end: str | None = None

    @classmethod
    def of_day(cls, day: date) -> "Window":
        """Return the window of a single day."""
        return cls(str(day), str(day + timedelta(days=1)))

    def __str__(self) -> str:
        """Return the window as text for ``run_log``, such as ``2026-01-30..2026-02-01``.

        A missing limit is left out: ``..2026-02-01``.
        """
        return f"{self.start or ''}..{self.end or ''}"

    @property
    def condition(self) -> str:
        """SQL condition on ``event_date`` that selects the window's days."""
        parts = [f"event_date >= DATE'{self.start}'"] if self.start else []
        parts += [f"event_date < DATE'{self.end}'"] if self.end else []
        return " AND ".join(parts) or "true"

    @property
    def handled_in(self) -> str:
        """SQL condition on ``event_date`` that selects the window and the day after it.

        A fetch that arrives on the last day may be handled, and therefore stored, on the next day.
        """
        parts = [f"event_date >= DATE'{self.start}'"] if self.start else []
        parts += [f"event_date <= DATE'{self.end}'"] if self.end else []
        return " AND ".join(parts) or "true"

    @property
    def handled_days(self) -> tuple[str, str]:
        """First and last day that the condition `handled_in` selects."""
        return self.days[0], self.end or str(date.max)

    @property
    def start_us(self) -> int:
        """Start of the window in epoch microseconds; a time in the far past if it has no first day."""
        return _midnight_of_window_us(self.start) if self.start else -(2**62)

    @property
    def end_us(self) -> int:
        """End of the window (exclusive) in epoch microseconds; a time in the far future if it has no last day."""
        return _midnight_of_window_us(self.end) if self.end else 2**62

    def within(self, time_us: str) -> str:
        """Return the SQL condition that ``time_us``, a column in epoch microseconds, is in the window."""
        return f"{time_us} >= {self.start_us} AND {time_us} < {self.end_us}"

    def has(self, day: date) -> bool:
        """Whether a day is in the window."""
        return (not self.start or str(day) >= self.start) and (not self.end or str(day) < self.end)

    @property
    def last_day(self) -> date | None:
        """The last day of the window; None if it has no end."""
        return date.fromisoformat(self.end) - timedelta(days=1) if self.end else None

    @property
    def days(self) -> tuple[str, str]:
        """First and last day of the window, as text; instead of a missing limit, Python's first or last date."""
        return self.start or str(date.min), str(self.last_day or date.max)

    def from_day(self, start: str | None) -> "Window":
        """Return a window with the same end, and with ``start`` as its first day."""
        return Window(start, self.end)


def parse_window(day: str | None, start: str | None, end: str | None) -> Window:
    """Return the window that the options define: ``--date`` (``day``), or ``--from`` and ``--to`` (exclusive).

    Raises
    ------
    UsageError
        If a text is not a date, if ``--date`` is combined with the other options, or if the window contains no day.
    """
    if day and (start or end):
        raise UsageError("--date is one day; --from and --to are a range", "give --date, or --from and --to")
    if day:
        return Window.of_day(_parse_day("--date", day))
    days = (_parse_day("--from", start) if start else None, _parse_day("--to", end) if end else None)
    if days[0] and days[1] and days[0] >= days[1]:
        raise UsageError(
            f"the range from {start} to {end} has no days", "--to is exclusive: name the day after the last one"
        )
    return Window(*(str(day) if day else None for day in days))


@dataclass(frozen=True)
class AskedTime:
    """A time that the user asked for: ``us`` in epoch microseconds or, if ``any_day``, microseconds after midnight."""

    us: int
    any_day: bool = False

    def after_us(self, first_us: int, last_us: int | None = None) -> int:
        """Return how far a time span is from this time, in microseconds.

        The result is positive if the span begins later, negative if it ends earlier, and 0 if it contains this time. If
        this is only a time of day, it is taken to be on the day nearest to the span.
        """
        asked_us, last_us = self.us, first_us if last_us is None else last_us
        if self.any_day:
            middle_us = (first_us + last_us) // 2
            asked_us -= offset_us(middle_us)
            asked_us += DAY_US * round((middle_us - asked_us) / DAY_US)
        return max(first_us - asked_us, 0) or min(last_us - asked_us, 0)


def parse_asked_time(option: str, text: str) -> AskedTime:
    """Parse the value of an option: a time as in `parse_instant`, or a time of day such as 16:46:48 or 16:46.

    Raises
    ------
    UsageError
        If the text is neither.
    """
    try:
        of_day = time.fromisoformat(text) if re.match(r"\d\d:\d\d", text) else None
    except ValueError:
        of_day = None
    if of_day is None or of_day.tzinfo:
        return AskedTime(parse_instant(option, text))
    since_midnight = datetime.combine(date(1970, 1, 1), of_day) - datetime(1970, 1, 1)  # noqa: DTZ001 (a difference)
    return AskedTime(since_midnight // timedelta(microseconds=1), any_day=True)


def parse_instant(option: str, text: str) -> int:
    """Parse the value of an option, a time in ISO 8601 or epoch milliseconds. Return it in epoch microseconds.

    A time without a zone is in the user's time zone (`isr_batch.shown_times`).

    Raises
    ------
    UsageError
        If the text is neither.
    """
    try:
        if re.fullmatch(r"-?\d{1,15}", text):
            return int(text) * 1000
        given = datetime.fromisoformat(text)
        at = given if given.tzinfo else given.replace(tzinfo=shown_zone())
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    except ValueError:
        raise UsageError(
            f"{option} {text}: not an instant",
            f"write it as 2026-01-31T12:00:00.123 ({zone_name()}), in ms since the epoch, or as 12:00:00",
        ) from None


def _midnight_of_window_us(day: str) -> int:
    """Return the start of a UTC day in epoch microseconds."""
    return (date.fromisoformat(day) - date(1970, 1, 1)) // timedelta(microseconds=1)


def _parse_day(option: str, text: str) -> date:
    """Parse the value of an option as a date. If it is not a date, raise a UsageError that names the option."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: not a day", "write it as 2026-01-31; days are UTC") from None

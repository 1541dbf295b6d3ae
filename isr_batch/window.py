"""The days that a command is about: UTC, the end exclusive, either side open; or an instant."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from isr_batch.errors import UsageError


@dataclass(frozen=True)
class Window:
    """Days from ``start`` to before ``end``, as 2026-01-31; None leaves a side open."""

    start: str | None = None
    end: str | None = None

    def __str__(self) -> str:
        """As kept in ``run_log``; an open side is empty."""
        return f"{self.start or ''}..{self.end or ''}"

    @property
    def condition(self) -> str:
        """As SQL on ``event_date``."""
        parts = [f"event_date >= DATE'{self.start}'"] if self.start else []
        parts += [f"event_date < DATE'{self.end}'"] if self.end else []
        return " AND ".join(parts) or "true"


def parse_window(day: str | None, start: str | None, end: str | None) -> Window:
    """Read ``--date``, or ``--from`` and ``--to``.

    Raises
    ------
    UsageError
        When a day is not a date, when both ways are used, or when no day is left.
    """
    if day and (start or end):
        raise UsageError("--date is one day; --from and --to are a range", "give the one or the other")
    if day:
        only = _parse("--date", day)
        return Window(str(only), str(only + timedelta(days=1)))
    days = (_parse("--from", start) if start else None, _parse("--to", end) if end else None)
    if days[0] and days[1] and days[0] >= days[1]:
        raise UsageError(f"no day from {start} to before {end}", "--to is exclusive: name the day after the last one")
    return Window(*(str(day) if day else None for day in days))


def parse_instant(option: str, text: str) -> int:
    """Read an instant, ISO 8601 (UTC unless it says otherwise) or Kafka's milliseconds; microseconds since the epoch.

    Raises
    ------
    UsageError
        When it is neither.
    """
    try:
        if re.fullmatch(r"-?\d{1,15}", text):
            return int(text) * 1000
        given = datetime.fromisoformat(text)
        at = given if given.tzinfo else given.replace(tzinfo=UTC)
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    except ValueError:
        raise UsageError(
            f"{option} {text}: not an instant", "write it as 2026-01-31T12:00:00.123 (UTC), or in ms since the epoch"
        ) from None


def _parse(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: not a day", "write it as 2026-01-31; days are UTC") from None

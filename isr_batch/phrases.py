"""Format numbers, times and nouns for the sentences in command outputs and the report."""

import difflib
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

NAMES: Final = 12
"""Maximum number of brokers in a list, and of names in the hint of `did_you_mean`."""
PARTS: Final = 8
"""Maximum number of parts that `largest_parts` keeps."""
_TIMES: Final = ("", "once", "twice", "three times", "four times", "five times", "six times")


def count_of(number: int, what: str) -> str:
    """Return a number and a noun, with a plural s unless the number is 1: "2 followers"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Iterable[object], by: str = "and") -> str:
    """Join names with commas, and with ``by`` before the last: "a, b and c"."""
    *others, last = map(str, names)
    return f" {by} ".join(filter(None, [", ".join(others), last]))


def brokers_text(ids: Sequence[int]) -> str:
    """Return "broker 1" or "brokers 1, 2 and 3". Of more than `NAMES` brokers, the rest is counted: "and 5 others"."""
    more = [f"{len(ids) - NAMES + 1} others"] if len(ids) > NAMES else []
    return f"broker{'' if len(ids) == 1 else 's'} {listed([*ids[: NAMES - 1 if more else None], *more])}"


def largest_parts(parts: Sequence[tuple[int, str]]) -> str:
    """Join parts of a sentence with semicolons, given each part with the number of drops that it describes.

    If there are more than `PARTS`, only those with the most drops are kept, in the given order. The others are counted
    at the end: "3 more (5 drops)".
    """
    kept = sorted(sorted(range(len(parts)), key=lambda n: -parts[n][0])[:PARTS])
    rest = sum(number for number, _ in parts) - sum(parts[n][0] for n in kept)
    more = [f"{len(parts) - PARTS} more ({count_of(rest, 'drop')})"] if len(parts) > PARTS else []
    return "; ".join([*(parts[n][1] for n in kept), *more])


def times_in_words(number: int) -> str:
    """Return how often something happened: "once", "twice", "three times"; from seven on, "7 times"."""
    return _TIMES[number] if 0 < number < len(_TIMES) else f"{number:,} times"


def ms_text(ms: float) -> str:
    """Return a time in milliseconds as text: "1,500 ms"."""
    return f"{round(ms):,} ms"


def hours_text(hours: float) -> str:
    """Return a duration, rounded up, in the largest unit that fits in it at least twice: "3 weeks" or "2 years"."""
    units = ((24 * 365.25, "year"), (24 * 7, "week"), (24, "day"), (1, "hour"), (1 / 60, "minute"))
    size, unit = next((unit for unit in units if hours >= 2 * unit[0]), units[-1])
    return count_of(math.ceil(hours / size), unit)


def seconds_text(times_ms: Sequence[int]) -> str:
    """Format the smallest and the largest of some durations, which are given in milliseconds: "1.5 to 3 s"."""
    least, most = (three_digits(ms / 1000) for ms in (min(times_ms), max(times_ms)))
    return f"{least} s" if least == most else f"{least} to {most} s"


def from_asked_time(after_us: int, what: str) -> list[str]:
    """Return a list with a sentence on how far the nearest result is from the requested time; [] if under a second.

    ``after_us`` is the result's time minus the requested time, in microseconds, and ``what`` names the result.
    """
    seconds = abs(after_us) // 1_000_000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    far = [
        f"{seconds % above // size} {unit}"
        for (size, unit), above in zip(units, (10**12, 86_400, 3_600, 60), strict=True)
    ]
    said = " ".join([part for part in far if not part.startswith("0 ")][:2])
    return [f"The nearest {what} came {said} {'after' if after_us > 0 else 'before'} that time."] if seconds else []


def utc_text(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return an instant, in epoch microseconds, as UTC text for programs. For people, use `isr_batch.shown_times`."""
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):{form}}"


def least_to_largest(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest of some numbers as text: "1 to 5", or "1" if they are equal."""
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def later_or_sooner(best_ms: float, yours_ms: float) -> str:
    """Compare the detection time of a rule (``best_ms``) with the brokers' own: "3 s later"; "" if about the same."""
    late_s = round((best_ms - yours_ms) / 1000, 1)
    return f"{three_digits(abs(late_s))} s {'later' if late_s > 0 else 'sooner'}" if late_s else ""


def lost_records_at_most(number: int | None) -> str:
    """Format the largest possible number of lost records: "up to 5", "none" for 0, or "not known" for None."""
    return "not known" if number is None else "none" if not number else f"up to {number:,}"


def three_digits(number: float) -> str:
    """Return a number as text with three significant digits. From 1,000 on, it is rounded to an integer instead."""
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"  # noqa: PLR2004 (is 1,000 when rounded)


def rounded(value: object) -> object:
    """Return a float as text with four significant digits, or as an integer from 1,000 on. Keep other values."""
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 (no exponents)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for a wrong name: "did you mean ...?" with a similar known name, or else a list of known names."""
    known = list(known)
    if not known:
        return "none is known"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    more = f" and {len(known) - NAMES} more" if len(known) > NAMES + 1 else ""
    return f"there are {', '.join(known[:NAMES] if more else known)}{more}"

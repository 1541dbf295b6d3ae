"""Format numbers, times and nouns in sentences of evidence, incidents, explanations and the report."""

import difflib
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

NAMES: Final = 12
"""Maximum number of brokers, or of known names where no similar one exists, that are listed."""
PARTS: Final = 8
"""Maximum number of brokers whose drops a sentence describes one by one."""
_TIMES: Final = ("", "once", "twice", "three times", "four times", "five times", "six times")


def count_of(number: int, what: str) -> str:
    """Write a number and its noun, with a plural s if needed."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Iterable[object], by: str = "and") -> str:
    """Join names with commas, the last with ``by``."""
    *others, last = map(str, names)
    return f" {by} ".join(filter(None, [", ".join(others), last]))


def brokers_text(ids: Sequence[int]) -> str:
    """Write the names of brokers in a sentence; of many, the first ones and the number of the others."""
    more = [f"{len(ids) - NAMES + 1} others"] if len(ids) > NAMES else []
    return f"broker{'' if len(ids) == 1 else 's'} {listed([*ids[: NAMES - 1 if more else None], *more])}"


def largest_parts(parts: Sequence[tuple[int, str]]) -> str:
    """Join parts of a sentence, each with its drops; of many, those with most drops, and how many are left out."""
    kept = sorted(sorted(range(len(parts)), key=lambda n: -parts[n][0])[:PARTS])
    rest = sum(number for number, _ in parts) - sum(parts[n][0] for n in kept)
    more = [f"{len(parts) - PARTS} more ({count_of(rest, 'drop')})"] if len(parts) > PARTS else []
    return "; ".join([*(parts[n][1] for n in kept), *more])


def times_in_words(number: int) -> str:
    """Write how many times something happened: once, twice, 3 times."""
    return _TIMES[number] if 0 < number < len(_TIMES) else f"{number:,} times"


def ms_text(ms: float) -> str:
    """Write a time in milliseconds."""
    return f"{round(ms):,} ms"


def hours_text(hours: float) -> str:
    """Write a number of hours in the largest unit, from years to minutes, that makes it two or more."""
    units = ((24 * 365.25, "year"), (24 * 7, "week"), (24, "day"), (1, "hour"), (1 / 60, "minute"))
    size, unit = next((unit for unit in units if hours >= 2 * unit[0]), units[-1])
    return count_of(math.ceil(hours / size), unit)


def seconds_text(times_ms: Sequence[int]) -> str:
    """Write the range of some times, from the least to the largest, in seconds."""
    least, most = (three_digits(ms / 1000) for ms in (min(times_ms), max(times_ms)))
    return f"{least} s" if least == most else f"{least} to {most} s"


def from_asked_time(after_us: int, what: str) -> list[str]:
    """Say how far the result nearest to the requested time is from it; empty for less than a second."""
    seconds = abs(after_us) // 1_000_000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    far = [
        f"{seconds % above // size} {unit}"
        for (size, unit), above in zip(units, (10**12, 86_400, 3_600, 60), strict=True)
    ]
    said = " ".join([part for part in far if not part.startswith("0 ")][:2])
    return [f"The nearest {what} came {said} {'after' if after_us > 0 else 'before'} that time."] if seconds else []


def utc_text(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Write an instant in UTC, for programs; for people see `isr_batch.shown_times`."""
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):{form}}"


def least_to_largest(numbers: Sequence[int]) -> str:
    """Write the range of some numbers, from the least to the largest."""
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def later_or_sooner(best_ms: float, yours_ms: float) -> str:
    """Write how much later, or sooner, a rule detects failures than yours does; empty below a tenth of a second."""
    late_s = round((best_ms - yours_ms) / 1000, 1)
    return f"{three_digits(abs(late_s))} s {'later' if late_s > 0 else 'sooner'}" if late_s else ""


def lost_records_at_most(number: int | None) -> str:
    """Write how many records are lost at most; None is an unknown number."""
    return "not known" if number is None else "none" if not number else f"up to {number:,}"


def three_digits(number: float) -> str:
    """Write a number with three significant digits, or all digits of an integer: never with a positive exponent."""
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"  # noqa: PLR2004 (is 1,000 when rounded)


def rounded(value: object) -> object:
    """Round a number to four significant digits for display; return any other value unchanged."""
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 (no exponents)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known name closest to a wrong one, or list the first known names; both end a sentence."""
    known = list(known)
    if not known:
        return "none is known"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    more = f" and {len(known) - NAMES} more" if len(known) > NAMES + 1 else ""
    return f"there are {', '.join(known[:NAMES] if more else known)}{more}"

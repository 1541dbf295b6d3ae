"""Recognise text with the latest line first, as log viewers show it, and find the pattern that separates its events."""

import re
from itertools import pairwise
from typing import Final

_LOOKED_AT: Final = 1 << 16
_IN_FRONT: Final = 400
"""Number of bytes at the start of a line that are searched for its time."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\b1\d{12}(?:\d{3}){0,2}\b|\b1\d{9}\.\d+")
_NOT_DIGITS = re.compile(rb"\D")
_DIGITS: Final = 19
_MOST: Final = 0.9
"""If at least this share of the lines with a time begin with it, an event starts at such a line. Otherwise every line
is an event, because something precedes the times."""
_FEWEST: Final = 3
"""Minimum number of lines that must be earlier than the line before them."""
_OTHERS: Final = 5
"""Steps back in time must exceed this many times the steps forward. A few lines are always out of order, because a
broker's threads log concurrently."""

EVERY_LINE = re.compile(rb"\n")
EVERY_EVENT = re.compile(rb"\n(?=.{0,3}\d{4}[-/]\d\d[-/]\d\d|\{|1\d{9})")
"""Separator of events that may have several lines: a line end before a line that begins with a time or is JSON."""
_STACK = re.compile(rb"(?:Exception|Error)\b[^\n]*\n\s+at ")
_STACK_REVERSED = re.compile(rb"\n\s+at [^\n]*\n(?:Caused by: )?[\w.$]+(?:Exception|Error)\b")
_SETTING = re.compile(rb"^\t([a-z][\w.]*) = ", re.MULTILINE)


def unit_of_latest_first(head: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern that separates events if a text has the latest event first; None for any other text."""
    lines = [line for line in head[:_LOOKED_AT].split(b"\n")[:-1] if line.strip()]
    times = [
        _NOT_DIGITS.sub(b"", found[0]).ljust(_DIGITS, b"0")
        for line in lines
        if (found := _TIME.search(line[:_IN_FRONT]))
    ]
    earlier = sum(a > b for a, b in pairwise(times))
    later = sum(a < b for a, b in pairwise(times))
    if earlier < _FEWEST or earlier <= _OTHERS * later or times[0] <= times[-1] or head.lstrip().startswith(b"<"):
        return None
    begun = len(EVERY_EVENT.findall(head[:_LOOKED_AT]))
    return EVERY_LINE if begun < _MOST * len(times) or _is_reversed_within_events(head) else EVERY_EVENT


def _is_reversed_within_events(head: bytes) -> bool:
    """Whether lines are also reversed within events, judging by stack traces and by settings (sorted by name)."""
    names = _SETTING.findall(head)
    reversed_signs: int = len(_STACK_REVERSED.findall(head)) + sum(a > b for a, b in pairwise(names))
    usual: int = len(_STACK.findall(head)) + sum(a < b for a, b in pairwise(names))
    return reversed_signs > usual

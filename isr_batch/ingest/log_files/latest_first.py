"""Recognise text that a log viewer has exported with the latest event first, and how its events are separated."""

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
"""Minimum share, among the lines that contain a time, of lines that begin with it. If the share is lower, something
precedes the times, and every line is treated as an event."""
_FEWEST: Final = 3
"""Minimum number of lines with an earlier time than the line before them."""
_OTHERS: Final = 5
"""There must be more than this many steps back in time for each step forward. Steps forward are allowed because a
broker's threads log concurrently, so that some lines are always out of order."""

EVERY_LINE = re.compile(rb"\n")
EVERY_EVENT = re.compile(rb"\n(?=.{0,3}\d{4}[-/]\d\d[-/]\d\d|\{|1\d{9})")
"""Separator of events that may consist of several lines: the newline before a line that begins with a time or is
JSON."""
_STACK = re.compile(rb"(?:Exception|Error)\b[^\n]*\n\s+at ")
_STACK_REVERSED = re.compile(rb"\n\s+at [^\n]*\n(?:Caused by: )?[\w.$]+(?:Exception|Error)\b")
_SETTING = re.compile(rb"^\t([a-z][\w.]*) = ", re.MULTILINE)


def unit_of_latest_first(head: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern that separates the events of a text with the latest event first; None for any other text."""
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
    """Return whether the lines of an event are reversed too, as stack traces and sorted settings in ``head`` show."""
    names = _SETTING.findall(head)
    reversed_signs: int = len(_STACK_REVERSED.findall(head)) + sum(a > b for a, b in pairwise(names))
    usual: int = len(_STACK.findall(head)) + sum(a < b for a, b in pairwise(names))
    return reversed_signs > usual

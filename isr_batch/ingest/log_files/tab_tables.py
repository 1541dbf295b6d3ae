"""Parse tables without a header whose columns are separated by tabs, from `az -o tsv` or ClickHouse.

Columns are recognised by their values. In some of these tables, newlines in a message are not escaped.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from isr_batch.ingest.log_files.events import LEVELS, form_of, is_kafkas_logger, is_source
from isr_batch.ingest.log_files.prefixes import SOME, begins_with_time, prefix_of

_LOOKED_AT: Final = 400
_FITS: Final = 0.8
"""Minimum share of a column's values that must have the form of times, levels and so on to recognise it."""
_STAMP_CHARACTERS: Final = 40
_MOST_LINES: Final = 10_000
"""Maximum number of lines of a row, as many as a long stack trace has. Rows are held in memory."""
_POD: Final = re.compile(r"[a-z][\w.-]*\d")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_ESCAPED, _NOT_ESCAPED = re.compile(r"\\([bfrnt0'\\])"), re.compile(r"\\(?![bfrntN0'\\])")
STAMP, LEVEL, LOGGER, MESSAGE, HOST = "@timestamp", "level", "logger", "message", "host"


def columns_of_tab_table(text: str) -> list[str] | None:
    """Return the names of the columns of a table without a header, judging by its first rows; None for other texts."""
    lines = [line.rstrip("\r") for line in text.split("\n")[:_LOOKED_AT] if "\t" in line.strip()]
    rows = [row for line in lines if any(map(_is_time, row := line.split("\t")))]
    if not rows:
        return None
    width = Counter(map(len, rows)).most_common(1)[0][0]
    columns = list(zip(*(row for row in rows if len(row) == width), strict=True))
    names = [_name_of_column(values, number) for number, values in enumerate(columns)]
    named = {name: values for name, values in zip(names, columns, strict=True) if name.startswith("column ")}
    if STAMP not in names or not named:
        return None
    message = max(named, key=lambda name: sum(map(len, named[name])))
    has_lines = sum(map(begins_with_time, named[message])) > SOME * len(named[message])
    if LOGGER not in names and (not has_lines or prefix_of(lines)):
        return None
    return [MESSAGE if name == message else name for name in names]


def _name_of_column(values: Sequence[str], number: int) -> str:
    """Return the name of column ``number``, recognised by its values, or "column" with the number."""
    forms: dict[str, Callable[[str], object]] = {
        STAMP: _is_time, LEVEL: re.compile(LEVELS).fullmatch, LOGGER: is_kafkas_logger,
        HOST: lambda text: _POD.fullmatch(text) and is_source(text),
    }  # fmt: skip
    named = (name for name, fits in forms.items() if sum(map(bool, map(fits, values))) >= _FITS * len(values))
    return next(named, f"column {number}")


def _is_time(text: str) -> bool:
    """Return whether a value is just a time."""
    return 0 < len(text) <= _STAMP_CHARACTERS and form_of([text]) is not None


def rows_of_tab_table(lines: Iterable[str], columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield the rows of a table as lists of values. A message may contain newlines and tabs.

    Parameters
    ----------
    lines : iterable of str
    columns : sequence of str
        Names from `columns_of_tab_table`.
    """
    at = columns.index(MESSAGE)
    after = len(columns) - at - 1
    begins = re.compile(r"[^\t]+\t" * at + r"[^\t]")
    row: list[str] = []
    for line in lines:
        text = line.rstrip("\r\n")
        begun = row and begins.match(text) and (not after or _ends_tab_row(row[-1], columns, after))
        if begun or len(row) >= _MOST_LINES:
            yield _split_tab_row("\n".join(row), at, after)
            row = []
        row.append(text)
    if row:
        yield _split_tab_row("\n".join(row), at, after)


def _ends_tab_row(line: str, columns: Sequence[str], after: int) -> bool:
    """Return whether a line ends with the columns that follow the message, ``after`` in number."""
    last = line.split("\t")[-after:]
    return len(last) == after and all(
        _is_time(text) for text, name in zip(last, columns[-after:], strict=True) if name == STAMP
    )


def _split_tab_row(text: str, at: int, after: int) -> list[str]:
    """Split a row into values. ``at`` columns precede the message, and ``after`` columns follow it."""
    *before, rest = text.split("\t", at)
    return [*before, *rest.rsplit("\t", after)] if after else [*before, rest]


def is_escaped_by_backslashes(text: str) -> bool:
    """Return whether newlines and tabs in a table's values are escaped with backslashes, as ClickHouse does."""
    return bool(_ESCAPED.search(text)) and not _NOT_ESCAPED.search(text)


def unescaped(text: str) -> str:
    """Replace the escape sequences for newlines, tabs and so on in a value of a table."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if "\\" in text else text

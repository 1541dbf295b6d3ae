"""Write tables in Markdown."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

EXACT: Final = 1000
"""Numbers below this are shown with four significant digits, all others as whole numbers."""


def markdown_table(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table: headings, a separator, and one line per row.

    Parameters
    ----------
    columns : iterable of str
        Headings, which are also the keys of the rows.
    rows : iterable of mapping
    """
    names = list(columns)
    cells = [names, ["---"] * len(names), *([_cell_of_table(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in cells]


def titled_table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table. ``columns`` maps the keys of the rows to show to their headings."""
    return markdown_table(columns.values(), ({title: row[name] for name, title in columns.items()} for row in rows))


def _cell_of_table(value: object) -> str:
    """Format a value for a table cell: "-" for None, numbers as `EXACT` describes."""
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < EXACT else f"{value:,.0f}"

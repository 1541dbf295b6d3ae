"""docs/sql-cookbook.md: its queries and their results.

``python -m docs.generate.cookbook LAKE`` rewrites the results.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "sql-cookbook.md"
_QUERY = re.compile(r"```sql\n(.*?)\n```\n(?:\n```\n(.*?)\n```\n)?", re.DOTALL)


def queries() -> list[tuple[str, str | None]]:
    """Each query, and its result on the page."""
    return [(match[1], match[2]) for match in _QUERY.finditer(PAGE.read_text(encoding="utf-8"))]


def as_text(columns: list[str], rows: list[list[Any]]) -> str:
    """A table with columns of equal width."""
    lines = [columns, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(padded if rows else [*padded, "(none)"])


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


def write(answer: Callable[[str], str]) -> None:
    """Put the answers into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        _QUERY.sub(lambda match: f"```sql\n{match[1]}\n```\n\n```\n{answer(match[1])}\n```\n", text), encoding="utf-8"
    )


def main(folder: str) -> None:
    """Ask a lake of the samples."""
    from isr_batch.lake.lake import Lake
    from isr_batch.session import start_session
    from isr_batch.settings import SparkSettings

    lake = Lake(start_session(SparkSettings()), folder)
    lake.register_views()

    def answer(query: str) -> str:
        found = lake.spark.sql(query)
        return as_text(found.columns, [list(row) for row in found.collect()])

    write(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])

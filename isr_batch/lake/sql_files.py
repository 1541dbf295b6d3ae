"""Read SQL texts from files next to the code."""

import re
from importlib.resources import files
from itertools import takewhile


def sql_texts(folder: str = "") -> dict[str, str]:
    """Return SQL texts by name: of the views, or in a subfolder, ``functions`` (for Spark) or ``duckdb``."""
    entries = (files("isr_batch.lake") / "sql" / folder).iterdir()
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    }


def views_for_duckdb() -> dict[str, str]:
    """Return the SQL texts of the views for DuckDB by name. Most of them are the same for Spark."""
    return sql_texts() | sql_texts("duckdb")


def comment_of(text: str) -> str:
    """Return the comment at the beginning of a SQL file as one line."""
    lines = takewhile(lambda line: line.startswith("--"), text.splitlines())
    return " ".join(line.removeprefix("--").strip() for line in lines)


def text_of(package: str, name: str, **values: object) -> str:
    """Return the text of a SQL file in a package's folder ``sql``, without comments, and with values for ``$name``."""
    text = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    text = re.sub(r"^ *--.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\$(\w+)", lambda found: str(values[found[1]]), text)

"""Read SQL texts from the folders ``sql`` of packages."""

import re
from importlib.resources import files
from itertools import takewhile


def sql_texts(folder: str = "") -> dict[str, str]:
    """Return {file name without ending: SQL text} for the lake's views.

    With ``folder``, the texts are those of another folder: ``functions`` (the lake's functions for Spark) or ``duckdb``
    (those views that need other text in DuckDB).
    """
    entries = (files("isr_batch.lake") / "sql" / folder).iterdir()
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    }


def views_for_duckdb() -> dict[str, str]:
    """Return {name: SQL text for DuckDB} for the lake's views. Most texts are the same for Spark."""
    return sql_texts() | sql_texts("duckdb")


def comment_of(text: str) -> str:
    """Return the comment lines at the beginning of a SQL text, joined into one line."""
    lines = takewhile(lambda line: line.startswith("--"), text.splitlines())
    return " ".join(line.removeprefix("--").strip() for line in lines)


def text_of(package: str, name: str, **values: object) -> str:
    """Return the SQL in the file ``sql/NAME.sql`` of a package, without comments. Each ``$name`` becomes its value."""
    text = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    text = re.sub(r"^ *--.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\$(\w+)", lambda found: str(values[found[1]]), text)

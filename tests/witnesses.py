"""The README's table of rules and who vouches for them, made from what the last whole test run says it has shown.

A test says so with ``record_property``: ``rule`` (or ``rules``), ``witness`` (a column below), ``count``, ``release``.
``python -m tests.witnesses`` fails unless README.md has the table of ``build/witnesses``; with ``--write`` it is put
there.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from udfs.rules import REGISTRY

BUILD, README = Path("build/witnesses"), Path("README.md")
BEGIN, END = "<!-- witnesses: made by `make witnesses` -->\n", "<!-- end of witnesses -->"
COLUMNS = {
    "naive": "logs against the naive model",
    "class": "released class: fetches",
    "partition": "released Partition: steps",
    "loop": "closed loop: changes",
    "vector": "Kafka's own unit tests",
    "example": "worked examples",
}


def table(told: list[dict[str, Any]]) -> str:
    """Markdown, a row for each rule of the registry."""
    counts: Counter[tuple[str, str]] = Counter()
    releases: dict[tuple[str, str], set[str]] = {}
    for said in told:
        for rule in said.get("rules", [said.get("rule")]):
            key = str(rule), str(said["witness"])
            counts[key] += said.get("count", 1)
            if "release" in said:
                releases.setdefault(key, set()).add(said["release"])
    lines = [f"| rule | in force | {' | '.join(COLUMNS.values())} |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for rule in REGISTRY.values():
        cells = [_cell(counts[rule.id, column], releases.get((rule.id, column), set())) for column in COLUMNS]
        lines.append(f"| `{rule.id}` | {rule.in_force} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(count: int, releases: set[str]) -> str:
    if not count:
        return ""
    in_order = sorted(releases, key=lambda release: [int(part) for part in release.split(".")])
    return f"{count:,}" + (f" ({', '.join(in_order)})" if releases else "")


def main(*, write: bool) -> int:
    """Compare or write; 1 when the README has another table."""
    told = [said for path in sorted(BUILD.glob("*.json")) for said in json.loads(path.read_text(encoding="utf-8"))]
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + table(told) + END + after
    if write:
        README.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        sys.stderr.write("README.md has not the witnesses of this test run: `make witnesses` writes them\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(write=sys.argv[1:] == ["--write"]))

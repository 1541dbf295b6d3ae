"""Results that the last whole test run recorded, as tables of the documents.

docs/witnesses.md has the rules and how each is checked. A test says so with ``record_property``: ``rule`` (or
``rules``), ``witness`` (a column below), ``count``, ``release``. It also has how recorded clusters compare:
``recorded`` (their name) and ``counts``. docs/stories.md has what came of each experiment: ``story`` (its name) and
``outcomes`` (pairs of rule and what came of it). docs/confusion.md has how often a right cause was given which:
``matrix`` (its heading) and ``counts`` (triples of right cause, given cause, how often). docs/answers.md has how often
answers point at the broker at fault: ``answers``, counts by state of evidence, kind of fault and result; ``answers to
others`` is the same of recordings that are not in this repository, which the nightly tests answer.

``python -m docs.generate.witnesses`` fails unless they have the tables of ``build/witnesses``; with ``--write`` they
are put there.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.answers_bench import added, as_markdown
from tests.spark.broker_logs import TRACES
from udfs.kernel.causes import CAUSES, VERDICT_OF_CAUSE
from udfs.rules import REGISTRY

BUILD = Path("build/witnesses")
COLUMNS = {
    "naive": "logs compared with the naive model",
    "class": "fetches compared with Kafka's class",
    "partition": "steps compared with Kafka's Partition",
    "loop": "ISR changes compared with a simulation",
    "vector": "cases of Kafka's unit tests",
    "example": "worked examples",
}


def table(reports: list[dict[str, Any]]) -> str:
    """Markdown, a row for each rule of the registry."""
    counts: Counter[tuple[str, str]] = Counter()
    releases: dict[tuple[str, str], set[str]] = {}
    for said in reports:
        if "witness" not in said:
            continue
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


def matrices(reports: list[dict[str, Any]]) -> str:
    """Markdown, a heading and a matrix for each group of fleets."""
    found = {said["matrix"]: said["counts"] for said in reports if "matrix" in said}
    return "\n".join(
        f"## {what[0].upper()}{what[1:]}\n\n{_matrix(found[what])}" for what in sorted(found, reverse=True)
    )


def _matrix(reports: list[tuple[str, str, int]]) -> str:
    """A row for each right cause, a column for each that was given, and the shares of the right ones."""
    counts = {(cause, given): count for cause, given, count in reports}
    given = [cause for cause in CAUSES if any(cause == column for _, column in counts)]
    lines = [
        f"| right cause | shrinks |{''.join(f' given `{cause}` |' for cause in given)} cause right | verdict right |",
        "| --- |" + " ---: |" * (len(given) + 3),
    ]
    rows = [cause for cause in CAUSES if any(cause == row for row, _ in counts)]
    rows += sorted({row for row, _ in counts} - set(rows))
    for row in rows:
        of_row = {pair: count for pair, count in counts.items() if pair[0] == row}
        cells = [f"{of_row[row, cause]:,}" if (row, cause) in of_row else "" for cause in given]
        lines.append(f"| `{row}` | {_shares(of_row, cells)} |")
    cells = [f"{sum(count for (_, column), count in counts.items() if column == cause):,}" for cause in given]
    lines.append(f"| all | {_shares(counts, cells)} |")
    return "\n".join(lines) + "\n"


def _shares(counts: dict[tuple[str, str], int], cells: list[str]) -> str:
    total = sum(counts.values())
    causes = sum(count for (cause, given), count in counts.items() if cause == given)
    verdicts = sum(
        count
        for (cause, given), count in counts.items()
        if VERDICT_OF_CAUSE.get(cause) == VERDICT_OF_CAUSE[given] != "unknown"
    )
    return " | ".join([f"{total:,}", *cells, f"{causes / total:.2%}", f"{verdicts / total:.2%}"])


def stories(reports: list[dict[str, Any]]) -> str:
    """Markdown, a row for each rule that a story is simulated under."""
    lines = ["| story | rule in the loop | result |", "| --- | --- | --- |"]
    for said in sorted((said for said in reports if "story" in said), key=lambda said: said["story"]):
        lines += [f"| `{said['story']}` | `{rule}` | {outcome} |" for rule, outcome in said["outcomes"]]
    return "\n".join(lines) + "\n"


def recorded(reports: list[dict[str, Any]]) -> str:
    """Markdown, a row for each recorded cluster."""
    columns = [f"{what} {how}" for what in ("drops", "returns") for how in ("logged", "replayed", "not logged")]
    lines = [
        f"| cluster | release | rule | {' | '.join(columns)} |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for said in sorted((said for said in reports if "recorded" in said), key=lambda said: said["recorded"]):
        cells = [f"`{said['recorded']}`", said["release"], f"`{said['rule']}`"]
        for kind in ("shrink", "expand"):
            count = said["counts"][kind]
            cells += [str(count["matched"] + count["missing"]), str(count["matched"]), str(count["extra"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def answers(reports: list[dict[str, Any]], what: str = "answers") -> str:
    """Markdown, a row for each kind of fault, a column for each state of evidence."""
    found = [
        {state: {kind: Counter(counts) for kind, counts in kinds.items()} for state, kinds in said[what].items()}
        for said in reports
        if what in said
    ]
    return as_markdown(added(found)) if found else ""


def other_answers(reports: list[dict[str, Any]]) -> str:
    """Do so for recordings that are not in this repository."""
    return answers(reports, "answers to others")


Maker = Callable[[list[dict[str, Any]]], str]
TABLES: tuple[tuple[str, str, Maker], ...] = (
    ("docs/witnesses.md", "witnesses", table),
    ("docs/witnesses.md", "recorded", recorded),
    ("docs/stories.md", "stories", stories),
    ("docs/confusion.md", "witnesses", matrices),
    ("docs/answers.md", "answers", answers),
    ("docs/answers.md", "answers to others", other_answers),
)
"""Document, name of the table between its markers, and what makes it."""


def main(*, write: bool) -> int:
    """Compare or write; 1 when a document has another table."""
    reports = [said for path in sorted(BUILD.glob("*.json")) for said in json.loads(path.read_text(encoding="utf-8"))]
    stale = [
        (name, what)
        for name, what, made in TABLES
        # Not everybody has the recorded clusters, and the longest tests run at night alone.
        if (what != "recorded" or TRACES.is_dir())
        and (what != "answers to others" or made(reports))
        and not _renew(Path(name), what, made(reports), write=write)
    ]
    for name, what in stale:
        sys.stderr.write(f"{name} has not the {what} that this test run has shown: `make witnesses` writes them\n")
    return 1 if stale else 0


def _renew(document: Path, what: str, made: str, *, write: bool) -> bool:
    """Say whether the document is as it should be, now."""
    begin, end = f"<!-- {what}: made by `make witnesses` -->\n", f"<!-- end of {what} -->"
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    wanted = before + begin + made + end + after
    if write:
        document.write_text(wanted, encoding="utf-8")
    return write or text == wanted


if __name__ == "__main__":
    sys.exit(main(write=sys.argv[1:] == ["--write"]))

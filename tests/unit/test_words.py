"""Idioms that native readers stumble over, in pages, docstrings, comments and messages: none beyond `AT_MOST`.

If a match is right English, rephrase it anyway, or narrow the pattern.
"""

import ast
import inspect
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("benchmarks", "isr_batch", "pipelines", "tests", "udfs")
PATTERNS: Final = {
    "who": r"\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]ho (is|has|was|had|came|may|reads|writes|fetches|asks|holds|looks"
    r"|lacks|never|alone|waits))\b",
    "tell": r"\b(told|tells?)\b",
    "what": r"(^|\. )What [a-z]+",
    "of which": r"\b(of which|of whom)\b",
    "of, in front": r"(^|[.;] )Of (a|an|the|many|those|few|each|one|some|two) ",
    "is none": r"\b(is|are) none\b|(?<!here )\bis no (?!longer)[a-z]+",
    "a, for per": r"\b(a|one) (?!(after|at|before|behind|by|for|from|have|in|into|of|on|or|with) )"
    r"[a-z]+ (an?|each) [a-z]+",
    "of its own": r"\b(by (it|them)sel(f|ves)|of (its|their|his) own)\b",
    "that there is": r"\bthat there (is|are|was|were)\b",
    "so many": r"\bso (many|much|long|large|far|near|late|often) (?!that|as)",
    "anew, beside": r"\b(anew|besides?|hangs? on)\b",
    "as it has it": r"\bas [^.;]{1,40} (has|have|gives?|says?) it\b",
    "takes for": r"\b(takes?|taken|passes) for\b|\bcounts? as\b",
}
_SENTENCE: Final = re.compile(r"(?!.*\b(SELECT|WHERE|FROM|JOIN)\b).* ", re.DOTALL)
"""Several words, and not SQL."""
_MESSAGES: Final = ("isr_batch/", "pipelines/")
AT_MOST: Final[Mapping[str, tuple[int, ...]]] = {
    "docs/sql-cookbook.md": (5, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "docs/tables.md": (28, 23, 46, 2, 0, 3, 5, 7, 0, 0, 4, 1, 0),
    "isr_batch/api/": (3, 2, 9, 2, 1, 3, 0, 2, 0, 0, 3, 1, 1),
    "isr_batch/ingest/own_table/": (9, 3, 3, 1, 3, 2, 1, 7, 0, 3, 2, 1, 4),
    "isr_batch/lake/tables/": (22, 17, 11, 2, 0, 3, 5, 7, 0, 0, 3, 1, 0),
    "tests/": (22, 24, 26, 5, 14, 5, 4, 9, 1, 3, 5, 2, 0),
    "udfs/": (38, 44, 51, 4, 20, 12, 10, 25, 2, 12, 10, 2, 6),
}
"""Matches that are left, in the order of `PATTERNS`, by the start of a path: a ratchet that only shrinks."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield each text with its file."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        if "measurements" not in page.parts:
            yield page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path, source = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
            if file != Path(__file__):
                yield from ((path, text) for text in (*_strings(source, path), *_comments(source)))


def _strings(source: str, path: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    documents = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    yield from (inspect.cleandoc(each.value) for each in documents if isinstance(each.value, str))
    if path.startswith(_MESSAGES):
        strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        others = {id(node) for node in strings} - {id(node) for node in documents}
        yield from (str(node.value) for node in strings if id(node) in others and _SENTENCE.match(str(node.value)))


def _comments(source: str) -> Iterator[str]:
    last, text = -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] > last + 1:
                yield text
                text = ""
            last, text = token.start[0], f"{text}\n{token.string.lstrip('# ')}"
    yield text


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[str]]]:
    """Matches by prefix of `AT_MOST` (or file) and kind."""
    matches: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, text in texts():
        prefix = max((prefix for prefix in AT_MOST if path.startswith(prefix)), key=len, default=path)
        for kind, pattern in PATTERNS.items():
            for match in re.finditer(pattern, text, re.MULTILINE):
                around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
                matches[prefix][kind].append(f"{path}: {around}")
    return matches


def test_no_more_idioms_than_are_left(found: Mapping[str, Mapping[str, list[str]]]) -> None:
    left = {prefix: dict(zip(PATTERNS, numbers, strict=True)) for prefix, numbers in AT_MOST.items()}
    grown = {
        (prefix, kind): places
        for prefix, of_prefix in found.items()
        for kind, places in of_prefix.items()
        if len(places) > left.get(prefix, {}).get(kind, 0)
    }
    assert grown == {}


def test_patterns_find_what_they_are_for() -> None:
    """Each pattern matches its example."""
    examples = {
        "who": "who lacks nothing", "tell": "as it was told", "what": "What a log has", "of which": "of which it is",
        "of, in front": "Of a log the first line", "is none": "when it is none", "a, for per": "one row a run",
        "of its own": "a folder of its own", "that there is": "a zone that there is", "so many": "so many days",
        "anew, beside": "made anew", "as it has it": "as Spark has it", "takes for": "counts as a mistake",
    }  # fmt: skip
    assert [kind for kind in PATTERNS if re.search(PATTERNS[kind], examples[kind])] == list(PATTERNS)

"""No idioms that native readers stumble over, in pages, docstrings, comments and messages.

If a match is right English, rephrase it anyway, or narrow the pattern.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("benchmarks", "docs", "isr_batch", "pipelines", "tests", "udfs")
OTHERS: Final = ("Makefile", "conf/**/*.yaml", "deploy/**/*", "isr_batch/**/*.sql", "tests/**/*.yaml")
"""Files with comments after `#` or `--`."""
PATTERNS: Final = {
    # Not the value of a column.
    "who": r"\b([Nn]obody(?!'| \(the partition|,? +elr_cleared)|[Ss]omebody|[Ww]hoever"
    r"|[Ww]ho (is|has|was|had|came|may|reads|writes|fetches|asks|holds|looks|lacks|never|alone|waits))\b",
    "tell": r"\b(told|tells?)\b",
    "what": r"(^|\. )What [a-z]+(?![^\n]*\?)",
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
    # Say of what: "the rule of Kafka 3.7", "kafka-3.7".
    "as a number": r"\b[Aa]s (in )?[0-4]\.\d+\b",
    # State the other condition.
    "otherwise, twice": r"\b[Oo]therwise\b[^|]{0,200}?\b[Oo]therwise\b|\bif [^.;:\n]*, only if\b",
    "rejected: reason": r"\*\*Rejected\.\*\* [^.:\n]*:",
    "to do with": r"\b(has|have|had) (nothing )?to do with\b",
    "at about one time": r"\bat about one time\b",
    "which there is": r"\bwhich there (is|are|was|were)\b",
    "for its sake": r"\bfor [^.;\n]{1,30}'s sake\b",
    # "the result of `rows_of`", "for `ranges_of`".
    "as it gives": r"\b[Aa]s `[^`]*`\s+(gives|has|says|takes)\b",
    # "Benefit: ...", "Drawback: ...", "Known problem: ...".
    "it fixes": r"^It (fixe[sd]|breaks|broke|would (fix|break)|shows|costs): ",
    # A parameter is a thing: "Result of ...", "Rows of ...".
    "of, as a parameter": r"^ {4,}Of `",
}
TERMS: Final = {
    "books": (r"\bbooks\b(?!-)", "ledger"),
    "hole": (r"\bholes?\b(?! :)", "gap"),
    # Reasons in quarantine, and names of arrangements, keep their text.
    "stamp": (r"(?<!time )(?<!level )(?<![-_`.])\bstamps?\b(?![-_`=:.]| :| level| message)", "timestamp"),
    "standing high watermark": (r"\bstanding high watermark", "HW stall"),
    "time right": (r"\btime right\b", "query accuracy"),
    "can vouch": (r"\bvouch", "coverage"),
}
"""Other words for a term of the glossary in CONTRIBUTING.md, and the term."""
_SENTENCE: Final = re.compile(r"(?!.*\b(SELECT|WHERE|FROM|JOIN)\b).* ", re.DOTALL)
"""Several words, and not SQL."""
_MESSAGES: Final = ("isr_batch/", "pipelines/")


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Each text with its file."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for page in (
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
        *sorted((ROOT / "docs").glob("**/*.md")),
    ):
        yield page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path, source = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
            if file != Path(__file__):
                yield from ((path, text) for text in (*_strings(source, path), *_comments(source)))
    others = {file for pattern in OTHERS for file in ROOT.glob(pattern) if file.is_file() and file.suffix != ".pyc"}
    for file in sorted(others):
        comments = re.findall(r"^\s*(?:--|#) ?(.*)", file.read_text(encoding="utf-8"), re.MULTILINE)
        yield file.relative_to(ROOT).as_posix(), "\n".join(comments)


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


def test_no_idioms(texts: list[tuple[str, str]]) -> None:
    found = [
        f"{path}: {kind}: {' '.join(text[max(0, match.start() - 40) : match.end() + 40].split())}"
        for path, text in texts
        for kind, pattern in PATTERNS.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]
    assert not found, "\n".join(found)


def test_one_name_for_each_concept(texts: list[tuple[str, str]]) -> None:
    found = [
        f"{path}: {term}: {' '.join(text[max(0, match.start() - 40) : match.end() + 40].split())}"
        for path, text in texts
        if path not in {"CONTRIBUTING.md", "Makefile"}
        for pattern, term in TERMS.values()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]
    assert not found, "\n".join(found)
    rows = [line.split("|") for line in (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines() if "|" in line]
    glossary = {row[1].strip().removesuffix(" (HW)"): row[3] for row in rows if len(row) == 5}
    assert all(avoided in glossary[term] for avoided, (_, term) in TERMS.items())


def test_each_pattern_finds_its_example() -> None:
    """Each pattern matches its example."""
    examples = {
        "who": "who lacks nothing", "tell": "as it was told", "what": "What a log has", "of which": "of which it is",
        "of, in front": "Of a log the first line", "is none": "when it is none", "a, for per": "one row a run",
        "of its own": "a folder of its own", "that there is": "a zone that there is", "so many": "so many days",
        "anew, beside": "made anew", "as it has it": "as Spark has it", "takes for": "counts as a mistake",
        "as a number": "as in 3.7", "otherwise, twice": "Otherwise its own. Otherwise to none",
        "rejected: reason": "**Rejected.** A lock file: object stores have no locks",
        "to do with": "that has to do with it", "at about one time": "dropped at about one time",
        "which there is": "a zone, which there is not", "for its sake": "for the leader's sake",
        "as it gives": "as `rows_of` gives them", "it fixes": "It breaks: a slow follower",
        "of, as a parameter": "    Of `ROWS`.",
    }  # fmt: skip
    assert [kind for kind in PATTERNS if re.search(PATTERNS[kind], examples[kind])] == list(PATTERNS)

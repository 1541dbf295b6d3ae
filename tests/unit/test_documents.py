"""The pages that are made of the code are as it would make them, and links and names of pages lead somewhere."""

import re
from pathlib import Path

import pytest

from docs.generate import documents
from isr_batch.lake.tables.outputs import TABLES
from udfs.rules import REGISTRY

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/samples/README.md")]
PAGES = [*FIRST, *sorted((ROOT / "docs").rglob("*.md"))]


def headings(page: Path) -> set[str]:
    """Headings of a page, as GitHub names them in links."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, heading = link.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), link
        assert not heading or heading in headings(there), link


def test_pages_that_the_product_names_are_there() -> None:
    folders = ("isr_batch", "udfs", "pipelines", "deploy", "conf", "docs", "benchmarks")
    files = [ROOT / "Makefile", *FIRST, *(file for folder in folders for file in (ROOT / folder).rglob("*"))]
    named = {
        name
        for file in files
        if file.suffix in {"", ".py", ".yaml", ".yml", ".md", ".sql", ".j2", ".sh"} and file.is_file()
        for name in re.findall(r"(?<![\w/])docs/[\w/.-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_pages_are_up_to_date() -> None:
    assert documents.stale() == [], "`python -m docs.generate.documents --write` makes them"


def test_every_table_and_rule_is_there() -> None:
    assert all(f"### {name}\n" in documents.tables() for name in TABLES)
    assert all(f"## {rule}\n" in documents.rules() for rule in REGISTRY)


def test_the_readme_has_the_lines_of_the_page_for_notebooks() -> None:
    """tests/spark/api/test_notebook.py runs those."""
    docs = Path(documents.__file__).parents[1]
    pages = (docs.parent / "README.md", docs / "notebook.md")
    of_readme, of_page = (page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0] for page in pages)
    assert of_readme == of_page


def test_every_rule_has_a_row_with_its_witnesses() -> None:
    """The naive model, the closed loop, and Kafka's own tests or worked examples: one number at least each."""
    page = (Path(documents.__file__).parents[1] / "witnesses.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \|(.*)\|$", page.partition("<!-- end of witnesses -->")[0], re.MULTILINE)
    assert [rule for rule, _ in rows] == list(REGISTRY)
    for rule, cells in rows:
        _, naive, _, _, closed_loop, of_kafka, worked = (cell.strip() for cell in cells.split("|"))
        assert naive, rule
        assert closed_loop, rule
        assert of_kafka or worked, rule

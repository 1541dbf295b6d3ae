"""The pages that are made of the code are as it would make them."""

from docs.generate import documents
from isr_batch.lake.tables.outputs import TABLES
from udfs.rules import REGISTRY


def test_pages_are_up_to_date() -> None:
    assert documents.stale() == [], "`python -m docs.generate.documents --write` makes them"


def test_every_table_and_rule_is_there() -> None:
    assert all(f"### {name}\n" in documents.tables() for name in TABLES)
    assert all(f"## {rule}\n" in documents.rules() for rule in REGISTRY)

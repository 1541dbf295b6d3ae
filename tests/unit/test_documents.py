"""The pages that are made of the code are as it would make them."""

from isr_batch.output_tables import TABLES
from tests import documents
from udfs.rules import REGISTRY


def test_pages_are_up_to_date() -> None:
    assert documents.stale() == [], "`python -m tests.documents --write` makes them"


def test_every_table_and_rule_is_there() -> None:
    assert all(f"### {name}\n" in documents.tables() for name in TABLES)
    assert all(f"## {rule}\n" in documents.rules() for rule in REGISTRY)

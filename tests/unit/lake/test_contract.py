"""Columns are read from a text with a line for each."""

from isr_batch.lake.tables.contract import Column, columns
from isr_batch.lake.tables.outputs import TABLES


def test_columns_of_a_text() -> None:
    assert columns("""
        topic STRING NOT NULL -- its name
        verdicts MAP<STRING, STRING> -- by rule;
            -- null when there is none
    """) == (
        Column("topic", "STRING", "its name", nullable=False),
        Column("verdicts", "MAP<STRING, STRING>", "by rule; null when there is none"),
    )


def test_every_column_has_a_comment() -> None:
    assert all(column.comment for table in TABLES.values() for column in table.columns)

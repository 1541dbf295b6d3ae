"""The page that compares two rules has the numbers of the tables."""

from typing import Any

from isr_batch.lake.lake import Lake
from isr_batch.report.kip_page import kip_page, markdown_table


def test_a_table_in_markdown() -> None:
    rows: list[dict[str, Any]] = [{"a": 1234, "b": None}, {"a": 0.12345, "b": "x"}, {"a": 12345.6, "b": 0}]
    assert markdown_table(("a", "b"), rows) == [
        "| a | b |", "| --- | --- |", "| 1,234 | - |", "| 0.1235 | x |", "| 12,346 | 0 |",
    ]  # fmt: skip


def test_the_figures_are_those_of_the_scores(sample_lake: Lake) -> None:
    page = kip_page([sample_lake], "kafka-3.7", "kip-501-pending")
    lines = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in page.splitlines()}
    assert all(name.startswith("kafka-3.7, ") for name in lines["figure"][::2])
    for column, title in (("spurious", "mistakes: spurious shrinks (by blame)"), ("misses", "misses")):
        found, _ = sample_lake.query(f"""
            SELECT rule, sum({column}) AS n FROM rule_scores WHERE event_date IS NULL AND topic IS NULL
              AND rule IN ('kafka-3.7', 'kip-501-pending') GROUP BY rule
        """)
        expected = {row["rule"]: row["n"] for row in found}
        (cells,) = (of for name, of in lines.items() if name.startswith(title))
        shown = dict.fromkeys(expected, 0)
        for name, cell in zip(lines["figure"], cells, strict=True):
            shown[name.split(",")[0]] += int(cell.replace(",", ""))
        assert shown == expected
    assert "## Where they differ" in page

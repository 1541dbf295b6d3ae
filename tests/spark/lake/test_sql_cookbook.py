"""Every question of the cookbook, asked of the samples."""

import pytest

from docs.generate.cookbook import as_text, queries
from isr_batch.lake.lake import Lake

QUERIES = queries()


@pytest.fixture
def asked(sample_lake: Lake) -> Lake:
    sample_lake.register_views()
    return sample_lake


@pytest.mark.usefixtures("compiled_queries")
def test_there_are_enough(asked: Lake) -> None:
    assert len(QUERIES) >= 20
    different = []
    for query, given in QUERIES:
        found = asked.spark.sql(query)
        answer = as_text(found.columns, [list(row) for row in found.collect()])
        if answer != given:
            different.append(f"{query}\n{answer}\n, not\n{given}")
    assert different == [], "`python -m docs.generate.cookbook build/sample` writes the page anew"

"""The logs of these tests are short, and what Spark does with long ones is to be tested."""

from collections.abc import Iterator

import pytest

from isr_batch.ingest.engine import in_spark


@pytest.fixture(scope="module", autouse=True)
def rows_stay_in_spark() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as now:
        now.setattr(in_spark, "FEW_ROWS", 0)
        yield

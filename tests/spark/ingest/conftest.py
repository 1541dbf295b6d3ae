"""The logs of these tests are short, and what Spark does with long ones is to be tested."""

from collections.abc import Iterator

import pytest

from isr_batch.lake import sizes


@pytest.fixture(scope="module", autouse=True)
def rows_stay_in_spark() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as now:
        now.setattr(sizes, "ANSWER_ROWS", 0)
        yield

from collections.abc import Iterator

import pytest

from isr_batch.ingest.kafka_logs.log_sql import log_sql
from isr_batch.lake.arrow_sql import ArrowSql


@pytest.fixture(scope="module")
def sql() -> Iterator[ArrowSql]:
    with log_sql() as engine:
        yield engine

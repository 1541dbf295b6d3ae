"""Errors of Spark about a Parquet type name the column, or the type, and say what to do."""

import pytest

from isr_batch.errors import IsrBatchError, SchemaError, UsageError, explained_error

MISMATCH = (
    "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file file:///a/b.parquet. "
    "Data type mismatches when reading Parquet column [ts]. Expected Spark type timestamp, actual Parquet type INT64. "
    "SQLSTATE: KD001"
)


@pytest.mark.parametrize(
    ("kind", "said", "told"),
    [
        (
            SchemaError,
            MISMATCH,
            "file:///a/b.parquet: ts is INT64 in Parquet, and timestamp in other files",
        ),
        (
            UsageError,
            "[PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true)). SQLSTATE: 42846",
            "Spark cannot read the Parquet type INT64 (TIMESTAMP(NANOS,true))",
        ),
    ],
)
def test_types_that_spark_cannot_read(kind: type[IsrBatchError], said: str, told: str) -> None:
    found = explained_error(RuntimeError(said))
    assert isinstance(found, kind)
    assert found.message == told
    assert "coerce_timestamps='us'" in (found.hint or "")

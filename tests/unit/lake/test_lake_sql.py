"""Values in queries: what a name holds is never SQL."""

from isr_batch.lake.arrow_sql import quoted
from isr_batch.lake.lake_sql import _sql_with_values, lake_sql_for_spark

QUERY = "SELECT * FROM (VALUES :rows) AS t(a, b) WHERE a > :least AND c = '12:30'"


def test_rows_are_written_as_each_engine_reads_them() -> None:
    rows = [("it's", 1), ("a\\b", None)]
    assert lake_sql_for_spark(QUERY, rows=rows, least="0") == (
        "SELECT * FROM (VALUES ('it\\'s', 1), ('a\\\\b', NULL)) AS t(a, b) WHERE a > 0 AND c = '12:30'"
    )
    assert _sql_with_values(QUERY, {"rows": rows, "least": "0"}, quoted) == (
        "SELECT * FROM (VALUES ('it''s', 1), ('a\\b', NULL)) AS t(a, b) WHERE a > 0 AND c = '12:30'"
    )


def test_a_value_that_looks_like_a_name_is_none() -> None:
    assert lake_sql_for_spark("SELECT :rows", rows=[(":least",)], least="1") == "SELECT (':least')"

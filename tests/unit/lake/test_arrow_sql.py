"""A query that is planned once gives the same rows as one that is planned each time."""

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_sql import ArrowSql

TEXT = (
    "SELECT n, upper(name) AS name, CASE WHEN n > 1 THEN lag(name) OVER (ORDER BY n) END AS before FROM rows ORDER BY n"
)


def test_other_rows_of_the_same_query() -> None:
    given = [
        pa.table({"n": [1, 2, 3], "name": ["a", None, "c"]}),
        pa.table({"n": [5], "name": ["x"]}),
        pa.table({"n": pa.array([], pa.int64()), "name": pa.array([], pa.string())}),
        pa.concat_tables([pa.table({"n": [n], "name": [str(n)]}) for n in range(3000)]),
        pa.table({"n": pa.array([7, 6], pa.int32()), "name": pa.array(["k", "l"]).dictionary_encode()}),
        pa.table({"n": pa.array([8, 9], pa.int32()), "name": pa.array(["m", "n"]).dictionary_encode()}),
    ]
    with ArrowSql() as anew, ArrowSql(repeated=True) as once:
        for rows in [*given, *reversed(given)]:
            expected = anew(TEXT, rows=rows)
            assert once(TEXT, rows=rows).equals(expected)
            assert pa.Table.from_batches(once.batches(TEXT, 1000, rows=rows), expected.schema).equals(expected)
        both = once("SELECT a.n FROM a JOIN b USING (n) ORDER BY 1", a=given[0], b=given[3])
        assert both["n"].to_pylist() == [1, 2, 3]


def test_a_query_that_does_not_fit() -> None:
    with ArrowSql(repeated=True) as sql:
        for _ in range(2):
            with pytest.raises(ValueError, match="absent"):
                list(sql.batches("SELECT absent FROM rows", 10, rows=pa.table({"n": [1]})))
        assert sql("SELECT n FROM rows", rows=pa.table({"n": [1]}))["n"].to_pylist() == [1]

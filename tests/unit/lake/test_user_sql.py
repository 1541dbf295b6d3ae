"""What `isr-batch sql` answers in this process, and what it refuses by the parsed plan."""

from pathlib import Path

import pytest

from isr_batch.errors import UsageError
from isr_batch.lake.lake import Lake
from isr_batch.lake.user_sql import answer

QUERIES = [
    "SELECT 'é, \"type\":\"DELETE_QUERY_NODE\"'", "(((SELECT 1)))", "FROM range(3)", "VALUES (1)", "SHOW TABLES",
    "DESCRIBE SELECT 1", "SUMMARIZE SELECT 1", "SELECT 1 UNION SELECT 2 ORDER BY 1",
    "SELECT (SELECT 1), array(SELECT 2)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "PIVOT (SELECT 'copy' AS a) ON a USING count(*)", "UNPIVOT (SELECT 1 AS a) ON a", f"SELECT {'1 + ' * 900}1",
    "/* é */ EXPLAIN SELECT 1", "EXPLAIN ANALYZE (SELECT 1)", "EXPLAIN (ANALYZE, FORMAT json) (SELECT 1)",
    "EXPLAIN PIVOT (SELECT 1 AS a) ON a USING count(*)",
]  # fmt: skip
COPY = "COPY (SELECT 1) TO '{out}'"
OTHERS = {
    f"EXPLAIN ANALYZE {COPY}": "copy", f"/* é */ EXPLAIN -- (\n (ANALYZE, FORMAT json) {COPY}": "copy",
    f"WITH a AS ({COPY}) SELECT 1": "copy", f"EXPLAIN ANALYZE WITH a AS ({COPY}) SELECT 1": "copy",
    f"SELECT * FROM (WITH a AS ({COPY}) SELECT 1)": "copy",
    f"WITH a AS ({COPY.replace('COPY', 'cOpY/**/')}) FROM (PIVOT (SELECT 1 AS a) ON a USING count(*))": "copy",
    "WITH a AS (DELETE FROM t RETURNING 1) SELECT * FROM a": "delete",
    "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a": "insert", "EXPLAIN ANALYZE SET threads = 1": "set",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1": "create", "EXPLAIN CALL range(3)": "call",
}  # fmt: skip


def ask(text: str, tmp_path: Path) -> None:
    """Ask an empty lake, which has no table."""
    answer(Lake(lambda: None, str(tmp_path / "lake"), "r"), text)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_is_answered(text: str, tmp_path: Path) -> None:
    ask(text, tmp_path)


@pytest.mark.parametrize("text", OTHERS)
def test_what_would_write_is_refused_by_its_plan(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"not a query on the lake's tables: {OTHERS[text]}"):
        ask(text.replace("{out}", str(tmp_path / "out")), tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "meant"), [("SELECT vrdict FROM (SELECT 1 AS verdict)", "verdict"), ("SELECT foor(1)", "floor")]
)
def test_of_a_wrong_name_the_nearest_is_suggested(text: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        ask(text, tmp_path)
    assert f"did you mean {meant}?" in refused.value.hint

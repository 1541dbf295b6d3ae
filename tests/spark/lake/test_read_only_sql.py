"""`isr-batch sql` reads and changes nothing, unless it is allowed to."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.engine_choice import EngineChoice
from isr_batch.lake.lake import Lake
from isr_batch.lake.read_only_sql import require_query
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.inputs import INGESTED_FILES
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.lake.user_sql import answer

NAMES = [*TABLES, *VIEWS, *sql_texts()]
COOKBOOK = re.findall(r"```sql\n(.*?)```", Path("docs/sql-cookbook.md").read_text(), re.DOTALL)
QUERIES = [
    "DESCRIBE shrink_verdicts", "SHOW TABLES", "EXPLAIN SELECT * FROM rule_scores", "TABLE rule_scores", "VALUES (1)",
    "WITH a AS (SELECT 1 AS n), b AS (SELECT n FROM a) SELECT * FROM b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "SELECT * FROM RULE_SCORES WHERE rule IN (SELECT rule FROM isr_changes) AND EXISTS (SELECT 1 FROM replay_check)",
    "SELECT rule, ntile(3) OVER w FROM rule_scores WINDOW w AS (ORDER BY rule)",
    "SELECT * FROM rule_scores TABLESAMPLE (5 ROWS)", "SELECT * FROM range(5)",
    "SELECT * FROM isr_changes LATERAL VIEW explode(isr_before) AS c",
    "FROM rule_scores |> WHERE rule > 'a' |> LIMIT 3",
    "SELECT transform(isr_before, x -> x + 1) FROM isr_changes", "SELECT lag_time_ms(params_json) FROM rule_scores",
    "SELECT * FROM rule_scores PIVOT (sum(misses) FOR rule IN ('a', 'b'))",
    "(SELECT 1 MINUS SELECT 2) INTERSECT SELECT 3 ORDER BY 1 LIMIT 3 OFFSET 2",
]  # fmt: skip
NO_QUERIES = {
    "DELETE FROM delta.`{lake}/rule_scores`": "delete from table",
    "DELETE FROM rule_scores": "delete from table",
    "WITH a AS (SELECT 1) INSERT INTO rule_scores SELECT * FROM a": "insert into statement",
    "FROM rule_scores INSERT INTO isr_changes SELECT *": "insert into statement",
    "INSERT OVERWRITE DIRECTORY '{lake}/x' USING csv SELECT 1": "insert into dir",
    "SELECT TRANSFORM(rule) USING 'sh' FROM rule_scores": "script transformation",
    "SELECT * FROM (SELECT TRANSFORM(rule) USING 'sh' FROM rule_scores)": "script transformation",
    "SELECT (SELECT max(a) FROM (SELECT TRANSFORM(rule) USING 'sh' AS (a) FROM rule_scores))": "script transformation",
    "SELECT * FROM text.`/etc/hostname`": "the lake has no text./etc/hostname",
    "SELECT * FROM `/etc/hostname`": "the lake has no /etc/hostname",
    "SELECT * FROM delta.`{lake}/rule_scores`": "the lake has no delta.",
    "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')": "the lake has no text",
    "DESCRIBE text.`/etc/hostname`": "the lake has no text",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME')": "function reflect is not allowed",
    "SELECT `java_method`('java.lang.System', 'exit', 1)": "function java_method is not allowed",
    "SELECT * FROM rule_scores ORDER BY try_reflect('a', 'b')": "function try_reflect is not allowed",
    "SELECT rank() OVER w FROM rule_scores WINDOW w AS (ORDER BY reflect('a', 'b'))": "function reflect is not allowed",
    "SELECT 1 FROM rule_scores WINDOW w AS (ORDER BY (SELECT a FROM (SELECT TRANSFORM(1) USING 'sh' AS a)))": "script",
    "FROM rule_scores |> SET rule = reflect('a', 'b')": "function reflect is not allowed",
    "SELECT IDENTIFIER('ref' || 'lect')('a', 'b')": "names computed with identifier",
    "SELECT my.own(1)": "function my.own is not allowed",
    "SELECT * FROM rule_scores LATERAL VIEW other.f(1) AS x": "function other.f is not allowed",
    "SELECT * FROM table_changes('rule_scores', 1)": "function table_changes is not allowed",
    "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a": "the lake has no b",
    "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a), a": "the lake has no a",
    "ADD FILE '/etc/hostname'": "add files command", "ADD JAR '/x'": "add jars command", "SET x = 1": "set command",
    "VACUUM rule_scores": "vacuum", "DROP TABLE rule_scores": "drop", "OPTIMIZE rule_scores": "optimize",
    "CREATE TABLE x AS SELECT 1": "create", "CREATE TEMPORARY VIEW x AS SELECT 1": "create",
    "REFRESH TABLE x": "refresh",
    "CACHE TABLE x AS SELECT 1": "cache", "EXECUTE IMMEDIATE 'SELECT 1'": "execute", "BEGIN SELECT 1; END": "compound",
    "EXPLAIN DELETE FROM rule_scores": "delete", "CALL x()": "call",
    "LOAD DATA INPATH '/x' INTO TABLE rule_scores": "load",
    "SELECT 1; DROP TABLE rule_scores": "syntax", "SELEC 1": "", "": "", ";": "", "\0": "",
    f"SELECT {'1 + ' * 3000}1": "", f"SELECT {'(' * 3000}1{')' * 3000}": "",
    f"{'SELECT 1 UNION ALL ' * 1500}SELECT 1": "",
}  # fmt: skip


@pytest.fixture
def lake(lake: Lake) -> Lake:
    lake.ensure(INGESTED_FILES)
    lake.engine = EngineChoice("spark")
    return lake


@pytest.mark.parametrize("text", [*QUERIES, *COOKBOOK[::4]])
def test_a_query_is_one(spark: SparkSession, text: str) -> None:
    require_query(spark, text, NAMES)


@pytest.mark.parametrize("text", NO_QUERIES, ids=lambda text: text[:60])
def test_other_statements_are_refused_with_a_reason(spark: SparkSession, tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=f"(?i){re.escape(NO_QUERIES[text])}"):
        require_query(spark, text.replace("{lake}", str(tmp_path)), NAMES)
    assert not [*tmp_path.iterdir()]


def test_the_environment_is_no_part_of_a_query(lake: Lake) -> None:
    assert answer(lake, "SELECT '${env:HOME}' AS home")[0] == [{"home": "${env:HOME}"}]


def test_who_wants_all_says_so(lake: Lake) -> None:
    text = f"DELETE FROM delta.`{lake.root}/ingested_files`"
    with pytest.raises(UsageError, match="delete from table"):
        answer(lake, text)
    assert answer(lake, text, unrestricted=True)[1] == ["num_affected_rows"]


@pytest.mark.parametrize("text", ["SELECT raise_error('no')", "SELECT CAST('a' AS INT)", "SELECT 1 / 0", "SELECT x.y"])
def test_a_query_that_cannot_be_computed(lake: Lake, text: str) -> None:
    with pytest.raises(UsageError):
        answer(lake, text)


@pytest.mark.parametrize("text", ["FROM '{file}'", "FROM ingested_files, '{file}'", "FROM ingested_files AS a, file"])
def test_no_file_and_no_variable_is_read_in_this_process(lake: Lake, tmp_path: Path, text: str) -> None:
    lake.engine = EngineChoice()
    file = tmp_path / "other.csv"
    file.write_text("a\nsecret\n")
    with pytest.raises(UsageError):
        answer(lake, f"SELECT * {text}".replace("{file}", str(file)))
    with ArrowSql() as sql, pytest.raises(Exception, match=r"(?i)does not exist|disabled|not found"):
        sql(f"SELECT * FROM '{file}'")


_WORDS = st.sampled_from([
    "SELECT", "*", "FROM", "rule_scores", "isr_changes", "WHERE", "rule", "=", "'a'", "(", ")", ",", "1", "WITH", "AS",
    "DELETE", "INSERT INTO", "INSERT OVERWRITE DIRECTORY", "'/tmp/no'", "USING csv", "TRANSFORM", "USING 'true'",
    "text.`/etc/hostname`",
    "UNION ALL", "LATERAL VIEW", "explode", "reflect", "DROP TABLE", "VACUUM", "ORDER BY", "LIMIT", ";",
    "--", "/*", "*/", "${env:HOME}", "\0",
    "CREATE TABLE x", "x", ".", "`", '"', "MERGE INTO", "UPDATE", "SET", "EXISTS", "IN", "JOIN", "ON",
    "|>", "$$", "@v1",
])  # fmt: skip


def refused_or_asked(spark: SparkSession, words: list[str]) -> None:
    try:
        require_query(spark, " ".join(words), NAMES)
    except UsageError:
        return
    assert not re.search(
        r"DELETE|INSERT|TRANSFORM|reflect|text|DROP|VACUUM|CREATE|MERGE|UPDATE", _code(" ".join(words))
    )


def _code(text: str) -> str:
    """Without literals, quoted names and remarks, and without aliases that look like words of statements."""
    text = re.sub(r"/\*.*?(\*/|$)|--.*|'[^']*'|`[^`]*`|\"[^\"]*\"", " ", text)
    return re.sub(r"\b(AS )?(DELETE|UPDATE|TRANSFORM|reflect|VACUUM)\b(?!\s*[(.])", " ", text)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_WORDS, max_size=12))
def test_words_at_random_change_nothing(spark: SparkSession, words: list[str]) -> None:
    refused_or_asked(spark, words)


@pytest.mark.nightly
@settings(max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_WORDS, max_size=20))
def test_many_words_at_random_change_nothing(spark: SparkSession, words: list[str]) -> None:
    refused_or_asked(spark, words)

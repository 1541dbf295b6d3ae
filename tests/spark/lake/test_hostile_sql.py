"""SQL at random, one session for all: each statement is answered or refused, soon, and nothing is written or set."""

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines import cli

SERVER_LOGS = Path(__file__).parents[2] / "golden" / "server-log-only"
SECONDS = 30
"""Of CPU time; an endless statement is ended by the limit on the whole test."""
CASES = 40
"""The number for which `make test` has time."""
PARTS, OF_PART = 8, 500

EXPRESSIONS = [
    "1", "topic", "count(*)", "'a'", '"b"', "x'00ff'", "NULL", "-9223372036854775808", "1e400", "CAST('nan' AS FLOAT)",
    "DATE'-0001-01-01'", "DATE'+12345-01-01'", "TIMESTAMP'-0400-01-01'", "TIMESTAMP_NTZ'0000-01-01 00:00:00'",
    "timestamp_seconds(9e11)", "TIME'10:00:00'", "INTERVAL 1 MONTH", "INTERVAL '999999999' DAY",
    "make_interval(1, 1, 1, 1)", "INTERVAL '1-1' YEAR TO MONTH", "parse_json('{\"a\": [1, null]}')", "map()",
    "map(array(1), named_struct('a', 1))", "named_struct('a', 1, 'a', 2)", "array(map(1, 2), NULL)", "'\\u0000'",
    "decode(x'ff', 'UTF-8')", "chr(27)", "chr(8238)", "'\u202e'", "current_timestamp()", "rand()", "input_file_name()",
    "raise_error('%s {0}')", "assert_true(false)", "1 / 0", "element_at(array(1), 9)", "CAST('x' AS INT)",
    "reflect('java.lang.System', 'setProperty', 'isr.escaped', 'x')", "java_method('java.lang.System', 'exit', 3)",
    "try_reflect('java.lang.Runtime', 'getRuntime')", "`reflect`('java.lang.System', 'gc')",
    "IDENTIFIER('ref' || 'lect')('java.lang.System', 'setProperty', 'isr.escaped', 'x')",
    "system.builtin.reflect('java.lang.System', 'gc')", "default.f(1)", "?", ":a", "${env:HOME}", "${spark.app.name}",
    "session.v", "system.session.v", "@@v", "a.b.c.d.e", "transform(array(1), x -> x + 1)",
    "transform(array(1), x -> reflect('java.lang.System', 'setProperty', 'isr.escaped', 'x'))", "x -> x", "*",
    "aggregate(array(1), 0, (a, b) -> a + b)", "topic[0]", "topic:a.b", "topic::int", "TRANSFORM(topic) USING 'sh'",
    "grouping_id()", "ntile(2) OVER (ORDER BY 1)", "explode(array(1))", "posexplode(array(1))", "stack(2, 1, 2)",
    "from_json('{', 'a INT')", "from_csv('1', 'a INT', map('mode', 'FAILFAST'))", "schema_of_json('[')",
    "xpath('<a', '/')", "regexp_replace('a', '(', '')", "'a' RLIKE '(a+)+$'", "like_any", "format_string('%d', 'a')",
    "date_format(now(), 'QQQQQQ')", "to_timestamp('a', 'yyyy-q')", "from_utc_timestamp(now(), 'No/where')",
    "make_date(99999, 1, 1)", "try_variant_get(parse_json('1'), '$[', 'int')", "collation('a' COLLATE NOWHERE)",
    "'a' COLLATE UNICODE_CI", "CAST(1 AS VARIANT)", "to_binary('zz', 'hex')", "aes_decrypt(x'00', 'k')",
    "url_decode('%')", "uuid()", "version()", "current_user()", "typeof(1)", "sequence(1, 3)", "bitmap_count(x'')",
    "hll_sketch_estimate(x'00')", "kll_sketch_to_string_bigint(x'00')", "st_geomfromwkb(x'00')",
    "session_window(now(), '1 s')", "window(now(), '1 s')", "monotonically_increasing_id()", "approx_percentile(1, 2)",
    "DEFAULT", "STRUCT(*)",
]  # fmt: skip
RELATIONS = [
    "shrink_evidence", "COVERAGE", "`leader_epochs`", "nothing", "range(3)", "VALUES (1), (2)", "(VALUES (1)) AS t(a)",
    "text.`{scratch}/secret`", "csv.`{scratch}/secret`", "json.`{scratch}/secret`", "parquet.`{lake}/coverage`",
    "delta.`{lake}/coverage`", "`delta`.`{lake}/coverage`", "binaryFile.`{scratch}/secret`", "orc.`/etc`",
    "`{scratch}/secret`", "'{scratch}/secret'", "IDENTIFIER('text.`{scratch}/secret`')",
    "IDENTIFIER('cover' || 'age')", "read_files('{scratch}/secret')", "read_csv('{scratch}/secret')",
    "table_changes('coverage', 0)", "table_changes_by_path('{lake}/coverage', 0)", "python_worker_logs()",
    "sql_keywords()", "collations()", "variant_explode(parse_json('[1]'))", "explode(array(1, 2))",
    "json_tuple('{}', 'a')", "stack(1, 1)", "inline(array())", "coverage VERSION AS OF 0",
    "coverage TIMESTAMP AS OF '2020-01-01'", "coverage@v0", "coverage TABLESAMPLE (1 ROWS)",
    "spark_catalog.default.coverage", "global_temp.coverage", "default.coverage", "information_schema.tables",
    "STREAM coverage", "TABLE(coverage)", "jdbc.`jdbc:derby:{scratch}/db;create=true`", "text.`file:///etc/hostname`",
    "text.`http://127.0.0.1:1/x`", "hive.`x`", "coverage.partitions", "LATERAL (SELECT 1)", "range(1, 2, 0)",
    "coverage LATERAL VIEW explode(array(1)) AS c", "coverage LATERAL VIEW reflect('a', 'b') AS c",
    "coverage PIVOT (count(*) FOR topic IN ('a'))", "coverage UNPIVOT (v FOR n IN (topic))", "a", "b",
    "coverage WITH (header = 'true')", "coverage /*+ BROADCAST(x) */",
]  # fmt: skip
STATEMENTS = [
    "DELETE FROM coverage", "DELETE FROM delta.`{lake}/coverage` WHERE true", "UPDATE coverage SET topic = 'a'",
    "INSERT INTO coverage SELECT * FROM coverage", "INSERT OVERWRITE delta.`{lake}/coverage` SELECT * FROM coverage",
    "INSERT INTO delta.`{lake}/coverage` REPLACE WHERE true TABLE coverage",
    "FROM coverage INSERT INTO shrink_evidence SELECT *",
    "INSERT OVERWRITE DIRECTORY '{scratch}/out' USING csv SELECT 1",
    "INSERT OVERWRITE LOCAL DIRECTORY '{scratch}/out' SELECT 1",
    "MERGE INTO coverage USING shrink_evidence ON true WHEN MATCHED THEN DELETE", "TRUNCATE TABLE coverage",
    "SELECT TRANSFORM(topic) USING 'touch {scratch}/out' FROM coverage",
    "FROM coverage MAP topic USING 'touch {scratch}/out' AS a",
    "FROM coverage REDUCE topic USING 'touch {scratch}/out' AS a", "ADD FILE '{scratch}/secret'",
    "ADD JAR '{scratch}/secret'", "ADD ARCHIVE '{scratch}/secret'", "LIST FILES", "SET spark.sql.ansi.enabled = false",
    "SET -v", "SET TIME ZONE 'UTC+9'", "SET VAR v = 1", "DECLARE v INT DEFAULT 1", "DROP TEMPORARY VARIABLE v",
    "RESET", "RESET spark.sql.session.timeZone", "CACHE TABLE c AS SELECT 1", "CACHE LAZY TABLE coverage",
    "UNCACHE TABLE coverage", "CLEAR CACHE", "REFRESH '{lake}'", "REFRESH TABLE coverage", "REFRESH FUNCTION f",
    "CREATE TABLE t (a INT)", "CREATE TABLE t USING delta LOCATION '{scratch}/out' AS SELECT 1",
    "CREATE OR REPLACE TABLE delta.`{lake}/coverage` AS SELECT 1", "CREATE VIEW v AS SELECT 1",
    "CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '{scratch}/secret')",
    "CREATE OR REPLACE TEMP VIEW coverage AS SELECT 1", "CREATE FUNCTION f AS 'java.lang.System'",
    "CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x", "CREATE DATABASE d",
    "CREATE TEMPORARY FUNCTION f AS 'a.b' USING JAR '{scratch}/secret'", "DROP VIEW coverage", "DROP TABLE coverage",
    "DROP DATABASE default CASCADE", "ALTER TABLE coverage SET TBLPROPERTIES ('a' = 'b')",
    "ALTER VIEW coverage AS SELECT 1", "ALTER TABLE delta.`{lake}/coverage` ADD COLUMN x INT",
    "COMMENT ON TABLE coverage IS 'x'", "ANALYZE TABLE coverage COMPUTE STATISTICS", "MSCK REPAIR TABLE coverage",
    "USE default", "USE CATALOG x", "SET CATALOG x", "LOAD DATA LOCAL INPATH '{scratch}/secret' INTO TABLE coverage",
    "EXPORT TABLE x", "IMPORT TABLE x", "LOCK TABLE x", "VACUUM '{lake}/coverage' RETAIN 0 HOURS",
    "OPTIMIZE delta.`{lake}/coverage` ZORDER BY (topic)", "RESTORE TABLE coverage TO VERSION AS OF 0",
    "REORG TABLE coverage APPLY (PURGE)", "CONVERT TO DELTA parquet.`{scratch}`",
    "CREATE TABLE c SHALLOW CLONE coverage", "FSCK REPAIR TABLE coverage",
    "GENERATE symlink_format_manifest FOR TABLE delta.`{lake}/coverage`", "DESCRIBE HISTORY delta.`{lake}/coverage`",
    "DESCRIBE DETAIL coverage", "EXECUTE IMMEDIATE 'SELECT 1'", "EXECUTE IMMEDIATE 'DELETE FROM coverage'",
    "EXECUTE IMMEDIATE v USING 1", "BEGIN SELECT 1; END",
    "BEGIN DECLARE x INT; INSERT OVERWRITE DIRECTORY '{scratch}/out' SELECT 1; END",
    "BEGIN LOOP SELECT 1; END LOOP; END", "CALL p()", "CALL system.x()", "FETCH c INTO v", "OPEN c", "SHOW TABLES",
    "SHOW VIEWS", "SHOW FUNCTIONS", "SHOW CREATE TABLE coverage", "SHOW TBLPROPERTIES coverage",
    "SHOW PARTITIONS coverage", "SHOW COLUMNS IN coverage", "SHOW DATABASES", "SHOW CATALOGS", "DESCRIBE coverage",
    "DESCRIBE EXTENDED coverage topic", "DESCRIBE FUNCTION reflect", "DESCRIBE QUERY {q}",
    "DESCRIBE text.`{scratch}/secret`", "EXPLAIN {q}", "EXPLAIN CODEGEN {q}", "EXPLAIN COST {q}", "DFS -rm -r {lake}",
    "!sh -c 'touch {scratch}/out'", "SOURCE '{scratch}/secret'", "SELEKT 1", "KILL 1", "GRANT ALL ON coverage TO x",
    "CREATE STREAMING TABLE t AS SELECT 1", "CREATE MATERIALIZED VIEW m AS SELECT 1",
    "CREATE FLOW f AS INSERT INTO coverage BY NAME SELECT 1", "CREATE TABLE x LIKE coverage",
    "COPY INTO coverage FROM '{scratch}'", "CREATE METRIC VIEW m AS $$ version: 0.1 $$", "DROP FUNCTION f",
]  # fmt: skip
AROUND = [
    "SELECT * FROM ({q})", "SELECT ({q}) AS a", "SELECT 1 WHERE EXISTS ({q})", "SELECT 1 WHERE 1 IN ({q})", "({q})",
    "{q} UNION ALL {q}", "WITH a AS ({q}) SELECT * FROM a",
    "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL {q}) SELECT * FROM a", "EXPLAIN {q}",
    "WITH a AS (SELECT 1), b AS ({q}) SELECT * FROM a, b", "SELECT * FROM coverage ORDER BY ({q})",
    "FROM ({q}) SELECT *", "FROM ({q}) |> LIMIT 1", "SELECT * FROM coverage AS a, LATERAL ({q})",
    "SELECT * FROM coverage JOIN ({q}) AS r ON true LIMIT 1", "EXECUTE IMMEDIATE '{q}'", "{q}; {q}", "{q};",
    "BEGIN {q}; END", "SELECT transform(array(1), x -> ({q}))", "VALUES (({q}))", "DESCRIBE QUERY {q}", "TABLE ({q})",
    "SELECT CASE WHEN ({q}) THEN 1 END", "SELECT count(*) FILTER (WHERE ({q}) = 1) FROM coverage",
    "SELECT * FROM explode(array(({q})))", "SELECT sum(1) OVER (ORDER BY ({q})) FROM coverage", "SELECT 1 LIMIT ({q})",
    "SELECT * FROM range(3) TABLESAMPLE (({q}) ROWS)", "SELECT 1 GROUP BY ({q}) HAVING ({q}) = 1",
    "CREATE VIEW v AS {q}", "INSERT INTO coverage {q}", "CACHE TABLE c AS {q}",
]  # fmt: skip
CLAUSES = [
    "WHERE {}", "GROUP BY {}", "GROUP BY GROUPING SETS (({}))", "HAVING {}", "ORDER BY {}", "LIMIT {}",
    "CLUSTER BY {}", "QUALIFY {}", "WINDOW w AS (ORDER BY {})", "|> SET topic = {}", "|> EXTEND {} AS e",
    "|> AGGREGATE {}", "|> WHERE {}",
]  # fmt: skip
NESTED = [
    ("(", ")"), ("SELECT * FROM (", ")"), ("NOT ", ""), ("- ", ""), ("1 + ", ""), ("array(", ")"),
    ("CASE WHEN true THEN ", " END"), ("WITH a AS (", ") SELECT * FROM a"), ("SELECT 1 UNION ALL ", ""), ("/*", "*/"),
    ("[", "]"), ("EXPLAIN ", ""), ("struct<", ">"), ("'a' || ", ""), ("1 = 1 AND ", ""), ("BEGIN ", "; END"),
]  # fmt: skip
NOISE = [
    "/* */", "/*", "*/", "--\n", "-- \\\n", ";", "'", '"', "`", "\\", "\0", "\ufeff", "\u00a0", "\u200b", "\u202e",
    "\uff07", "\uff1b", "\ud800", "\u2028", "\t\r\n\f", "/*+ REPARTITION(2) */", "/*+ COALESCE(-1) */", "$$",
    "${env:HOME}", "\U0001f4a5", "\x1b[2J", "%", "{", "}}", "`` ", "--", "9" * 400, "x" * 70_000, ",", "(", ")", "0x",
    "1L", "1e", "r'", "@", "#", "|>", "::", "=>", "<=>",
]  # fmt: skip


def statement(chosen: random.Random, depth: int = 0) -> str:
    """Make a query that may hide another one, or a statement that changes something."""
    kind = chosen.random()
    if kind < 0.35 and depth < 4:
        text = chosen.choice(AROUND)
    elif kind < 0.6:
        text = chosen.choice(STATEMENTS)
    else:
        columns = ", ".join(chosen.choices(EXPRESSIONS, k=chosen.choice([1, 1, 1, 1, 2, 4])))
        known = RELATIONS[: chosen.choice([3, len(RELATIONS)])]
        text = f"SELECT {columns} FROM {', '.join(chosen.choices(known, k=chosen.choice([1, 1, 1, 2])))}"
        for clause in CLAUSES:
            text += f" {clause.format(chosen.choice(EXPRESSIONS))}" * (chosen.random() < 0.06)
    while "{q}" in text:
        text = text.replace("{q}", statement(chosen, depth + 1), 1)
    return text


def mutated(chosen: random.Random, text: str) -> str:
    """Change some characters of it, or put it deep into others."""
    for _ in range(chosen.choice([0, 0, 0, 1, 1, 3])):
        at, to = sorted(chosen.choices(range(len(text) + 1), k=2))
        text = chosen.choice([
            f"{text[:at]}{chosen.choice(NOISE)}{text[at:]}", f"{text[:at]} {chosen.choice(NOISE)} {text[to:]}",
            f"{text[:at]}{text[to:]}", f"{text[:at]}{text[at:to].swapcase()}{text[to:]}", text[:at],
            f"{text} {text[at:to]}", text.replace("'", '"'),
            text.replace(" ", chosen.choice(["/**/", "\n", "\u00a0", "--\n", "  "])),
        ])  # fmt: skip
    if chosen.random() < 0.06:
        before, behind = chosen.choice(NESTED)
        levels = chosen.choice([5, 40, 3000])
        text = f"{before * levels}{text}{behind * levels}"
    return text


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Give a lake of server.log alone, and a folder with a file next to it."""
    found = {"lake": str(tmp_path / "lake"), "scratch": str(tmp_path / "scratch")}
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "secret").write_text("secret-of-others\n")
    made = ["ingest", "kafka-logs", str(SERVER_LOGS), "--lake", found["lake"], "--cluster", "c", "--engine", "local"]
    with pytest.raises(SystemExit) as exited:
        cli.main(made)
    assert not exited.value.code
    return found


def there(spark: SparkSession, tmp_path: Path) -> set[object]:
    """Give all that a statement might change."""
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    files = {(path, path.stat().st_size, path.stat().st_mtime_ns) for folder in (tmp_path, warehouse)
             for path in folder.rglob("*")}  # fmt: skip
    java: Any = spark._jvm
    catalog, context = spark._jsparkSession.sessionState().catalog(), spark._jsc.sc()
    of_session = [catalog.listTables("default", "*"), catalog.getCurrentDatabase(), context.listFiles(),
                  context.listJars(), spark._jsparkSession.sharedState().cacheManager().isEmpty(),
                  java.java.lang.System.getProperty("isr.escaped")]  # fmt: skip
    return {*files, *Path.cwd().iterdir(), *spark.conf.getAll.items(), *enumerate(map(str, of_session))}


def worked(spark: SparkSession) -> float:
    """CPU time of this process and its JVM, in seconds."""
    gateway: Any = spark.sparkContext._gateway
    of_java = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, of_java[11:13])) / os.sysconf("SC_CLK_TCK")


def statement_of(seed: int, places: dict[str, str]) -> str:
    """Make the statement of a seed; the folders are put in last, as their length would change what is mutated."""
    chosen = random.Random(seed)
    text = mutated(chosen, statement(chosen))
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def ask(spark: SparkSession, capsys: pytest.CaptureFixture[str], lake: str, text: str, *options: str) -> int:
    """Run a statement as a user does; gives the exit code."""
    began = worked(spark)
    with pytest.raises(SystemExit) as exited:
        cli.main(["sql", text, "--lake", lake, "--engine", "spark", *options])
    assert worked(spark) - began < SECONDS
    out, err = capsys.readouterr()
    assert exited.value.code in {None, 0, 2, 3}, err
    assert "Traceback" not in err
    assert not re.search("secret-of-others|\x1b|\u202e", out + err)
    return int(exited.value.code or 0)


def ask_all(spark: SparkSession, capsys: pytest.CaptureFixture[str], places: dict[str, str], seeds: range) -> set[int]:
    """Ask the statements of all seeds; nothing may have changed after any of them."""
    lake, codes = places["lake"], set()
    assert ask(spark, capsys, lake, "SELECT count(*) FROM coverage CROSS JOIN shrink_evidence") == 0
    before = there(spark, Path(lake).parent)
    for seed in seeds:
        text = statement_of(seed, places)
        try:
            codes.add(ask(spark, capsys, lake, text, *["--json"] * (seed % 2)))
            now = there(spark, Path(lake).parent)
            assert now == before, now ^ before
        except AssertionError as error:
            raise AssertionError(f"{seed}: {text[:2000]!r}") from error
    return codes


def test_a_statement_is_answered_or_refused(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], places: dict[str, str]
) -> None:
    assert ask(spark, capsys, places["lake"], f"{'/*' * 5000}{'*/' * 5000} SELECT 1") == 2
    assert ask_all(spark, capsys, places, range(CASES)) == {0, 2}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_more_of_them(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], places: dict[str, str], part: int
) -> None:
    first = 10_000 + OF_PART * part
    assert ask_all(spark, capsys, places, range(first, first + OF_PART)) == {0, 2}

"""Plain queries are answered in this process as Spark answers them; all others go to Spark."""

import json
import os
import re
import subprocess
import sys
from typing import Any, NoReturn

import pytest

from docs.generate.cookbook import as_text, queries
from isr_batch.errors import UsageError
from isr_batch.lake.lake import Lake
from isr_batch.lake.plain_sql import answer, is_plain, tokens_of
from isr_batch.lake.tables.outputs import TABLES

PLAIN = (
    *(f"SELECT * FROM {view}" for view in ("spurious_shrinks", "spurious_by_rule_and_day", "spurious_by_leader")),
    *(f"SELECT * FROM {view}" for view in ("worst_partitions", "elections_by_day", "rule_disagreements")),
    "SELECT rule, true_lag_ms FROM shrink_verdicts ORDER BY true_lag_ms DESC, rule, change_time LIMIT 30",
    "SELECT restored_time FROM shrink_verdicts ORDER BY restored_time LIMIT 30",
    "SELECT restored_time FROM shrink_verdicts ORDER BY restored_time DESC LIMIT 30",
    """select cluster_id, sum(true_lag_ms) AS total, avg(lag_ms) AS mean, count(DISTINCT topic) AS topics
       from spurious_shrinks where change_time > '2026-11-21 16:30' and event_date = '2026-11-21' group by all""",
    "SELECT max(high_watermark) AS highest, size(isr) AS members FROM partition_timeline GROUP BY size(isr)",
    "SELECT n FROM (SELECT rule, COUNT(*) AS n FROM isr_changes GROUP BY rule HAVING count(*) > 9) WHERE n < 300",
    """SELECT CASE WHEN true_lag_ms IS NULL THEN -1 ELSE true_lag_ms * 2 END AS lag
       FROM shrink_verdicts WHERE NOT topic LIKE 'b%'""",
    "SELECT count(*) FROM shrink_verdicts",
    """SELECT rule, COUNT(*), count( DISTINCT topic ), sum(lag_ms), min(change_time), max(rule), avg(lag_ms)
       FROM shrink_verdicts GROUP BY rule""",
    """SELECT sum(out_of_isr_ms(change_time, restored_time)) AS ms, max(lag_time_ms(params_json)) AS most
       FROM shrink_verdicts""",
)
NOT_PLAIN = (
    'SELECT "rule" FROM isr_changes',
    "SELECT `rule` FROM isr_changes",
    "SELECT count(*) AS n FROM isr_changes -- FROM nothing",
    "SELECT 'it''s' AS said",
    "SELECT 'a\\'b' AS said",
    "SELECT ' FROM isr_changes' AS said",
    "SELECT 1.5 AS x FROM isr_changes",
    "SELECT 10L AS x FROM isr_changes",
    "SELECT rule || topic AS x FROM isr_changes",
    "SELECT c.rule FROM isr_changes AS c",
    "SELECT lag_ms / 2 AS x FROM isr_changes",
    "SELECT max(replica_id) * 2 FROM isr_changes",
    "SELECT count(*), count(1) FROM isr_changes",
    "SELECT count_if(lag_ms > 1) FROM isr_changes",
    "SELECT max(event_date) - min(event_date) AS x FROM isr_changes",
    "SELECT max(change_time) + max(change_time) AS x FROM isr_changes",
    "SELECT causes['kafka-3.7'] AS x FROM rule_disagreements",
    "SELECT rule FROM isr_changes LATERAL VIEW explode(isr_after) AS replica",
    "SELECT rank() OVER (ORDER BY change_time) AS n FROM isr_changes",
    "SELECT topic AS rule, count(*) AS n FROM isr_changes GROUP BY rule",
    "SELECT date_format(change_time, 'yyyy') AS year FROM isr_changes",
    "WITH few AS (SELECT * FROM isr_changes) SELECT * FROM few",
    "SELECT rule n FROM isr_changes",
)


class SparkAskedError(Exception):
    """Spark was asked for."""


@pytest.fixture
def without_spark(sample_lake: Lake) -> Lake:
    def refuse() -> NoReturn:
        raise SparkAskedError

    return Lake(refuse, sample_lake.root)


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Spark returns the keys of a map in any order."""
    return sorted(str([sorted(v.items()) if isinstance(v, dict) else v for v in row.values()]) for row in rows)


def test_plain_queries_are_answered_alike_without_spark(sample_lake: Lake, without_spark: Lake) -> None:
    for query in PLAIN:
        (here, columns), (there, known) = answer(without_spark, query), sample_lake.query(query)
        assert columns == known, query
        assert here, query
        ordered = "ORDER BY" in query
        assert (here == there) if ordered else (in_order(here) == in_order(there)), query


def test_questions_of_the_cookbook(without_spark: Lake) -> None:
    """The page has Spark's answers (`test_sql_cookbook.py`)."""
    answered = 0
    for query, given in queries():
        try:
            rows, columns = answer(without_spark, query)
        except SparkAskedError:
            continue
        answered += 1
        assert as_text(columns, [[*row.values()] for row in rows]) == given, query
    assert answered >= 10


@pytest.mark.parametrize("query", NOT_PLAIN)
def test_ambiguous_sql_goes_to_spark(query: str, without_spark: Lake) -> None:
    with pytest.raises(SparkAskedError):
        answer(without_spark, query)


def test_expressions_without_a_name_have_sparks(sample_lake: Lake, without_spark: Lake) -> None:
    assert answer(without_spark, "SELECT count(*) FROM isr_changes")[1] == ["count(1)"]
    query = "SELECT abs(lag_ms) FROM isr_changes"
    with pytest.raises(SparkAskedError):
        answer(without_spark, query)
    assert answer(sample_lake, query)[1] == ["abs(lag_ms)"]


def test_structs_are_shown_by_spark(without_spark: Lake) -> None:
    named = next(
        name for name, table in TABLES.items() if without_spark.has(name)
        for column in table.columns if "STRUCT" in column.type
    )  # fmt: skip
    with pytest.raises(SparkAskedError):
        answer(without_spark, f"SELECT * FROM {named}")


def test_a_missing_table_is_reported_at_once(without_spark: Lake) -> None:
    with pytest.raises(UsageError, match=r"no spurious_shrink$") as raised:
        answer(without_spark, "SELECT rule, count(*) AS n FROM spurious_shrink GROUP BY rule")
    assert "spurious_shrinks" in str(raised.value.hint)


def test_from_may_come_before_a_column() -> None:
    tokens = tokens_of("SELECT rule FROM isr_changes WHERE topic IS DISTINCT FROM rule")
    assert tokens
    assert is_plain(tokens, {"rule", "topic", "isr_changes"})
    assert not is_plain(tokens, {"rule", "isr_changes"})


def test_sql_errors_are_sparks(sample_lake: Lake) -> None:
    with pytest.raises(UsageError, match=re.escape("[UNRESOLVED_COLUMN")):
        answer(sample_lake, "SELECT nothing FROM isr_changes")


def test_times_are_in_utc_wherever_the_machine_is(sample_lake: Lake) -> None:
    """By either engine; the second query is Spark's."""
    table = f"delta.`{sample_lake.root}/isr_changes`"
    ((first,),) = sample_lake.spark.sql(f"SELECT string(min(change_time)) FROM {table}").collect()
    for instant in ("min(change_time)", "min(change_time) + INTERVAL 0 HOURS"):
        query = f"SELECT {instant} AS t FROM isr_changes"
        command = [sys.executable, "-m", "pipelines.cli", "sql", "--json", "--lake", sample_lake.root, query]
        elsewhere = os.environ | {"TZ": "Asia/Tokyo"}
        found = subprocess.run(command, env=elsewhere, capture_output=True, text=True, check=True).stdout
        assert json.loads(found)["t"].replace("T", " ").startswith(first)

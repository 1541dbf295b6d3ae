"""Users' queries are DuckDB's without Spark, and Spark's where that is asked for."""

import json
import os
import re
import subprocess
import sys
from typing import NoReturn

import pytest

from docs.generate.cookbook import as_text, queries
from isr_batch.errors import UsageError
from isr_batch.lake.engine_choice import EngineChoice
from isr_batch.lake.lake import Lake
from isr_batch.lake.user_sql import answer


def no_spark() -> NoReturn:
    raise AssertionError("Spark is not needed")


def test_questions_of_the_cookbook(sample_lake: Lake) -> None:
    """The page has Spark's answers (`test_sql_cookbook.py`)."""
    lake = Lake(no_spark, sample_lake.root)
    for query, given in queries():
        rows, columns = answer(lake, query)
        assert as_text(columns, [[*row.values()] for row in rows]) == given, query


def test_spark_has_its_own_words(sample_lake: Lake) -> None:
    lake = Lake(sample_lake.spark, sample_lake.root)
    query = "SELECT rule, replica FROM isr_changes LATERAL VIEW explode(isr_after) AS replica LIMIT 1"
    with pytest.raises(UsageError, match="DuckDB: Parser Error") as raised:
        answer(lake, query)
    assert "--engine spark" in str(raised.value.hint)
    lake.engine = EngineChoice("spark")
    assert answer(lake, query)[1] == ["rule", "replica"]
    with pytest.raises(UsageError, match=re.escape("[UNRESOLVED_COLUMN")):
        answer(lake, "SELECT nothing FROM isr_changes")


def test_times_are_in_utc_wherever_the_machine_is(sample_lake: Lake) -> None:
    table = f"delta.`{sample_lake.root}/isr_changes`"
    ((first,),) = sample_lake.spark.sql(f"SELECT string(min(change_time)) FROM {table}").collect()
    query = "SELECT min(change_time) AS t FROM isr_changes"
    for engine in ("auto", "spark"):
        command = [sys.executable, "-m", "pipelines.cli", "sql", "--json", "--lake", sample_lake.root, query]
        elsewhere = os.environ | {"TZ": "Asia/Tokyo"}
        found = subprocess.run(
            [*command, "--engine", engine], env=elsewhere, capture_output=True, text=True, check=True
        ).stdout
        assert json.loads(found)["t"].replace("T", " ").startswith(first)

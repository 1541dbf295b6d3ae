"""Laws of the forms: a group for each column, a mark in each line that is read, and every recorded line is read."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.broker_lines import forms
from isr_batch.broker_lines.forms import (
    DELETED,
    FOLLOWER,
    LEADER,
    SERVER_LINES,
    SETTING,
    SHRINK,
    STATE_CHANGE_LINES,
    STILL_LEADER,
    STILL_LEADER_NOW,
    Form,
)  # fmt: skip
from isr_batch.broker_lines.log_sql import rows_of, unread_lines
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import lines

SAMPLES = Path(__file__).parents[3] / "data" / "samples"
FORMS = {name: value for name, value in vars(forms).items() if isinstance(value, Form) and not name.startswith("_")}


def recorded(kind: str) -> Iterator[str]:
    for path in sorted(SAMPLES.glob(f"*/broker-*/{kind}.log*")):
        yield from b"".join(content_chunks(str(path))).decode().splitlines()


@pytest.fixture(scope="module")
def sample() -> pa.StringArray:
    found = [*recorded("server"), *recorded("state-change")]
    assert len(found) > 1000
    return pa.array(found)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_a_group_for_each_column(name: str) -> None:
    form = FORMS[name]
    assert re.compile(form.pattern).groups == len(form.columns.split(", "))


@pytest.mark.parametrize("name", FORMS)
def test_a_line_that_is_read_has_the_mark_and_is_of_interest(sample: pa.StringArray, name: str) -> None:
    form = FORMS[name]
    read = sample.filter(pc.match_substring_regex(sample, form.pattern))
    for pattern in (form.mark, f"{SERVER_LINES}|{STATE_CHANGE_LINES}|{SETTING.pattern}"):
        assert pc.all(pc.match_substring_regex(read, pattern)).as_py() is not False


def test_recorded_shrinks_and_terms_are_read(sql: ArrowSql, sample: pa.StringArray) -> None:
    table = lines().schema.empty_table()
    marked = sample.filter(pc.match_substring_regex(sample, f"{SHRINK.mark}|{LEADER.mark}|{DELETED.mark}"))
    values = {"message": marked, "source_line": pa.array(range(len(marked)), pa.int64())}
    table = pa.table({
        field.name: values.get(field.name, pa.nulls(len(marked), field.type)) for field in table.schema
    })  # fmt: skip
    assert rows_of(sql, table, SHRINK).num_rows > 100
    assert rows_of(sql, table, LEADER).num_rows > 100
    for read in ((SHRINK,), (LEADER, FOLLOWER), (STILL_LEADER, STILL_LEADER_NOW), (DELETED,)):
        assert unread_lines(sql, table, *read).num_rows == 0

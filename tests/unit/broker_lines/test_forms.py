"""Laws of the forms: a group for each column, a mark in each line that is read, and every recorded line is read."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.broker_lines.forms import (
    FORMS,
    LEADER,
    SERVER_LINES,
    SHRINK,
    STATE_CHANGE_LINES,
)  # fmt: skip
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.broker_lines.unread import MUST_BE_READ, unread_lines
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import lines

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "data" / "samples"


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
    for wording in FORMS[name].wordings:
        assert re.compile(wording.pattern).groups == len(wording.columns.split(", "))


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_read_by_more_than_its_definition(name: str) -> None:
    texts = [path.read_text() for path in (ROOT / "isr_batch").rglob("*.py") if path.name != "forms.py"]
    assert any(re.search(rf"\brows(?:_of)?\(.*\b{name}\b|\b{name}\.read\(", text) for text in texts)


@pytest.mark.parametrize("name", FORMS)
def test_a_line_that_is_read_has_the_mark_and_is_of_interest(sample: pa.StringArray, name: str) -> None:
    form = FORMS[name]
    read = sample.filter(pc.match_substring_regex(sample, form.pattern))
    for pattern in (form.mark, f"{SERVER_LINES}|{STATE_CHANGE_LINES}"):
        assert pc.all(pc.match_substring_regex(read, pattern)).as_py() is not False


def test_recorded_shrinks_and_terms_are_read(sql: ArrowSql, sample: pa.StringArray) -> None:
    table = lines().schema.empty_table()
    marked = sample.filter(pc.match_substring_regex(sample, "|".join(each.resembles for each in MUST_BE_READ)))
    values = {"message": marked, "source_line": pa.array(range(len(marked)), pa.int64())}
    table = pa.table({
        field.name: values.get(field.name, pa.nulls(len(marked), field.type)) for field in table.schema
    })  # fmt: skip
    assert rows_of(sql, table, SHRINK).num_rows > 100
    assert rows_of(sql, table, LEADER).num_rows > 100
    for lines_of in MUST_BE_READ:
        assert unread_lines(sql, table, lines_of).num_rows == 0


def test_a_new_wording_is_written_in_one_place(tmp_path: Path) -> None:
    """A process with one more wording in forms.py alone: `look`, the evidence and the ingest read the line."""
    broker = tmp_path / "logs" / "broker-1"
    broker.mkdir(parents=True)
    start = "[2026-11-21 16:00:0"
    (broker / "server.log").write_text(
        f"{start}0,000] INFO Kafka version: 5.1.0 (org.apache.kafka.common.utils.AppInfoParser)\n"
        f"{start}1,000] INFO [Partition t-0 broker=1] 3 is out of sync, so (1 2 3) becomes (1 2) "
        "(kafka.cluster.Partition)\n"
    )
    (tmp_path / "second_wording.py").write_text(SECOND_WORDING)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, tmp_path / "second_wording.py", tmp_path / "logs"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ran.stdout.split() == ["2", "1,2,3->1,2", "1,2,3->1,2"], ran.stderr


SECOND_WORDING = r"""
import importlib.util, sys
from pathlib import Path

found = importlib.util.find_spec("isr_batch.broker_lines.forms")
text = Path(found.origin).read_text()
begin = "SHRINK: Final = Form(\n    SERVER,\n"
assert text.count(begin) == 1
wording = (
    "    Wording(rf'{_LEADERS}\\d+ <<is out of sync, so>> \\(([\\d ]+)\\) becomes \\(([\\d ]*)\\)',"
    " f'{_OF_LEADER}, isr_before INTEGER[], isr_after INTEGER[]'),\n"
)
forms = importlib.util.module_from_spec(found)
sys.modules[found.name] = forms
exec(compile(text.replace(begin, begin + wording), found.origin, "exec"), vars(forms))

import isr_batch.broker_lines
isr_batch.broker_lines.forms = forms
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.broker_lines.server_log import shrink_lines
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.kafka_logs.read import survey_logs
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.lines_of_interest import read_lines_of_interest

with log_sql() as sql:
    folder = survey_logs(Here(sql), Path(sys.argv[1]))
    print(sum(folder.seen(file).of_use["server"] for file in folder.files))
    read = read_lines_of_interest(Here(sql), sql, folder)
    isr = lambda members: ",".join(map(str, members))
    for attempt in find_evidence(sql, read).attempts:
        print(f"{isr(attempt.isr_before)}->{isr(attempt.isr_after)}")
    for row in shrink_lines(sql, read.server).to_pylist():
        print(f"{isr(row['isr_before'])}->{isr(row['isr_after'])}")
"""

"""Downloads from log viewers are read like the log: the same lines, sorted into the same logs."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.folder.log_folder import find_logs
from isr_batch.ingest.log_files import converted_exports, exports
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.converted_exports import ConvertedExports
from isr_batch.ingest.log_files.exports import is_export
from isr_batch.ingest.log_files.json_lines import load_json_line
from isr_batch.ingest.log_files.latest_first import EVERY_EVENT
from isr_batch.ingest.log_files.limits import BadFileError
from tests.unit.ingest.test_layouts import OWN, SETTING, STREAM, lines_by_log

Row = tuple[str, str]
"""A time, as viewers print it, and a line."""


def table(names: Sequence[str], rows: Sequence[Sequence[object]], delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL if delimiter == ";" else csv.QUOTE_MINIMAL)
    writer.writerows([names, *rows])
    return text.getvalue()


def loki(rows: Sequence[Row]) -> str:
    values = [["1795361412613000000", line] for _, line in rows]
    half = len(values) // 2
    streams = [
        {"stream": {"app": "kafka", "pod": "kafka-1"}, "values": part} for part in (values[:half], values[half:])
    ]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams, "stats": {}}})


def parts(line: str) -> tuple[str, ...]:
    """Day, time, milliseconds, level, message and logger of a line."""
    found = OWN.fullmatch(line)
    assert found
    return tuple(found.groups())


def event(line: str) -> dict[str, object]:
    """As an index has it whose collector has parsed the line."""
    day, time, ms, level, message, logger = parts(line)
    log = {"level": level, "logger": logger}
    return {"@timestamp": f"{day}T{time}.{ms}Z", "message": message, "log": log}


EXPORTS: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "CloudWatch Insights": ("logs-insights-results.csv", lambda rows: table(
        ["@timestamp", "@message", "@logStream"], [(time, line, "kafka-1") for time, line in reversed(rows)])),
    "CloudWatch Insights, by its API": ("results.json", lambda rows: json.dumps({"status": "Complete", "results": [
        [{"field": "@message", "value": line}, {"field": "@ptr", "value": "Cm"}] for _, line in reversed(rows)]})),
    "CloudWatch, filtered": ("events.json", lambda rows: json.dumps({"events": [
        {"logStreamName": "kafka-1", "timestamp": 1795361412613, "message": line} for _, line in rows],
        "searchedLogStreams": [{"logStreamName": "kafka-1"}]}, indent=4, sort_keys=True)),
    "Splunk": ("search.csv", lambda rows: table(
        ["_time", "host", "source", "_raw"], [(time, "kafka-1", "/var/log", line) for time, line in rows])),
    "a column of another name, and line numbers": ("all.csv", lambda rows: table(
        ["line", "kafka/text"], [(n, line) for n, (_, line) in enumerate(rows)])),
    "Excel": ("search.csv", lambda rows: "\ufeff" + table(["Date", "Content"], rows, ";")),
    "Graylog, the time in a column of its own": ("graylog.csv", lambda rows: table(
        ["timestamp", "source", "level", "logger", "message"],
        [(f"{d}T{t}.{ms}Z", "kafka-1", lv, c, m) for d, t, ms, lv, m, c in
         (parts(line) for _, line in reversed(rows))])),
    "Kibana, level and logger in the message": ("discover.csv", lambda rows: table(
        ["Time", "Message"], [(f"{d} {t}.{ms}", f"{lv} {m} ({c})") for d, t, ms, lv, m, c in
                              (parts(line) for _, line in rows)])),
    "Kibana": ("discover.csv", lambda rows: table(
        ["@timestamp", "kubernetes.pod.name", "message"], [(time, "kafka-1", line) for time, line in rows])),
    "Elasticsearch": ("hits.json", lambda rows: json.dumps({"took": 3, "hits": {"total": {"value": 9}, "hits": [
        {"_id": "1", "_source": {"message": line, "agent": {"type": "filebeat"}}} for _, line in rows]}})),
    "Elasticsearch, parsed": ("hits.json", lambda rows: json.dumps([event(line) for _, line in rows], indent=1)),
    "jq": ("events.json", lambda rows: "\n".join(json.dumps({"log": {"message": line}}, indent=2) for _, line in rows)),
    "Google": ("downloaded-logs.json", lambda rows: json.dumps([
        {"textPayload": line, "resource": {"labels": {"pod_name": "kafka-1"}}} for _, line in rows], indent=2)),
    "Azure": ("query_data.json", lambda rows: json.dumps({"tables": [{"name": "PrimaryResult", "columns": [
        {"name": "TimeGenerated"}, {"name": "LogMessage"}], "rows": [list(row) for row in rows]}]})),
    "Datadog": ("extract.json", lambda rows: json.dumps({"data": [
        {"id": "A", "attributes": {"host": "kafka-1", "message": line}} for _, line in rows]})),
    "Loki": ("explore.json", loki),
    "one column": ("lines.csv", lambda rows: table(["_raw"], [(line,) for _, line in rows])),
    "tabs": ("lines.tsv", lambda rows: table(["id", "log"], [(n, line) for n, (_, line) in enumerate(rows)], "\t")),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("packed", [False, True])
def test_an_export_gives_the_lines_of_the_log(tmp_path: Path, name: str, packed: bool) -> None:
    lines = [line for line in STREAM if OWN.fullmatch(line)]
    file_name, write = EXPORTS[name]
    text = write([(line[1:24].replace(",", "."), line) for line in lines]).encode()
    for folder in ("plain", "export"):
        (tmp_path / folder / "kafka-1").mkdir(parents=True)
    (tmp_path / "plain" / "kafka-1" / "server.log").write_text("\n".join(lines))
    file = tmp_path / "export" / "kafka-1" / (f"{file_name}.gz" if packed else file_name)
    file.write_bytes(gzip.compress(text) if packed else text)
    assert lines_by_log(tmp_path / "export") == lines_by_log(tmp_path / "plain")


def test_brokers_in_one_export_are_distinguished(tmp_path: Path) -> None:
    lines = [line for line in STREAM if "Broker id=1]" in line]
    rows = [("", f"kafka-{n}", line.replace("id=1]", f"id={n}]")) for line in lines for n in (1, 2)]
    (tmp_path / "all.csv").write_text(table(["@timestamp", "@logStream", "@message"], rows))
    assert {broker: sum(of.values()) for (broker, _), of in lines_by_log(tmp_path).items()} == {
        1: len(lines), 2: len(lines)
    }  # fmt: skip


@pytest.mark.parametrize("file", ["events.json", "events.log"])
def test_an_event_of_many_lines_is_the_lines(tmp_path: Path, file: str) -> None:
    head = "[2026-11-21 16:30:12,613] INFO KafkaConfig values: (kafka.server.KafkaConfig)"
    settings = [head, SETTING, "\tmin.insync.replicas = 2"]
    lines = [line for line in STREAM if OWN.fullmatch(line)]
    events = [{"message": line, "logStreamName": "kafka-1"} for line in (*lines, "\n".join(settings), *lines)]
    text = json.dumps(events) if file == "events.json" else "\n".join(map(json.dumps, events))
    for folder, name, content in (
        ("plain", "server.log", "\n".join([*lines, *settings, *lines])), ("export", file, text)
    ):  # fmt: skip
        (tmp_path / folder / "kafka-1").mkdir(parents=True)
        (tmp_path / folder / "kafka-1" / name).write_text(content)
    assert lines_by_log(tmp_path / "export") == lines_by_log(tmp_path / "plain")


def converted(text: bytes) -> list[str]:
    found = ConvertedExports().lines("", iter([text[:100], text[100:]]))
    return [json.loads(line)["line"] for line in b"".join(found).splitlines()]


def test_the_latest_event_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in STREAM if OWN.fullmatch(line)]
    for given in (lines, lines[::-1]):
        text = table(["@message"], [(line,) for line in given]).encode()
        for at_once in (1, 2, 3, 2048):
            monkeypatch.setattr(converted_exports, "_EVENTS_AT_ONCE", at_once)
            assert converted(text) == lines


def test_a_text_without_the_beginning_of_an_event_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converted_exports, "_MOST_HELD", 200)
    begins = [f"2026-11-21 16:30:1{n},000 x".encode() for n in range(4)]
    long = b"\n".join([begins[2], *(b"\tat some.where(%d)" % n for n in range(100))])
    text = b"\n".join([begins[3], long, begins[1], begins[0]]) + b"\n"
    chunks = (text[at : at + 50] for at in range(0, len(text), 50))
    lines = ConvertedExports().lines("", chunks, EVERY_EVENT)
    assert b"".join(lines) == b"\n".join([begins[0], begins[1], long, begins[3]]) + b"\n"
    only = b"x" * 3000
    assert b"".join(ConvertedExports().lines("", iter([only[:1500], only[1500:]]), EVERY_EVENT)) == only + b"\n"


def test_a_line_over_several_rows_of_text_stays_one_event() -> None:
    long = f"{STREAM[0]}\n\tat kafka.server.Thing(Thing.scala:1)"
    text = table(["@message"], [(long,), (STREAM[1],)]).encode()
    assert converted(text) == [long, STREAM[1]]


@pytest.mark.parametrize("before", ["\n", "\r\n\n", "  \n ", "\ufeff\n", "\ufeff"])
@pytest.mark.parametrize("name", ["events.csv", "events.json"])
def test_an_export_may_begin_with_empty_lines(tmp_path: Path, name: str, before: str) -> None:
    document = json.dumps([{"message": line} for line in STREAM])
    text = document if name == "events.json" else table(["@message"], [(line,) for line in STREAM])
    (tmp_path / name).write_text(before + text)
    found = b"".join(content_chunks(str(tmp_path / name))).splitlines()
    assert [json.loads(line)["line"] for line in found] == STREAM


def test_an_export_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "events.csv"
    file.write_text(table(["@message"], [(STREAM[0],)]))
    first = list(content_chunks(str(file)))
    with monkeypatch.context() as patched:
        patched.setattr("isr_batch.ingest.log_files.exports.csv.reader", None)
        assert list(content_chunks(str(file))) == first
    file.write_text(table(["@message"], [(STREAM[0],), (STREAM[1],)]))
    assert len(b"".join(content_chunks(str(file))).splitlines()) == len(STREAM[:2])


@pytest.mark.parametrize("between", [",", ",\n", "\n,", ",\n\n  "])
def test_a_document_may_have_an_event_on_each_line(tmp_path: Path, between: str) -> None:
    hits = between.join(json.dumps({"_source": {"message": line}}) for line in STREAM)
    (tmp_path / "hits.json").write_text(f'{{"took": 3, "hits": {{"hits": [{hits}]}}}}')
    found = b"".join(content_chunks(str(tmp_path / "hits.json"))).splitlines()
    assert [json.loads(line)["line"] for line in found] == STREAM


@pytest.mark.parametrize("text", [
    "[2026-11-21 16:30:12,613] INFO a, b (c)\n", '{"log": "x"}\n{"log": "y"}\n', '{"log": "x"}\n', "",
    "a line, and more: of it",
])  # fmt: skip
def test_other_files_are_left_unchanged(text: str) -> None:
    assert not is_export("a.csv", text.encode())


def test_a_table_of_something_else_is_left_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text(table(["month", "cost"], [("2026-10", 3), ("2026-11", 4)]))
    with pytest.raises(NoInputError, match=r"costs\.csv"):
        find_logs(tmp_path)


def test_a_damaged_document_and_one_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "events.json"
    file.write_text('[\n{"message": "x"},\n{"mess')
    with pytest.raises(BadFileError, match="not a table or a JSON document"):
        list(content_chunks(str(file)))
    monkeypatch.setattr(exports, "most_bytes", lambda: 3 << 20)
    file.write_text(json.dumps([{"message": "x" * 1000}] * 4000))
    with pytest.raises(BadFileError, match="export too large"):
        list(content_chunks(str(file)))


@pytest.mark.parametrize("text", [
    "[" * 100_000, '{"a":' * 100_000, '[{"stream": {}, "values": [[]]}]', '[{"columns": [1], "rows": [1]}]',
    "[[{}], [{}]]", '[{"stream": {}, "values": null}]', '[[{"field": [1], "value": 2}]]', '{\n"a": 1\n}',
    '[{"message": "\\ud800"}]', 'a,b\n1,2,3\n"',
])  # fmt: skip
def test_a_near_export_is_left_out_with_a_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / f"events.{'csv' if text.startswith('a') else 'json'}").write_text(text)
    with pytest.raises(NoInputError, match=r"events\.(csv|json): (?!binary)"):
        find_logs(tmp_path)


def test_an_export_that_is_too_large_is_left_out_with_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "most_bytes", lambda: 3 << 10)
    (tmp_path / "events.json").write_text(json.dumps([{"message": line} for line in STREAM * 100]))
    with pytest.raises(NoInputError, match=r"events\.json: export too large"):
        find_logs(tmp_path)


@pytest.mark.parametrize("each", [1, 3])
def test_journald_exports_messages_of_bytes(tmp_path: Path, each: int) -> None:
    """All messages if a broker's lines are coloured, and some if few have bytes that cannot be printed."""
    lines = [
        {"__REALTIME_TIMESTAMP": "1795280680285000", "_HOSTNAME": "kafka1", "PRIORITY": "6", "MESSAGE":
         list(f"\x1b[32m{line}".encode()) if number % each == 0 else line} for number, line in enumerate(STREAM)
    ]  # fmt: skip
    for name, text in (("text/kafka-1.log", STREAM), ("events/kafka-1.json", map(json.dumps, lines))):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("\n".join(text))
    assert lines_by_log(tmp_path / "events") == lines_by_log(tmp_path / "text")
    assert load_json_line('{"MESSAGE": [195, 188, 255]}') == {"MESSAGE": "\u00fc\ufffd"}

"""Exports of log products, the latest event first, give the lines of the log in their order."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError
from isr_batch.ingest.folder.lines import Selection, lines_of_file
from isr_batch.ingest.folder.log_folder import HEADLESS, LOCAL_TIME, METADATA, SEVERAL_BROKERS, SNAPSHOT, find_logs
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.log_files.tab_tables import rows_of_tab_table
from tests.unit.ingest.test_layouts import OWN, SETTING, STREAM

NOT_ENOUGH = (
    "[2026-11-21 16:35:00,123] ERROR [ReplicaManager broker=1] Error processing append (kafka.server.ReplicaManager)",
    (
        "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR : 1 is insufficient to "
        "satisfy the min.isr requirement of 2 for partition t-0, live replica(s) broker.id are : Set(1)"
    ),
    "\tat kafka.cluster.Partition.appendRecordsToLeader(Partition.scala:1)",
)  # fmt: skip
CONFIG = ("[2026-11-21 16:35:01,000] INFO KafkaConfig values: x (kafka.server.KafkaConfig)", SETTING, "\tz.x = 2")
LAST = "[2026-11-21 16:35:02,000] INFO [Broker id=1] x (state.change.logger)"
EVENTS = [*((line,) for line in STREAM if OWN.fullmatch(line)), NOT_ENOUGH, CONFIG, (LAST,)]
Event = tuple[str, ...]
LEVELS = {"DEBUG": 7, "INFO": 6, "WARN": 4, "ERROR": 3}


def table(names: Sequence[str], rows: Sequence[Sequence[object]], **form: object) -> str:
    text = io.StringIO()
    csv.writer(text, **form).writerows([names, *rows])  # type: ignore[arg-type]
    return text.getvalue()


def fields(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def escaped(text: str) -> str:
    """As ClickHouse writes a string in a table separated by tabs."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("'", "\\'")


class Parts:
    """An event as a pipeline has parsed it."""

    def __init__(self, event: Event) -> None:
        found = OWN.fullmatch(event[0])
        assert found
        day, time, millis, self.level, self.message, self.logger = found.groups()
        self.at = datetime.fromisoformat(f"{day}T{time}.{millis}+00:00")
        assert self.at.tzinfo == UTC
        self.iso, self.spaced = f"{day}T{time}.{millis}Z", f"{day} {time}.{millis}"
        self.ms = round(self.at.timestamp() * 1000)
        self.raw = "\n".join(event)
        self.stack = "\n".join(event[1:]) if event[1:] and "Exception" in event[1] else ""
        self.text = self.message if self.stack else "\n".join([self.message, *event[1:]])
        parsed = {"level": self.level, "logger": self.logger, "message": self.text, **fields("exception", self.stack)}
        self.parsed = json.dumps(parsed)
        self.whole = "\n".join([self.message, *event[1:]])
        self.kibana = f"{self.at:%b} {self.at.day}, {self.at:%Y @ %H:%M:%S}.{millis}"
        self.azure = f"{self.at.month}/{self.at.day}/{self.at.year}, {self.at:%-I:%M:%S}.{millis} {self.at:%p}"


def lines(events: Sequence[Parts]) -> Iterator[tuple[Parts, str]]:
    return ((event, line) for event in events for line in reversed(event.raw.split("\n")))


def hits(sources: Sequence[object]) -> str:
    return json.dumps({"took": 1, "hits": {"total": {"value": 2}, "hits": sources}})


def otlp(events: Sequence[Parts], **form: int) -> str:
    records = [
        {"timeUnixNano": str(e.ms * 1_000_000), "severityText": e.level, "body": {"stringValue": e.text},
         "attributes": [{"key": name, "value": {"stringValue": value}}
                        for name, value in {"logger": e.logger, **fields("exception.stacktrace", e.stack)}.items()]}
        for e in events
    ]  # fmt: skip
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": {}, "logRecords": records}]}]}, **form)  # type: ignore[arg-type]


BUTTONS: dict[str, tuple[str, Callable[[list[Parts]], str]]] = {
    "Kibana's report": ("report.csv", lambda es: table(
        ["@timestamp", "log.level", "log.logger", "message", "error.stack_trace"],
        [(e.kibana, e.level, e.logger, e.text, e.stack or "-") for e in es])),
    "Kibana's report, in German": ("report.csv", lambda es: table(
        ["@timestamp", "message"], [(f"{e.at.day}. {e.at:%b. %Y @ %H:%M:%S}.{e.at:%f}"[:-3], e.raw) for e in es])),
    "columns in French": ("export.csv", lambda es: table(
        ["Date", "Niveau", "Journal", "Message"], [(e.iso, e.level, e.logger, e.whole) for e in es])),
    "Elasticsearch, parsed": ("hits.json", lambda es: hits([{"_source": {
        "@timestamp": e.iso, "log": {"level": e.level, "logger": e.logger}, "message": e.text,
        **({"error": {"stack_trace": e.stack}} if e.stack else {})}} for e in es])),
    "Elasticsearch, chosen fields": ("hits.json", lambda es: hits([
        {"fields": {"@timestamp": [e.iso], "message": [e.raw], "host.name": ["h"]}} for e in es])),
    "Elasticsearch, unsorted": ("hits.json", lambda es: hits([
        {"_source": {"@timestamp": e.iso, "message": e.raw}} for e in es[1::2] + es[::2]])),
    "Datadog": ("extract-2026-11-21T18_30_12.123Z.csv", lambda es: table(
        ["Date", "Service", "Status", "@logger.name", "@error.stack", "Content"],
        [(e.iso, "kafka", e.level.lower(), e.logger, e.stack, e.text) for e in es])),
    "Kibana's report, unsorted": ("report.csv", lambda es: table(
        ["@timestamp", "message"], [(e.kibana, e.raw) for e in es[1::2] + es[::2]])),
    "Azure, unsorted": ("query_data.csv", lambda es: table(
        ["TimeGenerated [UTC]", "LogLevel", "LoggerName", "Message", "Exception"],
        [(e.azure, e.level, e.logger, e.text, e.stack) for e in es[1::2] + es[::2]])),
    "Grafana, text": ("Explore-logs-2026-11-21 18_30_12.txt", lambda es: "".join(
        f"{e.spaced}\t{line}\n" for e, line in lines(es))),
    "Grafana, text with two times": ("explore.txt", lambda es: "".join(
        f"{e.ms}\t{e.iso}\t{line}\n" for e, line in lines(es))),
    "Grafana, for Excel": ("explore.csv", lambda es: "sep=,\r\n" + table(
        ["Time", "Line", "tsNs", "id"], [(e.spaced, line, e.ms * 1_000_000, "x") for e, line in lines(es)])),
    "Grafana, JSON": ("explore.json", lambda es: json.dumps([
        {"line": line, "timestamp": str(e.ms * 1_000_000), "date": e.iso, "fields": {}} for e, line in lines(es)])),
    "logcli": ("logcli.txt", lambda es: "".join(f'{e.iso} {{pod="kafka-1"}} {line}\n' for e, line in lines(es))),
    "aws --output text": ("events.txt", lambda es: "".join(
        f"EVENTS\t37\t{e.ms + 9}\tkafka-1\t{line}\t{e.ms}\n" for e, line in lines(es))),
    "CloudWatch, saved as text": ("export.txt", lambda es: table(
        ["@timestamp", "@message"], [(e.spaced, e.raw) for e in es])),
    "CloudWatch, a stream with slashes": ("insights.csv", lambda es: table(
        ["@timestamp", "@message", "@logStream"],
        [(e.spaced, e.raw, f"kafka/kafka-1/{n % 2}") for n, e in enumerate(es)])),
    "Azure": ("query_data.csv", lambda es: "\ufeff" + table(
        ["TimeGenerated [UTC]", "LogLevel", "LoggerName", "Message", "Exception"],
        [(e.azure, e.level, e.logger, e.text, e.stack) for e in es], quoting=csv.QUOTE_ALL)),
    "Splunk, JSON": ("search.json", lambda es: "".join(
        json.dumps({"preview": False, "result": {"_raw": e.raw, "_time": e.spaced}}) + "\n" for e in es)),
    "aws logs tail, short": ("tail.txt", lambda es: "".join(f"{e.iso[:19]} {line}\n" for e, line in lines(es))),
    "Papertrail": ("2026-11-21-16.tsv", lambda es: "".join(
        f"7\t{e.iso[:19]}Z\t{e.iso[:19]}Z\t1\tkafka-1\t10.0.0.1\tUser\tInfo\tkafka\t{line}\n"
        for e, line in lines(es))),
    "LogScale": ("events.csv", lambda es: table(
        ["@timestamp", "@rawstring", "#repo", "@timezone"], [(e.ms, e.raw, "kafka", "Z") for e in es])),
    "New Relic": ("query.json", lambda es: json.dumps(
        {"results": [{"events": [{"timestamp": e.ms, "message": e.raw} for e in es]}], "metadata": {}})),
    "VictoriaLogs": ("v.jsonl", lambda es: "".join(json.dumps({
        "_time": e.iso, "_stream": "{}", "_msg": e.text, "level": e.level, "logger": e.logger,
        **fields("exception", e.stack)}) + "\n" for e in es)),
    "Mezmo": ("m.jsonl", lambda es: "".join(json.dumps({"_app": "a", "_line": e.raw, "_ts": e.ms}) + "\n" for e in es)),
    "Better Stack": ("b.jsonl", lambda es: "".join(json.dumps({"dt": e.iso, "raw": e.raw}) + "\n" for e in es)),
    "Better Stack, JSON as text": ("b.jsonl", lambda es: "".join(
        json.dumps({"dt": e.iso, "raw": e.parsed}) + "\n" for e in es)),
    "az -o tsv": ("rows.txt", lambda es: "".join(
        f"{e.level}\t{e.logger}\t{e.whole}\tPrimaryResult\t{e.iso}\n" for e in es)),
    "az -o tsv, whole lines": ("rows.tsv", lambda es: "".join(
        f"kafka-1\t{e.raw}\tPrimaryResult\t{e.iso}\n" for e in es)),
    "ClickHouse, TSV": ("rows.tsv", lambda es: "".join(
        f"{e.spaced}\t{e.level}\t{e.logger}\t{escaped(e.whole)}\n" for e in es)),
    "ClickHouse, TSV with names": ("rows.tsv", lambda es: "Timestamp\tSeverityText\tlogger\tBody\n" + "".join(
        f"{e.spaced}\t{e.level}\t{e.logger}\t{escaped(e.whole)}\n" for e in es)),
    "Splunk, raw, with a mark": ("search.txt", lambda es: "\ufeff" + "".join(f"{e.raw}\n" for e in es)),
    "Graylog": ("graylog.csv", lambda es: table(
        ["timestamp", "source", "level", "logger", "message", "full_message"],
        [(e.iso, "h", LEVELS[e.level], e.logger, e.message, e.whole) for e in es])),
    "OTLP, indented": ("logs.json", lambda es: otlp(es, indent=2)),
    "OTLP": ("logs.json", otlp),
    "Fluent Bit's file": ("kafka.txt", lambda es: "".join(
        f"kube.kafka: [{e.ms / 1000:.9f}, {json.dumps({'log': line})}]\n" for e, line in lines(es))),
    "Fluentd's file": ("fluentd.log", lambda es: "".join(
        f"{e.iso}\tkube.kafka\t{e.parsed}\n" for e in es)),
    "capitals, a mark, semicolons": ("logs.csv", lambda es: "\ufeff" + table(
        ["MESSAGE", "LOGGER", "LEVEL", "@TIMESTAMP"], [(e.text, e.logger, e.level, e.iso) for e in es if not e.stack],
        delimiter=";", quoting=csv.QUOTE_ALL)),
    "backslashes before quotes": ("logs.csv", lambda es: table(
        ["@timestamp", "message"], [(e.spaced, e.raw) for e in es],
        quoting=csv.QUOTE_ALL, doublequote=False, escapechar="\\")),
}  # fmt: skip


def lines_read(folder: Path, options: LogOptions = LogOptions()) -> dict[tuple[int | None, str], list[str]]:  # noqa: B008
    found: dict[tuple[int | None, str], list[str]] = {}
    for file in find_logs(folder, options).files:
        of_log = Selection(file.layout, file.default, file.kind, file.source)
        for batch in lines_of_file(file.path, file.name, file.broker_id, selected=of_log):
            of_kind = (line for line in batch["value"].to_pylist() if line)
            found.setdefault((file.broker_id, file.kind), []).extend(of_kind)
    return found


@pytest.mark.parametrize("name", BUTTONS)
def test_the_latest_event_first(tmp_path: Path, name: str) -> None:
    file, write = BUTTONS[name]
    events = [event for event in EVENTS if "capitals" not in name or event != NOT_ENOUGH]
    for folder in ("plain", "export"):
        (tmp_path / folder / "kafka-1").mkdir(parents=True)
    (tmp_path / "plain" / "kafka-1" / "server.log").write_text("\n".join(line for event in events for line in event))
    (tmp_path / "export" / "kafka-1" / file).write_text(write([Parts(event) for event in reversed(events)]))
    assert find_logs(tmp_path / "export").refused[1:] == []
    got, plain = lines_read(tmp_path / "export"), lines_read(tmp_path / "plain")
    if "unsorted" in name or "slashes" in name:  # of one millisecond, or in two streams
        got, plain = ({of: sorted(read) for of, read in every.items()} for every in (got, plain))
    assert got == plain


def test_local_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    """Azure's portal names the column so, and the time zone is the browser's."""
    (tmp_path / "kafka-1").mkdir()
    rows = [("11/21/2026, 6:30:12.613 PM", "INFO", "state.change.logger", "[Broker id=1] x")] * 3
    names = ["TimeGenerated [Local Time]", "LogLevel", "LoggerName", "Message"]
    (tmp_path / "kafka-1" / "query_data.csv").write_text(table(names, rows))
    assert [each.reason for each in find_logs(tmp_path).unreadable] == [LOCAL_TIME]
    given = LogOptions.parse(None, ["1=+02:00"])
    assert find_logs(tmp_path, given).unreadable == []
    assert {line[:24] for line in lines_read(tmp_path, given)[1, "state-change"]} == {"[2026-11-21 16:30:12,613"}


@pytest.mark.parametrize(("time", "reason"), [
    ("11/12/2026 4:30:12.613 pm", "day or month first"),
    ("21 de nov. de 2026 @ 16:30:12.613", "times of an unknown form"),
])  # fmt: skip
def test_events_with_other_times_are_refused_by_that_reason(tmp_path: Path, time: str, reason: str) -> None:
    (tmp_path / "report.csv").write_text(table(["@timestamp", "message"], [(time, "x")] * 3))
    with pytest.raises(NoInputError, match=f"{reason}.*give --stamp-format"):
        find_logs(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"), [("<?xml version='1.0'?>\n<results/>", "XML"), ("---\ninsertId: x\n", "YAML")]
)
def test_what_is_no_list_of_lines_is_refused_by_its_name(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "events.txt").write_text(f"{text}{LAST}\n")
    with pytest.raises(NoInputError, match=reason):
        find_logs(tmp_path)


def test_lines_of_several_brokers_are_told_apart_by_the_brokers_that_they_name(tmp_path: Path) -> None:
    own = [event[0] for event in EVENTS if "broker=1]" in event[0] or "Broker id=1]" in event[0]]
    both = [line.replace("=1]", f"={broker}]") for line in own for broker in (1, 2)]
    unnamed = next(line for line in STREAM if "Completed request" in line)
    (tmp_path / "all.csv").write_text(table(["message"], [(line,) for line in [*both, unnamed]]))
    read = lines_read(tmp_path)
    numbers = {broker: sum(len(of) for (named, _), of in read.items() if named == broker) for broker in (1, 2)}
    assert numbers == {1: len(own), 2: len(own)}
    assert all(f"={broker}]" in line for (broker, _), of in read.items() for line in of)
    assert SEVERAL_BROKERS in {each.reason for each in find_logs(tmp_path).refused}


def test_a_format_that_is_given_is_that_of_events_as_well(tmp_path: Path) -> None:
    (tmp_path / "kafka-1").mkdir()
    event = {"when": "05/06/2026 04:30:12.613 PM", "message": "INFO [Broker id=1] x (state.change.logger)"}
    (tmp_path / "kafka-1" / "server.log").write_text(json.dumps(event))
    given = LogOptions.parse("%d/%m/%Y %I:%M:%S.%f %p", [])
    assert lines_read(tmp_path, given)[1, "state-change"] == [
        "[2026-06-05 16:30:12,613] INFO [Broker id=1] x (state.change.logger)"
    ]


def test_parts_of_a_table_without_its_header_are_refused_by_that_reason(tmp_path: Path) -> None:
    rows = table(["_time", "_raw"], [(e.spaced, e.raw) for e in map(Parts, EVENTS)])
    half = len(rows) // 2
    (tmp_path / "kafka-1").mkdir()
    for name, text in (("a.csv", rows[:half]), ("b.csv", rows[half:]), ("c.csv", "topic,owner\npayments,me\n")):
        (tmp_path / "kafka-1" / name).write_text(text)
    found = find_logs(tmp_path)
    assert {file.name for file in found.files} == {"kafka-1/a.csv"}
    assert [each.source_file for each in found.refused if each.reason == HEADLESS] == ["kafka-1/b.csv"]
    assert [each.source_file for each in found.left_out] == ["kafka-1/c.csv"]


def test_a_metadata_dump_and_a_listing_in_an_archive(tmp_path: Path) -> None:
    dump = Path(__file__).parents[3] / "data" / "samples" / "leader-stop" / "metadata-dump.txt.gz"
    with zipfile.ZipFile(tmp_path / "incident.zip", "w") as archive:
        archive.writestr("incident/decoded.txt", gzip.decompress(dump.read_bytes()))
        archive.writestr("incident/describe.txt", "Topic: t Partition: 0 Leader: 1 Replicas: 1,2 Isr: 1\n")
    assert {file.kind for file in find_logs(tmp_path).files} == {METADATA, SNAPSHOT}


def test_a_row_of_a_table_without_header_does_not_grow_without_limit() -> None:
    """All lines come out, and no row holds more of them than a long stack trace has."""
    lines = ["2026-11-21 16:30:17.000\tINFO\tbegins\n", *(f"line {number}\n" for number in range(25_000))]
    rows = list(rows_of_tab_table(lines, ["@timestamp", "level", "message"]))
    assert [row[-1].count("\n") + 1 for row in rows] == [10_000, 10_000, 5_001]
    assert "".join(f"{row[-1]}\n" for row in rows) == "begins\n" + "".join(lines[1:])

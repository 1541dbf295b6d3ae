"""The same lines in any layout that is read give the same lines in Kafka's own, sorted into the same logs."""

import gzip
import itertools
import json
import random
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.errors import NoInputError, NothingToReplayError, QualityGateError, UsageError
from isr_batch.ingest.folder.first_look import require_follower_fetches, require_readable_logs
from isr_batch.ingest.folder.lines import Selection, count_lines, lines_of_file
from isr_batch.ingest.folder.log_folder import find_logs, with_lines
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.folder.time_zones import require_utc
from isr_batch.ingest.log_files import look
from isr_batch.ingest.log_files.layouts import Layout, UnreadableLayout, layout_of
from tests.pipeline_events import EVENTS, Write

SAMPLES = Path(__file__).parents[3] / "data" / "samples" / "leader-stop"
OWN = re.compile(r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d),(\d{3})\] (\w+) (.*) \(([\w.$]+)\)")


def _wrapped(prefix: str) -> Write:
    return lambda day, time, ms, level, message, logger: f"{prefix}[{day} {time},{ms}] {level} {message} ({logger})"


def _stamped(day: str, time: str, ms: str, level: str, message: str, logger: str) -> str:
    return f"{day}T{time}.{ms}123456Z [{day} {time},{ms}] {level} {message} ({logger})"


def _half_day(time: str, ms: str) -> str:
    return f"{datetime.fromisoformat(f'2026-11-21T{time}'):%I:%M:%S}.{ms} {'AM' if time < '12' else 'PM'}"


MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
LAYOUTS: dict[str, Write] = {
    "own": _wrapped(""),
    "no brackets": lambda d, t, ms, lv, m, c: f"{d} {t},{ms} {lv} {m} ({c})",
    "thread at the end": lambda d, t, ms, lv, m, c: f"{d} {t},{ms} {lv} {m} ({c}) [kafka-scheduler-0]",
    "thread, class and line": lambda d, t, ms, lv, m, c: f"[{d} {t},{ms}] {lv} [kafka-scheduler-0] {m} ({c}:123)",
    "T": lambda d, t, ms, lv, m, c: f"[{d}T{t},{ms}] {lv} {m} ({c})",
    "T and Z": lambda d, t, ms, lv, m, c: f"[{d}T{t}.{ms}Z] {lv} {m} ({c})",
    "offset": lambda d, t, ms, lv, m, c: f"{d} {t}.{ms}+00:00 {lv} {m} ({c})",
    "GMT and offset": lambda d, t, ms, lv, m, c: f"[{d} {t}.{ms} GMT+00:00] {lv} {m} ({c})",
    "AM or PM": lambda d, t, ms, lv, m, c: f"{d} {_half_day(t, ms)} {lv} [main] {c} - {m}",
    "logger first": lambda d, t, ms, lv, m, c: f"{d} {t},{ms} {lv} {c}: {m}",
    "log4j": lambda d, t, ms, lv, m, c: f"{d} {t},{ms} [main] {lv:5} {c} - {m}",
    "compose": _wrapped("kafka-1  | "),
    "kubectl --timestamps": _stamped,
    "kubectl --prefix": _wrapped("[pod/my-kafka-1/kafka] "),
    "CRI": _wrapped("2026-11-21T16:30:12.613000000Z stdout F "),
    "journald": _wrapped("Nov 21 16:30:12 host-1 kafka-server-start.sh[1234]: "),
    "aws logs tail": _wrapped("2026-11-21T16:30:12.613000+00:00 kafka/broker/1 "),
    "grep": _wrapped("server.log:"),
    "stern": _wrapped("my-kafka-1 kafka "),
    "json-file": lambda d, t, ms, lv, m, c: json.dumps(
        {"log": f"[{d} {t},{ms}] {lv} {m} ({c})\n", "stream": "stdout", "time": f"{d}T{t}.{ms}Z"}
    ),
    "logstash": lambda d, t, ms, lv, m, c: json.dumps(
        {"@timestamp": f"{d}T{t}.{ms}Z", "message": m, "logger_name": c, "level": lv, "thread_name": "main"}
    ),
    "ECS": lambda d, t, ms, lv, m, c: json.dumps(
        {"@timestamp": f"{d}T{t}.{ms}Z", "log.level": lv, "message": m, "log.logger": c, "ecs.version": "1.2.0"}
    ),
    **EVENTS,
    "month name": lambda d, t, ms, lv, m, c: f"{int(d[8:])} {MONTHS[int(d[5:7]) - 1]} {d[:4]} {t},{ms} {lv} {m} ({c})",
}
PREFIXED = {"compose", "kubectl --prefix", "CRI", "journald", "aws logs tail", "grep", "stern"}


def _sample(log: str) -> list[str]:
    with gzip.open(SAMPLES / "broker-1" / f"{log}.log.gz", "rt") as stream:
        lines = stream.read().splitlines()
    named = [line for line in lines if OWN.fullmatch(line)]
    return named[:40] + named[-40:]


SETTING = "\treplica.lag.time.max.ms = 4000"
STREAM = sorted([*_sample("server"), *_sample("request"), *_sample("state-change")], key=lambda line: line[:25])


def written(line: str, name: str) -> str:
    found = OWN.fullmatch(line)
    if found:
        return LAYOUTS[name](*found.groups())
    if name == "kubectl --timestamps":
        return f"2026-11-21T16:30:12.613Z {line}"
    if name == "json-file":
        return json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-21T16:30:12.613Z"})
    prefix = LAYOUTS[name]("D", "", "", "", "", "").split("[D")[0] if name in PREFIXED else ""
    return prefix + line


def lines_by_log(folder: Path, options: LogOptions = LogOptions()) -> dict[tuple[int | None, str], Counter[str]]:  # noqa: B008
    """Everything that is read from a folder, by broker and log, as an ingest reads it."""
    found = find_logs(folder, options)
    require_readable_logs(found)
    counts, held = {}, {}
    files = [file for file in found.files if file.broker_id is not None]
    for file in files:
        key = file.path, file.source
        held[key], counts[key] = count_lines(file.path, [], Selection(file.layout, file.default, None, file.source))
    by_log: dict[tuple[int | None, str], Counter[str]] = {}
    for file in with_lines([replace(file, held=held[file.path, file.source]) for file in files], counts):
        selected = Selection(file.layout, file.default, None if file.alone else file.kind, file.source, file.first)
        lines = by_log.setdefault((file.broker_id, file.kind), Counter())
        read = 0
        for batch in lines_of_file(file.path, file.name, file.broker_id, selected=selected):
            lines.update(value for value in batch.column("value").to_pylist() if value is not None)
            read += batch.num_rows
        assert file.held is not None
        assert read == file.held.lines, "as many lines as were counted"
    return by_log


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int | None, str], Counter[str]]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "kafka-1").mkdir()
    for log, mark in (("request", "kafka.request.logger"), ("state-change", "state.change.logger")):
        own = [line for line in STREAM if mark in line]
        (folder / "kafka-1" / f"{log}.log").write_text("\n".join(own))
    rest = [line for line in STREAM if "kafka.request.logger" not in line and "state.change.logger" not in line]
    (folder / "kafka-1" / "server.log").write_text("\n".join(rest))
    return lines_by_log(folder)


PLAIN = ("own", "log4j", "T and Z", "month name")
PAIRS = [*zip(PLAIN, ("logstash", "ECS", "a logger called source", "Log4j's template"), strict=True),
         *itertools.permutations(PLAIN, 2)]  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(PAIRS), st.integers(0, 1 << 30))
def test_layouts_may_be_mixed_line_by_line(
    tmp_path_factory: pytest.TempPathFactory,
    expected: dict[tuple[int | None, str], Counter[str]],
    names: tuple[str, str],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("mixed") / "kafka-1"
    folder.mkdir()
    script = ["===> User", "uid=1000(appuser)", "Preparing to start", "  key=value"] * 18
    choice = random.Random(seed)
    lines = [written(line, choice.choice(names)) for line in STREAM]
    (folder / "all.log").write_text("\n".join([*script, *lines]))
    read = {
        key: Counter({line: count for line, count in found.items() if line not in script})
        for key, found in lines_by_log(folder.parent).items()
    }
    assert read == expected


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("file", ["server.log", "stdout.txt", "kafka-1.log.gz"])
def test_one_stream_of_all_loggers_in_any_layout_equals_three_files(
    tmp_path: Path, expected: dict[tuple[int | None, str], Counter[str]], name: str, file: str
) -> None:
    (tmp_path / "kafka-1").mkdir()
    text = "\n".join(written(line, name) for line in STREAM).encode()
    (tmp_path / "kafka-1" / file).write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
    assert lines_by_log(tmp_path) == expected


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in {"logstash", "ECS", *EVENTS}])
def test_settings_after_their_line_are_of_the_same_log(tmp_path: Path, name: str) -> None:
    head = "[2026-11-21 16:30:12,613] INFO KafkaConfig values: (kafka.server.KafkaConfig)"
    lines = [_sample("request")[0], head, SETTING, *_sample("state-change")[:3], *_sample("server")[:5]]
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "stdout.log").write_text("\n".join(written(line, name) for line in lines))
    assert lines_by_log(tmp_path)[1, "server"][SETTING] == 1


@pytest.mark.parametrize("name", ["logstash", "ECS"])
def test_an_event_of_many_lines_is_these_lines(tmp_path: Path, name: str) -> None:
    head = f"[2026-11-21 16:30:12,613] INFO KafkaConfig values: \\n{SETTING}\\n (kafka.server.KafkaConfig)"
    event = json.loads(written(head, name)) | {"message": f"KafkaConfig values: \n{SETTING}\n"}
    (tmp_path / "broker-1").mkdir()
    lines = [json.dumps(event), *(written(line, name) for line in STREAM)]
    (tmp_path / "broker-1" / "stdout.log").write_text("\n".join(lines))
    assert lines_by_log(tmp_path)[1, "server"][SETTING] == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.sampled_from(["CRI", "json-file"]))
def test_lines_that_a_runtime_has_cut_are_joined(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], name: str
) -> None:
    folder = tmp_path_factory.mktemp("cut") / "broker-1"
    folder.mkdir()
    whole = [line for line in STREAM if "Completed request" in line or "broker=1" in line]
    lines = []
    for number, line in enumerate(whole):
        size = max(len(line) // cuts[number % len(cuts)], 1)
        parts = [line[at : at + size] for at in range(0, len(line), size)]
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            if name == "CRI":
                lines.append(f"2026-11-21T16:30:12.6Z stdout {'F' if last else 'P'} {part}")
            else:
                lines.append(json.dumps({"log": part + ("\n" if last else ""), "stream": "stdout", "time": "x"}))
    (folder / "0.log").write_text("\n".join(lines))
    found = sum(lines_by_log(folder.parent).values(), Counter())
    assert found == Counter(whole)


def test_the_lines_of_three_pods_in_one_file_are_separated(tmp_path: Path) -> None:
    lines = [
        f"[pod/kafka-{pod}/kafka] {line}"
        for line in STREAM for pod in (0, 1, 2)
        if not look._WRITER.search(line)
    ]  # fmt: skip
    lines += [
        f"[pod/kafka-{pod}/kafka] [2026-11-21 16:30:12,613] INFO [Partition t-{pod} broker={pod + 100}] "
        "Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
        for pod in (0, 1, 2)
    ]
    (tmp_path / "all.log").write_text("\n".join(lines))
    by_log = lines_by_log(tmp_path)
    assert {broker for broker, _ in by_log} == {100, 101, 102}, "a pod's lines say which broker it is"
    assert by_log[100, "request"] == by_log[101, "request"] == by_log[102, "request"]
    assert sum(counts.total() for counts in by_log.values()) == len(lines)


def test_parts_of_lines_of_several_pods_are_joined_pod_by_pod(tmp_path: Path) -> None:
    """As fluent-bit writes what docker has cut: the parts of one pod's line stand among those of others."""
    whole = [line for line in STREAM if not look._WRITER.search(line)]
    whole += [SHRINK_OF.format(pod) for pod in (100, 200)]
    queues = {pod: [line for line in whole if "broker=" not in line or f"broker={pod}" in line] for pod in (100, 200)}
    events = []
    for lines in zip(*queues.values(), strict=True):
        halves = {pod: (line[: len(line) // 2], line[len(line) // 2 :] + "\n")
                  for pod, line in zip(queues, lines, strict=True)}  # fmt: skip
        events += [{"log": halves[pod][part], "kubernetes": {"pod_name": f"kafka-{pod}"}}
                   for part in (0, 1) for pod in queues]  # fmt: skip
    (tmp_path / "all.json").write_text("\n".join(map(json.dumps, events)))
    by_log = lines_by_log(tmp_path)
    for pod, own in queues.items():
        assert sum((counts for (broker, _), counts in by_log.items() if broker == pod), Counter()) == Counter(own)
    assert {broker for broker, _ in by_log} == set(queues)


SHRINK_OF = (
    "[2026-11-21 16:40:12,613] INFO [Partition t-0 broker={}] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("21/11/2026 16:30:12,613 INFO [Partition t-0 broker=1] x (kafka.cluster.Partition)", "ambiguous"),
        ("16:30:12,613 INFO [Partition t-0 broker=1] x (kafka.cluster.Partition)", "without a day"),
        ("something else entirely", "no readable"),
        ("__CURSOR=s=ab;i=0", "journalctl's export format"),
    ],
)
def test_a_layout_that_is_not_read_is_refused_by_name(tmp_path: Path, line: str, reason: str) -> None:
    found = layout_of([line] * 3)
    assert isinstance(found, UnreadableLayout)
    assert reason in found.reason
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "server.log").write_text(f"{line}\n" * 3)
    with pytest.raises(QualityGateError, match=r"broker-1/server\.log") as error:
        require_readable_logs(find_logs(tmp_path))
    assert "--stamp-format" in error.value.hint


def test_a_format_that_the_operator_gives_is_read(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    line = "21/11/26 16:30:12.613 INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
    (tmp_path / "broker-1" / "server.log").write_text(line)
    options = LogOptions.parse("%d/%m/%y %H:%M:%S.%f", [])
    (value,) = lines_by_log(tmp_path, options)[1, "server"]
    assert value.startswith("[2026-11-21 16:30:12,613] INFO [Partition")
    with pytest.raises(UsageError, match="lacks the day"):
        LogOptions.parse("%H:%M:%S", [])


def test_stamps_of_whole_seconds_do_for_a_server_log_and_not_for_requests(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    lines = [re.sub(r",\d{3}\]", "]", line) for line in STREAM]
    own = [line for line in lines if "kafka.request.logger" not in line]
    (tmp_path / "broker-1" / "server.log").write_text("\n".join(own))
    require_readable_logs(find_logs(tmp_path))
    without_requests = lines_by_log(tmp_path)
    (tmp_path / "broker-1" / "server.log").write_text("\n".join(lines))
    found = find_logs(tmp_path)
    assert "requests with time stamps of whole seconds" in {each.reason for each in found.refused}
    with pytest.raises(NothingToReplayError, match="too coarse"):
        require_follower_fetches(str(tmp_path), [found])
    assert lines_by_log(tmp_path) == without_requests


def test_events_of_unknown_fields_are_refused_with_their_names_and_can_be_named(
    tmp_path: Path, expected: dict[tuple[int | None, str], Counter[str]]
) -> None:
    def unknown(line: str) -> str:
        event = json.loads(written(line, "logstash"))
        names = {"@timestamp": "when", "message": "what", "logger_name": "by", "level": "how"}
        return json.dumps({"payload": {names[name]: text for name, text in event.items() if name in names}, "v": 2})

    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "stdout.log").write_text("\n".join(map(unknown, STREAM)))
    with pytest.raises(NoInputError, match=r"payload/by, payload/how, payload/what, payload/when, v: name three"):
        find_logs(tmp_path)
    (tmp_path / "cluster.yaml").write_text(
        "events: {time: payload/when, message: payload/what, logger: payload/by, level: payload/how}"
    )
    assert lines_by_log(tmp_path) == expected
    (tmp_path / "cluster.yaml").write_text("events: {time: payload/what, message: payload/when}")
    with pytest.raises(NoInputError, match="JSON events without a known time and message"):
        find_logs(tmp_path)
    (tmp_path / "cluster.yaml").write_text("events: {when: x}")
    with pytest.raises(UsageError, match="expected"):
        find_logs(tmp_path)


@pytest.mark.parametrize(("minutes", "option"), [(120, "+02:00"), (-210, "-03:30"), (330, "+05:30")])
def test_local_time_is_found_out_by_the_times_in_the_lines_and_put_right(
    tmp_path: Path, expected: dict[tuple[int | None, str], Counter[str]], minutes: int, option: str
) -> None:
    def shifted(line: str) -> str:
        stamp = datetime.fromisoformat(line[1:20]) + timedelta(minutes=minutes)
        return f"[{stamp:%Y-%m-%d %H:%M:%S}{line[20:]}"

    with gzip.open(SAMPLES / "broker-1" / "server.log.gz", "rt") as stream:
        drops = [line for line in stream.read().splitlines() if "lastCaughtUpTimeMs" in line]
    assert drops
    (tmp_path / "kafka-1").mkdir()
    log = tmp_path / "kafka-1" / "server.log"
    log.write_text("\n".join(shifted(line) for line in [*STREAM, *drops]))
    with pytest.raises(UsageError, match=rf"UTC\{option}") as error:
        require_utc(find_logs(tmp_path).files)
    assert f"--time-zone {option}" in error.value.hint
    options = LogOptions.parse(None, [option])
    require_utc(find_logs(tmp_path, options).files)
    found = lines_by_log(tmp_path, options)
    assert found[1, "request"] == expected[1, "request"]
    assert found[1, "server"] >= expected[1, "server"]


def test_brokers_whose_clocks_are_in_different_zones_are_found_out(tmp_path: Path) -> None:
    for broker, hour in ((1, 16), (2, 19)):
        (tmp_path / f"broker-{broker}").mkdir()
        role = "Leader" if broker == 1 else "Follower"
        lines = [
            f"[2026-11-21 {hour}:30:{second:02},0{broker}0] INFO [Broker id={broker}] {role} t-{second} starts at "
            "leader epoch 3 from offset 0 with high watermark 0 ISR [1,2] (state.change.logger)"
            for second in range(10)
        ]  # fmt: skip
        (tmp_path / f"broker-{broker}" / "state-change.log").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="3 h ahead of broker 1") as error:
        require_utc(find_logs(tmp_path).files)
    assert "--time-zone" in error.value.hint


def test_the_advice_moves_only_the_brokers_whose_stamps_are_wrong(tmp_path: Path) -> None:
    """Broker 1 proves to be in UTC, broker 2 to be ahead of it, and broker 3 has only lines of leader epochs."""
    ahead = {1: 0, 2: 2, 3: 3}
    drop = "[Partition t-0 broker={}] Shrinking ISR from 1,2 to 1. Leader: (). Out of sync replicas: (brokerId: 2, "
    for broker, hours in ahead.items():
        (tmp_path / f"broker-{broker}").mkdir()
        at = datetime(2026, 11, 21, 16, 30, tzinfo=UTC)
        stamp = f"{at + timedelta(hours=hours):%Y-%m-%d %H:%M:%S},000"
        epochs = [
            f"[{stamp}] INFO [Broker id={broker}] Follower t-{n} starts at leader epoch 3 from offset 0 "
            "(state.change.logger)" for n in range(9)
        ]  # fmt: skip
        (tmp_path / f"broker-{broker}" / "state-change.log").write_text("\n".join(epochs))
        if broker < 3:
            caught_up = f"lastCaughtUpTimeMs: {round(at.timestamp() * 1000) - 9000}). (kafka.cluster.Partition)"
            (tmp_path / f"broker-{broker}" / "server.log").write_text(
                f"[{stamp}] INFO {drop.format(broker)}{caught_up}"
            )
    with pytest.raises(UsageError) as error:
        require_utc(find_logs(tmp_path).files)
    assert "give --time-zone 2=+02:00 --time-zone 3=+03:00, or" in error.value.hint
    require_utc(find_logs(tmp_path, LogOptions.parse(None, ["2=+02:00", "3=+03:00"])).files)


def test_a_layout_survives_the_way_to_a_worker() -> None:
    for name in LAYOUTS.keys() - {"OTLP", "OTLP, parsed"}:  # batches of events
        layout = layout_of([written(line, name) for line in STREAM[:50]])
        assert isinstance(layout, Layout), name
        assert Layout.from_text(layout.to_text()) == layout

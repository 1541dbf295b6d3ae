"""`look` and `run` judge a folder alike: what run refuses, look says in the same words."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from pipelines import run_cli
from tests import mutated_lines
from tests.mutated_events import file_of_events
from tests.unit.command_line import Run
from tests.unit.ingest.test_export_buttons import BUTTONS, EVENTS, Parts
from tests.unit.ingest.test_mutated_events import NAMES, lines

SHARED = Path(__file__).parents[4] / "shared"
SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "leader-stop"

SHRINK = (
    "[{}] INFO [Partition t-0 broker={}] Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 5, endOffset: 9). Out of "
    "sync replicas: (brokerId: 2, endOffset: 5, lastCaughtUpTimeMs: 1795278600000). (kafka.cluster.Partition)"
)
AT, LATER = "2026-11-21 16:30:10,123", "2026-11-21 18:30:10,123"
WARN = f"[{AT}] WARN [Broker id=1] Exception (kafka.server.ReplicaManager)"
CAME = (
    "[{}] INFO [Broker id=1] Leader t-0 with topic id Some(QOGIGkfUTjeQvN1wX98dSQ) starts at leader epoch 3 from "
    "offset 0 with partition epoch 0, high watermark 0, ISR [1,2], adding replicas [] and removing replicas [] . "
    "Previous leader None and previous leader epoch was -1. (state.change.logger)"
)
VERSION = f"[{AT}] INFO Kafka version: 77.1-x (org.apache.kafka.common.utils.AppInfoParser)"
REQUEST = (
    f'[{AT}] DEBUG Completed request:{{"isForwarded":false,"requestHeader":{{"requestApiKey":1}},'
    '"request":{"replicaId":2}} (kafka.request.logger)'
)
FOLDERS: dict[str, dict[str, str]] = {
    "one log": {"kafka-1/server.log": SHRINK.format(AT, 1)},
    "nothing": {},
    "a document": {"readme.txt": "about the logs"},
    "a request log without fetches": {"kafka-1/request.log": REQUEST.replace('"replicaId":2', "")},
    "no server.log": {"kafka-1/state-change.log": CAME.format(AT)},
    "only WARN": {"kafka-1/server.log": WARN},
    "begins late": {
        "kafka-1/server.log": SHRINK.format(AT, 1), "kafka-1/state-change.log": CAME.format("2026-11-21 15:00:00,000"),
    },
    "another zone": {"kafka-1/server.log": SHRINK.format(LATER, 1)},
    "an ambiguous time": {"kafka-1/server.log": SHRINK.format(AT, 1).replace(AT, "11/12/2026 16:30:10")},
    "events of unknown fields": {"kafka-1/server.log": json.dumps({"a": "x", "b": 1})},
    "mistakes in cluster.yaml": {"cluster.yaml": "relase: 3.6.2", "kafka-1/server.log": SHRINK.format(AT, 1)},
    "an unknown release and two names": {"kafka-7/server.log": f"{VERSION}\n{SHRINK.format(AT, 1)}"},
    "whole seconds": {"kafka-1/server.log": "\n".join([SHRINK.format(AT[:-4], 1), REQUEST.replace(AT, AT[:-4])])},
    "no broker": {"logs/server.log": WARN.replace("Broker id=1", "x")},
    "only gc.log": {"kafka-1/gc.log": "[2026-11-21T16:30:10.123+0000][info][gc] GC(1) Pause Young 3ms"},
    "UTF-16": {"kafka-1/server.log.in UTF-16": SHRINK.format(AT, 1)},
    "only a listing": {"describe.txt": "Topic: t Partition: 0 Leader: 1 Replicas: 1,2 Isr: 1"},
}  # fmt: skip
REFUSED = {
    "nothing", "a document", "a request log without fetches", "another zone", "an ambiguous time",
    "events of unknown fields", "mistakes in cluster.yaml", "no broker", "only gc.log", "UTF-16",
}  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-16" if "in UTF-16" in path else "utf-8")
    return folder


def error_in(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith(("error:", "  what to do:"))]


@pytest.fixture
def agree(isr_batch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], int]:
    """The exit code of `look`, which is that of `run` up to the replay, with the same words."""
    monkeypatch.delenv("SPARK_HOME")  # it would stand for a cluster, which needs Spark
    monkeypatch.setattr(run_cli, "_replay_and_report", lambda *_, **__: None)

    def exit_code(logs: Path) -> int:
        looked = isr_batch("look", str(logs))
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        ran = isr_batch("run", "--logs", str(logs), "--lake", str(tmp_path / "lake"), "--engine", "local")
        assert (looked[0], error_in(looked[2])) == (ran[0], error_in(ran[2])), logs
        assert bool(error_in(ran[2])) == bool(ran[0])
        return ran[0]

    return exit_code


@pytest.mark.parametrize("name", FOLDERS)
def test_what_run_refuses_look_says(
    name: str, agree: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the lake; the nightly test below ingests them too."""

    def accept(*_: object, **__: object) -> NoReturn:
        raise typer.Exit(0)

    monkeypatch.setattr(run_cli, "open_job", accept)
    assert (agree(write(tmp_path / "logs", FOLDERS[name])) != 0) == (name in REFUSED)


@pytest.mark.parametrize(("cut", "code"), [(2, 0), (3, 4)])
def test_look_foresees_the_gate_of_quarantine(
    agree: Callable[[Path], int], tmp_path: Path, cut: int, code: int
) -> None:
    """One line in a hundred may be refused."""
    lines_ = gzip.decompress((SAMPLE / "broker-1" / "request.log.gz").read_bytes()).splitlines()[:200]
    lines_[50 : 50 + cut] = [line[:300] for line in lines_[50 : 50 + cut]]
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "request.log").write_bytes(b"\n".join(lines_))
    assert agree(tmp_path) == code


@pytest.mark.nightly
@pytest.mark.skipif(not SHARED.is_dir(), reason="the operators' folders are not here: ../shared")
def test_look_and_run_agree_on_all_folders_of_operators(agree: Callable[[Path], int]) -> None:
    codes = [agree(each / "input") for each in sorted(SHARED.glob("cases/[HN]*"))]
    assert 0 < sum(map(bool, codes)) < len(codes)
    assert [agree(each) for each in sorted(SHARED.glob("traces/r*"))] == [0] * 6


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_look_and_run_agree_on_damaged_exports(agree: Callable[[Path], int], tmp_path: Path) -> None:
    """Exports of every product, events of every pipeline and Kafka's own layout, a random share of each damaged."""
    chosen, every = random.Random(4), lines()
    requests = gzip.decompress((SAMPLE / "broker-1" / "request.log.gz").read_bytes()).splitlines()[:300]
    made: list[tuple[str, bytes]] = []
    for file, export in BUTTONS.values():
        made.append((file, export([Parts(event) for event in reversed(EVENTS)]).encode()))
    made += [(name, file_of_events(chosen, every, 100)) for name in NAMES * 20]
    for _ in range(40):
        share = chosen.choice((0, 0.005, 0.02, 0.2))
        damaged = [mutated_lines.mutated(line, chosen.choice(requests), chosen) if chosen.random() < share else line
                   for line in requests]  # fmt: skip
        made.append(("request.log", b"\n".join(damaged)))
    for file, export in BUTTONS.values():
        text = bytearray(export([Parts(event) for event in reversed(EVENTS)]).encode())
        for _ in range(chosen.randrange(1, 9)):
            text[chosen.randrange(len(text))] = chosen.randrange(256)
        made.append((file, bytes(text)))
    codes = [agree(write(tmp_path / name, files)) for name, files in FOLDERS.items()]
    for number, (name, content) in enumerate(made):
        folder = tmp_path / str(number) / "kafka-1"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
        try:
            codes.append(agree(folder.parent))
        except AssertionError as error:
            print("DISAGREE", number, name, str(error)[:1500], flush=True)
    assert {0, 3, 4} <= {*codes}

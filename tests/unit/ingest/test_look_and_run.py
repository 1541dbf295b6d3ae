"""`look` and `run` judge a folder alike: what run refuses, look says in the same words."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from pipelines import run_cli
from tests.unit.command_line import Run

SHRINK = (
    "[{}] INFO [Partition t-0 broker={}] Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 5, endOffset: 9). Out of "
    "sync replicas: (brokerId: 2, endOffset: 5, lastCaughtUpTimeMs: 1795278600000). (kafka.cluster.Partition)"
)
AT, LATER = "2026-11-21 16:30:10,123", "2026-11-21 18:30:10,123"
WARN = f"[{AT}] WARN [Broker id=1] Exception (kafka.server.ReplicaManager)"
CAME = "[{}] INFO [Broker id=1] Leader t-0 starts at leader epoch 3 from offset 0 (state.change.logger)"
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


@pytest.mark.parametrize("name", FOLDERS)
def test_what_run_refuses_look_says(name: str, isr_batch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(*_: object, **__: object) -> NoReturn:
        raise typer.Exit(0)

    monkeypatch.setattr(run_cli, "open_job", accept)
    logs = write(tmp_path / "logs", FOLDERS[name])
    looked = isr_batch("look", str(logs))
    ran = isr_batch("run", "--logs", str(logs), "--lake", str(tmp_path / "lake"))
    assert looked[0] == ran[0]
    assert error_in(looked[2]) == error_in(ran[2])
    assert bool(error_in(ran[2])) == bool(ran[0])
    assert (ran[0] != 0) == (name in REFUSED)

"""Brokers of observers, as cluster.yaml lists them: what an ingest of logs makes of their replicas."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import UsageError
from isr_batch.evidence.evidence_table import TERM_COLUMNS, evidence_rows
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.listed_observers import (
    EVERY,
    mark_observers,
    observers_as_json,
    observers_from_json,
    observers_of_partition,
    require_known_names,
    sentences_on_idle_observers,
)
from isr_batch.ingest.folder.settings_files import read_cluster_settings
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.ingest.own_table.mapping import mapping_of
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.yaml_files import load_yaml

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "follower-stop" / "broker-1"
REQUESTS = 500


def write_logs(folder: Path, settings: str, isr_at_start: str = "1,2") -> Path:
    """Write logs of broker 1, whose terms all begin with this ISR; later broker 3 leaves and returns."""
    for log in SAMPLE.glob("*.log.gz"):
        text = gzip.decompress(log.read_bytes()).decode()
        if log.name.startswith("request"):
            text = "".join(text.splitlines(keepends=True)[:REQUESTS])
        text = re.sub(r"ISR \[1,2,3\]|ISR \[1,3,2\]", f"ISR [{isr_at_start}]", text)
        (folder / log.name.removesuffix(".gz")).write_text(text)
    (folder / "cluster.yaml").write_text(settings)
    return folder


@pytest.mark.parametrize(
    ("settings", "isr_at_start", "observers", "dropped"),
    [
        ("observers: [3]\n", [1, 2], [3], set()), ("", [1, 2], [], {3}),
        ("observers: [3]\n", [1, 2, 3], [3], {3}),  # in the ISR when the terms began
    ],
)  # fmt: skip
def test_observers_of_a_cluster(
    tmp_path: Path, settings: str, isr_at_start: list[int], observers: list[int], dropped: set[int]
) -> None:
    folder = write_logs(tmp_path, settings, ",".join(map(str, isr_at_start)))
    with log_sql() as sql:
        logs = read_kafka_logs(Here(sql), folder, "c", "run", sql=sql)
        terms = logs.tables[LEADER_EPOCHS.name]
        assert isinstance(terms, pa.Table)
        evidence = evidence_rows(find_evidence(sql, logs.read_lines), "c", terms.select(TERM_COLUMNS))
    found = [(row["isr_at_start"], row["observers"]) for row in terms.to_pylist() if 3 in row["assigned"]]
    assert found
    assert all(each == (isr_at_start, observers) for each in found)
    assert set(evidence["replica_id"].to_pylist()) == dropped


@pytest.mark.parametrize(
    ("listed", "observing"),
    [
        ([4, 3, 4], {"t-0": (3, 4), "t-1": (3, 4), "u-0": (3, 4)}),
        ({"t": [3]}, {"t-0": (3,), "t-1": (3,), "u-0": ()}),
        ({"t": [3], "t-1": [4]}, {"t-0": (3,), "t-1": (4,), "u-0": ()}),
        ({"t": [3], "t-1": []}, {"t-0": (3,), "t-1": (), "u-0": ()}),
        ({"t-1": [3], "u": [4]}, {"t-0": (), "t-1": (3,), "u-0": (4,)}),
        ([], {"t-0": (), "t-1": (), "u-0": ()}),
    ],
)
def test_a_list_for_all_or_by_topic_and_partition(
    tmp_path: Path, listed: object, observing: dict[str, tuple[int, ...]]
) -> None:
    (tmp_path / "cluster.yaml").write_text(f"observers: {json.dumps(listed)}")
    stated = read_cluster_settings(tmp_path / "cluster.yaml").observers
    stored = observers_from_json(observers_as_json(stated))
    for each in (stated, stored):
        found = {f"{t}-{p}": observers_of_partition(each, t, p) for t, p in (("t", 0), ("t", 1), ("u", 0))}
        assert found == observing


@pytest.mark.parametrize(
    ("listed", "wrong"),
    [
        ("3", "3 is not a list"), ("[x]", "x is not a broker id"), ("[-1]", "-1 is not a broker id"),
        ("[2147483648]", "2147483648 is not a broker id"), ("[true]", "True is not a broker id"),
        ("[[3]]", "[3] is not a broker id"), ("{t: 3}", "of t 3 is not a list"),
        ("{t: [3], u-1: [a]}", "of u-1 a is not a broker id"), ("{t: {p: [3]}}", "of t {'p': [3]} is not a list"),
        ("{'': [3]}", "a topic has no name"), ("", "None is not a list"),
    ],
)  # fmt: skip
def test_a_list_that_is_none(tmp_path: Path, listed: str, wrong: str) -> None:
    """In either file."""
    (tmp_path / "cluster.yaml").write_text(f"observers: {listed}")
    with pytest.raises(UsageError, match=re.escape(f"observers: {wrong}")) as of_logs:
        read_cluster_settings(tmp_path / "cluster.yaml")
    assert "expected a list of broker ids" in of_logs.value.message
    tree = {"cluster_id": "c", "observers": load_yaml(tmp_path / "cluster.yaml")["observers"]}
    tree["fetches"] = {"columns": dict.fromkeys(
        ("topic", "partition_id", "leader_id", "replica_id", "fetch_offset", "handled_time"), "x")}  # fmt: skip
    with pytest.raises(UsageError, match="(?i)" + re.escape(f"observers: {wrong}")):
        mapping_of(tree, "m.yaml")


def test_a_topic_that_is_unknown_and_one_that_is_ambiguous() -> None:
    partitions = [("t", 0), ("t-1", 0), ("t", 1)]
    require_known_names({EVERY: (3,), "t": (3,), "t-0": (4,)}, partitions, "cluster.yaml")
    with pytest.raises(
        UsageError, match=r"observers in cluster.yaml: no topic or partition is named t-7 or v"
    ) as error:
        require_known_names({"v": (3,), "t": (3,), "t-7": ()}, partitions, "cluster.yaml")
    assert error.value.hint == "did you mean t-1?"
    with pytest.raises(UsageError, match="t-1 is a topic and also a partition of another topic"):
        require_known_names({"t-1": (3,)}, partitions, "cluster.yaml")


def test_brokers_that_are_listed_in_vain() -> None:
    terms: list[dict[str, Any]] = [
        {"topic": "t", "partition_id": number, "assigned": [1, 2, 3], "isr_at_start": isr}
        for number, isr in enumerate(([1, 2], [1, 2, 3]))
    ]
    listed = {"t": (3, 9), "t-1": (2, 3)}
    mark_observers(terms, listed)
    assert [row["observers"] for row in terms] == [[3], [2, 3]]
    begin = "The list of observers changes nothing for broker"
    assert sentences_on_idle_observers(listed, terms) == [
        f"{begin} 9: it has no replica to which the list applies.",
        f"{begin} 2: it was in the ISR at the start of each term, so it is treated as any other replica.",
    ]
    assert sentences_on_idle_observers({"t": (3,)}, terms[:1]) == []

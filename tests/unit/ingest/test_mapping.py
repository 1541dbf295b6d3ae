"""Mapping files: their contents, and all mistakes reported at once."""

from pathlib import Path
from typing import get_args

import pytest

from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.mapping import (
    AppendColumns,
    ColumnSource,
    EpochColumns,
    FetchColumns,
    InstantSource,
    NumberSource,
    NumbersSource,
    TextSource,
    load_mapping,
    mapped_columns,
)
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG
from isr_batch.lake.tables.leaders import LEADER_EPOCHS

SHIPPED = sorted((Path(__file__).parents[3] / "conf" / "mappings").glob("*.yaml"))
SHORTEST = """
cluster_id: c
fetches:
  columns: {topic: t, partition_id: p, leader_id: 1, replica_id: r, fetch_offset: o, arrival_time: a}
"""
TYPES: dict[type[ColumnSource], set[str]] = {
    TextSource: {"STRING"},
    NumberSource: {"INT", "BIGINT"},
    InstantSource: {"TIMESTAMP"},
    NumbersSource: {"ARRAY<INT>"},
}


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_shipped_examples_are_read() -> None:
    assert [file.stem for file in SHIPPED] == ["csv", "delta", "parquet"]
    for file in SHIPPED:
        mapping = load_mapping(file)
        assert mapping.appends
        assert Path(mapping.appends.path).parent == file.parent


def test_targets_are_columns_of_the_tables_and_of_their_types() -> None:
    for columns, table in ((FetchColumns, FETCH_LOG), (AppendColumns, APPEND_LOG), (EpochColumns, LEADER_EPOCHS)):
        types = {column.name: column.type for column in table.columns}
        for name, field in columns.model_fields.items():
            (kind,) = {field.annotation, *get_args(field.annotation)} & set(TYPES)
            assert types[name] in TYPES[kind], (columns, name)


def test_short_forms_and_the_cluster_of_the_command_line(tmp_path: Path) -> None:
    mapping = load_mapping(written(tmp_path, SHORTEST), "other")
    given = mapped_columns(mapping.fetches.columns)
    assert list(given) == ["topic", "partition_id", "leader_id", "replica_id", "fetch_offset", "arrival_time"]
    assert (given["topic"].column, given["leader_id"].column, given["leader_id"].constant) == ("t", None, 1)
    assert (mapping.cluster_id.column, mapping.cluster_id.constant) == (None, "other")
    assert (mapping.replica_lag_time_max_ms, mapping.min_insync_replicas) == (30_000, 1)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = """
        format: parket
        csv: {delimeter: ";"}
        replica_lag_time_max_ms: 0
        fetches:
          columns:
            topik: topic
            partition_id: {column: p, unit: ms}
            leader_id: {constant: first}
            replica_id: {column: r, constant: 1}
            fetch_offset: 1.5
            completed_time: {column: c, unit: iso, time_zone: Europe/Berln}
            leader_epoch: e
        appends: {path: a.csv, columns: {topic: t}}
    """
    with pytest.raises(UsageError) as error:
        load_mapping(written(tmp_path, text))
    told = error.value.message.splitlines()
    for mistake in (
        "format: input should be 'parquet', 'delta' or 'csv'",
        "csv.delimeter: no such key; did you mean delimiter?",
        "replica_lag_time_max_ms: input should be greater than 0",
        "cluster_id: is required, or --cluster",
        "fetches.columns.topic: is required",
        "fetches.columns.topik: no such key; did you mean topic?",
        "fetches.columns.partition_id.unit: no such key; there are column, constant",
        "fetches.columns.leader_id.constant: input should be a valid integer",
        "fetches.columns.replica_id: give either a column or a constant",
        "fetches.columns.fetch_offset: the name of a column is expected",
        "fetches.columns.completed_time.time_zone: no such time zone; did you mean Europe/Berlin?",
        "fetches.columns: handled_time or arrival_time is required",
        "appends.columns.acks: is required",
        "leader_epoch: without epochs, map it for both fetches and appends, or for neither",
    ):
        assert f"  {mistake}" in told


@pytest.mark.parametrize("text", ["fetches: [", "- a list", ""])
def test_no_mapping_at_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.yaml"):
        load_mapping(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_mapping(tmp_path / "nowhere.yaml")

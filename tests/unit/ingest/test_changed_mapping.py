"""A mapping that changes between two ingests doubles no row: it is refused, or reads the same rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from isr_batch.errors import QualityGateError, SchemaError, UsageError
from isr_batch.ingest.own_table.added_rows import Replaced
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.ingest.own_table.ingest import IngestOfTable, ingest_own_table
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.window import Window
from tests.made_up_tables import made_up_table
from tests.unit.ingest.test_table_law import lake_in

TREE: dict[str, Any] = {
    "cluster_id": "c",
    "fetches": {"columns": {
        "topic": "topic", "partition_id": "partition", "leader_id": "leader", "replica_id": "follower",
        "fetch_offset": "offset", "handled_time": {"column": "ts_ms", "unit": "ms"}, "arrival_time": "arrived",
        "error_code": {"constant": 0},
    }},
    "appends": {"path": "t.parquet", "columns": {
        "topic": "topic", "partition_id": "partition", "leader_id": "leader", "log_end_offset": "leo", "acks": 1,
        "append_time": {"column": "ts_ms", "unit": "ms"}, "log_end_source": {"constant": "appends"},
    }},
    "epochs": {"path": "terms.parquet", "columns": {
        "topic": "topic", "partition_id": "partition", "leader_id": "leader", "leader_epoch": "epoch",
        "start_time": {"column": "ts_ms", "unit": "ms"}, "min_insync_replicas": {"constant": 1},
    }},
    "changes": {"path": "changes.parquet", "columns": {
        "topic": "topic", "partition_id": "partition", "leader_id": "leader", "isr_before": "before",
        "isr_after": "after", "change_time": {"column": "ts_ms", "unit": "ms"},
    }},
}  # fmt: skip
STORED = (FETCH_LOG, APPEND_LOG, GIVEN_TERMS, OBSERVED_ISR_CHANGES, LEADER_EPOCHS)


def tables(folder: Path) -> dict[str, pa.Table]:
    """Write tables of fetches and appends, of terms and of changes; many columns could be mistaken for others."""
    rows = made_up_table(6, partitions=3, seconds=100)
    ms = rows["ts_ms"]
    naive = pc.subtract(ms, 3).cast(pa.timestamp("ms"))
    rows = rows.append_column("arrived", naive).append_column("sent", pc.subtract(ms, 9).cast(pa.timestamp("ms")))
    rows = rows.append_column("key", pa.array([f"k{number % 3}" for number in range(rows.num_rows)]))
    terms = rows.group_by(["topic", "key", "partition", "leader", "follower", "epoch"]).aggregate([("ts_ms", "min")])
    isr = pa.array([[1, 2, 3]] * 40, pa.list_(pa.int32()))
    changes = rows.slice(100, 40).append_column("before", isr).append_column("never", isr)
    less = pa.array([[2, 3], [1, 2]] * 20, pa.list_(pa.int32()))
    terms, changes = terms.rename_columns({"ts_ms_min": "ts_ms"}), changes.append_column("after", less)
    found = {"t": rows, "terms": terms, "changes": changes}
    for name, table in found.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return found


def ingest(lake: Lake, folder: Path, tree: dict[str, Any], name: str = "t.parquet", **options: Any) -> IngestOfTable:
    (folder / "mapping.yaml").write_text(yaml.safe_dump(tree))
    mapping = load_mapping(folder / "mapping.yaml")
    return ingest_own_table(lake, [str(folder / name)], mapping, max_refused=0.01, **options)


def rows_of(lake: Lake) -> dict[str, list[str]]:
    derive_tables(lake)
    return {
        table.name: sorted(
            map(str, read_columns(lake, table.name, [*{*table.column_names} - {"ingest_run"}]).to_pylist())
        )
        for table in STORED
    }


def changed(tree: dict[str, Any], section: str, **columns: Any) -> dict[str, Any]:
    return {**tree, section: {**tree[section], "columns": {**tree[section]["columns"], **columns}}}


def all_changes_of(section: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the mapping with one entry of a section changed: another column, unit, zone or constant, or none at all."""
    for entry, source in TREE[section]["columns"].items():
        others: list[Any] = [*names, {"constant": 2}, {"constant": "x"}, {"constant": [2]}]
        others += [{"column": name, "unit": unit} for name in names for unit in ("s", "us", "ns", "iso")]
        others += [{"column": name, "time_zone": zone} for name in names for zone in ("Europe/Berlin", "UTC")]
        for other in others:
            if other != source:
                yield changed(TREE, section, **{entry: other})
        yield {**TREE, section: {**TREE[section], "columns": {
            name: given for name, given in TREE[section]["columns"].items() if name != entry
        }}}  # fmt: skip


@pytest.mark.parametrize("share", [0.06, pytest.param(1.0, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("section", ["fetches", "appends", "epochs", "changes"])
def test_no_change_of_a_mapping_doubles_rows(section: str, share: float, tmp_path: Path) -> None:
    given = tables(tmp_path)
    lake = lake_in(tmp_path / "lake")
    ingest(lake, tmp_path, TREE)
    before = rows_of(lake)
    assert all(before[table.name] for table in STORED)
    names = given[Path(TREE[section].get("path", "t.parquet")).stem].column_names
    refused, versions = 0, {table.name: lake.version(table.name) for table in STORED}
    changes = [*all_changes_of(section, names)]
    for tree in np.random.default_rng(60).permutation(np.array(changes, object))[: int(share * len(changes))]:
        try:
            done = ingest(lake, tmp_path, tree)
        except (UsageError, SchemaError, QualityGateError):
            refused += 1
        else:
            assert done.total.new.total() == 0, tree[section]
    assert refused > share * len(changes) / 2
    assert {table.name: lake.version(table.name) for table in STORED} == versions
    # Days left out, deleted rows and files read again make no difference.
    day = Window("2026-03-10", "2026-03-11")
    ingest(lake, tmp_path, TREE, window=day, replaced=Replaced(day, leader_id=1), may_lose=True)
    wrong = changed(TREE, section, topic="key")
    for options in ({}, {"full": True}, {"window": day}):
        with pytest.raises(
            UsageError, match=f"c was ingested with another mapping: {section}.topic was topic, and is key now"
        ):
            ingest(lake, tmp_path, wrong, **options)
    assert rows_of(lake) == before


def test_what_may_change(tmp_path: Path) -> None:
    """Columns that were renamed or retyped, in tables that lack the former ones; but no constants."""
    table, lake = tables(tmp_path)["t"], lake_in(tmp_path / "lake")
    tree = {"cluster_id": "c", "fetches": TREE["fetches"]}
    ingest(lake, tmp_path, tree)
    many = table.num_rows
    renamed = changed(tree, "fetches", topic="name", handled_time="ts")
    ts = table["ts_ms"].cast(pa.timestamp("ms", "UTC"))
    other = table.rename_columns({"topic": "name"}).drop_columns(["ts_ms"]).append_column("ts", ts)
    pq.write_table(other, tmp_path / "renamed.parquet")
    assert ingest(lake, tmp_path, renamed, "renamed.parquet").total.known.total() == many
    # Both are known now.
    assert ingest(lake, tmp_path, tree, full=True).total.known.total() == many
    with pytest.raises(UsageError, match=r"fetches.handled_time was ts_ms \(ms\), and is arrived now"):
        ingest(lake, tmp_path, changed(tree, "fetches", handled_time="arrived"))
    # A constant is in all rows of a cluster.
    pq.write_table(table.drop_columns(["leader"]), tmp_path / "broker-7.parquet")
    with pytest.raises(UsageError, match=r"fetches.leader_id was leader, and is always 7 now"):
        ingest(lake, tmp_path, changed(tree, "fetches", leader_id=7), "broker-7.parquet")
    with pytest.raises(UsageError, match=r"fetches.error_code was always 0, and is always 1 now"):
        ingest(lake, tmp_path, changed(tree, "fetches", error_code=1))
    of_another = {**changed(tree, "fetches", leader_id=7), "cluster_id": "d"}
    assert ingest(lake, tmp_path, of_another, "broker-7.parquet").total.new.total() > 0

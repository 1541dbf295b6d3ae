"""The lake is a function of the set of rows: however a table is cut, ordered and repeated, it holds the same."""

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isr_batch.errors import QualityGateError, SchemaError, UsageError
from isr_batch.ingest.own_table.added_rows import Replaced
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.ingest.own_table.ingest import IngestOfTable, ingest_own_table
from isr_batch.ingest.own_table.mapping import TableMapping, load_mapping
from isr_batch.ingest.own_table.row_order import order_of_rows
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES, QUARANTINE
from isr_batch.lake.tables.leaders import BROKER_DAYS, LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import FETCH_DAYS, GIVEN_TERMS
from isr_batch.replay.days import fingerprints
from isr_batch.replay.packing import pack_stale_days
from isr_batch.window import Window
from tests.made_up_tables import MAPPING, MIDNIGHT_MS, NOON_MS, made_up_table, pieces

TABLES = (
    FETCH_LOG, APPEND_LOG, GIVEN_TERMS, OBSERVED_ISR_CHANGES, FETCH_DAYS, BROKER_DAYS, LEADER_EPOCHS, BROKER_EVENTS
)  # fmt: skip
LAG_US, NAMES = 30_000_000, ("orders-0", "orders-1", "orders-0-2")  # two topics and a partition


def no_spark() -> NoReturn:
    raise AssertionError("Spark is not needed")


def lake_in(folder: Path) -> Lake:
    return Lake(no_spark, str(folder), "a-run")


def mapping_in(folder: Path, text: str = MAPPING) -> TableMapping:
    (folder / "mapping.yaml").write_text(text)
    return load_mapping(folder / "mapping.yaml")


def ingest(lake: Lake, mapping: TableMapping, *files: Path, **options: Any) -> IngestOfTable:
    return ingest_own_table(lake, [str(file) for file in files], mapping, **options)


def contents(lake: Lake) -> dict[str, list[str]]:
    """Rows of all tables, without what says from which files they were made; and the days' fingerprints."""
    derive_tables(lake)
    pack_stale_days(lake)
    found = {}
    for table in TABLES:
        names = [name for name in table.column_names if name not in {"made_from", "ingest_run"}]
        found[table.name] = sorted(map(str, read_columns(lake, table.name, names).to_pylist()))
    found["fingerprints"] = [f"{day} {line}" for day, line in fingerprints(lake).by_day.items()]
    return found


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_any_cut_in_any_order_gives_the_same_lake(seed: int, tmp_path: Path) -> None:
    table = made_up_table(seed, begins_ms=MIDNIGHT_MS - 100_000 if seed % 2 else NOON_MS)
    pq.write_table(table, tmp_path / "whole.parquet")
    mapping, whole, cut = mapping_in(tmp_path), lake_in(tmp_path / "whole"), lake_in(tmp_path / "cut")
    done = ingest(whole, mapping, tmp_path / "whole.parquet")
    assert (done.total.new.total(), done.total.rows_in) == (table.num_rows, table.num_rows)
    rows_in = new = 0
    for file in pieces(table, seed, tmp_path):
        total = ingest(cut, mapping, file).total
        rows_in, new = rows_in + total.rows_in, new + total.new.total()
        assert total.rows_in == pq.ParquetFile(file).metadata.num_rows
        assert total.rows_in == total.new.total() + total.known.total()
        if new < table.num_rows:  # what follows from a part is made of it again when there is more
            derive_tables(cut)
    assert new == table.num_rows <= rows_in
    before = contents(cut)
    assert before == contents(whole)
    version = cut.version(FETCH_LOG.name)
    again = ingest(cut, mapping, tmp_path / "whole.parquet")
    assert (again.total.new.total(), again.total.known.total()) == (0, table.num_rows)
    assert (contents(cut), cut.version(FETCH_LOG.name)) == (before, version)


CELLS = st.tuples(*(st.integers(0, 2) for _ in range(3)), st.sampled_from(["a", "b"]), st.none() | st.integers(0, 1))


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(CELLS, max_size=30), seed=st.integers(0, 9))
def test_equal_rows_are_found(rows: list[tuple[Any, ...]], seed: int) -> None:
    names = ("set", "time", "value", "text", "maybe")
    shuffled = [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))]
    types = [pa.int32(), pa.int64(), pa.int64(), pa.string(), pa.int64()]
    columns = [[row[number] for row in shuffled] for number in range(5)]
    table = pa.table([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=names)
    order, is_first = order_of_rows(table, ["set"], "time")
    assert sorted(order.tolist()) == list(range(len(rows)))
    ordered = [shuffled[place] for place in order]
    firsts = [row for row, first in zip(ordered, is_first, strict=True) if first]
    assert sorted(map(str, firsts)) == sorted(map(str, set(rows)))
    assert [(row[0], row[1]) for row in ordered if row[0] == 1] == sorted(
        (row[0], row[1]) for row in rows if row[0] == 1
    )
    for place, first in zip(order.tolist(), is_first, strict=True):  # of equal rows, that which was given first
        if first:
            assert shuffled.index(shuffled[place]) == place


def naive_terms(table: pa.Table, listed: dict[str, list[int]]) -> list[tuple[Any, ...]]:
    """Topic, partition, leader, first millisecond, followers, those in the ISR, those that observe: within one day."""
    rows_of = defaultdict(list)
    for row in table.to_pylist():
        rows_of[row["topic"], row["partition"]].append((row["ts_ms"], row["leader"], row["follower"]))
    found = []
    for (topic, partition), rows in rows_of.items():
        observers = listed.get(f"{topic}-{partition}", listed.get(topic, []))
        for leader in {row[1] for row in rows}:
            own = sorted(row for row in rows if row[1] == leader)
            spans = [[own[0]]]
            for before, after in itertools.pairwise(own):
                others = [row for row in rows if row[1] != leader and before[0] < row[0] < after[0]]
                if after[0] - before[0] > 2_000 and others:
                    spans.append([])
                spans[-1].append(after)
            for span in spans:
                first = {row[2]: min(other[0] for other in span if other[2] == row[2]) for row in span}
                early = [follower for follower, at in first.items() if at <= span[0][0] + 30_000]
                observing = sorted({leader, *first} & {*observers}, key=lambda replica: (replica != leader, replica))
                in_isr = sorted({*early} - {*observers})
                found.append((topic, partition, leader, span[0][0], sorted(first), in_isr, observing))
    return sorted(found)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(10, 10_000), listed=st.dictionaries(st.sampled_from(NAMES), st.lists(st.integers(1, 4))))
def test_terms_of_the_text(seed: int, listed: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("terms")
    table = made_up_table(seed, partitions=3, seconds=150)
    pq.write_table(table, folder / "t.parquet")
    lake = lake_in(folder / "lake")
    ingest(lake, mapping_in(folder, f"{MAPPING}observers: {listed}\n"), folder / "t.parquet")
    derive_tables(lake)
    terms = read_columns(lake, LEADER_EPOCHS.name, LEADER_EPOCHS.column_names).to_pylist()
    found = [
        (row["topic"], row["partition_id"], row["leader_id"], round(row["start_time"].timestamp() * 1000),
         row["assigned"][1:], row["isr_at_start"][1:], row["observers"])
        for row in terms
    ]  # fmt: skip
    assert sorted(found) == naive_terms(table, listed)
    assert all(row["assigned"][0] == row["leader_id"] == row["isr_at_start"][0] for row in terms)
    assert all(row["start_time"] <= row["end_time"] for row in terms)


def test_a_follower_that_comes_later_changes_no_day_before(tmp_path: Path) -> None:
    table = made_up_table(2, seconds=300, begins_ms=MIDNIGHT_MS - 200_000)
    late = (table["follower"].to_numpy() == 3) & (table["ts_ms"].to_numpy() < MIDNIGHT_MS + 20_000)
    pq.write_table(table.filter(pa.array(~late)), tmp_path / "whole.parquet")
    first_day = table.filter(pa.array(~late & (table["ts_ms"].to_numpy() < MIDNIGHT_MS)))
    pq.write_table(first_day, tmp_path / "day.parquet")
    mapping, lake = mapping_in(tmp_path), lake_in(tmp_path / "lake")
    ingest(lake, mapping, tmp_path / "day.parquet")
    starts = ["topic", "partition_id", "leader_id", "start_time", "assigned", "isr_at_start"]
    contents(lake)
    before = {str(row) for row in read_columns(lake, LEADER_EPOCHS.name, starts).to_pylist()}
    ingest(lake, mapping, tmp_path / "whole.parquet")
    contents(lake)
    after = {str(row) for row in read_columns(lake, LEADER_EPOCHS.name, starts).to_pylist()}
    assert before < after


def test_a_row_far_from_the_others_changes_nothing_of_them(tmp_path: Path) -> None:
    table = made_up_table(3)
    pq.write_table(table, tmp_path / "t.parquet")
    old = table.slice(5, 1).set_column(5, "ts_ms", pa.array([1_500_000_000_000]))
    pq.write_table(pa.concat_tables([table.slice(0, 90), old]), tmp_path / "odd.parquet")
    mapping, lake, alone = mapping_in(tmp_path), lake_in(tmp_path / "lake"), lake_in(tmp_path / "alone")
    ingest(lake, mapping, tmp_path / "t.parquet")
    ingest(alone, mapping, tmp_path / "t.parquet")
    done = ingest(lake, mapping, tmp_path / "odd.parquet")
    assert (done.total.new.total(), done.total.known.total()) == (1, 90)
    assert done.odd_days() == ["2017-07-14: 1 row, 3161 days from the others"]
    with_it, without = contents(lake), contents(alone)
    for name in (FETCH_LOG.name, LEADER_EPOCHS.name, BROKER_EVENTS.name):
        of_2017 = [row for row in with_it[name] if "'event_date': datetime.date(2017," in row]
        assert [row for row in with_it[name] if row not in of_2017] == without[name], name


def test_too_many_bad_rows_leave_the_lake_as_it_was(tmp_path: Path) -> None:
    table = made_up_table(4)
    pq.write_table(table, tmp_path / "good.parquet")
    offsets = [None if number % 10 == 0 else offset for number, offset in enumerate(table["offset"].to_pylist())]
    pq.write_table(table.set_column(4, "offset", pa.array(offsets)), tmp_path / "bad.parquet")
    mapping, lake = mapping_in(tmp_path), lake_in(tmp_path / "lake")
    ingest(lake, mapping, tmp_path / "good.parquet", max_refused=0.01)
    before = contents(lake)
    with pytest.raises(
        QualityGateError, match=r"(?s)rows would be refused .* nothing was written.*required value missing"
    ):
        ingest(lake, mapping, tmp_path / "bad.parquet", max_refused=0.01)
    assert contents(lake) == before
    done = ingest(lake, mapping, tmp_path / "bad.parquet", max_refused=0.2)
    refused = sum(offset is None for offset in offsets)
    assert (done.total.new.total(), done.total.known.total(), done.total.refused) == (
        0, table.num_rows - refused, refused,
    )  # fmt: skip
    # Until that file is read again, what was refused of it stays on the list.
    pq.write_table(table, tmp_path / "other.parquet")
    ingest(lake, mapping, tmp_path / "other.parquet")
    bad = read_columns(lake, QUARANTINE.name, ["source_file", "reason", "detail"]).to_pylist()
    assert (
        bad
        == [
            {"source_file": str(tmp_path / "bad.parquet"), "reason": "required value missing", "detail": "fetch_offset"}
        ]
        * refused
    )
    pq.write_table(table, tmp_path / "bad.parquet")
    ingest(lake, mapping, tmp_path / "bad.parquet")
    assert read_columns(lake, QUARANTINE.name, ["reason"]).num_rows == 0
    assert contents(lake) == before


def test_rows_are_left_out_by_condition_days_and_consumers(tmp_path: Path) -> None:
    table = made_up_table(5)
    consumers = table.slice(0, 7).set_column(3, "follower", pa.array([-1] * 7))
    pq.write_table(pa.concat_tables([table, consumers, table.slice(0, 50)]), tmp_path / "t.parquet")
    lake = lake_in(tmp_path / "lake")
    wanted = int(np.sum(table["partition"].to_numpy() != 2))
    mapping = mapping_in(tmp_path, MAPPING + "  where: partition <> 2 AND topic LIKE 'orders-%'\n")
    total = ingest(lake, mapping, tmp_path / "t.parquet").total
    assert total.rows_in == table.num_rows + 57
    assert total.new.total() == wanted
    assert total.refused == 0
    repeated = int(np.sum(table["partition"].to_numpy()[:50] != 2))
    assert total.known.total() == repeated
    assert total.left_out == total.rows_in - wanted - repeated


def test_another_mapping_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pq.write_table(made_up_table(6), tmp_path / "t.parquet")
    lake = lake_in(tmp_path / "lake")
    ingest(lake, mapping_in(tmp_path), tmp_path / "t.parquet")
    before = contents(lake)
    with pytest.raises(UsageError, match="fetches: with leader_epoch"):
        ingest(lake, mapping_in(tmp_path, MAPPING + "    leader_epoch: epoch\n"), tmp_path / "t.parquet")
    assert contents(lake) == before


def test_a_column_more_is_nothing_and_one_less_is_an_error(tmp_path: Path) -> None:
    table = made_up_table(7)
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.append_column("loaded", pa.array(range(table.num_rows))), tmp_path / "more.parquet")
    pq.write_table(table.rename_columns({"leo": "log_end"}), tmp_path / "less.parquet")
    mapping, lake = mapping_in(tmp_path), lake_in(tmp_path / "lake")
    ingest(lake, mapping, tmp_path / "t.parquet")
    assert ingest(lake, mapping, tmp_path / "more.parquet").total.known.total() == table.num_rows
    with pytest.raises(UsageError, match="leader_log_end_offset: leo does not exist"):
        ingest(lake, mapping, tmp_path / "less.parquet")
    with pytest.raises(UsageError, match=r"leo does not exist in .*less\.parquet, but it exists in other files"):
        ingest(lake, mapping, tmp_path / "*.parquet")


def test_files_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    table, folder = made_up_table(8), tmp_path / "day"
    folder.mkdir()
    pq.write_table(table.slice(0, 100), folder / "a.parquet")
    mapping, lake = mapping_in(tmp_path), lake_in(tmp_path / "lake")
    assert ingest(lake, mapping, folder).total.new.total() == 100
    pq.write_table(table.slice(50, 100), folder / "b.parquet")
    done = ingest(lake, mapping, folder)
    assert (done.skipped["fetches"], done.total.new.total(), done.total.known.total()) == (1, 50, 50)
    done = ingest(lake, mapping, folder)
    assert (done.skipped["fetches"], done.total.rows_in) == (2, 0)
    assert ingest(lake, mapping, folder, full=True).total.known.total() == 200


def test_rows_are_taken_away_only_when_asked(tmp_path: Path) -> None:
    table = made_up_table(9, begins_ms=MIDNIGHT_MS - 100_000)
    pq.write_table(table, tmp_path / "t.parquet")
    leaders, ms = table["leader"].to_numpy(), table["ts_ms"].to_numpy()
    dropped = (leaders == 2) & (ms >= MIDNIGHT_MS) & (np.arange(table.num_rows) % 3 == 0)
    other = (leaders == 3) & (ms >= MIDNIGHT_MS)
    mended = table.filter(pa.array(~dropped & ~other))
    pq.write_table(mended, tmp_path / "mended.parquet")
    mapping, lake, wanted = mapping_in(tmp_path), lake_in(tmp_path / "lake"), lake_in(tmp_path / "wanted")
    ingest(lake, mapping, tmp_path / "t.parquet")
    before = contents(lake)
    day = Window("2026-03-11", "2026-03-12")
    replaced = {"window": day, "replaced": Replaced(day, leader_id=2)}
    with pytest.raises(UsageError, match=f"{dropped.sum()} rows of the lake, of 2026-03-11, would be replaced by 0"):
        ingest(lake, mapping, tmp_path / "mended.parquet", **replaced)
    assert contents(lake) == before
    done = ingest(lake, mapping, tmp_path / "mended.parquet", **replaced, may_lose=True)
    assert (done.total.gone.total(), done.total.new.total()) == (dropped.sum(), 0)
    pq.write_table(table.filter(pa.array(~dropped)), tmp_path / "wanted.parquet")
    ingest(wanted, mapping, tmp_path / "wanted.parquet")
    assert contents(lake) == contents(wanted)
    # Once more is nothing more.
    assert ingest(lake, mapping, tmp_path / "mended.parquet", **replaced).total.gone.total() == 0


WHOLE_MAPPING = (
    MAPPING.replace("    leader_log_end_offset: leo\n", "")
    + """
appends:
  path: appends.parquet
  columns: {topic: topic, partition_id: partition, leader_id: leader, log_end_offset: leo, acks: 1,
            append_time: {column: ts_ms, unit: ms}}
epochs:
  path: terms.parquet
  columns: {topic: topic, partition_id: partition, leader_id: leader, leader_epoch: epoch,
            start_time: {column: ts_ms, unit: ms}}
changes:
  path: changes.parquet
  columns: {topic: topic, partition_id: partition, leader_id: leader, change_time: {column: ts_ms, unit: ms},
            isr_before: before, isr_after: after}
"""
)


@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.long)])
def test_appends_terms_and_changes_obey_the_law(seed: int, tmp_path: Path) -> None:
    """Terms that come late change the leader epochs of rows that are there."""
    table = made_up_table(seed, begins_ms=MIDNIGHT_MS - 100_000)
    others = {
        "appends": table.select(["topic", "partition", "leader", "leo", "ts_ms"]).slice(0, 400),
        "terms": table.group_by(["topic", "partition", "leader", "epoch"]).aggregate([("ts_ms", "min")]),
        "changes": table.slice(100, 40).select(["topic", "partition", "leader", "ts_ms"]),
    }
    others["terms"] = others["terms"].rename_columns({"ts_ms_min": "ts_ms"})
    isr = pa.array([[1, 2, 3]] * 40, pa.list_(pa.int32()))
    others["changes"] = (
        others["changes"]
        .append_column("before", isr)
        .append_column("after", pa.array([[2, 3], [1, 2]] * 20, pa.list_(pa.int32())))
    )
    rng = np.random.default_rng(seed)
    lakes = {name: lake_in(tmp_path / name) for name in ("whole", "cut")}
    pq.write_table(table, tmp_path / "whole.parquet")
    for name, rows in others.items():
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    ingest(lakes["whole"], mapping_in(tmp_path, WHOLE_MAPPING), tmp_path / "whole.parquet")
    for number, file in enumerate(pieces(table, seed, tmp_path)):
        folder = tmp_path / f"part-{number}"
        folder.mkdir()
        for name, rows in others.items():
            some = rows.filter(pa.array(rng.random(rows.num_rows) < 0.5))
            pq.write_table(some if some.num_rows else rows, folder / f"{name}.parquet")
        ingest(lakes["cut"], mapping_in(folder, WHOLE_MAPPING), file)
        if number % 2:
            derive_tables(lakes["cut"])
    ingest(lakes["cut"], mapping_in(tmp_path, WHOLE_MAPPING), tmp_path / "whole.parquet")
    assert contents(lakes["cut"]) == contents(lakes["whole"])
    epochs = read_columns(lakes["cut"], FETCH_LOG.name, ["leader_epoch"])["leader_epoch"].to_pylist()
    assert set(epochs) >= {0}
    terms = read_columns(lakes["cut"], LEADER_EPOCHS.name, ["leader_epoch"]).num_rows
    assert terms == others["terms"].num_rows


def test_tables_of_unknown_origin(tmp_path: Path) -> None:
    """Names with quotes, words of SQL in conditions, instants of pandas, columns without values, damaged files."""
    table = made_up_table(6, seconds=100)
    lake = lake_in(tmp_path / "lake")
    ns = table["ts_ms"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ns", "Europe/Berlin"))
    empty = table.set_column(5, "ts_ms", ns).set_column(6, "leo", pa.nulls(table.num_rows))
    pq.write_table(empty, tmp_path / "pandas.parquet")
    text = MAPPING.replace("{column: ts_ms, unit: ms}", "ts_ms").replace("cluster_id: c", "cluster_id: o'brien\\")
    mapping = mapping_in(tmp_path, text + "  where: offset > 200 OR 'offset' = ''\n")
    total = ingest(lake, mapping, tmp_path / "pandas.parquet").total
    assert total.new.total() == int(np.sum(table["offset"].to_numpy() > 200))
    assert contents(lake)[LEADER_EPOCHS.name]
    # Nothing but what is left out, in a new lake.
    pq.write_table(table.set_column(3, "follower", pa.array([-1] * table.num_rows)), tmp_path / "consumers.parquet")
    new = lake_in(tmp_path / "new")
    assert ingest(new, mapping_in(tmp_path), tmp_path / "consumers.parquet").total.left_out == table.num_rows
    assert contents(new)[FETCH_LOG.name] == []
    for name, content in {"cut.csv.gz": b"\x1f\x8bgarbage", "bin.csv": bytes(range(256)) * 40}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SchemaError, match="cannot be read, it is damaged"):
            ingest(lake, mapping_in(tmp_path), tmp_path / name)


def test_rows_that_were_taken_away_come_back_with_their_file(tmp_path: Path) -> None:
    table = made_up_table(4, begins_ms=MIDNIGHT_MS - 100_000)
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.slice(0, table.num_rows // 2), tmp_path / "half.parquet")
    mapping, lake = mapping_in(tmp_path), lake_in(tmp_path / "lake")
    ingest(lake, mapping, tmp_path / "t.parquet")
    before = contents(lake)
    day = Window("2026-03-11", "2026-03-12")
    half = ingest(lake, mapping, tmp_path / "half.parquet", window=day, replaced=Replaced(day), may_lose=True)
    gone = half.total.gone
    assert gone.total() > 0
    assert ingest(lake, mapping, tmp_path / "t.parquet").total.new.total() == gone.total()
    assert contents(lake) == before

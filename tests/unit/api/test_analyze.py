"""`isr_batch.analyze` on frames of this process gives the rows of `isr-batch ingest table` and `replay`."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

import isr_batch
from isr_batch.errors import NoInputError, QualityGateError, SchemaError, UsageError
from isr_batch.ingest.own_table.ingest import ingest_own_table
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.lake.arrow_read import contract_of, read_columns
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.nightly import replay_window
from isr_batch.replay.replay import rule_runs
from isr_batch.settings import ReplaySettings
from udfs.records import FETCH

SAMPLE = Path(__file__).parents[3] / "data/samples/tables"
RULES = ["kafka-3.7", "kafka-0.8", "peer-outlier"]
NAMES = {"leader_id": "leader", "replica_id": "follower", "fetch_offset": "offset",
         "handled_time": {"column": "handled_us", "unit": "us"}}  # fmt: skip
MEMBERS = {
    "shrinks": "shrink_verdicts", "changes": "isr_changes", "scores": "rule_scores", "quarantine": "quarantine",
    "replica_timeline": "replica_timeline", "partition_timeline": "partition_timeline", "coverage": "coverage",
}  # fmt: skip


def no_spark() -> NoReturn:
    raise AssertionError("Spark is not needed")


FILES = {
    "fetches": "fetches.parquet", "appends": "appends.parquet", "epochs": "terms.csv", "changes": "changes.csv",
}  # fmt: skip


@cache
def frames(folder: Path = SAMPLE) -> dict[str, pa.Table]:
    texts = pa_csv.ConvertOptions(column_types=dict.fromkeys(("began", "time"), pa.string()))
    return {
        name: pq.read_table(folder / file) if file.endswith("parquet")
        else pa_csv.read_csv(folder / file, convert_options=texts)
        for name, file in FILES.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the six partitions of each topic of the sample: all of them take half a minute."""
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in frames().items():
        some = rows.filter(pc.less(rows["partition"], 2))
        write: Any = pq.write_table if FILES[name].endswith("parquet") else pa_csv.write_csv
        write(some, folder / FILES[name])
    for mapping in ("mapping.yaml", "shortest.yaml"):
        shutil.copy(SAMPLE / mapping, folder)
    return folder


@pytest.fixture(scope="module")
def by_tables(tables: Path) -> isr_batch.Analysis[Any]:
    """Rows in any order, and some twice."""
    given = dict(frames(tables))
    order = np.random.default_rng(1).permutation(given["fetches"].num_rows)
    given["fetches"] = pa.concat_tables([given["fetches"].take(order), given["fetches"].slice(100, 500)])
    return isr_batch.analyze(**given, mapping=tables / "mapping.yaml", rules=RULES)


def counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """Rows, but for what names the run; two threads add up in any order, which shows in the last digits of a sum."""
    names = [name for name in rows.column_names if name not in {"ingest_run", "source_file"}]
    return Counter(zip(*(comparable(rows[name]) for name in names), strict=True))


def comparable(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type):  # as numbers: an object for each of some 100,000 times took seconds
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    values: list[object] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [value if value is None else f"{value:.12g}" for value in values]
    return [*map(str, values)] if pa.types.is_nested(column.type) else values


def stored(mapping: Path, folder: Path) -> dict[str, Counter[tuple[object, ...]]]:
    """Rows of the tables that the commands leave."""
    lake = Lake(no_spark, str(folder), "a-run")
    ingest_own_table(lake, [str(mapping.with_name("fetches.parquet"))], load_mapping(mapping))
    runs = rule_runs(ReplaySettings(rules=RULES))
    replay_window(lake, runs, timelines="none")
    # The records that an heir would lack are known with timelines only, which `analyze` does not keep.
    scores = counted(read_columns(lake, "rule_scores", contract_of("rule_scores").column_names))
    replay_window(lake, runs, timelines="all")
    with InProcess(lake) as engine:
        views = {name: engine.arrow(engine.table(name)) for name in VIEWS}
    return {
        name: counted(views[name] if name in views else read_columns(lake, name, contract_of(name).column_names))
        for name in MEMBERS.values()
    } | {"rule_scores": scores}


def as_stored(rows: pa.Table, name: str) -> pa.Table:
    """Timelines are read from a lake without zones."""
    if name in VIEWS:
        rows = rows.set_column(rows.column_names.index("time"), "time", rows["time"].cast(pa.timestamp("us")))
    return rows.select(contract_of(name).column_names)


def require_rows_of_commands(result: isr_batch.Analysis[Any], mapping: Path, folder: Path) -> None:
    expected = stored(mapping, folder)
    for member, name in MEMBERS.items():
        found = getattr(result, member)
        pandas = isinstance(found, pd.DataFrame)
        rows = pa.Table.from_pandas(found, preserve_index=False) if pandas else found
        assert counted(as_stored(rows, name)) == expected[name], name
    assert expected["shrink_verdicts"].total() > 50
    spurious = result.spurious["verdict"]
    assert {*spurious} == {"spurious"} if pandas else {*spurious.to_pylist()} == {"spurious"}
    assert len(spurious) == sum(rows for row, rows in expected["shrink_verdicts"].items() if "spurious" in row)


def test_rows_are_those_of_the_commands(by_tables: isr_batch.Analysis[Any], tables: Path, tmp_path: Path) -> None:
    assert isinstance(by_tables.shrinks, pa.Table)
    require_rows_of_commands(by_tables, tables / "mapping.yaml", tmp_path / "lake")


@pytest.mark.long
def test_frames_of_pandas_are_those_of_the_commands(tmp_path: Path) -> None:
    result = isr_batch.analyze(frames()["fetches"].to_pandas(), mapping=SAMPLE / "shortest.yaml", rules=RULES)
    assert isinstance(result.shrinks, pd.DataFrame)
    require_rows_of_commands(result, SAMPLE / "shortest.yaml", tmp_path / "lake")


@pytest.fixture(scope="module")
def by_mapping(tables: Path) -> isr_batch.Analysis[Any]:
    return isr_batch.analyze(frames(tables)["fetches"], mapping=tables / "shortest.yaml", rules=RULES)


def test_columns_are_found_by_name(by_mapping: isr_batch.Analysis[Any], tables: Path) -> None:
    rows = frames(tables)["fetches"]
    us = rows["handled_us"].cast(pa.timestamp("us", "UTC"))
    named = rows.rename_columns({"leader": "leader_id", "follower": "replica_id", "offset": "fetch_offset"})
    named = named.select(["topic", "partition", "leader_id", "replica_id", "fetch_offset"])
    result = isr_batch.analyze(named.append_column("handled_time", us), lag_time_ms=4000, rules=RULES,
                               cluster_id="leader-stop-table")  # fmt: skip
    assert counted(result.shrinks) == counted(by_mapping.shrinks)


def of_partition(rows: pa.Table, topic: str, number: int) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], number)))


def test_partitions_one_by_one(by_mapping: isr_batch.Analysis[Any], tables: Path) -> None:
    """The function for `applyInArrow` gives the same rows, each partition alone, in any order."""
    rows = frames(tables)["fetches"]
    settings: dict[str, Any] = {"mapping": tables / "shortest.yaml"}
    shrinks = isr_batch.shrink_udf(RULES, brokers=isr_batch.broker_facts(rows, **settings), **settings)
    keys = rows.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    groups = [of_partition(rows, key["topic"], key["partition"]) for key in keys]
    rng = np.random.default_rng(2)
    found = pa.concat_tables(shrinks(group.take(rng.permutation(group.num_rows))) for group in groups)
    assert found.schema == isr_batch.SHRINKS
    assert counted(found) == counted(by_mapping.shrinks)
    of_pandas = isr_batch.shrink_udf_pandas(RULES, brokers=isr_batch.broker_facts(rows, **settings), **settings)
    assert len(of_pandas(groups[0].to_pandas())) == shrinks(groups[0]).num_rows


def test_a_group_is_replayed_as_analyze_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal fetches count once. Fetches that differ count each, even if no rule reads the column in which they do."""
    seen: list[pa.Table] = []

    def kept(batches: Iterator[pa.RecordBatch], *_: object) -> Iterator[pa.RecordBatch]:
        seen.append(pa.Table.from_batches(batches).combine_chunks())
        return iter(())

    monkeypatch.setattr("isr_batch.api.replayed.replay_batches", kept)
    rows = of_partition(frames()["fetches"], "busy", 0).slice(0, 500)
    others = rows.slice(10, 20).drop_columns("high_watermark")
    others = others.append_column("high_watermark", pa.repeat(pa.scalar(10**6), 20)).select(rows.column_names)
    rows = pa.concat_tables([rows, rows.slice(100, 50), others])
    isr_batch.shrink_udf(mapping=NAMES, brokers=isr_batch.broker_facts(rows, mapping=NAMES))(rows)
    assert isr_batch.analyze(rows, mapping=NAMES).shrinks.num_rows == 0
    of_group, of_all = seen
    assert of_group.equals(of_all)
    assert pc.sum(pc.equal(of_group["kind"], int(FETCH))).as_py() == 520


def test_times_of_pandas_in_a_session_of_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in its zone without saying so, unless they were without a zone before."""
    monkeypatch.setattr("isr_batch.api.group._zone_of_session", lambda: "America/New_York")
    rows = of_partition(frames()["fetches"], "busy", 0)
    here = rows["handled_us"].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "America/New_York"))
    group = rows.append_column("at", pc.local_timestamp(here)).to_pandas()
    with pytest.raises(UsageError, match="at has no time zone, and Spark gives pandas a TIMESTAMP in the session's"):
        isr_batch.shrink_udf_pandas(mapping={**NAMES, "handled_time": "at"})(group)
    named = {**NAMES, "handled_time": {"column": "at", "time_zone": "America/New_York"}}
    found = isr_batch.shrink_udf_pandas(mapping=named, lag_time_ms=4000)(group)
    assert len(found) > 1
    assert len(found) == isr_batch.shrink_udf(mapping=NAMES, lag_time_ms=4000)(rows).num_rows


def test_facts_that_no_single_partition_shows() -> None:
    """Its follower stops while the leader's other partitions go on: alone its log just ends."""
    second = [{"topic": "t", "partition": part, "leader_id": 1, "replica_id": replica, "fetch_offset": s * 10,
               "handled_time": pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(seconds=s)}
              for s in range(120) for part in (0, 1) for replica in (2, 3)
              if part == 1 or (replica == 2 and s < 60) or s < 50]  # fmt: skip
    rows = pa.Table.from_pandas(pd.DataFrame(second))
    alone, known = (
        isr_batch.shrink_udf(lag_time_ms=10_000, brokers=facts)(of_partition(rows, "t", 0)).num_rows
        for facts in (None, isr_batch.broker_facts(rows, lag_time_ms=10_000))
    )
    assert (alone, known) == (1, 2) or alone < known
    assert known == of_partition_shrinks(rows)


def of_partition_shrinks(rows: pa.Table) -> int:
    shrinks = isr_batch.analyze(rows, lag_time_ms=10_000, rules="kafka-3.7").shrinks
    return int(pc.sum(pc.equal(shrinks["partition_id"], 0)).as_py() or 0)


def test_saved_and_opened(by_tables: isr_batch.Analysis[Any], tmp_path: Path) -> None:
    by_tables.save(tmp_path / "lake")
    opened = isr_batch.open(tmp_path / "lake", frames="arrow")
    assert opened.scores.num_rows == by_tables.scores.num_rows
    assert opened.shrinks.schema == by_tables.shrinks.schema
    answer = by_tables.answer()
    assert "The replay agrees with the brokers on " in answer
    assert opened.answer() == answer
    assert opened.report(tmp_path / "report.html").stat().st_size > 100_000
    with pytest.raises(UsageError, match="this analysis is read from"):
        opened.save(tmp_path / "other")
    with pytest.raises(NoInputError, match="has no tables"):
        isr_batch.open(tmp_path / "none")
    tree = yaml.safe_load((SAMPLE / "mapping.yaml").read_text())
    tree["fetches"]["columns"]["handled_time"] = tree["fetches"]["columns"]["arrival_time"]
    with pytest.raises(UsageError, match=r"fetches.handled_time was handled_us \(us\), and is arrived_us \(us\) now"):
        isr_batch.analyze(**frames(), mapping=tree).save(tmp_path / "lake")


def test_large_offsets_stay_whole() -> None:
    """A null makes floats of a column's integers in pandas, which have 53 bits."""
    rows = frames()["fetches"].to_pandas()
    rows["offset"] += 2**60 + 1
    result = isr_batch.analyze(rows, mapping=NAMES, rules="kafka-3.7", lag_time_ms=4000)
    offsets = result.shrinks["follower_log_end_offset"].dropna()
    assert len(offsets)
    assert offsets.min() > 2**60


BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "column": (frames()["fetches"].drop_columns(["follower"]), {"mapping": NAMES}, UsageError, "follower does not"),
    "by name": (
        frames()["fetches"], {}, UsageError,
        "column leader_id is missing; there are topic, partition, epoch, leader, follower, offset",
    ),
    "no time": (frames()["fetches"], {}, UsageError, "column handled_time or arrival_time is missing"),
    "unit": (frames()["fetches"], {"mapping": NAMES | {"handled_time": "handled_us"}}, UsageError, "give its unit"),
    "type": (
        frames()["fetches"].set_column(5, "offset", pa.array([[1]] * frames()["fetches"].num_rows)),
        {"mapping": NAMES}, SchemaError, "offset is list<.*cannot be read as a whole number",
    ),
    "mixed": (pd.DataFrame({"topic": ["a", 1]}), {}, SchemaError, "topic"),
    "empty": (frames()["fetches"].slice(0, 0), {"mapping": NAMES}, NoInputError, "fetches has no rows"),
    "list": ([1, 2], {}, UsageError, "fetches is a list, and a DataFrame"),
    "series": (pd.Series([1]), {}, UsageError, "fetches is a pandas Series"),
    "none": (None, {}, UsageError, "fetches is None, and"),
    "batch": (
        frames()["fetches"].to_batches()[0], {}, UsageError,
        "fetches is a pyarrow RecordBatch with topic, partition, epoch, [a-z_, ]*,",
    ),
    "twice in arrow": (
        frames()["fetches"].append_column("epoch", frames()["fetches"]["topic"]), {"mapping": NAMES}, UsageError,
        "fetches has several columns named epoch",
    ),
    "twice in pandas": (
        pd.DataFrame([[1, 2]], columns=["topic", "topic"]), {}, UsageError, "several columns named topic"
    ),
    "index and column": (
        pd.DataFrame({"topic": ["a"]}, index=pd.Index(["a"], name="topic")), {}, UsageError,
        "several columns named topic",
    ),
    "complex": (pd.DataFrame({"offset": [1j]}), {}, SchemaError, "offset with type complex128"),
    "too large": (pd.DataFrame({"offset": [2**70, 1]}), {}, SchemaError, "fetches: "),
    "map": (
        frames()["fetches"].set_column(
            0, "topic", pa.array([[("a", 1)]] * frames()["fetches"].num_rows, pa.map_(pa.string(), pa.int8()))
        ),
        {"mapping": NAMES}, SchemaError, "topic is map<.*cannot be read as text",
    ),
    "mapping": (frames()["fetches"], {"mapping": ["leader"]}, UsageError, "mapping is a list, and a dict"),
    "no cluster": (frames()["fetches"], {"mapping": NAMES, "cluster_id": ""}, UsageError, "cluster_id is empty"),
    "lag time": (frames()["fetches"], {"mapping": NAMES, "lag_time_ms": True}, UsageError, "lag_time_ms=True is not"),
    "longest": (frames()["fetches"], {"mapping": NAMES, "lag_time_ms": 10**30}, UsageError, "less than or equal"),
    "engines": (frames()["fetches"], {"mapping": NAMES, "engine": ["local"]}, UsageError, "not auto, spark or local"),
    "rules": (frames()["fetches"], {"rules": None}, UsageError, "rules is None, and ids"),
    "nested rules": (frames()["fetches"], {"rules": [["kafka-3.7"]]}, UsageError, "did you mean kafka-3.7"),
    "parameters": (frames()["fetches"], {"rules": {"kafka-3.7": {}}}, UsageError, "rules is a dict"),
    "rule": (frames()["fetches"], {"mapping": NAMES, "rules": ["kafka-3.6"]}, UsageError, "no rule kafka-3.6"),
    "engine": (frames()["fetches"], {"mapping": NAMES, "engine": "flink"}, UsageError, "not auto, spark or local"),
    "section": (frames()["fetches"], {"mapping": SAMPLE / "mapping.yaml"}, UsageError, "appends, epochs, changes"),
    "kinds": (
        frames()["fetches"], {"mapping": NAMES, "appends": frames()["appends"].to_pandas()}, UsageError,
        "fetches is a frame of arrow, but appends of pandas",
    ),
    "all refused": (
        frames()["fetches"], {"mapping": NAMES | {"handled_time": {"column": "handled_us", "unit": "ms"}}},
        QualityGateError, "rows were refused, the first one: time out of range",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name: str) -> None:
    rows, options, error, text = BAD[name]
    with pytest.raises(error, match=text) as raised:
        isr_batch.analyze(rows, **options)
    assert isinstance(raised.value, isr_batch.IsrBatchError)


def test_mistakes_of_the_other_functions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="brokers is a pyarrow Table, and a result of"):
        isr_batch.shrink_udf(brokers=frames()["fetches"])
    with pytest.raises(UsageError, match="replica_lag_time_max_ms: input should be greater than 0"):
        isr_batch.shrink_udf(lag_time_ms=-1)
    with pytest.raises(UsageError, match=r"fetches\.columns\.leder: no such key"):
        isr_batch.shrink_udf(mapping={"leder": "leader"})
    with pytest.raises(UsageError, match="shrink_udf is for applyInArrow"):
        isr_batch.shrink_udf(mapping=NAMES)(frames()["fetches"].to_pandas())
    with pytest.raises(UsageError, match="frames='polars' is not pandas, arrow or spark"):
        isr_batch.open(tmp_path, frames="polars")  # type: ignore[arg-type]


def test_places_that_cannot_be_written(by_mapping: isr_batch.Analysis[Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be the path of a Delta table: it has '#'"):
        by_mapping.save(tmp_path / "a#b")
    with pytest.raises(isr_batch.IsrBatchError, match="Not a directory"):
        by_mapping.save(tmp_path / "file")


class LazyFrame:
    """A plan, as of polars: its columns are not known without a look at files."""

    __module__ = "polars.lazyframe.frame"

    @property
    def columns(self) -> NoReturn:
        raise AssertionError

    def collect(self) -> NoReturn:
        raise AssertionError


def test_a_plan_of_another_library() -> None:
    with pytest.raises(UsageError, match="fetches is a polars LazyFrame, and") as raised:
        isr_batch.analyze(LazyFrame())
    assert "pyarrow.table(fetches.collect())" in raised.value.hint


def test_local_refuses_more_rows_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isr_batch.lake.sizes.REPLAYED_EVENTS", 100)
    with pytest.raises(UsageError, match="52,616 fetches and appends exceed the 100"):
        isr_batch.analyze(frames()["fetches"], mapping=NAMES)


def test_import_is_cheap() -> None:
    """Importing a part of the package loads nothing else; the caller imports the libraries of the frames."""
    code = """
import sys, time
import isr_batch
assert time.process_time() < 0.5, time.process_time()
large = {"pandas", "pyspark", "numba", "pyarrow", "duckdb", "pydantic", "numpy"} & sys.modules.keys()
assert not large, large
assert "analyze" in dir(isr_batch) and set(isr_batch.__all__) <= set(dir(isr_batch))
assert all(getattr(isr_batch, name) is not None for name in isr_batch.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])

"""Tables of one's own: a lake's log exported under other names and units comes back as it was, and bad rows do not."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, SchemaError, UsageError
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.ingest.own_table.ingest import ingest_own_table
from isr_batch.ingest.own_table.mapped_clusters import lacking_input
from isr_batch.ingest.own_table.mapping import TableMapping, load_mapping
from isr_batch.ingest.own_table.sources import ParquetFiles
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import RunCounts
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.settings import ReplaySettings
from pipelines import cli
from tests.made_up_tables import MAPPING as MADE_UP
from tests.made_up_tables import MIDNIGHT_MS, made_up_table, pieces

EXAMPLES = Path(__file__).parents[3] / "conf" / "mappings"
ORIGINAL = "original"
RULES = ReplaySettings(rules=["kafka-3.7"])
DAY = "2026-01-31"

SET = "'original' AS cluster_id, 't' AS topic, p AS partition_id, p + e AS leader_epoch, 1 + e AS leader_id"
# Partition 1 has two leaders, 30 s each; partition 0 one for a minute.
TERMS = "VALUES (0, 0, 0, 60), (1, 0, 0, 30), (1, 1, 30, 60) AS terms(p, e, from_s, to_s)"
US = f"unix_micros(TIMESTAMP'{DAY} 23:59:20')"


def at(ms: str, us: int = 0) -> str:
    """SQL for an instant; midnight comes after 40 s."""
    return f"timestamp_micros({US} + CAST(({ms}) * 1000 AS BIGINT) + {us})"


LOGS = {
    LEADER_EPOCHS: f"""SELECT {SET}, {at("from_s * 1000", 7)} AS start_time, {at("to_s * 1000")} AS end_time,
        from_s * 10L AS start_offset, from_s * 10L AS start_high_watermark, array(1, 2, 3) AS assigned,
        array(1, 2, 3) AS isr_at_start, CAST(array() AS ARRAY<INT>) AS observers,
        CASE WHEN e = 1 THEN 1 END AS previous_leader_id,
        4000L AS replica_lag_time_max_ms, 2 AS min_insync_replicas, 0L AS check_origin_ms,
        'startup' AS check_origin_source, 3L AS isr_write_ms, DATE'{DAY}' AS event_date FROM {TERMS}""",
    APPEND_LOG: f"""SELECT {SET}, {at("id * 100 + 50", 1)} AS append_time, id AS base_offset, id + 1 AS log_end_offset,
        IF(p = 0, -1, 1) AS acks, {at("id * 100 + 60", 1)} AS acknowledged_time, 0 AS error_code,
        DATE({at("id * 100 + 50")}) AS event_date
        FROM range(600) JOIN {TERMS} ON id >= from_s * 10 AND id < to_s * 10""",
    # A fetch every 200 ms; the last broker stops for 12 s, and lags behind by 30 records for a while after that.
    FETCH_LOG: f"""SELECT {SET}, r AS replica_id, {at("id * 100 + r", 11)} AS arrival_time,
        {at("id * 100 + r", 222)} AS handled_time, {at("id * 100 + r", 222)} AS last_handled_time,
        {at("id * 100 + r", 333)} AS processed_time, {at("id * 100 + 90", 4)} AS released_time,
        {at("id * 100 + 91", 55)} AS completed_time, IF(r = 3 AND id > 220 AND id < 260, id - 30, id) AS fetch_offset,
        'appends' AS leader_leo_source, IF(r = 2, id, NULL) AS high_watermark, 0 AS error_code, 1 AS run_length,
        DATE({at("id * 100 + r")}) AS event_date
        FROM range(0, 600, 2) JOIN {TERMS} ON id >= from_s * 10 AND id < to_s * 10
        LATERAL VIEW explode(array(1, 2, 3)) AS r WHERE r <> 1 + e AND NOT (r = 3 AND id BETWEEN 100 AND 220)""",
}
FETCHES, APPENDS, TERM_ROWS = 1078, 1200, 3
SAME = "partition_id AS partition, leader_id AS leader"
EXPORTS = {
    "parquet": {
        "fetches.parquet": """topic AS topic_name, partition_id AS partition, leader_epoch AS epoch,
            leader_id AS broker, CAST(replica_id AS DOUBLE) AS follower, CAST(fetch_offset AS DECIMAL(20, 0)) AS offset,
            unix_micros(arrival_time) * 1000 AS received_ns, unix_micros(handled_time) AS handled_us,
            unix_micros(processed_time) AS read_us, unix_micros(released_time) AS poll_over_us,
            unix_micros(completed_time) AS sent_us, high_watermark AS hw, error_code AS error""",
        "appends.parquet": """topic AS topic_name, partition_id AS partition, leader_epoch AS epoch,
            leader_id AS broker, base_offset AS first_offset, log_end_offset AS end_offset, acks, error_code AS error,
            unix_micros(append_time) AS at_us, unix_micros(acknowledged_time) AS answered_us""",
        "terms.parquet": """topic AS topic_name, partition_id AS partition, leader_epoch AS epoch,
            leader_id AS broker, unix_micros(start_time) AS from_us, unix_micros(end_time) AS to_us,
            start_offset AS from_offset, start_high_watermark AS from_hw, assigned AS replicas, isr_at_start AS isr,
            previous_leader_id AS former_leader, replica_lag_time_max_ms AS lag_time, min_insync_replicas AS min_isr,
            check_origin_ms AS check_origin, isr_write_ms AS isr_write""",
    },
    "delta": {
        "fetches": """struct(topic, partition_id AS partition) AS tp, leader_id AS leader, replica_id AS replica,
            fetch_offset AS position, arrival_time AS arrived, handled_time AS handled, processed_time AS processed,
            released_time AS released, completed_time AS completed, high_watermark AS hw""",
        "appends": """struct(topic, partition_id AS partition) AS tp, leader_id AS leader, append_time AS appended,
            log_end_offset AS log_end, acks, acknowledged_time AS acknowledged""",
        "terms": """struct(topic, partition_id AS partition) AS tp, leader_epoch AS epoch, leader_id AS leader,
            start_time AS began, end_time AS ended, start_offset AS began_at, start_high_watermark AS hw,
            assigned AS replicas, isr_at_start AS isr, previous_leader_id AS former_leader,
            replica_lag_time_max_ms AS lag_time, min_insync_replicas AS min_isr, isr_write_ms AS isr_write,
            check_origin_ms AS check_origin, check_origin_source AS check_origin_from""",
    },
    "csv": {
        "fetches.csv": f"""'csv' AS cluster, topic, leader_epoch, {SAME}, replica_id AS follower,
            fetch_offset AS offset, high_watermark,
            date_format(arrival_time + INTERVAL 1 HOUR, 'yyyy-MM-dd HH:mm:ss,SSSSSS') AS arrival,
            date_format(handled_time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") AS handled,
            unix_micros(processed_time) / 1000000BD AS processed_s,
            CAST(released_time AS STRING) AS released, CAST(completed_time AS STRING) AS completed""",
        "appends.csv": f"""'csv' AS cluster, topic, leader_epoch, {SAME}, log_end_offset AS log_end, acks,
            CAST(append_time AS STRING) AS time, CAST(acknowledged_time AS STRING) AS acknowledged""",
        "terms.csv": f"""'csv' AS cluster, topic, leader_epoch, {SAME}, CAST(start_time AS STRING) AS start,
            CAST(end_time AS STRING) AS end, start_offset, start_high_watermark AS start_hw,
            concat_ws(',', assigned) AS replicas, concat('[', concat_ws(', ', isr_at_start), ']') AS isr,
            previous_leader_id AS former_leader, replica_lag_time_max_ms AS lag_time_ms,
            min_insync_replicas AS min_isr, check_origin_ms, isr_write_ms""",
    },
}
# Columns that the shipped mappings do not map, or that only a broker's log has.
NOT_TOLD = {
    FETCH_LOG.name: ["source_file", "source_line"],
    APPEND_LOG.name: ["source_file", "source_line", "log_end_source", "base_offset"],
    LEADER_EPOCHS.name: ["check_origin_source", "term_source", "lag_time_source"],
}
BARE = """
cluster_id: bare
replica_lag_time_max_ms: 4000
fetches:
  columns:
    topic: topic_name
    partition_id: partition
    leader_id: broker
    replica_id: follower
    fetch_offset: offset
    handled_time: {column: handled_us, unit: us}
"""


def put_original(lake: Lake) -> None:
    for table, query in LOGS.items():
        rows = lake.spark.sql(query)
        lacking_columns = {c.name: f"CAST(NULL AS {c.type}) AS {c.name}" for c in table.columns}
        nulls = [null for name, null in lacking_columns.items() if name not in rows.columns]
        lake.replace(table, rows.selectExpr("*", *nulls), "cluster_id = 'original'")
    for table in (OBSERVED_ISR_CHANGES, BROKER_EVENTS):
        lake.ensure(table)


def export(lake: Lake, folder: Path, kind: str) -> None:
    for (table, _), (name, columns) in zip(LOGS.items(), reversed(EXPORTS[kind].items()), strict=True):
        rows = lake.spark.sql(
            f"SELECT {columns} FROM {{rows}} WHERE cluster_id = 'original'", rows=lake.read(table.name)
        )
        rows.coalesce(1).write.format(kind).options(**{"header": "true", "sep": ";"} if kind == "csv" else {}).save(
            str(folder / name)
        )


def mapping_of(folder: Path, text: str) -> TableMapping:
    (folder / "mapping.yaml").write_text(text)
    return load_mapping(folder / "mapping.yaml")


def test_exported_logs_come_back_and_are_replayed_alike(lake: Lake, tmp_path: Path) -> None:
    put_original(lake)
    for kind, tables in EXPORTS.items():
        folder = tmp_path / kind
        export(lake, folder, kind)
        shutil.copy(EXAMPLES / f"{kind}.yaml", folder)
        mapping = load_mapping(folder / f"{kind}.yaml", None if kind == "csv" else kind)
        counts = ingest_own_table(lake, [str(folder / next(iter(tables)))], mapping).counts
        assert counts == RunCounts(FETCHES + APPENDS + TERM_ROWS, FETCHES + APPENDS + TERM_ROWS, 0)
    bare = mapping_of(tmp_path, BARE)
    made_up = ingest_own_table(lake, [str(tmp_path / "parquet" / "fetches.parquet")], bare).counts
    assert made_up == RunCounts(FETCHES, FETCHES, 0)
    derive_tables(lake)
    assert [row["missing"] for row in lacking_input(lake) if row["cluster_id"] == "bare"] == [
        "appends",
        "epochs",
        "min_insync_replicas",
        "broker_version",
        "check_origin_ms",
        "arrival_time, processed_time, released_time, completed_time",
        "changes",
    ]

    replay(lake, rule_runs(RULES))
    for name in (*NOT_TOLD, "isr_changes", "shrink_verdicts"):
        rows = lake.read(name).where("cluster_id <> 'bare'").drop(*NOT_TOLD.get(name, []))
        times = [F.count_if(F.col("cluster_id") == cluster).alias(cluster) for cluster in (ORIGINAL, *EXPORTS)]
        alike = rows.groupBy(*(column for column in rows.columns if column != "cluster_id")).agg(*times)
        assert not alike.isEmpty()
        assert alike.where("original <> parquet OR original <> delta OR original <> csv").collect() == [], name
    # A lag of seconds is found without appends as well, as the other follower shows how the log grows.
    who = ("partition_id", "leader_id", "replica_id", "kind")
    changes = lake.read("isr_changes").orderBy("change_time", *who)
    told = [changes.where(f"cluster_id = '{c}'").select(*who).collect() for c in (ORIGINAL, "bare")]
    assert told[0] == told[1]


CSV = """
cluster_id: c
csv: {delimiter: "|"}
fetches:
  columns:
    topic: topic
    partition_id: p
    leader_id: leader
    replica_id: r
    fetch_offset: o
    arrival_time: {column: arrived, unit: ms}
    handled_time: {column: handled, unit: ms}
    high_watermark: hw
"""
MS = 1769860800000  # 2026-01-31T12:00:00Z
ROWS = (
    (f"t|0|1|2|5|{MS}|{MS + 1}|-1", None),
    (f"t|0|1|2|5|{MS + 500}|{MS + 499}|", None),
    (f"t|0|1|2|5|{MS}|{MS + 1}|-1", None),
    (f"t|0|1|2|5|{MS}", ("row cannot be read", None)),
    (f"t|0|1|2|five|{MS}|{MS}|", ("value cannot be read", "o = five")),
    (f"t|0|1|2|6|{MS}|{MS}|4.5", ("value cannot be read", "hw = 4.5")),
    (f"t|0|1||6|{MS}|{MS}|", ("required value missing", "replica_id")),
    ("t|0|1|2|6|||", ("required value missing", "handled_time")),
    (f"t|0|1|-1|6|{MS}|{MS}|", None),
    (f"t|0|1|1|6|{MS}|{MS}|", ("replica is the leader", None)),
    (f"t|-1|1|2|6|{MS}|{MS}|", ("negative value", "partition_id = -1")),
    (f"t|0|1|2|-6|{MS}|{MS}|", ("negative value", "fetch_offset = -6")),
    (f"t|0|1|2|6|{MS}000|{MS}000|", ("time out of range", "arrival_time = 58054-08-28 00:00:00")),
    (f"t|0|1|2|6|{MS + 5}|{MS}|", ("instants out of order", "us = 5000")),
)


def test_every_row_is_new_known_left_out_or_refused_with_its_reason(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, mapping = tmp_path / "mine.csv", tmp_path / "mapping.yaml"
    file.write_text("\n".join(["topic|p|leader|r|o|arrived|handled|hw", *(row for row, _ in ROWS)]))
    mapping.write_text(CSV)
    command = ["ingest", "table", str(file), "--mapping", str(mapping), "--lake", lake.root, "--json"]
    with pytest.raises(SystemExit) as exited:
        cli.main(command)
    captured = capsys.readouterr()
    assert exited.value.code == 4
    assert "10 of 14 rows would be refused (71.43%, the limit is 1.00%), so nothing was written" in captured.err
    assert not lake.has("fetch_log") or lake.read("fetch_log").isEmpty()
    monkeypatch.setenv("ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO", "1")
    with pytest.raises(SystemExit) as exited:
        cli.main(command)
    captured = capsys.readouterr()
    assert exited.value.code in {0, None}
    (done,) = (row for row in map(json.loads, captured.err.splitlines()) if row.get("rows") == 14)
    assert {name: done[name] for name in ("new", "known", "left_out", "refused")} == {
        "new": 2, "known": 1, "left_out": 1, "refused": 10,
    }  # fmt: skip
    told = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["missing"] for row in told if "missing" in row][:2] == ["appends", "epochs"]
    found = lake.read("quarantine").collect()
    reasons = [(row["reason"], row["detail"]) for row in found]
    assert sorted(map(str, reasons)) == sorted(str(reason) for _, reason in ROWS if reason)
    assert {row["source_file"] for row in found} == {str(file)}
    (unread,) = (row["raw"] for row in found if row["reason"] == "row cannot be read")
    assert unread == ROWS[3][0]
    (five,) = (json.loads(row["raw"]) for row in found if row["detail"] == "o = five")
    assert (five["o"], five["topic"]) == ("five", "t")
    # 1 ms of rounding is repaired.
    ((arrived, handled, high_watermark), *_) = (
        lake.read("fetch_log").orderBy("handled_time").select("arrival_time", "handled_time", "high_watermark").tail(1)
    )
    assert (arrived, high_watermark) == (handled, None)
    assert [row.asDict()["assigned"] for row in lake.read("leader_epochs").collect()] == [[1, 2]]


def test_a_misfit_is_reported_before_anything_is_written(lake: Lake, tmp_path: Path) -> None:
    table = tmp_path / "mine"
    lake.spark.sql(
        "SELECT 't' AS topic, 0 AS p, true AS leader, 2 AS r, named_struct('o', 5L) AS at, 1L AS ms"
    ).write.save(str(table))
    columns = "topic: topic, partition_id: p, replica_id: r, fetch_offset: {offset}, leader_id: {leader}"
    text = "cluster_id: c\nfetches: {{columns: {{" + columns + ", handled_time: {time}}}}}"

    def ingest(path: Path, **given: str) -> RunCounts:
        return ingest_own_table(lake, [str(path)], mapping_of(tmp_path, text.format(**given))).counts

    with pytest.raises(UsageError) as mistakes:
        ingest(table, offset="at.of", leader="lead", time="ms")
    for told in (
        "fetches.columns.fetch_offset: at.of does not exist; did you mean at.o?",
        "fetches.columns.leader_id: lead does not exist; did you mean leader?",
        "fetches.columns.handled_time: ms is int64: give its unit",
    ):
        assert told in mistakes.value.message
    with pytest.raises(SchemaError, match="leader_id: leader is bool, which cannot be read as a whole number"):
        ingest(table, offset="at.o", leader="leader", time="{column: ms, unit: ms}")
    fine = {"offset": "o", "leader": "1", "time": "{column: ms, unit: ms}"}
    with pytest.raises(NoInputError):
        ingest(tmp_path / "nowhere", **fine)
    (tmp_path / "header.csv").write_text("topic,p,r,o,ms\n")
    with pytest.raises(NoInputError, match="no rows"):
        ingest(tmp_path / "header.csv", **fine)
    assert not Path(lake.root).exists()


def test_workers_add_the_rows_that_one_process_adds(lake: Lake, tmp_path: Path) -> None:
    """A table with bad rows, consumers and repeats, over midnight, in several pieces; and a Delta table.

    It has rows of two clusters.
    """
    table = made_up_table(3, begins_ms=MIDNIGHT_MS - 100_000)
    clusters = pa.array([f"c{partition % 2}" for partition in table["partition"].to_pylist()])
    table = table.append_column("cluster", clusters)
    bad = table.slice(0, 9).set_column(4, "offset", pa.array([None] * 9, pa.int64()))
    consumers = table.slice(0, 7).set_column(3, "follower", pa.array([-1] * 7))
    mapping = mapping_of(tmp_path, MADE_UP.replace("cluster_id: c\n", "cluster_id: {column: cluster}\n"))
    lakes = {name: Lake(lake.spark, f"{lake.root}/{name}") for name in ("here", "workers")}
    for number, file in enumerate(pieces(pa.concat_tables([table, bad, consumers, table.slice(0, 50)]), 3, tmp_path)):
        totals = []
        for name, most_rows in (("here", 1 << 40), ("workers", 0)):
            done = ingest_own_table(lakes[name], [str(file)], mapping, most_rows=most_rows).total
            totals.append((done.new, done.known, done.left_out, done.refused))
        assert totals[0] == totals[1], number
    write_deltalake(str(tmp_path / "delta"), table)
    assert ingest_own_table(lakes["workers"], [str(tmp_path / "delta")], mapping, most_rows=0).total.new.total() == 0
    for each in lakes.values():
        derive_tables(each)
    for name in ("fetch_log", "leader_epochs", "broker_events", "quarantine"):
        columns = [column for column in TABLES[name].column_names if column != "ingest_run"]
        here, workers = (
            sorted(map(str, read_columns(lakes[place], name, columns).to_pylist())) for place in ("here", "workers")
        )
        assert here == workers, name
        assert here or name == "broker_events"


def test_timestamps_in_nanoseconds_are_a_usage_error_that_names_them(lake: Lake, tmp_path: Path) -> None:
    """Spark infers no schema of such a file, whichever columns are mapped; pandas writes such files by default."""
    times = pa.array([1_000], pa.timestamp("ns", "UTC"))
    table = pa.table({"topic": ["t"], "at": times, "other": times.cast(pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "fetches.parquet")
    source = ParquetFiles(str(tmp_path), [tmp_path / "fetches.parquet"])
    with pytest.raises(UsageError, match=r"in nanoseconds: at$") as raised:
        source.frame(lake, source.items, ["topic"])
    assert "--engine local" in str(raised.value.hint)
    pq.write_table(table, tmp_path / "a.parquet", coerce_timestamps="us", allow_truncated_timestamps=True)
    two = ParquetFiles(str(tmp_path), [tmp_path / "a.parquet", tmp_path / "fetches.parquet"])
    with pytest.raises(UsageError, match=r"in nanoseconds: at$"):
        two.frame(lake, two.items, ["topic"])
    assert two.frame(lake, two.items[:1], ["topic"]).count() == 1
    # Spark's old kind of timestamps has nanoseconds too, and it reads those.
    pq.write_table(table, tmp_path / "fetches.parquet", use_deprecated_int96_timestamps=True)
    old = ParquetFiles(str(tmp_path), [tmp_path / "a.parquet", tmp_path / "fetches.parquet"])
    assert old.frame(lake, old.items, ["topic", "at"]).count() == 2


def test_a_table_of_a_catalog_is_read_by_its_name(lake: Lake, tmp_path: Path) -> None:
    table = made_up_table(4, seconds=120)
    pq.write_table(table, tmp_path / "t.parquet")
    lake.spark.sql("CREATE DATABASE IF NOT EXISTS kafka_fetches")
    lake.spark.read.parquet(str(tmp_path / "t.parquet")).write.format("delta").saveAsTable("kafka_fetches.of_today")
    try:
        mapping = mapping_of(tmp_path, MADE_UP)
        done = ingest_own_table(lake, ["kafka_fetches.of_today"], mapping)
        assert done.total.new.total() == table.num_rows
        again = ingest_own_table(lake, ["kafka_fetches.of_today"], mapping)
        assert (again.total.rows_in, again.skipped["fetches"] > 0) == (0, True)
        with pytest.raises(NoInputError):
            ingest_own_table(lake, ["kafka_fetches.nowhere"], mapping)
    finally:
        lake.spark.sql("DROP DATABASE kafka_fetches CASCADE")

"""Ingest a user's table of fetches in Spark's workers, if it is too large for one process.

Spark stages exchange packets. A packet is a Spark row that contains, as an Arrow stream, rows of one cluster, one day
and one bucket (a set of replica sets). In the first stage, tasks check rows with the same SELECT that an ingest in one
process uses. In the second stage, tasks merge each bucket of a day with the lake's rows of that bucket, and write the
new rows to a file. Before the files are committed, the share of refused rows is compared with its limit.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.added_rows import DAY_US, Account
from isr_batch.ingest.own_table.checked_rows import TIMES, Checked
from isr_batch.ingest.own_table.day_of_rows import RowsOfCluster
from isr_batch.ingest.own_table.items import Item
from isr_batch.ingest.own_table.leader_epochs import look_up_epochs
from isr_batch.ingest.own_table.read_source import (
    Input,
    ReadTable,
    quarantine_rows_of_source,
    split_refused,
    with_dictionaries,
)
from isr_batch.ingest.own_table.spark_source import rows_as_structs
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import rows_at_a_time
from isr_batch.lake.tables.inputs import FETCH_LOG

ROWS_OF_BUCKET: Final = 1 << 20
"""Target number of rows in a bucket of a day. A worker merges a bucket in memory."""
ROWS_AT_ONCE: Final = 100_000
MOST_TASKS: Final = 1000
PACKETS_AT_ONCE: Final = 16
"""Number of packets in each batch that Spark passes to a worker."""
REFUSED, STORED, GIVEN = 0, 1, 2
"""Kinds of packets, in the order in which a worker reads them: refused rows, rows of the lake, rows of the source."""
_NO_DAY: Final = -1

_PACKETS: Final = pa.schema([
    ("cluster_id", pa.string()), ("day", pa.int32()), ("bucket", pa.int32()), ("kind", pa.int32()),
    ("rows", pa.int64()), ("packet", pa.binary()),
])  # fmt: skip
_REPORTS: Final = pa.schema([("report", pa.string())])
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class SpreadTable:
    """Rows of a table of fetches that were checked, stored in Spark as packets.

    Attributes
    ----------
    packets : DataFrame
        The packets, with the columns of ``_PACKETS``.
    read : ReadTable
        Refused rows, and numbers of rows by outcome.
    days : tuple of int
        Days that have rows, as days since 1970.
    buckets : int
        Number of buckets per day.
    """

    packets: DataFrame
    read: ReadTable
    days: tuple[int, ...]
    buckets: int


def spread_table(lake: Lake, fetches: Sequence[tuple[Input, Sequence[Item]]]) -> SpreadTable:
    """Have Spark workers read and check the rows of a table, and keep the rows in Spark.

    They are kept as packets: each packet is one Spark row that contains many rows as an Arrow stream.

    Parameters
    ----------
    lake : Lake
    fetches : sequence of (Input, sequence of Item)
        Tables of fetches, each with the items to read.
    """
    (first, _), *_ = fetches
    rows_in = sum(given.source.count(items) for given, items in fetches)
    buckets = -(-rows_in // ROWS_OF_BUCKET)
    frames = []
    with rows_at_a_time(lake.spark, ROWS_AT_ONCE):
        for given, items in fetches:
            check = partial(_packets_of_checked_rows, given.checked, given.quarantine_name(items), buckets)
            rows = rows_as_structs(given.source.frame(lake, items, given.columns))
            frames.append(rows.mapInArrow(check, from_arrow_schema(_PACKETS)))
        every = reduce(DataFrame.unionAll, frames)
        kept = every.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
        sizes = kept.groupBy("cluster_id", "day", "kind").agg(F.sum("rows").alias("rows")).toArrow().to_pylist()
    refused = kept.where(F.col("kind") == REFUSED).select("packet").toArrow()["packet"].to_pylist()
    none = first.checked.schema.empty_table()
    bad = pa.concat_tables([quarantine_rows_of_source(none, first.checked, ""), *map(_rows_of_packet, refused)])
    sizes = [row for row in sizes if row["kind"] == GIVEN]
    clean = sum(row["rows"] for row in sizes)
    left_out = rows_in - clean - bad.num_rows
    names = tuple(item.name for _, items in fetches for item in items)
    empty = with_dictionaries(none.select(first.checked.columns), first.checked)
    clusters = tuple({row["cluster_id"] for row in sizes})
    read = ReadTable(first.checked, empty, bad, left_out, names, spread=clean, spread_clusters=clusters)
    days = tuple(sorted({row["day"] for row in sizes}))
    return SpreadTable(kept.where(F.col("kind") != REFUSED), read, days, buckets)


def files_of_new_rows(
    lake: Lake, spread: SpreadTable, target: RowsOfCluster, terms: pa.Table | None, account: Account
) -> list[FileOfWorker]:
    """Have Spark workers find a cluster's new rows and write them to files. Return the files, which are not committed.

    Parameters
    ----------
    lake : Lake
    spread : SpreadTable
    target : RowsOfCluster
        Converts rows of the source to rows of table fetch_log.
    terms : pa.Table, optional
        Terms in which leader epochs are looked up; None if the rows contain leader epochs or the mapping names no table
        of terms.
    account : Account
        Account whose counts are increased, in place, by the numbers of new and known rows.

    Raises
    ------
    UsageError
        If Spark workers cannot write to the lake's store.
    """
    lake.ensure(FETCH_LOG)
    to = lake.reached(FETCH_LOG.name)
    if to is None:
        raise UsageError(
            f"the table has too many rows for one process, and workers cannot write to {lake.root}",
            "ingest it in parts, with --from and --to",
        )
    names = [name for name in spread.read.rows.column_names if name != "cluster_id"]
    names += ["leader_epoch"] if terms is not None else []
    days = ", ".join(f"DATE'{np.datetime64(day, 'D')}'" for day in spread.days)
    where = f"cluster_id = {sql_literal(target.cluster_id)} AND event_date IN ({days})"
    stored = lake.read(FETCH_LOG.name).where(where).select(*names, "event_date")
    given = spread.packets.where(F.col("cluster_id") == target.cluster_id)
    pack = partial(_packets_of_stored_rows, target, spread.buckets)
    work = partial(_merged_packets, target, to.store, terms)
    with rows_at_a_time(lake.spark, ROWS_AT_ONCE):
        together = given.unionAll(stored.mapInArrow(pack, from_arrow_schema(_PACKETS)))
    with rows_at_a_time(lake.spark, PACKETS_AT_ONCE):
        tasks = max(1, min(len(spread.days) * spread.buckets, MOST_TASKS))
        of_tasks = together.repartition(tasks, "day", "bucket").sortWithinPartitions("day", "bucket", "kind")
        reports = of_tasks.mapInArrow(work, from_arrow_schema(_REPORTS)).toArrow()
    files = []
    for text in reports["report"].to_pylist():
        report = json.loads(text)
        counts = ({int(leader): rows for leader, rows in report[name].items()} for name in ("given", "new"))
        account.count(report["day"], *counts)
        if report["file"]:
            files.append(FileOfWorker(**report["file"]))
    return files


def _packets_of_checked_rows(
    checked: Checked, name: str, buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Check rows of the source, and yield two kinds of packets: rows that passed, and refused rows.

    ``name`` is the source_file of refused rows. ``buckets`` is the number of buckets of a day.
    """
    with ArrowSql(threads=1) as sql:
        for batch in batches:
            rows = pa.table(pa.RecordBatch.from_struct_array(batch.column("row")))
            for answer in sql.batches(checked.text, ROWS_AT_ONCE, rows=rows):
                clean, bad = split_refused(answer)
                if bad.num_rows:
                    yield _packet_of_bucket("", _NO_DAY, 0, REFUSED, quarantine_rows_of_source(bad, checked, name))
                rows = with_dictionaries(clean.select(checked.columns), checked)
                for cluster_id, of_cluster in _checked_rows_by_cluster(rows, checked):
                    yield from _packets_by_day_and_bucket(cluster_id, of_cluster, checked, buckets, GIVEN)


def _packets_of_stored_rows(
    target: RowsOfCluster, buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield the lake's rows in packets, divided into days and buckets as the source's rows are."""
    for batch in batches:
        rows = with_dictionaries(pa.table(batch).drop_columns(["event_date"]), target.checked)
        yield from _packets_by_day_and_bucket(target.cluster_id, rows, target.checked, buckets, STORED)


def _checked_rows_by_cluster(rows: pa.Table, checked: Checked) -> Iterator[tuple[str, pa.Table]]:
    """Yield (cluster name, rows of the cluster) for each cluster in checked rows."""
    if "cluster_id" not in rows.column_names:
        yield str(checked.constants["cluster_id"]), rows
        return
    names = rows["cluster_id"].cast(pa.string())
    rows = rows.drop_columns(["cluster_id"])
    for name in pc.unique(names).to_pylist():
        yield name, rows.filter(pc.equal(names, name))


def _packets_by_day_and_bucket(
    cluster_id: str, rows: pa.Table, checked: Checked, buckets: int, kind: int
) -> Iterator[pa.RecordBatch]:
    """Yield a cluster's rows in packets of one day and bucket. ``kind`` is that of the packets, such as GIVEN."""
    if not rows.num_rows:
        return
    day = rows[TIMES[checked.table.name]].to_numpy() // DAY_US
    key = day * buckets + _buckets_of(rows, buckets)
    order = np.argsort(key, kind="stable")
    found, begins = np.unique(key[order], return_index=True)
    ordered = rows.take(pa.array(order))
    for number, begin, end in zip(found.tolist(), begins, np.append(begins[1:], len(order)), strict=True):
        yield _packet_of_bucket(
            cluster_id, number // buckets, number % buckets, kind, ordered.slice(begin, end - begin)
        )


def _buckets_of(rows: pa.Table, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each row, a hash of its replica set. All tasks compute the same hashes."""
    bucket = np.zeros(rows.num_rows, np.int64)
    for name in ("topic", "partition_id", "leader_id"):
        if name not in rows.column_names:
            continue
        column = rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            hashes = np.array([zlib.crc32(text.encode()) for text in column.dictionary.to_pylist()], np.int64)
            bucket = bucket * 31 + hashes[column.indices.to_numpy()]
        else:
            bucket = bucket * 31 + column.to_numpy()
    return bucket % buckets


def _merged_packets(
    target: RowsOfCluster, store: Store, terms: pa.Table | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Merge each bucket of a day with the lake's rows, write new rows to a file, and yield a report on each file.

    Leader epochs are looked up in ``terms``, if these are given.
    """
    with ArrowSql(threads=1) as sql:
        epochs = partial(look_up_epochs, sql, terms) if terms is not None else None
        packets = (row for batch in batches for row in batch.to_pylist())
        for (day, _), of_bucket in groupby(packets, key=lambda row: (row["day"], row["bucket"])):
            parts: dict[int, list[pa.Table]] = {STORED: [], GIVEN: []}
            for row in of_bucket:
                parts[row["kind"]].append(_rows_of_packet(row["packet"]))
            if not parts[GIVEN]:
                continue
            given = pa.concat_tables(parts[GIVEN]).unify_dictionaries()
            there = (
                pa.concat_tables(parts[STORED]).unify_dictionaries()
                if parts[STORED]
                else _no_stored_rows(given, epochs)
            )
            name = str(np.datetime64(day, "D"))
            merged = target.merged(there, given, epochs)
            file = target.written(store, name, merged.rows, merged.new) if len(merged.new) else None
            report = {
                "day": name, "file": asdict(file) if file else None, "given": target.counts_by_leader(given),
                "new": target.counts_by_leader(merged.rows, merged.new),
            }  # fmt: skip
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]}, _REPORTS)


def _no_stored_rows(given: pa.Table, epochs: object) -> pa.Table:
    """Return an empty table in place of the lake's rows, for a bucket that has no rows in the lake.

    It has the columns of ``given`` and, if ``epochs`` is not None, column leader_epoch.
    """
    none = given.slice(0, 0)
    return none if epochs is None else none.append_column("leader_epoch", pa.array([], pa.int32()))


def _packet_of_bucket(cluster_id: str, day: int, bucket: int, kind: int, rows: pa.Table) -> pa.RecordBatch:
    """Make a packet of rows of a bucket, as a batch of one row. ``kind`` is GIVEN, STORED or REFUSED."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows.combine_chunks())
    columns = [[cluster_id], [day], [bucket], [kind], [rows.num_rows], [sink.getvalue().to_pybytes()]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _PACKETS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PACKETS)


def _rows_of_packet(packet: bytes) -> pa.Table:
    return pa.ipc.open_stream(packet).read_all()

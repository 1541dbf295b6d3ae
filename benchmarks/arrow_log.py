"""A log as Arrow: batches of the replay's stream, or the columns of a lake's tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.log import CLUSTER, ROWS_A_CHUNK, START_OFFSET, START_US, Log, Plan, chunks_of, replicas_of, term_of
from udfs.batches.segments import SEGMENT
from udfs.batches.stream_columns import TERM_FIELDS
from udfs.records import APPEND, FETCH, TERM_STARTS, Rows

BATCH_ROWS = 100_000
"""``spark.arrow_batch_rows`` by default."""
TIME = pa.timestamp("us", "UTC")
TERM = pa.struct(list(TERM_FIELDS))


def as_batches(log: Log, size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The stream of ``udfs.batches.replay.replay_batches``: every set begins with its term."""
    sizes = np.diff(log.starts)
    of = np.repeat(np.arange(len(sizes)), sizes)
    terms = pa.array([term_of(log.plan, int(partition)) for partition in log.partitions], TERM)
    columns: dict[str, Any] = {name: np.insert(getattr(log.rows, name), log.starts[:-1], -1) for name in Rows._fields}
    of = np.insert(of, log.starts[:-1], np.arange(len(sizes)))
    begins = log.starts[:-1] + np.arange(len(sizes))
    columns["time_us"][begins] = START_US
    columns["kind"][begins] = TERM_STARTS
    columns["offset"][begins] = START_OFFSET
    term_at = np.zeros(len(of), np.int64)
    term_at[begins] = np.arange(len(sizes))
    none = np.ones(len(of), np.bool_)
    none[begins] = False
    table = pa.table(
        {
            **_set_columns(log, of),
            **columns,
            "term": terms.take(pa.array(term_at, mask=none)),
            "segment": pa.nulls(len(of), SEGMENT),
        }
    )
    yield from table.combine_chunks().to_batches(max_chunksize=size)


def without_segments(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that were never packed, as the replay takes them."""
    return rows.append_column("segment", pa.nulls(rows.num_rows, SEGMENT))


def write_parquet(plan: Plan, folder: Path) -> int:
    """Rows as plain Parquet, in folders fetch_log, append_log and leader_epochs; returns their number."""
    rows = 0
    for name in ("fetch_log", "append_log", "leader_epochs"):
        (folder / name).mkdir(parents=True)
    for i, chunk in enumerate(chunks_of(plan)):
        rows += len(chunk.rows.time_us)
        for j, fetches in enumerate(_fetches(chunk)):
            pq.write_table(fetches, folder / "fetch_log" / f"{i:05}-{j:05}.parquet")
        pq.write_table(_appends(chunk), folder / "append_log" / f"{i:05}.parquet")
        pq.write_table(_terms(chunk), folder / "leader_epochs" / f"{i:05}.parquet")
    return rows


def few_rows_of_each(plan: Plan) -> dict[str, pa.Table]:
    """All terms of a log, with a fetch and an append."""
    some = next(chunks_of(Plan(1000, 1)))
    partitions = np.arange(plan.partitions)
    none = Log(plan, Rows(*[np.full(plan.partitions, START_US)] * len(Rows._fields)), partitions, partitions)
    return {
        "fetch_log": next(_fetches(some)).slice(0, 1),
        "append_log": _appends(some).slice(0, 1),
        "leader_epochs": _terms(none),
    }


def _set_columns(log: Log, of: Any) -> dict[str, pa.Array]:
    """Key of the set of each row, ``of`` being its place among the log's partitions."""
    rows = pa.array(of)
    leaders = np.array([replicas_of(int(partition))[0] for partition in log.partitions], np.int32)
    topics = pa.array([f"topic-{int(partition) // 50}" for partition in log.partitions])
    return {
        "cluster_id": pa.repeat(CLUSTER, len(of)),
        "topic": topics.take(rows),
        "partition_id": pa.array(log.partitions.astype(np.int32)[of]),
        "leader_id": pa.array(leaders[of]),
    }


def _keys(log: Log, chosen: Any) -> dict[str, pa.Array]:
    of = np.repeat(np.arange(len(log.partitions)), np.diff(log.starts))[chosen]
    return {**_set_columns(log, of), "leader_epoch": pa.repeat(np.int32(0), len(of))}


def _fetches(log: Log) -> Iterator[pa.Table]:
    """In tables of some million rows: a chunk is a whole partition, which may be long."""
    every = np.flatnonzero(log.rows.kind == FETCH)
    for begin in range(0, len(every), ROWS_A_CHUNK):
        yield _fetches_at(log, every[begin : begin + ROWS_A_CHUNK])


def _fetches_at(log: Log, chosen: Any) -> pa.Table:
    rows = Rows(*(column[chosen] for column in log.rows))
    handled = pa.array(rows.handled_us).cast(TIME)
    return pa.table(
        {
            **_keys(log, chosen),
            "replica_id": pa.array(rows.replica_id.astype(np.int32)),
            "arrival_time": pa.array(rows.time_us).cast(TIME),
            "handled_time": handled,
            "processed_time": pa.array(rows.processed_us).cast(TIME),
            "released_time": pa.array(rows.released_us).cast(TIME),
            "completed_time": pa.array(rows.until_us).cast(TIME),
            "fetch_offset": pa.array(rows.offset),
            "error_code": pa.array(rows.code.astype(np.int32)),
            "run_length": pa.repeat(np.int32(1), len(chosen)),
            "last_handled_time": handled,
        }
    )


def _appends(log: Log) -> pa.Table:
    chosen = np.flatnonzero(log.rows.kind == APPEND)
    ends = log.rows.offset[chosen]
    of = np.repeat(np.arange(len(log.partitions)), np.diff(log.starts))[chosen]
    begins = np.where(np.diff(of, prepend=-1) != 0, START_OFFSET, np.roll(ends, 1))
    return pa.table(
        {
            **_keys(log, chosen),
            "append_time": pa.array(log.rows.time_us[chosen]).cast(TIME),
            "base_offset": pa.array(begins),
            "log_end_offset": pa.array(ends),
            "acks": pa.array(log.rows.code[chosen].astype(np.int32)),
            "error_code": pa.repeat(np.int32(0), len(chosen)),
        }
    )


def _terms(log: Log) -> pa.Table:
    of = np.arange(len(log.partitions))
    terms = [term_of(log.plan, int(partition)) for partition in log.partitions]
    replicas = pa.array([term["assigned"] for term in terms], pa.list_(pa.int32()))
    number = len(terms)
    return pa.table(
        {
            **_set_columns(log, of),
            "leader_epoch": pa.repeat(np.int32(0), number),
            "start_time": pa.repeat(START_US, number).cast(TIME),
            "end_time": pa.array([term["end_us"] for term in terms]).cast(TIME),
            "start_offset": pa.repeat(START_OFFSET, number),
            "start_high_watermark": pa.array([term["high_watermark"] for term in terms]),
            "assigned": replicas,
            "isr_at_start": replicas,
            **{
                name: pa.array([term[name] for term in terms])
                for name in ("replica_lag_time_max_ms", "check_origin_ms", "isr_write_ms")
            },
            "min_insync_replicas": pa.array([term["min_insync_replicas"] for term in terms], pa.int32()),
            "check_origin_source": pa.repeat("startup", number),
        }
    )

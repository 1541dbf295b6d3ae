"""Unpack the partitions that fetch and produce requests list, one row per partition."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrow_types import arrow_columns, int64_array
from udfs.request_log import unpacked
from udfs.request_log.unpacked import UnpackedPartitions

FETCHED = ("broker_id", "replica_id", "handled_us", "completed_us")
LISTED = arrow_columns(
    "broker_id INT, replica_id INT, handled_us BIGINT, completed_us BIGINT, topic_id STRING, partition_id INT, "
    "leader_epoch INT, fetch_offset BIGINT, failed BOOLEAN"
)
"""Schema of the output of `listed_by_fetches`: one row per partition that a fetch lists."""

SEEN = arrow_columns(
    "broker_id INT, stretch INT, topic_id STRING, partition_id INT, leader_epoch INT, replica_id INT, "
    "first_us BIGINT, last_us BIGINT, fetches BIGINT"
)
"""Schema of the output of `seen_in_fetches`: counts per partition, stretch of the log, leader epoch and replica."""

WHOLE = ("broker_id", "handled_us", "processed_us", "completed_us", "acks", "client_id", "source_file",
         "source_line")  # fmt: skip
PRODUCED = arrow_columns(
    "broker_id INT, handled_us BIGINT, processed_us BIGINT, completed_us BIGINT, acks INT, client_id STRING, "
    "source_file STRING, source_line BIGINT, topic_id STRING, partition_id INT, answered BOOLEAN, base_offset BIGINT, "
    "error_code INT, size BIGINT"
)
"""Schema of the output of `produced_partitions`: one row per partition of a produce request."""

_UNKNOWN_SIZE = -2


def listed_by_fetches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row per partition that a follower's fetch lists, even if the fetch failed.

    Parameters
    ----------
    batches : record batches of fetches
        `FETCHED`, ``error_code`` (int32) and ``partitions`` (binary, `udfs.request_log.pieces`).

    Yields
    ------
    record batches
        Columns as in `LISTED`. ``failed`` is true if the response has an error for the request or the partition.
    """
    for batch in batches:
        yield _listed_by_fetches(batch, FETCHED)


def _listed_by_fetches(batch: pa.RecordBatch, kept: tuple[str, ...]) -> pa.RecordBatch:
    """Return the rows of `listed_by_fetches` for one batch, with the request's columns ``kept``."""
    asked, _forgotten, answered = unpacked.unpacked_fetches(batch.column("partitions"))
    request = pa.array(asked.request())
    failed = np.repeat(int64_array(batch.column("error_code")) != 0, asked.per_request) | _failed_partitions(
        asked, answered
    )
    return pa.RecordBatch.from_pydict(
        {name: batch.column(name).take(request) for name in kept}
        | {
            "topic_id": asked.topic_by_partition(),
            "partition_id": pa.array(asked.numbers[:, 0].astype(np.int32)),
            "leader_epoch": pa.array(asked.numbers[:, 1].astype(np.int32)),
            "fetch_offset": pa.array(asked.numbers[:, 2]),
            "failed": pa.array(failed),
        }
    )


def _failed_partitions(asked: UnpackedPartitions, answered: UnpackedPartitions) -> npt.NDArray[np.bool_]:
    """Return, for each partition that a fetch lists, whether the response has an error for this partition."""
    bad = np.flatnonzero(answered.numbers[:, 1] > 0)
    if not len(bad):
        return np.zeros(len(asked.numbers), np.bool_)
    where = pa.array(bad)
    errors = set(
        zip(answered.request()[bad].tolist(), answered.topic_by_partition().take(where).to_pylist(),
            answered.numbers[bad, 0].tolist(), strict=True)
    )  # fmt: skip
    listed = zip(asked.request().tolist(), asked.topic_by_partition().to_pylist(), asked.numbers[:, 0].tolist(),
                 strict=True)  # fmt: skip
    return np.fromiter((partition in errors for partition in listed), np.bool_, len(asked.numbers))


def seen_in_fetches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the fetches that list each partition, by stretch of the log, leader epoch and replica.

    Each input batch is counted separately, so the caller must add up the counts.

    Parameters
    ----------
    batches : record batches of fetches
        As for `listed_by_fetches`, and ``stretch`` (int32). A gap is a time whose lines are missing from a broker's
        request log. The times between gaps are stretches, numbered from 0; ``stretch`` is that of the fetch.

    Yields
    ------
    record batches
        Columns as in `SEEN`. ``fetches`` is the number of successful fetches; ``first_us`` and ``last_us`` are when the
        first and the last of them were handled, or null.
    """
    for batch in batches:
        rows = _listed_by_fetches(batch, ("broker_id", "stretch", "replica_id", "handled_us"))
        served = pc.if_else(rows.column("failed"), None, rows.column("handled_us"))
        keys = ["broker_id", "stretch", "topic_id", "partition_id", "leader_epoch", "replica_id"]
        table = pa.table({name: rows.column(name) for name in keys} | {"us": served})
        counted = table.group_by(keys, use_threads=False).aggregate([("us", "min"), ("us", "max"), ("us", "count")])
        yield from (
            counted.select([*keys, "us_min", "us_max", "us_count"])
            .rename_columns([*keys, "first_us", "last_us", "fetches"])
            .combine_chunks()
            .to_batches()
        )


def produced_partitions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the partitions of each produce request: those in its response, else those in the request.

    Parameters
    ----------
    batches : record batches of produce requests
        `WHOLE`, and ``partitions`` (binary, `udfs.request_log.pieces`).

    Yields
    ------
    record batches
        Columns as in `PRODUCED`. ``base_offset`` is null if nothing was appended. ``size`` is in bytes. It is null in
        rows from responses, and if the log does not name it.
    """
    for batch in batches:
        asked, answered = unpacked.unpacked_produce_requests(batch.column("partitions"))
        size = asked.numbers[:, 1]
        unanswered = np.flatnonzero((answered.entries == 0)[asked.request()])
        yield _listed_by_produce_requests(
            batch, asked, unanswered, answered=False, base_offset=pa.nulls(len(unanswered), pa.int64()),
            error=np.zeros(len(unanswered), np.int32), size=pa.array(size, mask=size == _UNKNOWN_SIZE).take(unanswered),
        )  # fmt: skip
        offset = answered.numbers[:, 2]
        yield _listed_by_produce_requests(
            batch, answered, np.arange(len(offset)), answered=True, base_offset=pa.array(offset, mask=offset < 0),
            error=answered.numbers[:, 1].astype(np.int32), size=pa.nulls(len(offset), pa.int64()),
        )  # fmt: skip


def _listed_by_produce_requests(
    batch: pa.RecordBatch, listed: UnpackedPartitions, rows: npt.NDArray[np.int64], *, answered: bool,
    base_offset: pa.Array, error: npt.NDArray[np.int32], size: pa.Array,
) -> pa.RecordBatch:  # fmt: skip
    """Return rows of `PRODUCED` for the partitions ``rows`` of produce requests, or of the responses to them."""
    request = pa.array(listed.request()[rows])
    return pa.RecordBatch.from_pydict(
        {name: batch.column(name).take(request) for name in WHOLE}
        | {
            "topic_id": listed.topic_by_partition().take(rows),
            "partition_id": pa.array(listed.numbers[rows, 0].astype(np.int32)),
            "answered": pa.array(np.full(len(rows), answered)),
            "base_offset": base_offset,
            "error_code": pa.array(error),
            "size": size,
        }
    )

"""The replay's stream as Spark gives it: fetches and appends in packed segments, all else a row each."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from udfs.arrow import TERM_FIELDS
from udfs.records import APPEND, FETCH, ROW_ORDER, Rows
from udfs.results import SET_COLUMNS
from udfs.segments import SEGMENT, SEGMENTS, pack

SET = pa.schema([
    ("cluster_id", pa.string()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_id", pa.int32()),
])  # fmt: skip
ROWS = (
    # As Spark gives them, which knows that most are never null.
    *(field.with_nullable(False) for field in SET),
    *(pa.field(name, pa.int64(), nullable=name in ("replica_id", "offset")) for name in Rows._fields),
)
EVENTS = pa.schema([*ROWS, ("leader_epoch", pa.int32()), ("later_by", pa.list_(pa.int32()))])
STREAM = pa.schema([*ROWS, ("term", pa.struct(TERM_FIELDS)), ("segment", SEGMENT)])


def in_pieces(
    rows: Sequence[dict[str, Any]], cuts: Sequence[int] = (), schema: pa.Schema = STREAM
) -> Iterator[pa.RecordBatch]:
    """Rows as batches, cut at these places."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for first, end in pairwise(edges):
        yield pa.RecordBatch.from_pylist(rows[first:end], schema=schema)


def segments_of(rows: Sequence[dict[str, Any]], cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Rows of SEGMENTS, of what is a fetch or an append among these rows."""
    events = [{"leader_epoch": 0} | row for row in rows if row["kind"] in (APPEND, FETCH)]
    return [segment for batch in pack(in_pieces(events, cuts, EVENTS)) for segment in batch.to_pylist()]


def packed_stream(rows: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the stream, in order: those that are not packed, and the segments."""
    out = [row for row in rows if row["kind"] not in (APPEND, FETCH)]
    for segment in segments:
        assert set(segment) == set(SEGMENTS.names)
        of_row = {name: segment[name] for name in SET_COLUMNS} | dict.fromkeys(Rows._fields, -1)
        told = {"time_us": segment["first_us"], "kind": int(FETCH)}
        out.append(of_row | told | {"segment": {field.name: segment[field.name] for field in SEGMENT}})
    return sorted(out, key=lambda row: [row[name] for name in (*SET_COLUMNS, *ROW_ORDER)])

"""The replay's input as Spark hands it over: fetches and appends packed in segments, other events as rows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from udfs.batches.event_chunks import (
    COLUMNS_OF_APPENDS,
    COLUMNS_OF_FETCHES,
    PIECES,
    event_chunks_of_appends,
    event_chunks_of_fetches,
)
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import SEGMENT, SEGMENTS, pack_segments
from udfs.batches.stream_columns import TERM_FIELDS
from udfs.records import APPEND, FETCH, ROW_ORDER, Rows

SET = pa.schema([
    ("cluster_id", pa.string()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_id", pa.int32()),
])  # fmt: skip
ROWS = (
    # As Spark gives them, which knows that most are never null.
    *(field.with_nullable(False) for field in SET),
    *(pa.field(name, pa.int64(), nullable=name in ("replica_id", "offset")) for name in Rows._fields),
)
STREAM = pa.schema([*ROWS, ("term", pa.struct(TERM_FIELDS)), ("segment", SEGMENT)])


def in_pieces(
    rows: Sequence[dict[str, Any]], cuts: Sequence[int] = (), schema: pa.Schema = STREAM
) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches, cut before the given row numbers."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for first, end in pairwise(edges):
        yield pa.RecordBatch.from_pylist(rows[first:end], schema=schema)


def segments_of(rows: Sequence[dict[str, Any]], cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Pack the fetches and appends among these rows into rows of SEGMENTS.

    ``cuts`` split them twice: into files, and into the batches that Spark hands over.
    """
    fetches = _as_in_table([row for row in rows if row["kind"] == FETCH], COLUMNS_OF_FETCHES, cuts)
    appends = _as_in_table([row for row in rows if row["kind"] == APPEND], COLUMNS_OF_APPENDS, cuts)
    pieces = pa.Table.from_batches([*event_chunks_of_fetches(fetches), *event_chunks_of_appends(appends)], PIECES)
    by_set = pieces.sort_by([(name, "ascending") for name in (*SET_COLUMNS, "first_us")]).to_pylist()
    return [segment for batch in pack_segments(in_pieces(by_set, cuts, PIECES)) for segment in batch.to_pylist()]


def _as_in_table(
    rows: Sequence[dict[str, Any]], columns: Mapping[str, str], cuts: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Rename the replay's columns to those of the input table; yield the rows as batches."""
    keys = [*SET, ("leader_epoch", pa.int32())]
    lists = [("later_by", pa.list_(pa.int32()))]
    schema = pa.schema([*keys, *((name, pa.int64()) for name in columns.values()), *lists])
    named = [{"leader_epoch": 0, **row, **{columns[name]: row.get(name) for name in columns}} for row in rows]
    return in_pieces(named, cuts, schema)


def packed_stream(rows: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All events in the replay's order: rows that are not packed, and segments in place of fetches and appends."""
    out = [row for row in rows if row["kind"] not in (APPEND, FETCH)]
    for segment in segments:
        assert set(segment) == set(SEGMENTS.names)
        of_row = {name: segment[name] for name in SET_COLUMNS} | dict.fromkeys(Rows._fields, -1)
        told = {"time_us": segment["first_us"], "kind": int(FETCH)}
        out.append(of_row | told | {"segment": {field.name: segment[field.name] for field in SEGMENT}})
    return sorted(out, key=lambda row: [row[name] for name in (*SET_COLUMNS, *ROW_ORDER)])

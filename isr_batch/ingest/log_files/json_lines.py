"""Parse log lines that are JSON objects, and read their fields."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json


def read_json_fields(values: pa.StringArray, paths: Sequence[str]) -> list[pa.StringArray]:
    """Parse JSON log lines, and return the given fields as text, one array per field.

    The value is null for a line that lacks the field or is not a JSON object.

    Parameters
    ----------
    values : string array
    paths : sequence of str
        Names of the fields. For a nested field, names are separated by slashes.
    """
    is_object = pc.starts_with(values, "{")
    objects = values.filter(pc.fill_null(is_object, False))
    if len(objects) == len(values):
        return _json_fields(objects, paths)
    place = np.full(len(values), -1)
    place[np.asarray(pc.fill_null(is_object, False))] = np.arange(len(objects))
    indices = pa.array(place, mask=place < 0)
    return [column.take(indices) for column in _json_fields(objects, paths)]


def _json_fields(objects: pa.StringArray, paths: Sequence[str]) -> list[pa.StringArray]:
    """Parse JSON objects with Arrow or, if this fails, one line at a time. Return the given fields as text."""
    if not len(objects):
        return [pa.nulls(0, pa.string()) for _ in paths]
    ends = pa.array([0, len(objects)], pa.int32())
    text = pc.binary_join(pa.ListArray.from_arrays(ends, objects), "\n")[0].as_buffer()
    schema = _json_schema(paths, load_json_line(objects[0].as_py()))
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        read = arrow_json.read_json(
            pa.BufferReader(text), arrow_json.ReadOptions(block_size=text.size + 1, use_threads=False), options
        ).combine_chunks()
        if read.num_rows == len(objects):
            return [_json_as_text(_json_column(read, path)) for path in paths]
    except pa.ArrowInvalid:
        pass  # a line is damaged, or contains a number where text is expected
    parsed = [load_json_line(each) for each in objects.to_pylist()]
    return [pa.array([json_text_at(each, path) for each in parsed], pa.string()) for path in paths]


def _json_schema(paths: Sequence[str], first: object) -> pa.Schema:
    """Return a schema for Arrow's parser. A field is a number if it is one in ``first``, otherwise text."""
    tree: dict[str, Any] = {}
    for path in paths:
        *parents, leaf = path.split("/")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[leaf] = _number_type(json_value_at(first, path)) or pa.string()

    def type_of(node: object) -> pa.DataType:
        return pa.struct([(k, type_of(v)) for k, v in node.items()]) if isinstance(node, dict) else node

    return pa.schema([(name, type_of(node)) for name, node in tree.items()])


def _json_column(table: pa.Table, path: str) -> pa.Array:
    """Return the column of a field, which may be nested, from a parsed table."""
    first, *rest = path.split("/")
    column = table.column(first)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.struct_field(column, rest) if rest else column


def _number_type(value: object) -> pa.DataType | None:
    """Return the Arrow type with which to parse a field that contains this value; None if it is not a number.

    A small integer gets a float type, because it may be a time in seconds, and later times in this field may have a
    fraction.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return pa.int64() if isinstance(value, int) and abs(value) > _MOST_SECONDS else pa.float64()


_MOST_SECONDS = 10**11
_SIX_DIGITS = pa.decimal128(24, 6)


def _json_as_text(column: pa.Array) -> pa.StringArray:
    """Convert parsed values to text. Numbers are written without an exponent."""
    if not pa.types.is_floating(column.type):
        return column if pa.types.is_string(column.type) else column.cast(pa.string())
    text = column.cast(_SIX_DIGITS).cast(pa.string())  # not 1.763742612613e+09
    return pc.replace_substring_regex(pc.replace_substring_regex(text, "0+$", ""), r"\.$", "")


def load_json_line(line: str) -> object:
    """Parse a line as JSON; return None if it is invalid. A message that journald wrote as bytes becomes text."""
    try:
        parsed = json.loads(line)
        if isinstance(parsed, dict) and isinstance(of_bytes := parsed.get(_JOURNALD_MESSAGE), list):
            parsed[_JOURNALD_MESSAGE] = bytes(of_bytes).decode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):
        return None
    return parsed


_JOURNALD_MESSAGE = "MESSAGE"
"""Field with the message in JSON from journalctl. It is a list of bytes if the message contains unprintable
characters."""


def json_value_at(each: object, path: str) -> object:
    """Return the field of a parsed object at a path with slashes; None if it is missing."""
    for name in path.split("/"):
        each = each.get(name) if isinstance(each, dict) else None
    return each


def json_text_at(each: object, path: str) -> str | None:
    """Return the field of a parsed object at a path, as text; None if it is missing, an object or a list."""
    found = json_value_at(each, path)
    if found is None or isinstance(found, dict | list):
        return None
    return str(found).encode("utf-8", "replace").decode()  # half of a surrogate pair is not UTF-8

"""Generate SQL that converts the values of mapped columns to the lake's types. Invalid values become null.

DuckDB runs this SQL, both in this process and in Spark's workers, so that values are converted in the same way
everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from isr_batch.errors import SchemaError, UsageError
from isr_batch.ingest.own_table.mapping import HINT, ColumnSource, InstantSource, NumberSource, NumbersSource
from isr_batch.lake.arrow_sql import quoted
from isr_batch.phrases import did_you_mean

CORRUPT: Final = "_corrupt_record"
"""Name of the column with the text of a CSV row that has more or fewer fields than the header. Spark uses this name
too."""

ABSENT: Final = "absent from a file: "
"""Prefix of a key in a schema's metadata. The rest of the key is a column that only some of a table's files contain;
the value is a file that does not contain it."""

_US_OF_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_INSTANT: Final = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)? ?(Z|[+-]\d{2}:\d{2})?"
_OFFSET: Final = r"(Z|[+-]\d{2}:\d{2})$"
_NUMBER: Final = r" *[+-]?\d+(\.\d*)? *"
_LIST: Final = r"[\d\s,;|\[\](){}]*"


@dataclass(frozen=True)
class ColumnValue:
    """How the values of one column of the lake are obtained: from a mapped column, or as a constant.

    Attributes
    ----------
    value : str
        SQL expression for the value: text, a whole number, a list of numbers, or an instant in microseconds since 1970.
    source : str or None
        SQL expression for the mapped column without conversion; None for a constant.
    source_name : str
        Name of the mapped column; empty for a constant.
    type : pa.DataType or None
        Type of the mapped column; None for a constant.
    constant : object
        The constant; None for a mapped column.
    """

    value: str
    source: str | None
    source_name: str
    type: pa.DataType | None
    constant: object = None


def column_values(
    tables: Mapping[str, tuple[pa.Schema, Mapping[str, ColumnSource]]],
) -> dict[str, dict[str, ColumnValue]]:
    """Generate the SQL that reads each mapped column, for several tables.

    Parameters
    ----------
    tables : mapping of str
        For each table, the schema of the source and the mapping of its columns.

    Returns
    -------
    dict of str to dict of str to ColumnValue
        How to read each column, by table and by name of the column in the lake.

    Raises
    ------
    UsageError
        If mapped columns are missing in the source, or if a unit must be given for them. The message lists all of them.
    SchemaError
        If mapped columns have a type that cannot be converted. The message lists all of them.
    """
    mistakes: list[str] = []
    wrong_types: list[str] = []
    values: dict[str, dict[str, ColumnValue]] = {}
    for label, (schema, given) in tables.items():
        values[label] = {}
        for target, where in given.items():
            if where.column is None:
                values[label][target] = ColumnValue(_constant_as_sql(where.constant), None, "", None, where.constant)
                continue
            source = f"{label}.columns.{target}: {where.column}"
            try:
                column, kind = _find_mapped_column(schema, where.column)
                if pa.types.is_floating(kind):  # NaN is the only null that pandas has for floats
                    column = f"CASE WHEN NOT isnan({column}) THEN {column} END"
                value = _value_as_sql(where, column, kind)
            except UsageError as error:
                mistakes.append(f"{source} {error.message}")
            except SchemaError as error:
                wrong_types.append(f"{source} {error.message}")
            else:
                values[label][target] = ColumnValue(value, column, where.column, kind)
    if mistakes:
        raise UsageError("the mapping does not fit:" + "".join(f"\n  {mistake}" for mistake in mistakes), HINT)
    if wrong_types:
        raise SchemaError("columns of types that cannot be converted:" + "".join(f"\n  {t}" for t in wrong_types), HINT)
    return values


def can_be_read(schema: pa.Schema, source: ColumnSource) -> bool:
    """Return whether a mapped column exists in a table with a type that can be converted."""
    try:
        column_values({"": (schema, {"": source})})
    except (SchemaError, UsageError):
        return False
    return True


def top_column(schema: pa.Schema, name: str) -> str:
    """Return the top-level column to read for a mapped name: the column itself or, for a nested field, its struct."""
    return name if name in schema.names else name.partition(".")[0]


def quoted_name(name: str) -> str:
    """Return a column's name quoted as a SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _constant_as_sql(constant: object) -> str:
    if isinstance(constant, list):
        return f"CAST([{', '.join(map(str, constant))}] AS INTEGER[])"
    return quoted(constant) if isinstance(constant, str) else str(constant)


def _find_mapped_column(schema: pa.Schema, name: str) -> tuple[str, pa.DataType]:
    """Return the SQL expression of a mapped column, and its type. A name with dots may denote a nested field."""
    fields = {field.name: field.type for field in schema if field.name != CORRUPT}
    if name in fields:
        return quoted_name(name), fields[name]
    first, *rest = name.split(".")
    known, kind, column, path = list(fields), fields.get(first), quoted_name(first), first
    for part in rest:
        inner = {field.name: field.type for field in kind} if kind is not None and pa.types.is_struct(kind) else {}
        known = [f"{path}.{name}" for name in inner] or known
        kind, column, path = inner.get(part), f"struct_extract({column}, {quoted(part)})", f"{path}.{part}"
    absent = schema.metadata or {}
    if file := absent.get((ABSENT + name).encode(), absent.get((ABSENT + first).encode())):
        raise UsageError(f"does not exist in {file.decode()}, but it exists in other files of the table")
    if kind is None:
        raise UsageError(f"does not exist; {did_you_mean(name, known)}")
    return column, kind


def _is_text_column(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text_column(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_fractional_column(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list_column(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _value_as_sql(given: ColumnSource, column: str, kind: pa.DataType) -> str:
    """Return SQL that converts a mapped column of type ``kind`` to the type that the mapping demands."""
    if pa.types.is_dictionary(kind):  # a pandas category, of numbers or of text
        kind = kind.value_type
    if pa.types.is_null(kind):  # the type that pandas gives a column without values
        return "NULL"
    if isinstance(given, InstantSource):
        return _instant_as_sql(given, column, kind)
    if isinstance(given, NumberSource):
        return _integer_as_sql(column, kind)
    if isinstance(given, NumbersSource):
        return _integers_as_sql(column, kind)
    if _is_text_column(kind) or pa.types.is_integer(kind):
        return f"CAST({column} AS VARCHAR)"
    raise _unfit_column(kind, "text")


def _unfit_column(kind: pa.DataType, what: str) -> SchemaError:
    return SchemaError(f"is {kind}, which cannot be read as {what}")


def _exact_as_sql(column: str, kind: pa.DataType) -> str:
    """Return SQL that converts a column of type ``kind``, text or fractional numbers, to decimals without loss."""
    if not _is_text_column(kind):
        return f"TRY_CAST({column} AS DECIMAL(38, 9))"
    return (
        f"CASE WHEN regexp_full_match({column}, {quoted(_NUMBER)}) THEN TRY_CAST(trim({column}) AS DECIMAL(38, 9)) END"
    )


def _integer_as_sql(column: str, kind: pa.DataType) -> str:
    """Return SQL that converts a column of type ``kind`` to whole numbers. Fractions and other values become null."""
    if pa.types.is_integer(kind):
        return f"TRY_CAST({column} AS BIGINT)"
    if _is_text_column(kind) or _is_fractional_column(kind):
        exact = _exact_as_sql(column, kind)
        return f"CASE WHEN {exact} = floor({exact}) THEN TRY_CAST({exact} AS BIGINT) END"
    raise _unfit_column(kind, "a whole number")


def _integers_as_sql(column: str, kind: pa.DataType) -> str:
    """Return SQL that converts a column of type ``kind`` (lists, or text such as "1,2,3") to lists of whole numbers."""
    if _is_list_column(kind):
        numbers = f"list_transform({column}, lambda x: TRY_CAST({_integer_as_sql('x', kind.value_type)} AS INTEGER))"
    elif _is_text_column(kind):
        digits = f"regexp_extract_all({column}, '\\d+')"
        numbers = (
            f"CASE WHEN regexp_full_match({column}, {quoted(_LIST)}) "
            f"THEN list_transform({digits}, lambda x: TRY_CAST(x AS INTEGER)) END"
        )
    else:
        raise _unfit_column(kind, "a list of whole numbers")
    return f"CASE WHEN NOT list_contains(list_transform({numbers}, lambda x: x IS NULL), true) THEN {numbers} END"


def _instant_as_sql(given: InstantSource, column: str, kind: pa.DataType) -> str:
    """Return SQL that converts a column of instants, of type ``kind``, to microseconds since 1970."""
    if given.unit is None:
        if pa.types.is_timestamp(kind):
            zoned = f"CAST({column} AS TIMESTAMPTZ)" if kind.unit == "ns" else column
            return f"epoch_us({_column_instant_in_zone(column, given.time_zone) if kind.tz is None else zoned})"
        if pa.types.is_integer(kind) or _is_text_column(kind) or _is_fractional_column(kind):
            raise UsageError(f"is {kind}: give its unit, {{column: ..., unit: s, ms, us, ns or iso}}")
        raise _unfit_column(kind, "a time")
    if given.unit == "iso":
        if not _is_text_column(kind):
            raise _unfit_column(kind, "text with a time")
        return _instant_of_text_as_sql(column, given.time_zone)
    if pa.types.is_integer(kind):
        whole = f"CAST({column} AS BIGINT)"
        return f"TRY({whole} // 1000)" if given.unit == "ns" else f"TRY({whole} * {_US_OF_UNIT[given.unit]})"
    if _is_text_column(kind) or _is_fractional_column(kind):
        exact = _exact_as_sql(column, kind)
        if given.unit == "ns":
            return f"TRY(CAST(CAST(floor({exact}) AS HUGEINT) // 1000 AS BIGINT))"
        return f"TRY(CAST(round({exact} * {_US_OF_UNIT[given.unit]}) AS BIGINT))"
    raise _unfit_column(kind, f"a time in {given.unit}")


def _column_instant_in_zone(naive: str, time_zone: str | None) -> str:
    """Return SQL that converts ``naive``, a timestamp without a zone, from ``time_zone`` (by default UTC) to UTC."""
    naive = f"CAST({naive} AS TIMESTAMP)"
    return naive if time_zone in (None, "UTC") else f"timezone({quoted(time_zone or '')}, {naive})"


def _instant_of_text_as_sql(column: str, time_zone: str | None) -> str:
    """Return SQL that parses ISO 8601 text into microseconds since 1970.

    The text must contain hours and minutes. UTC or GMT may stand for Z. Without an offset, the text is in
    ``time_zone``. Other text becomes null.
    """
    text = f"replace(trim({column}), ',', '.')"
    for short, full in ((" ?(UTC|GMT)$", "Z"), (r"(:.*[+-]\d{2})$", r"\1:00"), (r"([+-]\d{2})(\d{2})$", r"\1:\2")):
        text = f"regexp_replace({text}, {quoted(short)}, {quoted(full)})"
    short = f"regexp_replace({text}, '(\\.\\d{{6}})\\d+', '\\1')"
    naive = f"TRY_CAST({short} AS TIMESTAMP)"
    zoned = f"epoch_us(TRY_CAST({short} AS TIMESTAMPTZ))"
    return (
        f"CASE WHEN regexp_full_match({text}, {quoted(_INSTANT)}) THEN "
        f"CASE WHEN regexp_matches({text}, {quoted(_OFFSET)}) THEN {zoned} "
        f"ELSE epoch_us({_column_instant_in_zone(naive, time_zone)}) END END"
    )

"""Read a user's own table by a mapping: find its columns and convert their values to those of an input table.

A value that cannot be converted becomes null, never an error; `Value.source` keeps it, so that the row can be refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isr_batch.errors import NoInputError, SchemaError, UsageError
from isr_batch.ingest.own_table.mapping import (
    HINT,
    ColumnSource,
    Csv,
    Format,
    InstantSource,
    NumberSource,
    NumbersSource,
    TableMapping,
)
from isr_batch.lake.addresses import absolute_address
from isr_batch.phrases import did_you_mean

CORRUPT: Final = "_corrupt_record"
"""Column where Spark puts a CSV row that has more or fewer fields than the header."""

_NOT_THERE: Final = (
    "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE", "DELTA_SCHEMA_NOT_SET",
)  # fmt: skip
_WHOLE: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FRACTIONAL: Final = (T.StringType, T.FloatType, T.DoubleType, T.DecimalType)
_US_OF_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EXACT: Final = "decimal(38,9)"
_INSTANT: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)? ?(Z|[+-]\d{2}:\d{2})?$"
_OFFSET: Final = r"(Z|[+-]\d{2}:\d{2})$"


@dataclass(frozen=True)
class ColumnValue:
    """The value for a column of an input table, and the column it is read from (null for a constant)."""

    value: Column
    source: Column
    source_name: str


def read_own_columns(spark: SparkSession, path: str, mapping: TableMapping) -> DataFrame:
    """Open a Parquet, Delta or CSV table; CSV columns are all STRING, and `CORRUPT` is among them.

    Raises
    ------
    NoInputError
        If there is nothing at this path.
    UsageError
        If it is not a table of this format.
    """
    found = absolute_address(path)
    try:
        kind = mapping.format or _format(spark, found)
        rows = _read_csv(spark, found, mapping.csv) if kind == "csv" else spark.read.format(kind).load(found)
    except PySparkException as error:
        message = str(error).strip().partition("\n")[0]
        if (error.getCondition() or "").startswith(_NOT_THERE):
            raise NoInputError(f"{path}: {message}", "check the path") from error
        raise UsageError(f"{path}: {message}", "set `format` in the mapping to parquet, delta or csv") from error
    if not rows.columns:
        raise NoInputError(f"{path} is empty")
    return rows


def _format(spark: SparkSession, path: str) -> Format:
    if path.endswith((".csv", ".csv.gz")):
        return "csv"
    return "delta" if DeltaTable.isDeltaTable(spark, path) else "parquet"


def _read_csv(spark: SparkSession, path: str, csv: Csv) -> DataFrame:
    # Quotes are doubled inside quotes, as RFC 4180 has it and everybody but Spark writes it.
    reader = spark.read.options(header=csv.header, sep=csv.delimiter, escape='"', encoding="UTF-8")
    columns = reader.csv(path).schema
    if not columns:
        return spark.createDataFrame([], columns)
    # Files whose header differs from the first one's must not be read as if it did not.
    return reader.options(columnNameOfCorruptRecord=CORRUPT, enforceSchema=False).csv(
        path, schema=T.StructType(list(columns)).add(CORRUPT, "string")
    )


def values_of_mapped_columns(
    frames: Mapping[str, tuple[DataFrame, Mapping[str, ColumnSource]]],
) -> dict[str, dict[str, ColumnValue]]:
    """Convert the mapped columns of each frame to values; the frames' names are used in messages.

    Raises
    ------
    UsageError
        With every column that a frame does not have, or that needs a unit.
    SchemaError
        With every column of a type that cannot be converted.
    """
    mistakes: list[str] = []
    wrong_types: list[str] = []
    values: dict[str, dict[str, ColumnValue]] = {}
    for label, (frame, given) in frames.items():
        values[label] = {}
        for target, where in given.items():
            if where.column is None:
                values[label][target] = ColumnValue(F.lit(where.constant), F.lit(None), "")
                continue
            source = f"{label}.columns.{target}: {where.column}"
            try:
                column, kind = _find(frame, where.column)
                value = _value(where, column, kind)
            except UsageError as error:
                mistakes.append(f"{source} {error.message}")
            except SchemaError as error:
                wrong_types.append(f"{source} {error.message}")
            else:
                values[label][target] = ColumnValue(value, column.cast("string"), where.column)
    if mistakes:
        raise UsageError("the mapping does not fit:" + "".join(f"\n  {mistake}" for mistake in mistakes), HINT)
    if wrong_types:
        raise SchemaError("columns of types that cannot be converted:" + "".join(f"\n  {t}" for t in wrong_types), HINT)
    return values


def _find(frame: DataFrame, name: str) -> tuple[Column, T.DataType]:
    """Find the column of exactly this name; otherwise the nested field with this dotted name."""
    fields = {field.name: field.dataType for field in frame.schema if field.name != CORRUPT}
    if name in fields:
        return frame[_quoted(name)], fields[name]
    first, *rest = name.split(".")
    path, kind = [first], fields.get(first)
    known = list(fields)
    for part in rest:
        known = [f"{'.'.join(path)}.{inner}" for inner in kind.names] if isinstance(kind, T.StructType) else known
        kind = kind[part].dataType if isinstance(kind, T.StructType) and part in kind.names else None
        path.append(part)
    if kind is None:
        raise UsageError(f"does not exist; {did_you_mean(name, known)}")
    return frame[".".join(map(_quoted, path))], kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _value(given: ColumnSource, column: Column, kind: T.DataType) -> Column:
    if isinstance(given, InstantSource):
        return _instant(given, column, kind)
    if isinstance(given, NumberSource):
        return _integer(column, kind)
    if isinstance(given, NumbersSource):
        return _integers(column, kind)
    return _of_types(kind, {(T.StringType, *_WHOLE): lambda: column.cast("string")}, "text")


Ways = Mapping[tuple[type[T.DataType], ...], Callable[[], Column]]
"""Conversions by type of the column."""


def _of_types(kind: T.DataType, ways: Ways, what: str) -> Column:
    for types, way in ways.items():
        if isinstance(kind, types):
            return way()
    raise SchemaError(f"is {kind.simpleString()}, which cannot be read as {what}")


def _integer(column: Column, kind: T.DataType) -> Column:
    def of_fractional() -> Column:
        exact = column.try_cast(_EXACT)
        return F.coalesce(_plain(column, kind), F.when(exact == F.floor(exact), F.floor(exact).try_cast("bigint")))

    return _of_types(
        kind, {_WHOLE: lambda: column.cast("bigint"), _FRACTIONAL: of_fractional}, "a whole number"
    )  # fmt: skip


def _plain(column: Column, kind: T.DataType) -> Column:
    """Cast text that is only digits, which is most text: exact decimals are slow."""
    return column.try_cast("bigint") if isinstance(kind, T.StringType) else F.lit(None).cast("bigint")


def _integers(column: Column, kind: T.DataType) -> Column:
    def complete(values: Column) -> Column:
        return F.when(~F.exists(values, lambda value: value.isNull()), values)

    def of_array() -> Column:
        assert isinstance(kind, T.ArrayType)
        element = kind.elementType
        return complete(F.transform(column, lambda value: _integer(value, element).try_cast("int")))

    def of_text() -> Column:
        digits = F.regexp_extract_all(column, F.lit(r"(\d+)"), F.lit(1))
        return F.when(column.rlike(r"^[\d\s,;|\[\](){}]*$"), complete(F.transform(digits, lambda v: v.try_cast("int"))))

    return _of_types(kind, {(T.ArrayType,): of_array, (T.StringType,): of_text}, "a list of whole numbers")


def _instant(given: InstantSource, column: Column, kind: T.DataType) -> Column:
    if given.unit is None:
        if isinstance(kind, (*_WHOLE, *_FRACTIONAL)):
            raise UsageError(f"is {kind.simpleString()}: give its unit, {{column: ..., unit: s, ms, us, ns or iso}}")
        zoned = F.to_utc_timestamp(column.cast("timestamp"), given.time_zone or "UTC")
        ways: Ways = {(T.TimestampType,): lambda: column, (T.TimestampNTZType,): lambda: zoned}
        return _of_types(kind, ways, "a time")
    if given.unit == "iso":
        return _of_types(kind, {(T.StringType,): lambda: _instant_of_text(column, given.time_zone)}, "text with a time")
    unit = given.unit

    def of_whole(whole: Column) -> Column:
        if unit == "ns":
            return F.call_function("div", whole, F.lit(1000))
        return F.try_multiply(whole, F.lit(_US_OF_UNIT[unit]).cast("bigint"))

    def of_fractional() -> Column:
        exact = column.try_cast(_EXACT)
        us = exact / 1000 if unit == "ns" else F.try_multiply(exact, F.lit(_US_OF_UNIT[unit]).cast("decimal(7,0)"))
        return F.coalesce(of_whole(_plain(column, kind)), F.round(us).try_cast("bigint"))

    us = _of_types(
        kind, {_WHOLE: lambda: of_whole(column.cast("bigint")), _FRACTIONAL: of_fractional}, f"a time in {unit}"
    )
    return F.timestamp_micros(us)


def _instant_of_text(column: Column, time_zone: str | None) -> Column:
    """Parse ISO 8601 text with date, hours and minutes; a comma may precede the fraction, as in Kafka's logs."""
    text = F.regexp_replace(F.trim(column), ",", ".")
    for short, full in ((r"(:.*[+-]\d{2})$", "$1:00"), (r"([+-]\d{2})(\d{2})$", "$1:$2")):
        text = F.regexp_replace(text, short, full)
    instant = F.when(text.rlike(_INSTANT), text.try_cast("timestamp"))
    if time_zone is None:
        return instant
    return F.when(text.rlike(_OFFSET), instant).otherwise(F.to_utc_timestamp(instant, time_zone))

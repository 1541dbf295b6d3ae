"""Read users' tables with Spark: tables at an address, or tables and views in a catalog (Hive, Unity, Iceberg)."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from isr_batch.errors import NoInputError, UsageError, explained_error
from isr_batch.ingest.own_table.column_values import CORRUPT
from isr_batch.ingest.own_table.items import Item
from isr_batch.ingest.own_table.mapping import Csv, TableMapping
from isr_batch.lake.ddl import quoted_for_spark
from isr_batch.lake.spark_writes import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from isr_batch.lake.lake import Lake

_NOT_THERE: Final = (
    "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE", "DELTA_SCHEMA_NOT_SET", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",
)  # fmt: skip


def rows_as_structs(frame: "DataFrame") -> "DataFrame":
    """Put the columns into a struct ``row``, the only column, as `mapInArrow` fails on column names with dots."""
    return frame.select(F.struct(*map(quoted_for_spark, frame.columns)).alias("row"))


def csv_frame(spark: "SparkSession", paths: Sequence[str], csv: Csv) -> "DataFrame":
    """Open CSV files in Spark. All columns are text; `CORRUPT` is the text of rows with a wrong number of fields."""
    # Quotes within quoted fields are doubled (RFC 4180). By default, Spark expects backslashes.
    reader = spark.read.options(header=csv.header, sep=csv.delimiter, escape='"', encoding="UTF-8")
    columns = reader.csv(list(paths)).schema
    # By default, Spark uses the first file's header for all files. Files with another header must be refused.
    return reader.options(columnNameOfCorruptRecord=CORRUPT, enforceSchema=False).csv(
        list(paths), schema=StructType(list(columns)).add(CORRUPT, "string")
    )


class SparkSource:
    """A user's table that is read with Spark.

    Its items are its data files if Spark knows them, otherwise the whole table.

    Raises
    ------
    NoInputError
        If no table has this name or address.
    UsageError
        If the table does not have the expected format.
    """

    def __init__(self, lake: "Lake", place: str, mapping: TableMapping, *, by_name: bool = False) -> None:
        self.place = place
        kind = mapping.format or ("csv" if place.endswith((".csv", ".csv.gz")) else None)
        self.is_csv = kind == "csv" and not by_name
        try:
            self._rows = lake.spark.table(place) if by_name else _loaded_by_spark(lake.spark, place, kind, mapping.csv)
            self._types = self._rows.schema
        except PySparkException as error:
            message = str(error).strip().partition("\n")[0]
            if (error.getCondition() or "").startswith(_NOT_THERE):
                raise NoInputError(f"{place}: {message}", "check the path or the name") from error
            unread = UsageError(f"{place}: {message}", "set `format` in the mapping to parquet, delta or csv")
            raise explained_error(error) or unread from error

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        return to_arrow_schema(self._types, timezone="UTC")

    @cached_property
    def items(self) -> Sequence[Item]:
        """One item per data file if Spark knows the file of each row, otherwise one item for the whole table."""
        of_file = ("file_path", "file_size", "file_modification_time")
        try:
            files = self._rows.select(*(f"_metadata.{name}" for name in of_file)).distinct().collect()
        except PySparkException:  # a view, or a source that has no files
            return (Item(self.place, ""),)
        named = (Item(path, f"{size}/{time:%Y-%m-%dT%H:%M:%S.%f}", size) for path, size, time in files)
        return tuple(sorted(named, key=lambda item: item.name)) or (Item(self.place, ""),)

    def _of(self, items: Sequence[Item]) -> "DataFrame":
        """Return the rows of the items."""
        if len(items) == len(self.items):
            return self._rows
        return self._rows.where(F.col("_metadata.file_path").isin([item.name for item in items]))

    def count(self, items: Sequence[Item]) -> int:  # noqa: D102 as `Source`
        return self._of(items).count() if items else 0

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> pa.Table:  # noqa: D102
        return self.frame(None, items, columns).toArrow()

    def frame(self, lake: "Lake | None", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":  # noqa: ARG002, D102
        return self._of(items).select(*map(quoted_for_spark, columns))


class SparkRows(SparkSource):
    """A caller's Spark DataFrame as a source with a single item, the whole frame.

    Parameters
    ----------
    place : str
        Name of the frame in messages.
    rows : DataFrame
    """

    def __init__(self, place: str, rows: "DataFrame") -> None:
        self.place, self.is_csv = place, False
        self._rows, self._types = rows, rows.schema
        self.items = (Item(place, ""),)


def _loaded_by_spark(spark: "SparkSession", place: str, kind: str | None, csv: Csv) -> "DataFrame":
    """Open a table at the address ``place``. ``kind`` is its format: delta, parquet or csv.

    If ``kind`` is None, the format is Delta if Spark finds a Delta table there, otherwise Parquet.
    """
    if kind == "csv":
        return csv_frame(spark, [place], csv)
    if kind is None:
        kind = "delta" if is_delta(spark, place) else "parquet"
    return spark.read.format(kind).load(place)

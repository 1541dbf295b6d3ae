"""Open users' tables. Files on this machine are read with Arrow, tables at an address or with a name with Spark.

A source consists of items, such as files. The lake records which items have been ingested, and later ingests skip them.
This is safe because the lake already contains all their rows.
"""

import csv
import glob
import io
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from isr_batch.errors import NoInputError, SchemaError, UsageError
from isr_batch.ingest.own_table.column_values import ABSENT, CORRUPT, quoted_name
from isr_batch.ingest.own_table.items import Item, Source
from isr_batch.ingest.own_table.mapping import Csv, Format, TableMapping
from isr_batch.lake.addresses import is_address, is_glob, is_table_name, require_no_credentials
from isr_batch.lake.ddl import quoted_for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from isr_batch.lake.lake import Lake

_CSV: Final = (".csv", ".csv.gz")
_PARQUET: Final = (".parquet", ".parq", ".pq", "")
"""Suffixes of the files in a folder that are read as Parquet. Other files are ignored."""
_HEADER_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 16 << 20
"""Number of bytes of a CSV file that are parsed at once. A line cannot be longer."""


def open_source(lake: "Lake", place: str, mapping: TableMapping) -> Source:
    """Open a user's table: Parquet, Delta or CSV files at a path, glob or address, or a table in Spark's catalog.

    Raises
    ------
    NoInputError
        If the location does not exist.
    UsageError
        If the table does not have the expected format.
    """
    from isr_batch.ingest.own_table.spark_source import SparkSource

    if is_address(place):
        require_no_credentials(place)
        return SparkSource(lake, place, mapping)
    if not is_glob(place) and not Path(place).exists():
        if is_table_name(place):
            return SparkSource(lake, place, mapping, by_name=True)
        raise NoInputError(f"there is no {place}", "check the path, or name a table as CATALOG.SCHEMA.TABLE")
    whole = str(Path(place).absolute())
    kind = mapping.format or _format_of_place(whole)
    if kind == "delta":
        from isr_batch.ingest.own_table.delta_source import open_delta

        return open_delta(lake, whole, mapping)
    files = _files_of_table(whole, kind)
    if not files:
        raise NoInputError(f"{place} has no {kind} files", "check the path, or set `format` in the mapping")
    return CsvFiles(whole, files, mapping.csv) if kind == "csv" else ParquetFiles(whole, files)


def _format_of_place(place: str) -> Format:
    """Infer the format of the table at a path: CSV, Delta or Parquet."""
    if place.endswith(_CSV):
        return "csv"
    if (Path(place) / "_delta_log").is_dir():
        return "delta"
    if Path(place).is_dir() and not _files_of_table(place, "parquet") and _files_of_table(place, "csv"):
        return "csv"
    return "parquet"


def _files_of_table(place: str, kind: Format) -> list[Path]:
    """Return the data files at a path or glob, in folders at any depth.

    Names that begin with an underscore or a dot are skipped.
    """
    named = [Path(place)] if Path(place).exists() else [Path(name) for name in sorted(glob.glob(place, recursive=True))]  # noqa: PTH207
    found = []
    for path in named:
        if not path.is_dir():
            found.append(path)
            continue
        for file in sorted(path.rglob("*")):
            inner = file.relative_to(path).parts
            is_data = file.name.endswith(_CSV) if kind == "csv" else file.suffix in _PARQUET
            if is_data and not any(part.startswith(("_", ".")) for part in inner) and file.is_file():
                found.append(file)
    return list(dict.fromkeys(found))


def _items_of_files(files: Sequence[Path]) -> tuple[Item, ...]:
    """Return an item for each file. The version of an item consists of the file's size and time of change."""
    stats = [(file, file.stat()) for file in files]
    return tuple(Item(str(file), f"{stat.st_size}/{stat.st_mtime_ns}", stat.st_size) for file, stat in stats)


class ParquetFiles:
    """A table in Parquet files. Folders named ``name=value`` are columns."""

    is_csv = False

    def __init__(self, place: str, files: Sequence[Path]) -> None:
        self.place = place
        self.items = _items_of_files(files)

    @cached_property
    def _schemas(self) -> dict[str, pa.Schema]:
        """The schema of each file, by name."""
        return {item.name: self._opened([item]).schema for item in self.items}

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that all files contain. Only these can be mapped."""
        schemas = list(self._schemas.values())
        return _merged_columns(self.place, schemas, list(self._schemas))

    def _opened(self, items: Sequence[Item], schema: pa.Schema | None = None) -> ds.Dataset:
        """Open the files of the items."""
        base = self.place if Path(self.place).is_dir() else None
        partitioning = ds.partitioning(flavor="hive") if base else None
        try:
            opened = ds.dataset(
                [item.name for item in items], schema, "parquet", partitioning=partitioning,
                **({"partition_base_dir": base} if base else {}),
            )  # fmt: skip
            _ = opened.schema.names  # raises an error if names are not text in a damaged file
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            if items[0].name.endswith(_PARQUET[:-1]):
                raise _damaged_source(items[0].name, error) from error
            raise _unreadable_source(items[0].name, error, "parquet") from error
        return opened

    def count(self, items: Sequence[Item]) -> int:  # noqa: D102 as `Source`
        return self._opened(items, self.schema).count_rows() if items else 0

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> ds.Dataset:  # noqa: ARG002, D102 a query reads what it names
        return self._opened(items, self.schema)

    def _nanosecond_columns(self, item: Item) -> list[str]:
        """Return the columns of a file whose type is timestamp in nanoseconds (not INT96, which Spark can read)."""
        if "timestamp[ns" not in str(self._schemas[item.name]):
            return []
        columns = pq.ParquetFile(item.name).schema
        return [column.path for column in columns if "nanoseconds" in str(column.logical_type)]

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":  # noqa: D102
        # Spark cannot read a file with such timestamps, even if the columns are not mapped, and only fails while it
        # runs.
        if nanos := {name for item in items for name in self._nanosecond_columns(item)}:
            raise UsageError(
                f"{self.place}: Spark reads no Parquet file with timestamps in nanoseconds: {', '.join(sorted(nanos))}",
                "write it with coerce_timestamps='us', or use --engine local",
            )
        reader = lake.spark.read
        if Path(self.place).is_dir():
            reader = reader.option("basePath", f"file:{self.place}")
        rows = reader.parquet(*(f"file:{item.name}" for item in items))
        return rows.select(*map(quoted_for_spark, columns))


def _merged_columns(place: str, schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Schema:
    """Return the columns that all files contain, each with a type to which the types in all files can be converted.

    ``names`` are the files' names, in the order of ``schemas``, and ``place`` is the table's path, for messages. For
    each column that some files lack, the metadata of the result contains the name of one of these files.
    """
    common = set(schemas[0].names).intersection(*(schema.names for schema in schemas))
    parts = [pa.schema([field for field in schema if field.name in common]) for schema in schemas]
    merged = parts[0]
    for part, name in zip(parts[1:], names[1:], strict=True):
        if part.equals(merged):
            continue
        try:
            merged = pa.unify_schemas([merged, part], promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            message = str(error).partition("\n")[0]
            raise SchemaError(
                f"{place}: the types of {name} differ from those of earlier files: {message}",
                "ingest it separately, with a mapping that fits it",
            ) from error
    known = set().union(*(schema.names for schema in schemas))
    absent = {
        ABSENT + column: name for schema, name in zip(schemas, names, strict=True) for column in known - {*schema.names}
    }
    return merged.with_metadata(absent)


def _unreadable_source(name: str, error: Exception, kind: str) -> UsageError:
    """Return the error to raise for a file that is not of the expected format, ``kind``."""
    reason = str(error).strip().partition("\n")[0]
    return UsageError(
        f"{name} cannot be read as {kind}: {reason[:200]}", "set `format` in the mapping: parquet, delta or csv"
    )


def _damaged_source(name: str, error: Exception) -> SchemaError:
    """Return the error to raise for a damaged file."""
    reason = str(error).strip().partition("\n")[0]
    return SchemaError(f"{name} cannot be read, it is damaged: {reason[:200]}", "fetch the file again")


def _not_utf8(name: str) -> SchemaError:
    """Return the error to raise for a CSV file in another encoding."""
    return SchemaError(
        f"{name} cannot be read, it is damaged or not text in UTF-8",
        "convert it (iconv -f ENCODING -t UTF-8), or fetch it again",
    )


class CsvFiles:
    """A table in CSV files with equal headers. All columns are text.

    In a row with a wrong number of fields, only column `CORRUPT` has a value, the text of the row.
    """

    is_csv = True

    def __init__(self, place: str, files: Sequence[Path], how: Csv) -> None:
        self.place = place
        self.items = _items_of_files(files)
        self._csv = how
        self._last: tuple[tuple[str, ...], pa.Table] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the files, which must be the same in all files, and `CORRUPT`."""
        names = {item.name: self._header(item) for item in self.items}
        first, columns = next(iter(names.items()))
        for name, others in names.items():
            if others != columns:
                raise SchemaError(f"{name} has the columns {', '.join(others)}, {first} has {', '.join(columns)}")
        return pa.schema([*(pa.field(column, pa.string()) for column in columns), pa.field(CORRUPT, pa.string())])

    def _options(self, names: Sequence[str]) -> dict[str, Any]:
        """Return options for Arrow's CSV reader."""
        return {
            "read_options": pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, column_names=None if self._csv.header else list(names),
            ),
            "parse_options": pa_csv.ParseOptions(delimiter=self._csv.delimiter, newlines_in_values=True),
        }  # fmt: skip

    def _header(self, item: Item) -> list[str]:
        """Return the names of a file's columns, from its first line or, without a header, by number."""
        try:
            with pa.input_stream(item.name, compression="detect") as opened:
                begin = opened.read(_HEADER_BYTES)
            # The last of the examined bytes may be part of a character.
            text = begin[: begin.rfind(b"\n") + 1 or None].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _not_utf8(item.name) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise _damaged_source(item.name, error) from error
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._csv.delimiter), [])
        if not names:
            raise NoInputError(f"{item.name} is empty")
        if len(names) == 1 and (other := next((each for each in ";\t|" if each in names[0]), None)):
            raise UsageError(
                f"{item.name}: the columns are separated by {other!r}, not by {self._csv.delimiter!r}",
                f"put `csv: {{delimiter: {json.dumps(other)}}}` into the mapping",
            )
        return names if self._csv.header else [f"_c{number}" for number in range(len(names))]

    def count(self, items: Sequence[Item]) -> int:  # noqa: D102 as `Source`
        return int(self.rows(items, ()).num_rows)

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> pa.Table:  # noqa: ARG002, D102
        names = tuple(item.name for item in items)
        if self._last is None or self._last[0] != names:  # cached, because a file is first counted and then read
            self._last = names, pa.concat_tables([self.schema.empty_table(), *map(self._read, items)])
        return self._last[1]

    def _read(self, item: Item) -> pa.Table:
        """Read the rows of a file. Rows with a wrong number of fields only have a value in column `CORRUPT`."""
        names = self.schema.names[:-1]
        corrupt: list[str] = []

        def keep(row: pa_csv.InvalidRow) -> str:
            corrupt.append(row.text)
            return "skip"

        options = self._options(names)
        options["parse_options"].invalid_row_handler = keep
        types = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=True,
            null_values=[""],
        )  # fmt: skip
        try:
            rows = pa_csv.read_csv(item.name, convert_options=types, **options)
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                raise _not_utf8(item.name) from error
            raise _unreadable_source(item.name, error, "csv") from error
        except OSError as error:
            raise _damaged_source(item.name, error) from error
        bad = {name: pa.nulls(len(corrupt), pa.string()) for name in names} | {CORRUPT: pa.array(corrupt, pa.string())}
        good = rows.append_column(CORRUPT, pa.nulls(rows.num_rows, pa.string()))
        return pa.concat_tables([good, pa.table(bad)])

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":  # noqa: D102
        from isr_batch.ingest.own_table.spark_source import csv_frame

        rows = csv_frame(lake.spark, [f"file:{item.name}" for item in items], self._csv)
        return rows.select(*(quoted_name(name).replace('"', "`") for name in columns))

"""Read a user's Delta table from a local folder with delta-rs or, if delta-rs cannot read it, with Spark."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError, TableNotFoundError

from isr_batch.errors import NoInputError
from isr_batch.ingest.own_table.items import Item, Source
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.lake.addresses import require_delta_path
from isr_batch.lake.ddl import quoted_for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from isr_batch.lake.lake import Lake


def open_delta(lake: "Lake", place: str, mapping: TableMapping) -> Source:
    """Open a user's Delta table.

    It is read with Spark if delta-rs cannot read it, for example because of deletion vectors.

    Raises
    ------
    NoInputError
        If there is no Delta table at the path.
    UsageError
        If the path contains characters that a Delta table's path cannot contain.
    """
    from isr_batch.ingest.own_table.spark_source import SparkSource

    require_delta_path(place)
    if "%" in place:  # delta-rs would unescape it
        return SparkSource(lake, f"file:{place}", mapping)
    try:
        table = deltalake.DeltaTable(place)
    except TableNotFoundError as error:
        raise NoInputError(f"{place} is not a Delta table", "check the path, or set `format` in the mapping") from error
    try:
        return DeltaTable(place, table, table.to_pyarrow_dataset())
    except DeltaError:
        return SparkSource(lake, f"file:{place}", mapping)


class DeltaTable:
    """A user's Delta table, read with delta-rs. An item is a data file, whose content never changes."""

    is_csv = False

    def __init__(self, place: str, table: deltalake.DeltaTable, dataset: ds.Dataset) -> None:
        self.place = place
        self._table, self._dataset = table, dataset

    @cached_property
    def items(self) -> Sequence[Item]:
        """One item per data file of the table."""
        files = pa.table(self._table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
        return tuple(Item(file["path"], "", file["size_bytes"]) for file in files)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        return self._dataset.schema

    def _opened(self, items: Sequence[Item]) -> ds.Dataset:
        """Return a dataset that consists of the given data files."""
        wanted = {item.name for item in items}
        fragments = [each for each in self._dataset.get_fragments() if each.path.lstrip("/") in wanted]
        return ds.FileSystemDataset(fragments, self.schema, self._dataset.format, self._dataset.filesystem)

    def count(self, items: Sequence[Item]) -> int:  # noqa: D102 as `Source`
        return self._opened(items).count_rows() if items else 0

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> ds.Dataset:  # noqa: ARG002, D102 a query reads what it names
        return self._opened(items)

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":  # noqa: D102
        rows = lake.spark.read.format("delta").load(f"file:{self.place}")
        return _rows_of_delta_files(rows, items).select(*map(quoted_for_spark, columns))


def _rows_of_delta_files(rows: "DataFrame", items: Sequence[Item]) -> "DataFrame":
    from pyspark.sql import functions as F

    names = [item.name.rpartition("/")[2] for item in items]
    return rows.where(F.col("_metadata.file_name").isin(names))

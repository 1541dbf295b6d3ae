"""The interface of a source of rows. A source is read by items, which are files or the whole table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from isr_batch.lake.lake import Lake


@dataclass(frozen=True)
class Item:
    """A part of a source that is read as a whole: a file, or the whole source. ``version`` changes with its content."""

    name: str
    version: str
    size_bytes: int = 0


class Source(Protocol):
    """A user's table, in any format and at any location."""

    @property
    def place(self) -> str:
        """Path, address or name of the table."""

    @property
    def is_csv(self) -> bool:
        """Whether the table is CSV, so that it has a column `CORRUPT` for malformed rows."""

    @property
    def items(self) -> Sequence[Item]:
        """The files of the table, or the whole table as the only item."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""

    def count(self, items: Sequence[Item]) -> int:
        """Return the number of rows in the items."""

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> "pa.Table | ds.Dataset":
        """Open columns of the items with Arrow, in this process."""

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":
        """Open columns of the items as a Spark DataFrame."""

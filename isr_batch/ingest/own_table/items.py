"""The interface of a user's table in any format, which is read in parts (items): files or the whole table."""

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
    """A part of a source: a file, or the whole table. Whenever the content changes, ``version`` changes."""

    name: str
    version: str
    size_bytes: int = 0


class Source(Protocol):
    """A user's table in some format at some location."""

    @property
    def place(self) -> str:
        """Path, address or name of the table."""

    @property
    def is_csv(self) -> bool:
        """Whether the table is CSV. If so, it has a column `CORRUPT` with the text of malformed rows."""

    @property
    def items(self) -> Sequence[Item]:
        """One item per file of the table, or a single item for the whole table."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table."""

    def count(self, items: Sequence[Item]) -> int:
        """Return the number of rows in the items."""

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> "pa.Table | ds.Dataset":
        """Open the rows of the items with Arrow, in this process. The result may have more columns than ``columns``."""

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":
        """Open the rows of the items as a Spark DataFrame with the given columns."""

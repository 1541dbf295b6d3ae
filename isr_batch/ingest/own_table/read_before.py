"""Record which files of users' tables have been ingested, so that later ingests skip these files."""

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from isr_batch.ingest.own_table.items import Item
from isr_batch.ingest.own_table.read_source import Input
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.own_tables import INGESTED_SOURCES


def new_items(lake: Lake, given: Input) -> list[Item]:
    """Return the items of a source that are new, or that have changed since an earlier ingest read them.

    If the only item is the whole table, and has no version, it is always returned.
    """
    of_source = {"source": given.source.place, "read_as": _read_as(given)}
    rows = read_columns(lake, INGESTED_SOURCES.name, ["item", "version"], of_source)
    known = set(zip(rows["item"].to_pylist(), rows["version"].to_pylist(), strict=True))
    is_whole = [item.name for item in given.source.items] == [given.source.place] and not given.source.items[0].version
    return [item for item in given.source.items if is_whole or (item.name, item.version) not in known]


def remember_items(small: SmallTables, given: Input, items: Sequence[Item]) -> None:
    """Record that items of a source have been read, so that later ingests skip these items."""
    lake, read_as = small.lake, _read_as(given)
    rows = [
        {"source": given.source.place, "item": item.name, "version": item.version, "became": given.checked.table.name,
         "read_as": read_as, "ingest_run": lake.run_id}
        for item in items
    ]  # fmt: skip
    names = ", ".join(sql_literal(item.name) for item in items)
    where = f"source = {sql_literal(given.source.place)} AND read_as = '{read_as}' AND item IN ({names})"
    replace_arrow(lake, small.sql, INGESTED_SOURCES, pa.Table.from_pylist(rows, arrow_schema(INGESTED_SOURCES)), where)


def forget_items(small: SmallTables, became: str) -> None:
    """Delete the records of items that were read into the lake's table ``became``, so that the items are read again."""
    none = arrow_schema(INGESTED_SOURCES).empty_table()
    replace_arrow(small.lake, small.sql, INGESTED_SOURCES, none, f"became = '{became}'")


def _read_as(given: Input) -> str:
    """Return a hash of the SELECT with which a source is read.

    If it changes, all files of the source are read again.
    """
    how = (given.checked.table.name, given.checked.text, sorted(map(str, given.checked.constants.items())))
    return hashlib.sha256(repr(how).encode()).hexdigest()[:16]

"""Read the user's tables in a mapping, and check each row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.checked_rows import REFUSED, TIMES, UNKNOWN_CLUSTER, Checked, checked_rows
from isr_batch.ingest.own_table.column_values import CORRUPT, ColumnValue, column_values, top_column
from isr_batch.ingest.own_table.items import Item, Source
from isr_batch.ingest.own_table.mapping import (
    HINT,
    MappedTable,
    TableMapping,
    mapped_columns,
    with_quoted_names,
    words_of_condition,
)
from isr_batch.ingest.own_table.sources import open_source
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES, QUARANTINE
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.window import Window

_BECOMES: Final = {
    "fetches": FETCH_LOG, "appends": APPEND_LOG, "epochs": GIVEN_TERMS, "changes": OBSERVED_ISR_CHANGES,
}  # fmt: skip
ROWS_AT_ONCE: Final = 1 << 20
"""Number of rows of a SELECT's result that are processed at a time."""


@dataclass(frozen=True)
class Input:
    """A user's table to read, with the SELECT that checks its rows and converts them to rows of a table of the lake."""

    section: str
    """Section of the mapping: fetches, appends, epochs or changes."""
    source: Source
    checked: Checked
    columns: tuple[str, ...]
    """Names of the columns of the source that the SELECT uses."""
    wants_all: bool
    """Whether all rows are selected: there is no condition in the mapping and no window in the command."""

    def quarantine_name(self, items: Sequence[Item]) -> str:
        """Return the source_file in quarantine for rows of these items: the only item's name, or the table's."""
        return items[0].name if len(items) == 1 else self.source.place


@dataclass(frozen=True)
class ReadTable:
    """The rows that were read from a user's table: rows that passed all checks, and refused rows.

    Attributes
    ----------
    checked : Checked
        The SELECT with which the table was read.
    rows : pa.Table
        Rows that passed all checks, with the columns of `Checked.columns`. Text is dictionary-encoded.
    refused : pa.Table
        Refused rows, with the columns of table quarantine that do not depend on the run.
    left_out : int
        Number of rows that were neither used nor refused: fetches by consumers, and rows that do not meet the
        conditions.
    names : tuple of str
        Names of the items that were read, as in source_file of table quarantine.
    """

    checked: Checked
    rows: pa.Table
    refused: pa.Table
    left_out: int
    names: tuple[str, ...]
    spread: int = 0
    """Number of rows that passed all checks but are stored in Spark instead of `rows`."""
    spread_clusters: tuple[str, ...] = ()
    """Clusters of the rows that are stored in Spark."""

    @property
    def rows_in(self) -> int:
        """Total number of rows in the items that were read."""
        return int(self.rows.num_rows + self.spread + self.refused.num_rows + self.left_out)

    def with_more(self, other: "ReadTable") -> "ReadTable":
        """Return a `ReadTable` with the rows of this one and of another one that was read with the same mapping."""
        rows = pa.concat_tables([self.rows, other.rows.select(self.rows.column_names)]).unify_dictionaries()
        refused = pa.concat_tables([self.refused, other.refused])
        return ReadTable(self.checked, rows, refused, self.left_out + other.left_out, self.names + other.names)

    def clusters(self) -> list[str]:
        """Return the names of the clusters that have rows. A cluster whose name is a constant is always included."""
        if "cluster_id" in self.rows.column_names:
            return [*self.spread_clusters, *pc.unique(self.rows["cluster_id"].cast(pa.string())).to_pylist()]
        return [str(self.checked.constants["cluster_id"])]

    def of_cluster(self, cluster_id: str) -> pa.Table:
        """Return the rows of a cluster, without column ``cluster_id``."""
        if "cluster_id" not in self.rows.column_names:
            return self.rows if self.checked.constants["cluster_id"] == cluster_id else self.rows.slice(0, 0)
        is_it = pc.equal(self.rows["cluster_id"].cast(pa.string()), cluster_id)
        return self.rows.filter(is_it).drop_columns(["cluster_id"])


def inputs_of_mapping(lake: Lake, places: Sequence[str], mapping: TableMapping, window: Window) -> list[Input]:
    """Open all tables of a mapping, and generate the SELECTs that read them.

    Parameters
    ----------
    lake : Lake
        The lake whose Spark session reads tables that are not files on this machine.
    places : sequence of str
        Paths, globs, addresses or names of the user's tables of fetches.
    mapping : TableMapping
    window : Window
        Days to read. Rows of other days are skipped.

    Raises
    ------
    NoInputError
        If a table does not exist.
    UsageError, SchemaError
        If the mapping does not fit the tables, or a column's type cannot be converted.
    """
    sections = {"appends": mapping.appends, "epochs": mapping.epochs, "changes": mapping.changes}
    named = [("fetches", place) for place in places]
    named += [(name, section.path) for name, section in sections.items() if section]
    return inputs_of_sources([(name, open_source(lake, place, mapping)) for name, place in named], mapping, window)


def inputs_of_sources(
    sources: Sequence[tuple[str, Source]],
    mapping: TableMapping,
    window: Window = Window(),  # noqa: B008 frozen
) -> list[Input]:
    """Generate the SELECTs that read the tables of a mapping, which are already open.

    Parameters
    ----------
    sources : sequence of (str, Source)
        For each table, its section of the mapping (``fetches``, ``appends``, ``epochs`` or ``changes``).
    mapping : TableMapping
    window : Window
        Days to read. Rows of other days are skipped.

    Raises
    ------
    UsageError, SchemaError
        If the mapping does not fit the tables, or a column's type cannot be converted.
    """
    cluster = mapping.cluster_id.constant
    if cluster in {name for _, source in sources for name in source.schema.names}:
        raise UsageError(
            f"cluster_id: {cluster} is the name of the cluster, and the table has a column of that name",
            f"map the column, cluster_id: {{column: {cluster}}}, or give the cluster another name",
        )
    first = dict(reversed(sources))
    labels = [name if source is first[name] else f"{name} of {source.place}" for name, source in sources]
    sections: list[MappedTable] = [getattr(mapping, name) for name, _ in sources]
    values = column_values(
        {
            label: (source.schema, {**mapped_columns(section.columns), "cluster_id": mapping.cluster_id})
            for label, section, (_, source) in zip(labels, sections, sources, strict=True)
        }
    )
    return [
        _input_of_mapped_table((name, _BECOMES[name], section), source, values[label], window)
        for label, section, (name, source) in zip(labels, sections, sources, strict=True)
    ]


def _input_of_mapped_table(
    mapped: tuple[str, Table, MappedTable], source: Source, values: dict[str, ColumnValue], window: Window
) -> Input:
    """Generate the SELECT that reads an open table as one section of the mapping describes.

    ``mapped`` is (section's name, table of the lake, section of the mapping).
    """
    name, table, section = mapped
    schema, where = source.schema, section.where
    conditions = [f"({with_quoted_names(where, schema.names)})"] if where else []
    needed = {top_column(schema, value.source_name) for value in values.values() if value.source is not None}
    if where:
        named = {top_column(schema, word) for word in words_of_condition(where)} & set(schema.names)
        if not named:
            raise UsageError(f"{name}.where: {where} names no column of {source.place}; they are case-sensitive", HINT)
        needed |= named
    if table is FETCH_LOG and values["replica_id"].source is not None:
        replica = values["replica_id"].value
        conditions.append(f"({replica}) >= 0 OR ({replica}) IS NULL")  # consumers have a negative id
    if window != Window():
        times = [values[name].value for name in (TIMES[table.name], "arrival_time") if name in values]
        if times:  # if not, `checked_rows` reports what is missing
            time = f"coalesce({', '.join(times)})" if len(times) > 1 else times[0]
            conditions.append(f"({window.within(time)}) OR ({time}) IS NULL")
    if source.is_csv:
        needed.add(CORRUPT)
    checked = checked_rows(table, section.columns, values, conditions, is_csv=source.is_csv)
    # At least one column must be read to count the rows.
    read = [name for name in schema.names if name in needed] or schema.names[:1]
    return Input(name, source, checked, tuple(read), wants_all=not conditions)


def read_input(sql: ArrowSql, given: Input, items: Sequence[Item]) -> ReadTable:
    """Read and check the rows of some items of a source, in this process.

    Raises
    ------
    UsageError
        If the condition ``where`` in the mapping cannot be evaluated on the rows.
    """
    read = _read_mapped_table(sql, given, items)
    if read.refused.num_rows and len(items) > 1:
        # Items with refused rows are read again one by one: quarantine names the file, so that repairing it deletes the
        # rows.
        read = replace(read, refused=pa.concat_tables(_read_mapped_table(sql, given, [item]).refused for item in items))
    return read


def _read_mapped_table(sql: ArrowSql, given: Input, items: Sequence[Item]) -> ReadTable:
    """Read some items of a source, and separate the refused rows."""
    clean, refused = [], [_QUARANTINE.empty_table()]
    names = tuple(item.name for item in items)
    if items:
        rows = given.source.rows(items, given.columns)
        try:
            for batch in sql.batches(given.checked.text, ROWS_AT_ONCE, rows=rows):
                good, bad = split_refused(batch)
                clean.append(with_dictionaries(good.select(given.checked.columns), given.checked))
                if bad.num_rows:
                    refused.append(quarantine_rows_of_source(bad, given.checked, given.quarantine_name(items)))
        except ValueError as error:
            what = f"{given.section} of {given.source.place}: {str(error).partition(chr(10))[0]}"
            raise UsageError(what, HINT) from error
    if not clean:
        clean.append(with_dictionaries(given.checked.schema.empty_table().select(given.checked.columns), given.checked))
    good, bad = pa.concat_tables(clean).unify_dictionaries(), pa.concat_tables(refused)
    left_out = 0 if given.wants_all else given.source.count(items) - good.num_rows - bad.num_rows
    return ReadTable(given.checked, good, bad, left_out, names)


_QUARANTINE: Final = pa.schema([
    ("cluster_id", pa.string()), ("source_file", pa.string()), ("reason", pa.string()), ("detail", pa.string()),
    ("raw", pa.string()),
])  # fmt: skip
assert set(_QUARANTINE.names) <= set(QUARANTINE.column_names)


def split_refused(batch: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
    """Split the result of a `Checked` SELECT. Return the rows that passed all checks, and then the refused rows."""
    rows = pa.table(batch)
    if rows["reason"].null_count == rows.num_rows:
        return rows, rows.slice(0, 0)
    is_bad = pc.is_valid(rows["reason"])
    return rows.filter(pc.invert(is_bad)), rows.filter(is_bad)


def quarantine_rows_of_source(bad: pa.Table, checked: Checked, name: str) -> pa.Table:
    """Convert refused rows of a `Checked` SELECT to rows of quarantine, with source_file ``name``."""
    if "cluster_id" in bad.column_names:
        cluster = pc.fill_null(bad["cluster_id"].cast(pa.string()), UNKNOWN_CLUSTER)
    else:
        cluster = pa.repeat(str(checked.constants["cluster_id"]), bad.num_rows)
    columns = [cluster, pa.repeat(name, bad.num_rows), *(bad[column] for column in REFUSED)]
    return pa.Table.from_arrays(columns, schema=_QUARANTINE)


def with_dictionaries(rows: pa.Table, checked: Checked) -> pa.Table:
    """Dictionary-encode text columns, because the names of topics and clusters recur."""
    known = {field.name: field for field in checked.schema}
    rows = rows.cast(pa.schema([known.get(field.name, field) for field in rows.schema]))
    for number, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            rows = rows.set_column(number, field.name, rows[field.name].dictionary_encode())
    return rows

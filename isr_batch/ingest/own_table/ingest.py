"""Ingest a user's table of fetches and, if given, tables of appends, terms and ISR changes, using a mapping.

An ingest only adds rows that are not in the lake yet. The content of the lake therefore depends on the set of all rows
that were ever ingested, not on their files or their order (docs/adr/0029).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from isr_batch.errors import NoInputError, QualityGateError, UsageError
from isr_batch.ingest.own_table.added_rows import Account, AddedRows, Replaced
from isr_batch.ingest.own_table.day_of_rows import EpochsInForce, RowsOfCluster
from isr_batch.ingest.own_table.items import Item
from isr_batch.ingest.own_table.leader_epochs import look_up_epochs, terms_of_epochs
from isr_batch.ingest.own_table.mapped_clusters import require_same_mapping, write_mapped_clusters
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_before import forget_items, new_items, remember_items
from isr_batch.ingest.own_table.read_source import Input, ReadTable, inputs_of_mapping, read_input
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.lease import leased
from isr_batch.lake.run_log import RunCounts
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import INPUT_TABLES, QUARANTINE
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from isr_batch.window import Window

if TYPE_CHECKING:
    from isr_batch.ingest.own_table.in_workers import SpreadTable

ODD_SHARE: Final = 20
ODD_DAYS: Final = 30
"""A day is reported as odd if it contains less than one in `ODD_SHARE` of the rows of an ingest, and is more than this
many days away from the day with most rows."""


@dataclass(frozen=True)
class IngestOfTable:
    """The outcome of an ingest of a user's table.

    Attributes
    ----------
    counts : RunCounts
        Number of rows that were read, new and refused.
    accounts : dict of str to Account
        Numbers of rows by outcome, for each section of the mapping (``fetches``, ``appends``, ``epochs``, ``changes``).
    skipped : dict of str to int
        For each section, the number of files that were not read because they have not changed since the last ingest.
    """

    counts: RunCounts
    accounts: dict[str, Account]
    skipped: dict[str, int]

    @property
    def total(self) -> Account:
        """The sum of the accounts of all sections."""
        total = Account()
        for account in self.accounts.values():
            total.new += account.new
            total.known += account.known
            total.gone += account.gone
            total.left_out += account.left_out
            total.refused += account.refused
        return total

    def odd_days(self) -> list[str]:
        """Return a sentence for each day on which the times of rows may be wrong.

        Such a day has few rows (`ODD_SHARE`), and is more than `ODD_DAYS` days away from the day with most rows.
        """
        days: Counter[str] = Counter()
        for account in self.accounts.values():
            for counted in (account.new, account.known):
                for (day, _), rows in counted.items():
                    days[day] += rows
        most = max(days, key=days.__getitem__, default="")
        far = {day: abs((date.fromisoformat(day) - date.fromisoformat(most)).days) for day in days}
        few = {day for day, rows in days.items() if rows * ODD_SHARE < days.total()}
        return [
            f"{day}: {days[day]} row{'s' if days[day] > 1 else ''}, {far[day]} days from the others"
            for day in sorted(few) if far[day] > ODD_DAYS
        ]  # fmt: skip

    def by_day_and_leader(self) -> list[dict[str, object]]:
        """Return the numbers of rows by day and leader, as rows to print.

        The columns are ``table``, ``day``, ``leader_id``, ``rows_new``, ``rows_known`` and ``rows_gone``.
        """
        return [
            {"table": name, "day": day, "leader_id": leader, "rows_new": account.new[day, leader],
             "rows_known": account.known[day, leader], "rows_gone": account.gone[day, leader]}
            for name, account in self.accounts.items()
            for day, leader in sorted(account.new.keys() | account.known.keys() | account.gone.keys())
        ]  # fmt: skip


def ingest_own_table(  # noqa: PLR0913 three of them have a default
    lake: Lake,
    places: Sequence[str],
    mapping: TableMapping,
    *,
    window: Window = Window(),  # noqa: B008 frozen
    full: bool = False,
    replaced: Replaced | None = None,
    may_lose: bool = False,
    max_refused: float = 1.0,
    most_rows: int = sizes.OWN_ROWS,
) -> IngestOfTable:
    """Ingest a user's table of fetches. Only rows that are not in the lake yet are added.

    Parameters
    ----------
    lake : Lake
        The lake to write to.
    places : sequence of str
        Locations of the table: paths, globs or addresses of Parquet, Delta or CSV files, or names of tables in a
        catalog.
    mapping : TableMapping
        Mapping of the columns, and locations of the tables of appends, terms and ISR changes.
    window : Window
        Days to read. Rows of other days are skipped.
    full : bool
        Whether to read files again that have not changed since the last ingest.
    replaced : Replaced, optional
        Rows of the lake to delete if the source does not contain them.
    may_lose : bool
        Whether to go on if more rows would be deleted (see ``replaced``) than added, instead of raising an error.
    max_refused : float
        The largest share of rows that may be refused, from 0 to 1.
    most_rows : int
        The largest number of fetches to ingest in this process. Larger tables are ingested in Spark's workers.

    Raises
    ------
    NoInputError
        If a table does not exist or there are no fetches.
    UsageError, SchemaError
        If the mapping does not fit the tables or the lake, if a column has a wrong type, or if more rows would be
        deleted than added.
    QualityGateError
        If too large a share of rows is refused. Nothing has been written then.
    WriteConflictError
        If another run writes to the same tables at the same time.
    """
    inputs = inputs_of_mapping(lake, places, mapping, window)
    return ingest_inputs(
        lake, inputs, mapping,
        full=full, replaced=replaced, may_lose=may_lose, max_refused=max_refused, most_rows=most_rows,
    )  # fmt: skip


def ingest_inputs(  # noqa: PLR0913 all but three have a default
    lake: Lake,
    inputs: Sequence[Input],
    mapping: TableMapping,
    *,
    full: bool = False,
    replaced: Replaced | None = None,
    may_lose: bool = False,
    max_refused: float = 1.0,
    most_rows: int = sizes.OWN_ROWS,
) -> IngestOfTable:
    """Ingest tables that are already open, as `ingest_own_table` does with the same keyword arguments."""
    to_read = [(given, [*given.source.items] if full or replaced else new_items(lake, given)) for given in inputs]
    skipped: Counter[str] = Counter()
    for given, items in to_read:
        skipped[given.section] += len(given.source.items) - len(items)
    fetches = [(given, items) for given, items in to_read if given.section == "fetches"]
    rows_in = sum(given.source.count(items) for given, items in fetches)
    if replaced and rows_in > most_rows:
        raise UsageError(f"--replace takes up to {most_rows:,} rows at once", "shorten the days --from and --to")
    # Without rows to read, Spark is not needed. `--replace` is only possible in this process.
    many = not replaced and rows_in > 0 and lake.engine.by_spark(rows_in, most_rows, "rows of fetches")
    with ArrowSql() as sql:
        spread = _spread_own_table(lake, fetches) if many else None
        read: dict[str, ReadTable] = {"fetches": spread.read} if spread else {}
        for given, items in to_read:
            if spread and given.section == "fetches":
                continue
            part = read_input(sql, given, items)
            read[given.section] = read[given.section].with_more(part) if given.section in read else part
        if not read["fetches"].rows_in and not skipped["fetches"]:
            places = (given.source.place for given, _ in fetches)
            raise NoInputError(f"{', '.join(places)} has no rows")
        _require_few_refused(read, max_refused)
        with leased(lake):
            small = SmallTables(lake, sql)
            accounts = {
                name: Account(left_out=each.left_out, refused=each.refused.num_rows) for name, each in read.items()
            }
            _add_rows_of_own_table(_Work(small, read, inputs, mapping, replaced, accounts, spread), may_lose=may_lose)
            for section, account in accounts.items():
                if account.gone.total():
                    forget_items(small, read[section].checked.table.name)
            for given, items in to_read:
                remember_items(small, given, items)
    counts = RunCounts(
        sum(account.rows_in for account in accounts.values()),
        sum(account.new.total() for account in accounts.values()),
        sum(account.refused for account in accounts.values()),
    )
    return IngestOfTable(counts, accounts, dict(skipped))


def _require_few_refused(read: Mapping[str, ReadTable], most: float) -> None:
    """Raise an error if the share of refused rows exceeds ``most``. The message lists the most frequent reasons.

    ``read`` are the rows of each section.
    """
    refused = pa.concat_tables(each.refused for each in read.values())
    rows_in = sum(each.rows_in for each in read.values())
    if refused.num_rows <= most * rows_in:
        return
    reasons = refused.group_by(["reason"]).aggregate([("raw", "count"), ("detail", "min"), ("raw", "min")])
    worst = reasons.sort_by([("raw_count", "descending")]).slice(0, 3).to_pylist()
    shown = (f"\n  {row['raw_count']} x {row['reason']}: {row['detail_min'] or ''} {row['raw_min']}" for row in worst)
    raise QualityGateError(
        f"{refused.num_rows} of {rows_in} rows would be refused ({refused.num_rows / rows_in:.2%}, the limit is "
        f"{most:.2%}), so nothing was written:{''.join(shown)}",
        "correct the table or its mapping, exclude rows with `where`, or raise ingest.max_quarantine_ratio",
    )


@dataclass(frozen=True)
class _Work:
    """The state of one ingest: the lake, the rows that were read, and the numbers of rows by outcome."""

    small: SmallTables
    read: Mapping[str, ReadTable]
    inputs: Sequence[Input]
    mapping: TableMapping
    replaced: Replaced | None
    accounts: Mapping[str, Account]
    spread: "SpreadTable | None"


def _spread_own_table(lake: Lake, fetches: Sequence[tuple[Input, Sequence[Item]]]) -> "SpreadTable":
    """Read and check a table of fetches in Spark's workers, because the table is too large for this process."""
    from isr_batch.ingest.own_table.in_workers import spread_table  # imports Spark

    return spread_table(lake, fetches)


def _add_rows_of_own_table(work: _Work, *, may_lose: bool) -> None:
    """Find the new rows of all clusters and sections, and commit them to the lake."""
    lake, read = work.small.lake, work.read
    clusters = sorted({name for each in read.values() for name in each.clusters()})
    require_same_mapping(lake, clusters, work.inputs, work.mapping)
    lake.ensure_all((*INPUT_TABLES, GIVEN_TERMS))
    pending = [added for cluster_id in clusters for added in _added_to_cluster(work, cluster_id)]
    if not may_lose:
        _require_no_rows_lost(work.accounts, pending)
    for name, account in work.accounts.items():
        assert account.rows_in == read[name].rows_in, (name, account, read[name].rows_in)
    write_mapped_clusters(work.small, clusters, work.mapping)
    for added in pending:
        added.commit()
    _write_quarantine(work.small, read)


def _added_to_cluster(work: _Work, cluster_id: str) -> Iterator[AddedRows]:
    """Yield an `AddedRows` with a cluster's new rows for each section, in the order in which to commit them.

    Terms are committed last. If an ingest is killed before that, the next ingest finds that the terms are new, and
    corrects the leader epochs of rows that are already in the lake.
    """
    leo_source = "appends" if work.mapping.appends else "inferred"
    lake = work.small.lake

    def added(section: str, epochs: EpochsInForce | None, epochs_changed_us: int | None) -> AddedRows:
        """Find the new rows of one section."""
        checked = work.read[section].checked
        looked_up = epochs if "leader_epoch" in checked.constants else None
        account = work.accounts[section]
        target = RowsOfCluster(checked, cluster_id, leo_source)
        rows = AddedRows(work.small, target, looked_up, account, work.replaced)
        rows.add(work.read[section].of_cluster(cluster_id), epochs_changed_us)
        if work.spread and section == "fetches":
            from isr_batch.ingest.own_table.in_workers import files_of_new_rows

            rows.files += files_of_new_rows(lake, work.spread, target, known_terms if looked_up else None, account)
        return rows

    terms, epochs, changed_us, known_terms = None, None, None, None
    if "epochs" in work.read:
        terms = added("epochs", None, None)
        known_terms = terms_of_epochs(lake, cluster_id, work.read["epochs"].of_cluster(cluster_id))
        epochs = partial(look_up_epochs, work.small.sql, known_terms)
        changed_us = terms.first_new_us
    for section in work.read:
        if section != "epochs":
            yield added(section, epochs, changed_us)
    if terms:
        yield terms


def _require_no_rows_lost(accounts: Mapping[str, Account], pending: Sequence[AddedRows]) -> None:
    """Raise an error if `--replace` would delete more rows than it adds, because the source may be incomplete.

    ``accounts`` count the rows of each section. On an error, the files in ``pending`` are discarded.
    """
    gone, new = (sum(counter.total() for counter in each) for each in zip(
        *((account.gone, account.new) for account in accounts.values()), strict=True,
    ))  # fmt: skip
    if gone <= new:
        return
    for added in pending:
        added.discard()
    days = sorted({day for account in accounts.values() for day, _ in account.gone})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    raise UsageError(
        f"{gone} rows of the lake, of {span}, would be replaced by {new}; nothing was written",
        "--yes replaces them anyway",
    )


def _write_quarantine(small: SmallTables, read: Mapping[str, ReadTable]) -> None:
    """Write refused rows to quarantine, in place of the rows that earlier ingests refused in the same files."""
    refused = pa.concat_tables(each.refused for each in read.values())
    names = sorted({name for each in read.values() for name in each.names})
    if not names:
        return
    many = refused.num_rows
    more = {"source_line": pa.nulls(many, pa.int64()), "rows_kept": pa.repeat(False, many),
            "ingest_run": pa.repeat(small.lake.run_id, many)}  # fmt: skip
    schema = arrow_schema(QUARANTINE)
    columns = [more[name] if name in more else refused[name] for name in schema.names]
    where = f"source_file IN ({', '.join(map(sql_literal, names))})"
    replace_arrow(small.lake, small.sql, QUARANTINE, pa.table(columns, schema=schema), where)

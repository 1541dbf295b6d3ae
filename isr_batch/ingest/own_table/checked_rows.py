"""Generate the SELECT that checks the rows of a user's table, fills in missing values, and refuses invalid rows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import pyarrow as pa

from isr_batch.ingest.own_table.column_values import CORRUPT, ColumnValue, quoted_name
from isr_batch.ingest.own_table.mapping import INSTANTS, MappedColumns
from isr_batch.lake.arrow_rows import TYPES
from isr_batch.lake.arrow_sql import quoted
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.own_tables import GIVEN_TERMS
from udfs.request_log.fields import FIRST_US, LAST_US

RAW_CHARACTERS: Final = 500
UNKNOWN_CLUSTER: Final = "unknown"
"""Value of cluster_id in quarantine for a row whose cluster name could not be read."""
NO_EPOCH: Final = 0
"""Leader epoch of all rows if no column for it is mapped."""
REFUSED: Final = ("reason", "detail", "raw")
TIMES: Final = {
    FETCH_LOG.name: "handled_time", APPEND_LOG.name: "append_time", GIVEN_TERMS.name: "start_time",
    OBSERVED_ISR_CHANGES.name: "change_time",
}  # fmt: skip
"""For each table, the column from which event_date is derived."""

_NOT_NEGATIVE: Final = ("partition_id", "leader_id", "fetch_offset", "base_offset", "log_end_offset", "start_offset")
_SQL_TYPES: Final = {"STRING": "VARCHAR", "INT": "INTEGER", "BIGINT": "BIGINT", "ARRAY<INT>": "INTEGER[]",
                 "BOOLEAN": "BOOLEAN", "TIMESTAMP": "BIGINT"}  # fmt: skip
_WORD: Final = re.compile(r"[a-z_]+")


@dataclass(frozen=True)
class Checked:
    """The SELECT that reads and checks the rows of a user's table, and the columns of its result.

    Attributes
    ----------
    table : Table
        Table of the lake that the rows are for.
    text : str
        SELECT on table ``rows`` (the user's rows). It returns the columns of ``schema``, with instants in microseconds
        since 1970.
    schema : pa.Schema
        ``cluster_id``, columns of the table, and `REFUSED`. ``reason`` is null if the row passed all checks.
    constants : mapping of str
        Value of each column that is the same in all rows. The SELECT does not return these columns.
    same_as : mapping of str to str
        For each column that always equals another one, the name of the other column. The SELECT only returns the
        latter.
    """

    table: Table
    text: str
    schema: pa.Schema
    constants: Mapping[str, object]
    same_as: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the SELECT returns, without `REFUSED`."""
        return [name for name in self.schema.names if name not in REFUSED]

    def completed(self, rows: pa.Table) -> pa.Table:
        """Convert rows that the SELECT returned to rows of the lake: add the other columns, and convert instants."""
        for name, value in self.constants.items():
            if name in rows.column_names:  # a looked-up leader epoch may be there already
                continue
            kind = TYPES[next(column.type for column in self.table.columns if column.name == name)]
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
        for name, other in self.same_as.items():
            rows = rows.append_column(name, rows[other])
        for number, field in enumerate(rows.schema):
            if field.name in self._instants:
                rows = rows.set_column(number, field.name, rows[field.name].cast(pa.timestamp("us", "UTC")))
        return rows

    @cached_property
    def _instants(self) -> set[str]:
        return {column.name for column in self.table.columns if column.type == "TIMESTAMP"}


def checked_rows(
    table: Table, columns: MappedColumns, values: Mapping[str, ColumnValue], conditions: Sequence[str], *, is_csv: bool
) -> Checked:
    """Generate the SELECT that converts, completes and checks the rows of a user's table.

    Parameters
    ----------
    table : Table
        Table of the lake that the rows are for.
    columns : MappedColumns
        The mapped columns, and which of them are required.
    values : mapping of str to ColumnValue
        For each mapped column and ``cluster_id``, how its values are read.
    conditions : sequence of str
        SQL conditions that a row must meet. Other rows are skipped without being refused.
    is_csv : bool
        Whether the source is CSV, so that it has the column `CORRUPT`.
    """
    types = {
        column.name: column.type for column in table.columns if column.name in {*values, *_columns_of_every_row(table)}
    }
    read = ", ".join(
        f"TRY_CAST({values[name].value} AS {_SQL_TYPES[kind]}) AS {name}"
        if name in values
        else f"CAST(NULL AS {_SQL_TYPES[kind]}) AS {name}"
        for name, kind in types.items()
    )
    # The source columns whose values are quoted when a row is refused, each only once.
    sources = {value.source_name: value.source for value in values.values() if value.source is not None}
    kept_as = {name: f"_source_{number}" for number, name in enumerate(sources)}
    read += "".join(f", {source} AS {kept_as[name]}" for name, source in sources.items())
    raw = ", ".join(f"{quoted(name)}: {kept}" for name, kept in kept_as.items())
    unreadable = "".join(
        f" WHEN {kept_as[value.source_name]} IS NOT NULL AND {name} IS NULL "
        f"THEN {quoted(value.source_name + ' = ')} || CAST({kept_as[value.source_name]} AS VARCHAR)"
        for name, value in values.items() if value.source is not None
    )  # fmt: skip
    corrupt = quoted_name(CORRUPT) if is_csv else "CAST(NULL AS VARCHAR)"
    where = f" WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""
    steps = [
        (
            f"SELECT *, {f'CASE{unreadable} END' if unreadable else 'NULL'} AS _unreadable "
            f"FROM (SELECT {read}, {corrupt} AS _corrupt FROM rows{where})"
        ),
        *_completed_values(table),
    ]
    text = steps[0]
    for step in steps[1:]:
        text = f"SELECT * REPLACE ({step}) FROM ({text})"
    back = _back_us(table)
    text = f"SELECT *, {back} AS _back_us FROM ({text})"
    problems = _problems(table, columns, values, types)
    reason = "CASE" + "".join(f" WHEN {when} THEN {quoted(why)}" for when, why, _ in problems) + " END"
    detail = "CASE" + "".join(f" WHEN {when} THEN {what}" for when, _, what in problems) + " END"
    in_order = _instants_in_order(table)
    text = f"SELECT *, {reason} AS reason, {detail} AS detail FROM ({text})"
    shown = f"coalesce(_corrupt, CAST(to_json({{{raw}}}) AS VARCHAR))" if raw else "_corrupt"
    constants, same_as = _constant_columns(values, types), _same_instants_as(table, values)
    kept = [name for name in types if name not in {*constants, *same_as}]
    outcome = ", ".join(f"{in_order.get(name, name)} AS {name}" for name in kept)
    text = (
        f"SELECT {outcome}, reason, detail, CASE WHEN reason IS NOT NULL THEN left({shown}, {RAW_CHARACTERS}) END "
        f"AS raw FROM ({text})"
    )
    schema = pa.schema([
        *(pa.field(name, pa.int64() if types[name] == "TIMESTAMP" else TYPES[types[name]]) for name in kept),
        *(pa.field(name, pa.string()) for name in REFUSED),
    ])  # fmt: skip
    return Checked(table, text, schema, constants, same_as)


def _constant_columns(values: Mapping[str, ColumnValue], types: Mapping[str, str]) -> dict[str, object]:
    """Return {column: value} for columns that are constant: mapped constants, and defaults of unmapped columns.

    ``types`` are the types of all columns, by name.
    """
    defaults = {"leader_epoch": NO_EPOCH, "error_code": 0, "made_by": "leader"}
    given = {name: value.constant for name, value in values.items() if value.source is None}
    absent = {name: defaults.get(name) for name in types if name not in values and name not in INSTANTS}
    derived = {"log_end_source"} | {name for name in given if name in INSTANTS}
    return {name: value for name, value in (absent | given).items() if name not in derived}


def _same_instants_as(table: Table, values: Mapping[str, ColumnValue]) -> dict[str, str]:
    """Return {instant of a fetch that is not mapped: the other instant that is used in its place}."""
    if table is not FETCH_LOG:
        return {}
    same = {}
    if "arrival_time" not in values or "handled_time" not in values:
        same["arrival_time"] = "handled_time"
    if "processed_time" not in values:
        same["processed_time"] = "handled_time"
    if "completed_time" not in values:
        same["completed_time"] = "released_time"
        if "released_time" not in values:
            same |= dict.fromkeys(("completed_time", "released_time"), same.get("processed_time", "processed_time"))
    elif "released_time" not in values:
        same["released_time"] = "completed_time"
    return same


def _columns_of_every_row(table: Table) -> tuple[str, ...]:
    """Return the columns that the SELECT must provide for a table even if they are not mapped."""
    if table is FETCH_LOG:
        return ("leader_epoch", *INSTANTS, "leader_log_end_offset", "high_watermark", "error_code")
    if table is APPEND_LOG:
        return ("leader_epoch", "log_end_source", "base_offset", "acknowledged_time", "error_code")
    if table is OBSERVED_ISR_CHANGES:
        return ("leader_epoch", "made_by")
    return tuple(name for name in table.column_names if name not in {"leader_epoch", "event_date"})


def _completed_values(table: Table) -> list[str]:
    """Return lists of SQL expressions that fill in missing values. A list may use the columns of earlier lists."""
    if table is APPEND_LOG:
        ends = "CASE WHEN log_end_offset IS NOT NULL THEN coalesce(log_end_source, 'appends') END AS log_end_source"
        return [f"coalesce(error_code, 0) AS error_code, {ends}"]
    if table is OBSERVED_ISR_CHANGES:
        return ["coalesce(made_by, 'leader') AS made_by"]
    if table is not FETCH_LOG:
        return []
    known = [f"CASE WHEN {name} >= 0 THEN {name} END AS {name}" for name in ("leader_log_end_offset", "high_watermark")]
    return [
        ", ".join([*known, "coalesce(error_code, 0) AS error_code",
                   "coalesce(handled_time, arrival_time) AS handled_time"]),
        (
            "coalesce(arrival_time, handled_time) AS arrival_time, "
            "coalesce(processed_time, handled_time) AS processed_time"
        ),
        # If the end of a long poll is unknown, assume that the fetch did not wait. A wait could be mistaken for a delay
        # by the leader.
        "coalesce(completed_time, released_time, processed_time) AS completed_time",
        "coalesce(released_time, completed_time) AS released_time",
    ]  # fmt: skip


def _back_us(table: Table) -> str:
    """Return SQL for the longest time, in microseconds, by which an instant of a fetch precedes the one before it."""
    if table is not FETCH_LOG:
        return "0"
    return f"greatest({', '.join(f'{earlier} - {later}' for earlier, later in pairwise(INSTANTS))})"


def _instants_in_order(table: Table) -> dict[str, str]:
    """Return {instant of a fetch: SQL that raises it to the instants before it}, in case rounding has swapped them."""
    if table is not FETCH_LOG:
        return {}
    return {name: f"greatest({', '.join(INSTANTS[: i + 1])})" for i, name in enumerate(INSTANTS) if i}


def _problems(
    table: Table, columns: MappedColumns, values: Mapping[str, ColumnValue], types: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return the checks to run on each row, in order.

    Returns
    -------
    list of (str, str, str)
        For each check: SQL condition that is true if the row is refused, reason to report, and SQL expression of
        the value to show with the reason.
    """

    def named(name: str, value: str = "") -> str:
        """Return a SQL expression for the text ``NAME = VALUE``, to show with the reason."""
        return f"{quoted(name + ' = ')} || CAST({value or name} AS VARCHAR)"

    required = {name for name, field in type(columns).model_fields.items() if field.is_required()}
    # If leader epochs are mapped, every row must contain one: a missing epoch would have to be guessed.
    required |= {"cluster_id", "handled_time"} & types.keys() | {"leader_epoch"} & values.keys()
    refused = "error_code = 0 AND " if table is APPEND_LOG else ""
    problems = [
        ("_corrupt IS NOT NULL", "row cannot be read", "NULL"),
        ("_unreadable IS NOT NULL", "value cannot be read", "_unreadable"),
        *(
            (f"{refused if name == 'log_end_offset' else ''}{name} IS NULL", "required value missing", quoted(name))
            for name in types if name in required
        ),
        ("topic = ''", "required value missing", "'topic'"),
        ("cluster_id = ''", "required value missing", "'cluster_id'"),
    ]  # fmt: skip
    if table is FETCH_LOG:
        # An instant that is truncated to seconds may precede the instant before it by up to a second.
        coarse = any(getattr(values.get(name), "value", "").endswith("* 1000000)") for name in INSTANTS)
        problems += [
            ("replica_id = leader_id", "replica is the leader", "NULL"),
            (f"_back_us > {1_000_000 if coarse else 1_000}", "instants out of order", named("us", "_back_us")),
        ]
    if table is OBSERVED_ISR_CHANGES:
        same = "list_sort(isr_before) = list_sort(isr_after)"
        problems.append((same, "nothing changes", named("isr_after")))
    problems += [(f"{name} < 0", "negative value", named(name)) for name in _NOT_NEGATIVE if name in values]
    problems += [
        (f"{name} NOT BETWEEN {FIRST_US} AND {LAST_US}", "time out of range",
         named(name, f"coalesce(CAST(TRY(make_timestamp({name})) AS VARCHAR), CAST({name} AS VARCHAR) || ' us')"))
        for name, kind in types.items() if kind == "TIMESTAMP" and name in values
    ]  # fmt: skip
    contract = {
        condition for condition in table.constraints.values()
        if {word for word in _WORD.findall(condition) if word in table.column_names} <= types.keys()
        and "_time" not in condition
    }  # fmt: skip
    return problems + [
        (f"NOT ({condition})", "breaks the contract", quoted(f"not {condition}"))
        for condition in table.constraints.values() if condition in contract
    ]  # fmt: skip

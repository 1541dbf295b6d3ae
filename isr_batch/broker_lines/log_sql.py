"""Parse lines of interest into typed tables with SQL, and define the SQL macros that several queries use."""

import os
from functools import lru_cache

import pyarrow as pa

from isr_batch.broker_lines.forms import OLD_WORDS, WRITER, Form
from isr_batch.lake.arrow_sql import ArrowSql, quoted

SOURCE = "broker_id, source_file, source_line, stamp_us"

BUCKET_US = 50_000
"""Length, in microseconds, of the intervals by which a broker's activity is summarised."""

RAW_CHARACTERS = 500
"""Maximum number of characters of a refused line that quarantine keeps."""


def _in_new_words(line: str) -> str:
    """Return SQL that rewrites partitions and brokers in a line from before 1.0 in the form of later releases."""
    for old, new in OLD_WORDS:
        line = f"regexp_replace({line}, {quoted(old)}, {quoted(new)}, 'g')"
    return line


_MACROS = (
    # The line, with partitions and brokers in the form since 1.0.
    rf"""in_new_words(line) AS
    CASE WHEN contains(line, ',') AND regexp_matches(line, 'artition \[[^\],]+,\d+\]')
    THEN {_in_new_words("line")}
    ELSE line END""",
    r"""int_list(line) AS
    CAST(list_filter(string_split_regex(coalesce(line, ''), '[,\s]+'), lambda number: number != '') AS INTEGER[])""",
    # The id of the broker that wrote a line, if the line names it.
    rf"""writer_of(line) AS
    CAST(nullif(regexp_extract(regexp_extract(line, {quoted(WRITER)}), '(\d+)\D*$', 1), '') AS INTEGER)""",
    "once_each(entries) AS list_filter(entries, lambda entry, i: list_position(entries, entry) = i)",
    "list_union(a, b) AS once_each(list_concat(a, b))",
    "list_without(a, b) AS once_each(list_filter(a, lambda entry: NOT list_contains(b, entry)))",
    "positive_modulo(a, b) AS ((a % b) + b) % b",
    # The number of a broker's process at a time: how many starts are logged until then.
    "process_of(starts_us, at_us) AS CAST(len(list_filter(starts_us, lambda s: s <= at_us)) AS INTEGER)",
    f"""process_of_bucket(starts_us, at_us) AS
    CAST(len(list_filter(starts_us, lambda s: s // {BUCKET_US} <= at_us // {BUCKET_US})) AS INTEGER)""",
    # The leader epoch at a time; -1 before the first known term of the leader.
    """epoch_at(in_force, at_us) AS
    coalesce(list_filter(in_force, lambda term: term.in_force_us <= at_us)[-1].leader_epoch, -1)""",
    # How many times the topic had been created again until a time: from the times of creation, from the leader's terms.
    """made_again_by(again_us, at_us) AS
    CAST(coalesce(len(list_filter(again_us, lambda us: us <= at_us)), 0) AS INTEGER)""",
    """made_again_at(in_force, at_us) AS
    coalesce(list_filter(in_force, lambda term: term.in_force_us <= at_us)[-1].made_again, 0)""",
)


def log_sql(*, repeated: bool = False) -> ArrowSql:
    """Open a DuckDB engine with the macros that the queries of an ingest use.

    It has one thread. With two, an ingest takes a seventh more CPU time and is hardly faster, because most queries are
    short.

    Parameters
    ----------
    repeated : bool
        If true, all callers in this process share one engine, which keeps the plans of its queries.
    """
    return _log_sql_planned_once(os.getpid()) if repeated else ArrowSql(_MACROS, threads=1)


@lru_cache(maxsize=1)
def _log_sql_planned_once(_process: int) -> ArrowSql:
    """Open the engine that all callers in this process share."""
    return ArrowSql(_MACROS, threads=1, repeated=True)


def rows_of(sql: ArrowSql, lines: pa.Table, *forms: Form) -> pa.Table:
    """Parse the lines that have one of the given forms, into the columns `SOURCE` and those of the forms.

    Parameters
    ----------
    sql : ArrowSql
    lines : pa.Table
        broker_id, source_file, source_line, stamp_us, message.
    *forms : Form
        Lines of other forms are skipped.
    """
    read = []
    for form in forms:
        for number, wording in enumerate(form.wordings):
            first = "".join(f" AND NOT {matches('said', earlier.pattern)}" for earlier in form.wordings[:number])
            read.append(
                f"""
                SELECT {SOURCE}, {columns_of("g", wording.columns)} FROM (
                    SELECT {SOURCE}, {groups("said", wording.pattern, wording.columns)} AS g FROM (
                        SELECT {SOURCE}, in_new_words(message) AS said FROM lines
                        WHERE {matches("message", wording.mark)})
                    WHERE {matches("said", wording.pattern)}{first})
                """
            )
    return sql(" UNION ALL BY NAME ".join(read), lines=lines)


def matches(line: str, pattern: str) -> str:
    """Return the SQL condition that a line matches a pattern."""
    return f"coalesce(regexp_matches({line}, {quoted(pattern)}), false)"


def groups(line: str, pattern: str, names_and_types: str) -> str:
    """Return SQL for the groups of a pattern in a line, as a struct. `columns_of` turns it into columns."""
    names = ", ".join(quoted(name) for name, _ in _form_columns(names_and_types))
    return f"regexp_extract({line}, {quoted(pattern)}, [{names}])"


def columns_of(struct: str, names_and_types: str) -> str:
    """Return SQL that turns a struct from `groups` into columns. ``names_and_types`` is like ``name TYPE, name TYPE``.

    An empty group becomes null. For type ``INTEGER[]``, the value is the list of numbers in the group. For ``BOOLEAN``,
    it is whether the group is not empty.
    """
    return ", ".join(
        f"{_form_value(f'{struct}.{name}', type_)} AS {name}" for name, type_ in _form_columns(names_and_types)
    )


def _form_value(group: str, type_: str) -> str:
    """Return SQL that converts a group to the type of its column."""
    if type_ == "INTEGER[]":
        return f"int_list({group})"
    return f"{group} != ''" if type_ == "BOOLEAN" else f"CAST(nullif({group}, '') AS {type_})"


def _form_columns(names_and_types: str) -> list[tuple[str, str]]:
    """Split ``name TYPE, name TYPE`` into pairs."""
    return [(name, type_) for name, _, type_ in (column.partition(" ") for column in names_and_types.split(", "))]

"""Parse log lines into tables with typed columns, using SQL, and define SQL macros that several queries share."""

import os
from functools import lru_cache

import pyarrow as pa

from isr_batch.broker_lines.forms import OLD_WORDS, WRITER, Form
from isr_batch.lake.arrow_sql import ArrowSql, quoted

SOURCE = "broker_id, source_file, source_line, stamp_us"

BUCKET_US = 50_000
"""Length, in microseconds, of the time buckets into which a broker's requests are counted."""

RAW_CHARACTERS = 500
"""Maximum number of characters of a refused line that quarantine keeps."""


def _in_new_words(line: str) -> str:
    """Return SQL that rewrites partitions and brokers in a line from the form before 1.0 to the form since 1.0."""
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
    # The id of the broker that wrote a line; null if the line does not name it.
    rf"""writer_of(line) AS
    CAST(nullif(regexp_extract(regexp_extract(line, {quoted(WRITER)}), '(\d+)\D*$', 1), '') AS INTEGER)""",
    "once_each(entries) AS list_filter(entries, lambda entry, i: list_position(entries, entry) = i)",
    "list_union(a, b) AS once_each(list_concat(a, b))",
    "list_without(a, b) AS once_each(list_filter(a, lambda entry: NOT list_contains(b, entry)))",
    "positive_modulo(a, b) AS ((a % b) + b) % b",
    # The number of the broker process that ran at a time: how often the broker had started up to then.
    "process_of(starts_us, at_us) AS CAST(len(list_filter(starts_us, lambda s: s <= at_us)) AS INTEGER)",
    f"""process_of_bucket(starts_us, at_us) AS
    CAST(len(list_filter(starts_us, lambda s: s // {BUCKET_US} <= at_us // {BUCKET_US})) AS INTEGER)""",
    # The leader epoch in force at a time; -1 before the leader's first known term.
    """epoch_at(in_force, at_us) AS
    coalesce(list_filter(in_force, lambda term: term.in_force_us <= at_us)[-1].leader_epoch, -1)""",
    # How often a topic had been created again up to a time. The first macro derives this from the times of creation,
    # the second from the leader's terms.
    """made_again_by(again_us, at_us) AS
    CAST(coalesce(len(list_filter(again_us, lambda us: us <= at_us)), 0) AS INTEGER)""",
    """made_again_at(in_force, at_us) AS
    coalesce(list_filter(in_force, lambda term: term.in_force_us <= at_us)[-1].made_again, 0)""",
)


def log_sql(*, repeated: bool = False) -> ArrowSql:
    """Return a DuckDB engine that has the macros for the queries of an ingest.

    The engine uses one thread. Most queries are so short that a second thread hardly speeds up an ingest, but adds a
    seventh to its CPU time.

    Parameters
    ----------
    repeated : bool
        If true, return an engine that all such calls in this process share, and that caches the plans of its queries.
        If false, open a new engine.
    """
    return _log_sql_planned_once(os.getpid()) if repeated else ArrowSql(_MACROS, threads=1)


@lru_cache(maxsize=1)
def _log_sql_planned_once(_process: int) -> ArrowSql:
    return ArrowSql(_MACROS, threads=1, repeated=True)


def rows_of(sql: ArrowSql, lines: pa.Table, *forms: Form) -> pa.Table:
    """Parse the lines that match one of the given forms, and return their fields as columns.

    The columns are those of the forms, and broker_id, source_file, source_line and stamp_us of the line.

    Parameters
    ----------
    sql : ArrowSql
    lines : pa.Table
        broker_id, source_file, source_line, stamp_us, message.
    *forms : Form
        Forms to look for. Lines that match none of them are skipped.
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
    """Return a SQL condition: whether the SQL expression ``line`` matches a regular expression.

    The condition is false if the line is null.
    """
    return f"coalesce(regexp_matches({line}, {quoted(pattern)}), false)"


def groups(line: str, pattern: str, names_and_types: str) -> str:
    """Return SQL that matches ``line`` with a pattern and yields its groups as a struct of texts.

    ``names_and_types`` contains the names of the groups, as for `columns_of`.
    """
    names = ", ".join(quoted(name) for name, _ in _form_columns(names_and_types))
    return f"regexp_extract({line}, {quoted(pattern)}, [{names}])"


def columns_of(struct: str, names_and_types: str) -> str:
    """Return SQL that converts a struct from `groups` to typed columns. ``names_and_types`` is like ``a TYPE, b TYPE``.

    An empty group becomes null. For type ``INTEGER[]``, the group is parsed as a list of numbers. For ``BOOLEAN``, the
    value is true if the group is not empty, otherwise false.
    """
    return ", ".join(
        f"{_form_value(f'{struct}.{name}', type_)} AS {name}" for name, type_ in _form_columns(names_and_types)
    )


def _form_value(group: str, type_: str) -> str:
    """Return SQL that converts the text of a group to a type, as `columns_of` describes."""
    if type_ == "INTEGER[]":
        return f"int_list({group})"
    return f"{group} != ''" if type_ == "BOOLEAN" else f"CAST(nullif({group}, '') AS {type_})"


def _form_columns(names_and_types: str) -> list[tuple[str, str]]:
    """Split the text ``name TYPE, name TYPE`` into pairs (name, type)."""
    return [(name, type_) for name, _, type_ in (column.partition(" ") for column in names_and_types.split(", "))]

"""Run users' SQL: plain queries on small tables in this process, in a second or two, all others in Spark.

Users are promised Spark's SQL, unless they ask for DuckDB's (``--engine local``). A query is plain if it has only
words, functions and operators that mean the same in DuckDB. For everything else the two may differ, and Spark runs the
query.
"""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, Final

import duckdb
import pyarrow as pa

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import contract_of
from isr_batch.lake.duckdb_sql import answered_by_duckdb
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS

_TOKEN: Final = re.compile(r"'[^'\\]*'(?!')|-?\d+(?![\w.])|[A-Za-z_]\w*|[<>]=|<>|!=|[=<>(),*]")
_KEYWORD: Final = re.compile(
    "(?i)SELECT|DISTINCT|FROM|WHERE|AND|OR|NOT|IN|IS|NULL|LIKE|BETWEEN|GROUP|BY|ALL|ORDER|ASC|DESC|LIMIT|AS|HAVING"
    "|CASE|WHEN|THEN|ELSE|END|TRUE|FALSE"
)
_FUNCTIONS: Final = {"count", "count_if", "sum", "min", "max", "avg", "abs", "size", "lag_time_ms", "out_of_isr_ms"}
_UNNAMED: Final = re.compile(r'(count|sum|min|max|avg)\(((?:DISTINCT )?)"?(\w+)"?\)')
_PLAIN_VIEWS: Final = {
    "spurious_shrinks", "spurious_by_rule_and_day", "spurious_by_leader", "worst_partitions", "elections_by_day",
}  # fmt: skip
Answer = tuple[list[dict[str, Any]], list[str]]


def answer(lake: Lake, text: str, *, unrestricted: bool = False) -> Answer:
    """Run a SQL query on tables and views by bare name, and collect the whole result in this process.

    Parameters
    ----------
    lake : Lake
    text : str
        A query; it changes nothing.
    unrestricted : bool
        Whether Spark may run any statement.

    Returns
    -------
    rows, columns
        Rows as dictionaries, and the names of the columns in their order.

    Raises
    ------
    UsageError
        When a table does not exist, Spark cannot parse the query, or it is not a query.
    """
    if re.search("[\ud800-\udfff]", text):
        raise UsageError("the query has a byte that is not text", "write it in UTF-8")
    if unrestricted:
        return _run_by_spark(lake, text)
    if lake.engine.wanted == "local":
        return answered_by_duckdb(lake, text)
    if lake.engine.wanted == "spark":
        return _answered_by_spark(lake, text)
    tokens = tokens_of(text)
    if tokens is None or lake.catalog or lake.reached("run_log") is None:
        return _answered_by_spark(lake, text)
    asked = {name for before, name in pairwise(tokens) if before.upper() == "FROM" and name != "("}
    names = lake.names()
    columns = {column for name in (*TABLES, *VIEWS) for column in contract_of(name).column_names}
    missing = asked - {*names, *columns}  # as in IS DISTINCT FROM
    if missing and is_plain(tokens, columns | asked):
        raise UsageError(f"the lake has no {', '.join(sorted(missing))}", f"it has {', '.join(names) or 'no table'}")
    return _answered_here(lake, text, tokens, asked) or _answered_by_spark(lake, text)


def _answered_by_spark(lake: Lake, text: str) -> Answer:
    if lake.engine.wanted == "auto":
        lake.engine.say("engine spark: Spark and DuckDB may differ on this query; --engine local has DuckDB answer it")
    from isr_batch.lake.read_only_sql import require_query

    require_query(lake.spark, text, lake.names())
    return _run_by_spark(lake, text)


def _run_by_spark(lake: Lake, text: str) -> Answer:
    from isr_batch.lake.read_only_sql import errors_of_query

    with errors_of_query():
        return lake.query(text)


def tokens_of(text: str) -> list[str] | None:
    """Split a query into words, literals and operators; None if it contains anything else."""
    tokens = _TOKEN.findall(text)
    names_a_table = re.compile(r"(?i)'.*\b(FROM|JOIN)\b")
    if _TOKEN.sub("", text).strip() or "--" in text or any(map(names_a_table.match, tokens)):
        return None
    return tokens


def is_plain(tokens: Sequence[str], known: Collection[str]) -> bool:
    """Whether a query means the same in Spark and in DuckDB.

    Parameters
    ----------
    tokens : sequence of str
        Of `tokens_of`.
    known : collection of str
        The tables that it names, and their columns.
    """
    aliases = _aliases(tokens)
    return aliases.isdisjoint(known) and all(
        token in known
        or token in aliases
        or _KEYWORD.fullmatch(token)
        or (token.lower() in _FUNCTIONS and following == "(")
        for token, following in pairwise([*tokens, ""])
        if token.isidentifier()
    )


def _aliases(tokens: Sequence[str]) -> set[str]:
    return {name for before, name in pairwise(tokens) if before.upper() == "AS"}


def _answered_here(lake: Lake, text: str, tokens: Sequence[str], asked: set[str]) -> Answer | None:
    """Run a plain query on tables that this process can read; None if Spark has to."""
    views = {name: sql_texts()[name] for name in asked & _PLAIN_VIEWS}
    tables = asked - {*views}
    if not tables <= TABLES.keys() | VIEWS.keys():
        return None
    known = {*asked, *(column for name in tables for column in contract_of(name).column_names)}
    with LakeSql(lake) as sql:
        try:
            for name, of_view in views.items():
                heading = sql.arrow(f"SELECT * FROM ({of_view}) LIMIT 0")
                if heading is None:
                    return None
                known.update(heading.column_names)
                text = re.sub(rf"(?i)\bFROM\s+{name}\b", lambda _, of=of_view: f"FROM ({of})", text)  # type: ignore[misc]
            rows = sql.arrow(text) if is_plain(tokens, known) else None
        except (duckdb.Error, pa.ArrowInvalid):  # Spark reports the error
            return None
    if rows is None:
        return None
    names = [_as_spark_names(name) for name in rows.column_names]
    # Spark has other names for most of what is not given one.
    given = known | _aliases(tokens)
    if len({*names}) < len(names) or not all(name in given or _UNNAMED.fullmatch(name) for name in names):
        return None
    return _listed(rows.rename_columns(names))


def _as_spark_names(name: str) -> str:
    """Name an aggregate that the query does not name."""
    found = _UNNAMED.fullmatch(name)
    return "count(1)" if name == "count_star()" else f"{found[1]}({found[2]}{found[3]})" if found else name


def _listed(rows: pa.Table) -> Answer | None:
    if any("struct" in str(field.type) and not pa.types.is_map(field.type) for field in rows.schema):
        return None  # which Spark shows otherwise
    listed = rows.to_pylist()
    for field in rows.schema:
        if pa.types.is_map(field.type):
            for row in listed:
                row[field.name] = None if row[field.name] is None else dict(row[field.name])
    return listed, rows.column_names

"""Run users' SQL, which uses the short names of a lake's tables and views, in DuckDB or in Spark."""

import re
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import contract_of, open_columns, read_columns
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView, quoted
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import views_for_duckdb
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.phrases import did_you_mean

_OWN: Final = "rows_of_"
_MISSING: Final = re.compile(r"Table with name (\S+) does not exist")
_NEAREST: Final = re.compile(r'\n(?:Candidate bindings:|Did you mean) "([^"]+)"')
"""Matches the most similar name of a column or function, which DuckDB suggests below the first line of an error."""
_QUERY: Final = re.compile(
    r"(?is)(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*"
    r"(SELECT|FROM|WITH|VALUES|TABLE|DESCRIBE|EXPLAIN|SHOW|SUMMARIZE|PIVOT|UNPIVOT)\b"
)
_QUERY_NODES: Final = {"CTE", "RECURSIVE_CTE", "SELECT", "SET_OPERATION"}
"""Kinds of nodes that a user's parsed query may contain. Other kinds are refused, because even a common table
expression may delete rows or write a file."""
_CHANGES: Final = {"COPY", "CREATE", "DELETE", "INSERT", "MERGE", "UPDATE"}
_NO_QUERY: Final = "`isr-batch sql` only asks, such as SELECT * FROM spurious_shrinks"
Answer = tuple[list[dict[str, Any]], list[str]]


def answer(lake: Lake, text: str, *, unrestricted: bool = False) -> Answer:
    """Run a user's query, and collect the whole result in this process.

    Parameters
    ----------
    lake : Lake
    text : str
        A query in the SQL dialect of the engine that runs it. This is DuckDB, unless the user asked for Spark or only
        Spark can read the tables.
    unrestricted : bool
        Whether to let Spark run any statement, and not only queries.

    Returns
    -------
    rows, columns
        The rows as a list of dictionaries, and the list of column names in order.

    Raises
    ------
    UsageError
        If a table does not exist, if the engine cannot parse or run the text, or if the text is not a query.
    """
    if re.search("[\ud800-\udfff]", text):
        raise UsageError("the query is not UTF-8 text", "write it in UTF-8")
    if not unrestricted and not _is_query_for_spark(lake):
        return _answered_by_duckdb(lake, text)
    from isr_batch.lake.read_only_sql import errors_of_read_only_query, require_query

    if not unrestricted:
        require_query(lake.spark, text, lake.names())
    with errors_of_read_only_query():
        return lake.query(text)


def _is_query_for_spark(lake: Lake) -> bool:
    """Return whether Spark has to run queries on a lake, and report the choice of engine."""
    if lake.engine.wanted == "auto" and (lake.catalog or lake.reached("run_log") is None):
        lake.engine.say("engine spark: only Spark can read tables at this location; --engine local tries DuckDB")
        return True
    spark = lake.engine.wanted == "spark"
    lake.engine.say(
        f"engine spark: {lake.engine.why}" if spark else "engine local: DuckDB's SQL; --engine spark takes Spark's"
    )
    return spark


def _answered_by_duckdb(lake: Lake, text: str) -> Answer:
    """Run a query in DuckDB, where times have the type TIMESTAMP and are in UTC. Return its rows and column names."""
    query = _QUERY.match(text)
    if query is None:
        raise UsageError("this is not a query", _NO_QUERY)
    names = lake.names()
    asked = set(names) if query[1].upper() == "SHOW" else _asked(text, names)
    try:
        with ArrowSql() as sql:
            _require_query(sql, text)
            found = sql(text, **{name: _view_for_user_sql(lake, name) for name in names if name in asked})
    except duckdb.Error as error:
        missing = _MISSING.search(str(error))
        if missing:
            raise UsageError(f"no table {missing[1]}", did_you_mean(missing[1], names)) from error
        close = _NEAREST.search(str(error))
        meant = f"did you mean {close[1]}? " if close else ""
        hint = f"{meant}docs/tables.md describes the tables; --engine spark accepts Spark's SQL"
        raise UsageError(f"DuckDB: {str(error).strip().partition(chr(10))[0]}", hint) from error
    rows = found.to_pylist(maps_as_pydicts="strict")
    # DuckDB returns a sum of integers as a decimal. It is converted back to an integer.
    for name in (field.name for field in found.schema if pa.types.is_decimal(field.type) and not field.type.scale):
        for row in rows:
            row[name] = None if row[name] is None else int(row[name])
    return rows, found.column_names


def _require_query(sql: ArrowSql, text: str) -> None:
    """Raise a UsageError unless a text is exactly one statement, and this statement is a query or explains one."""
    statements = duckdb.extract_statements(text)
    if len(statements) != 1:
        raise UsageError("several statements", "ask one query per call")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        _require_query(sql, _explained(text))
        return
    if kind == duckdb.StatementType.SELECT:
        plan = sql(f"SELECT json_serialize_sql({quoted(text)}) AS plan")["plan"][0].as_py()
        # The plan is JSON. Quotation marks in its strings are escaped, so no string can look like a node.
        nodes = set(re.findall(r'[{,]"type":"(\w+)_NODE"', plan))
        others = nodes - _QUERY_NODES or ([] if nodes else ["no plan"])
    elif kind == duckdb.StatementType.MULTI:  # a PIVOT that has to query its columns first has no such plan
        others = {word.upper() for _, word in _words_of_user_sql(text)} & _CHANGES
    else:
        others = [kind.name]
    if others:
        what = min(others).removesuffix("_QUERY").lower()
        raise UsageError(f"this is not a query on the lake's tables: {what}", _NO_QUERY)


def _explained(text: str) -> str:
    """Return the statement after EXPLAIN, EXPLAIN ANALYZE or EXPLAIN (options)."""
    _, *rest = _words_of_user_sql(text)
    begins = [at for at, _ in rest[rest[0][1].upper() == "ANALYZE" :]]
    statement = text.encode()[begins[0] :].decode()
    try:
        duckdb.extract_statements(statement)
    except duckdb.Error:
        closed = next(n for n, (_, word) in enumerate(rest) if word == ")")
        return text.encode()[rest[closed + 1][0] :].decode()
    return statement


def _words_of_user_sql(text: str) -> list[tuple[int, str]]:
    """Return the tokens of a statement without comments, each as (position of the token's first byte, token)."""
    data, found = text.encode(), duckdb.tokenize(text)
    ends = [*(at for at, _ in found[1:]), len(data)]
    return [
        (at, data[at:end].decode().strip())
        for (at, kind), end in zip(found, ends, strict=True) if kind != duckdb.token_type.comment
    ]  # fmt: skip


def _asked(text: str, names: list[str]) -> set[str]:
    """Return which of ``names`` occur in a query, and also those that the views among them use in turn."""
    views, asked, rest = views_for_duckdb(), set[str](), {*re.findall(r"\w+", text)} & {*names}
    while rest:
        asked |= rest
        rest = {word for name in rest if name in views for word in re.findall(r"\w+", views[name])} & {*names} - asked
    return asked


def _view_for_user_sql(lake: Lake, name: str) -> ArrowView:
    """Return a view for DuckDB over a table or view of a lake. Timestamps of a table lose their zone (UTC)."""
    if name not in TABLES:
        return ArrowView(views_for_duckdb()[name], {}, pa.schema([]))
    columns = contract_of(name).column_names
    opened: pa.Table | ds.Dataset | None = open_columns(lake, name, columns)
    rows = read_columns(lake, name, columns) if opened is None else opened
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    plain = ", ".join(f"make_timestamp(epoch_us({time})) AS {time}" for time in times)
    text = f"SELECT *{f' REPLACE ({plain})' if plain else ''} FROM {_OWN}{name}"
    return ArrowView(text, {f"{_OWN}{name}": rows}, rows.schema)

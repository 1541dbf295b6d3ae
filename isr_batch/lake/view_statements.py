"""Generate SQL statements after which other sessions can query a lake's tables and views by their short names."""

import re
from typing import Literal

import duckdb

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.arrow_sql import SPARK_FUNCTIONS, quoted
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import comment_of, sql_texts, views_for_duckdb
from isr_batch.lake.tables.outputs import TABLES


def view_statements(lake: Lake, dialect: Literal["spark", "duckdb"]) -> list[str]:
    """Return the statements that register a lake's tables and views in another session.

    Parameters
    ----------
    lake : Lake
    dialect : 'spark' or 'duckdb'
        With Spark, each later query reads the newest version of the tables. If the lake is in a catalog, the statements
        create views in its schema; otherwise, temporary views. With DuckDB, queries read the data files that the tables
        consist of when this function is called; no extension is needed.

    Returns
    -------
    list of str
        Statements without semicolons, in the order in which they have to run.

    Raises
    ------
    UsageError
        If DuckDB cannot read the files of a table.
    """
    if dialect == "duckdb":
        return _statements_for_duckdb(lake)
    return _for_a_catalog(lake) if lake.catalog else _statements_for_spark(lake)


def create_catalog_views(lake: Lake) -> None:
    """Create or replace the views of a lake in the schema of its catalog."""
    for statement in _for_a_catalog(lake):
        lake.spark.sql(statement)


def _statements_for_spark(lake: Lake) -> list[str]:
    """Return the statements that create temporary views and functions in a Spark session."""
    views = sql_texts()
    texts = {name: f"SELECT * FROM {lake.identifier(name)}" if name in TABLES else views[name] for name in lake.names()}
    created = [f"CREATE OR REPLACE TEMPORARY VIEW {name} AS\n{text.strip()}" for name, text in texts.items()]
    return [*created, *(text.strip() for text in sql_texts("functions").values())]


def _for_a_catalog(lake: Lake) -> list[str]:
    """Return the statements that create views in a catalog. Views use full names, so any schema may be current."""
    views, statements = sql_texts(), []
    names = lake.names()
    for name in names:
        if name in TABLES:
            continue
        text = re.sub(
            rf"\b(FROM|JOIN)\s+({'|'.join(names)})\b(\s+AS\s+\w+)?",
            lambda at: f"{at[1]} {lake.identifier(at[2])}{at[3] or f' AS {at[2]}'}",
            views[name],
        )
        comment = sql_literal(comment_of(text))
        statements.append(f"CREATE OR REPLACE VIEW {lake.identifier(name)} COMMENT {comment} AS\n{text.strip()}")
    return statements


def _statements_for_duckdb(lake: Lake) -> list[str]:
    """Return the statements for DuckDB, including macros for Spark functions that DuckDB lacks."""
    views = views_for_duckdb()
    texts = {name: _query_on_files(lake, name) if name in TABLES else views[name] for name in lake.names()}
    return [
        "SET default_null_order = 'nulls_first_on_asc_last_on_desc'",
        *(f"CREATE OR REPLACE MACRO {text}" for text in SPARK_FUNCTIONS),
        *(f"CREATE OR REPLACE VIEW {name} AS\n{text.strip()}" for name, text in texts.items()),
    ]


def _query_on_files(lake: Lake, name: str) -> str:
    """Return a DuckDB query that reads the data files of a table, with timestamps in UTC and without a zone."""
    table = TABLES[name]
    log = lake.log(name)
    if log is None or not lake.is_plain(name):
        raise UsageError(
            f"DuckDB cannot read the files of {name} directly", "--format spark; or `isr-batch sql --engine local`"
        )
    schema = contract_schema(name, table.column_names)
    empty = duckdb.connect().register("rows", schema.empty_table()).table("rows")
    types = dict(zip(empty.columns, map(str, empty.types), strict=True))
    columns = ", ".join(
        f'make_timestamp(epoch_us("{column}")) AS "{column}"'
        if types[column].startswith("TIMESTAMP")
        else f'"{column}"'
        for column in table.column_names
    )
    nothing = ", ".join(f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in types.items())
    files = ",\n  ".join(map(quoted, sorted(log.file_uris())))
    if not files:
        return f"SELECT {columns} FROM (SELECT {nothing}) WHERE false"
    by = ", ".join(f"{column}: {types[column]}" for column in table.partitioned_by)
    hive = f"hive_partitioning = true, hive_types = {{{by}}}" if by else "hive_partitioning = false"
    # Files of an earlier release may lack a column.
    return (
        f"SELECT {columns} FROM (\n  SELECT * FROM read_parquet([\n  {files}\n  ], union_by_name = true, {hive})\n"
        f"  UNION ALL BY NAME SELECT {nothing} WHERE false\n)"
    )

"""Check each row of a mapped table: fill in missing values, and give a reason for each bad row."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.ingest.own_table.columns import CORRUPT, ColumnValue
from isr_batch.ingest.own_table.mapping import INSTANTS, AppendColumns, EpochColumns, FetchColumns
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG

RAW_CHARACTERS: Final = 500
UNKNOWN_CLUSTER: Final = "unknown"
"""Cluster name in quarantine if the real one could not be read."""
FIRST_TIME, LAST_TIME = "2010-01-01", "2100-01-01"
"""There was no Kafka before 2010; a time after 2100 means that the unit is wrong."""

_NOT_NEGATIVE: Final = ("partition_id", "leader_id", "fetch_offset", "base_offset", "log_end_offset", "start_offset")
_UNKNOWN_BELOW_0: Final = ("leader_log_end_offset", "high_watermark")


@dataclass(frozen=True)
class TableToCheck:
    """A mapped input table: the lake table it becomes, its name, rows, column mapping and converted values."""

    table: Table
    name: str
    rows: DataFrame
    columns: FetchColumns | AppendColumns | EpochColumns
    values: Mapping[str, ColumnValue]


def check_rows(source: TableToCheck, leo_source: str) -> DataFrame:
    """Convert every row to the columns of the lake table, with the reason if the row is bad.

    Parameters
    ----------
    source : TableToCheck
        The input table.
    leo_source : str
        Source of the leader's log end offset for fetches without that value.

    Returns
    -------
    DataFrame
        As many rows as before: the columns of the table, null where missing; ``problem`` (reason and detail), null
        for a clean row; ``raw``, null for a clean row.
    """
    table, values = source.table, source.values
    # A map cannot be compared; rows that differ in nothing else are rare enough.
    comparable = [
        f.name for f in source.rows.schema if not {"map", "variant"} & set(f.dataType.simpleString().split("<"))
    ]
    same = Over.partitionBy(*(source.rows[f"`{name}`"] for name in comparable)).orderBy(F.lit(1))
    types = {column.name: column.type for column in table.columns}
    read = {
        name: values[name].value.try_cast(kind) if name in values else F.lit(None).cast(kind)
        for name, kind in types.items()
    }
    rows = source.rows.select(
        *(column.alias(name) for name, column in read.items()),
        *(value.source.alias(f"_{name}") for name, value in values.items()),
        F.row_number().over(same).alias("_copy"),
        F.struct("*").alias("_row"),
    )
    # Computed before defaults are filled in, from values that exist already.
    unreadable = [
        F.when(F.col(f"_{name}").isNotNull() & F.col(name).isNull(), _named(value.source_name, F.col(f"_{name}")))
        for name, value in values.items()
    ]
    rows = rows.withColumn("_unreadable", F.coalesce(*unreadable))
    corrupt = F.col(f"_row.{CORRUPT}") if CORRUPT in source.rows.columns else F.lit(None).cast("string")
    problem = [
        _when(corrupt.isNotNull(), "row cannot be read"),
        _when(F.col("_copy") > 1, "row given twice"),
        _when(F.col("_unreadable").isNotNull(), "value cannot be read", F.col("_unreadable")),
        *_missing(source),
        *(_fetch_problems(source.columns) if isinstance(source.columns, FetchColumns) else []),
        *(
            _when(F.col(name) < 0, "negative value", _named(name, F.col(name)))
            for name in _NOT_NEGATIVE if name in values
        ),
        *(
            _when(~F.col(name).between(FIRST_TIME, LAST_TIME), "time out of range", _named(name, F.col(name)))
            for name, kind in types.items() if kind == "TIMESTAMP"
        ),
        *(
            _when(~F.expr(condition), "breaks the contract", F.lit(f"not {condition}"))
            for condition in table.constraints.values()
        ),
    ]  # fmt: skip
    raw = F.coalesce(corrupt, F.to_json("_row"))
    return (
        reduce(lambda frame, columns: frame.withColumns(columns), _defaults(table, leo_source), rows)
        .withColumn("problem", F.coalesce(*problem))
        .withColumns(
            {
                "cluster_id": F.coalesce("cluster_id", F.lit(UNKNOWN_CLUSTER)),
                "source_file": F.lit(source.name),
                "raw": F.when(F.col("problem").isNotNull(), F.substring(raw, 1, RAW_CHARACTERS)),
            }
        )
        .select(*types, "problem", "raw", *([] if "source_file" in types else ["source_file"]))
    )


def _when(condition: Column, reason: str, detail: Column | None = None) -> Column:
    detail = F.lit(None).cast("string") if detail is None else detail
    return F.when(condition, F.struct(F.lit(reason).alias("reason"), detail.alias("detail")))


def _named(name: str, value: Column) -> Column:
    return F.concat(F.lit(f"{name} = "), value.cast("string"))


def _missing(source: TableToCheck) -> list[Column]:
    required = {name for name, field in type(source.columns).model_fields.items() if field.is_required()}
    required |= {"cluster_id", "handled_time"} & set(source.table.column_names)
    refused = F.col("error_code") != 0 if source.table is APPEND_LOG else F.lit(False)
    return [
        _when(
            F.col(name).isNull() & ~(refused if name == "log_end_offset" else F.lit(False)),
            "required value missing",
            F.lit(name),
        )
        for name in source.table.column_names
        if name in required
    ]


def _defaults(table: Table, leo_source: str) -> list[dict[str, Column]]:
    """Defaults of missing values, as steps that build on each other."""
    if table is APPEND_LOG:
        ends = F.when(F.col("log_end_offset").isNotNull(), F.coalesce("log_end_source", F.lit("appends")))
        return [{"error_code": F.coalesce("error_code", F.lit(0)), "log_end_source": ends}]
    if table is not FETCH_LOG:
        return []
    known = {name: F.when(F.col(name) >= 0, F.col(name)) for name in _UNKNOWN_BELOW_0}
    return [
        {**known, "error_code": F.coalesce("error_code", F.lit(0)), "run_length": F.lit(1)},
        {"handled_time": F.coalesce("handled_time", "arrival_time")},
        {
            "arrival_time": F.coalesce("arrival_time", "handled_time"),
            "processed_time": F.coalesce("processed_time", "handled_time"),
        },
        # A long poll is not a delay: if its end is unknown, nothing after it counts as held by the leader.
        {"completed_time": F.coalesce("completed_time", "released_time", "processed_time")},
        {
            "released_time": F.coalesce("released_time", "completed_time"),
            "leader_leo_source": F.when(F.col("leader_log_end_offset").isNotNull(), "logged").otherwise(leo_source),
        },
        {"_back_us": F.greatest(*(F.unix_micros(a) - F.unix_micros(b) for a, b in pairwise(INSTANTS)))},
        {name: F.greatest(*INSTANTS[: i + 1]) for i, name in enumerate(INSTANTS) if i},
        {"last_handled_time": F.col("handled_time")},
    ]


def _fetch_problems(columns: FetchColumns) -> list[Column]:
    # A time truncated to seconds may seem out of order with an exact one by up to a second.
    coarse = any(instant.unit == "s" for instant in (getattr(columns, name) for name in INSTANTS) if instant)
    allowed_us = 1_000_000 if coarse else 1_000
    return [
        _when(F.col("replica_id") < 0, "not a follower's fetch", _named("replica_id", F.col("replica_id"))),
        _when(F.col("replica_id") == F.col("leader_id"), "replica is the leader"),
        _when(F.col("_back_us") > allowed_us, "instants out of order", _named("us", F.col("_back_us"))),
    ]

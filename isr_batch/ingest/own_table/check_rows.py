"""Rows of a mapped table, checked one by one: what is not told is filled in, what is wrong gets a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.ingest.own_table.columns import CORRUPT, Value
from isr_batch.ingest.own_table.mapping import INSTANTS, AppendColumns, EpochColumns, FetchColumns
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG

RAW_CHARACTERS: Final = 500
UNKNOWN_CLUSTER: Final = "unknown"
"""Stands in quarantine for the name of a cluster that could not be read."""
FIRST_TIME, LAST_TIME = "2010-01-01", "2100-01-01"
"""There was no Kafka before; later, and somebody took one unit for another."""

_NOT_NEGATIVE: Final = ("partition_id", "leader_id", "fetch_offset", "base_offset", "log_end_offset", "start_offset")
_UNKNOWN_BELOW_0: Final = ("leader_log_end_offset", "high_watermark")


@dataclass(frozen=True)
class Source:
    """A table of the input on its way to one of the lake: its name, rows, what is mapped, and the values found."""

    table: Table
    name: str
    rows: DataFrame
    columns: FetchColumns | AppendColumns | EpochColumns
    values: Mapping[str, Value]


def check_rows(source: Source, leo_source: str) -> DataFrame:
    """Turn every row into one of the table, and say what is wrong with it.

    Parameters
    ----------
    source : Source
        What is read, and as what.
    leo_source : str
        Where the leader's log end offset comes from in a fetch that does not tell it.

    Returns
    -------
    DataFrame
        As many rows as before: the columns of the table, null where not told; ``problem`` (reason and detail), null
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
    # Told before defaults are filled in, from values that are there by now and need not be computed again.
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


def _missing(source: Source) -> list[Column]:
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
    """What stands for what is not told, each step on top of the one before."""
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
        # A long poll is no delay: without its end, nothing after it can be the leader's fault.
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
    # Instants of which one is cut to seconds and another is not seem out of order by that much.
    coarse = any(instant.unit == "s" for instant in (getattr(columns, name) for name in INSTANTS) if instant)
    allowed_us = 1_000_000 if coarse else 1_000
    return [
        _when(F.col("replica_id") < 0, "not a follower's fetch", _named("replica_id", F.col("replica_id"))),
        _when(F.col("replica_id") == F.col("leader_id"), "replica is the leader"),
        _when(F.col("_back_us") > allowed_us, "instants out of order", _named("us", F.col("_back_us"))),
    ]

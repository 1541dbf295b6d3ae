"""Ingest a user's own table of fetches, with optional tables of appends and leaders' terms, by a mapping."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from isr_batch.errors import NoInputError
from isr_batch.ingest.kafka_logs.leader_epochs import PARTITION
from isr_batch.ingest.own_table.check_rows import TableToCheck, check_rows
from isr_batch.ingest.own_table.columns import read_own_columns, values_of_mapped_columns
from isr_batch.ingest.own_table.leader_epochs import complete_leader_epochs
from isr_batch.ingest.own_table.mapping import (
    INSTANTS,
    AppendColumns,
    EpochColumns,
    FetchColumns,
    TableMapping,
    mapped_columns,
)
from isr_batch.ingest.replace_rows import CUT_BY, FEW_ROWS, replace_covered_rows, rows_of_cluster
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import RunCounts
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, QUARANTINE
from isr_batch.lake.tables.leaders import LEADER_EPOCHS

if TYPE_CHECKING:
    import pyarrow as pa

    from isr_batch.lake.tables.contract import Table

UNKNOWN_EPOCH: Final = -1
NO_EPOCH: Final = 0
"""Leader epoch of all rows if the input has no epochs."""


def ingest_own_table(lake: Lake, path: str, mapping: TableMapping) -> RunCounts:
    """Ingest a table of fetches.

    The rows replace those that the lake has of their cluster for the time that they cover, as for broker logs.

    Parameters
    ----------
    lake : Lake
        The lake to write to.
    path : str
        Table of fetches: Parquet, Delta or CSV; the workers must see it.
    mapping : TableMapping
        Mapping of the columns, and paths of the tables of appends and terms.

    Returns
    -------
    Counts
        Every row read is written or refused; inferred terms are written in addition.

    Raises
    ------
    NoInputError
        If there are no fetches.
    UsageError, SchemaError
        If the mapping does not fit the tables, or a column's type does not fit its target.
    """
    sources = _sources(lake, path, mapping)
    rows_in = {name: source.rows.count() for name, source in sources.items()}
    if not rows_in[FETCH_LOG.name]:
        raise NoInputError(f"{path} has no rows")
    leo_source = "appends" if mapping.appends else "inferred"
    parsed = {name: check_rows(source, leo_source).persist(StorageLevel.DISK_ONLY) for name, source in sources.items()}
    try:
        outcome = _outcome(parsed)
        counted = sum(clean + refused for tables in outcome.values() for clean, refused in tables.values())
        assert counted == sum(rows_in.values()), (outcome, rows_in)
        counts = RunCounts(counted)
        for cluster_id, tables in outcome.items():
            counts += _write(lake, cluster_id, parsed, tables, mapping)
    finally:
        for rows in parsed.values():
            rows.unpersist()
    return counts


def lacking_input(mapping: TableMapping) -> list[dict[str, str]]:
    """List what results will lack because of missing input: rows of ``missing`` and ``what_the_results_lack``."""
    columns = mapping.fetches.columns
    rows = []

    def lacks(missing: str, results: str) -> None:
        rows.append({"missing": missing, "what_the_results_lack": results})

    if mapping.appends is None:
        source = "the fetch offsets" if columns.leader_log_end_offset is None else "leader_log_end_offset"
        lacks(
            "appends",
            f"the growth of the leader's log is inferred from {source}: true lag is known only to within one fetch; "
            "acks=all latency and refused appends are unknown, and so is unacked_only unless all producers use "
            "acks=all",
        )
    if mapping.epochs is None:
        lacks(
            "epochs",
            "terms are inferred from fetches: resets at leader changes are missed, the start offset of a leader epoch "
            "is a guess, all replicas start in the ISR; replica.lag.time.max.ms is assumed to be "
            f"{mapping.replica_lag_time_max_ms}, min.insync.replicas {mapping.min_insync_replicas}",
        )
    if mapping.epochs is None or mapping.epochs.columns.check_origin_ms is None:
        lacks("check_origin_ms", "the phase of isr-expiration: a shrink may be up to half the lag time early or late")
    unknown = [name for name in INSTANTS if getattr(columns, name) is None]
    if unknown:
        lacks(", ".join(unknown), "how long the leader held a fetch: slow_leader is found too rarely")
    lacks(
        "what the brokers decided",
        "validate has nothing to compare with; changes made by the controller and silences of a leader are unknown",
    )
    return rows


def _sources(lake: Lake, path: str, mapping: TableMapping) -> dict[str, TableToCheck]:
    tables: list[tuple[Table, str, str, FetchColumns | AppendColumns | EpochColumns]] = [
        (FETCH_LOG, "fetches", path, mapping.fetches.columns)
    ]
    if mapping.appends:
        tables.append((APPEND_LOG, "appends", mapping.appends.path, mapping.appends.columns))
    if mapping.epochs:
        tables.append((LEADER_EPOCHS, "epochs", mapping.epochs.path, mapping.epochs.columns))
    rows = {label: read_own_columns(lake.spark, place, mapping) for _, label, place, _ in tables}
    given = {label: {**mapped_columns(columns), "cluster_id": mapping.cluster_id} for _, label, _, columns in tables}
    values = values_of_mapped_columns({label: (rows[label], given[label]) for label in rows})
    return {
        table.name: TableToCheck(table, place.rstrip("/").rpartition("/")[2], rows[label], columns, values[label])
        for table, label, place, columns in tables
    }


def _outcome(parsed: Mapping[str, DataFrame]) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the clean and the refused rows by cluster and table."""
    outcome: dict[str, dict[str, tuple[int, int]]] = {}
    refused = F.col("problem").isNotNull()
    for name, rows in parsed.items():
        counts = rows.groupBy("cluster_id").agg(F.count_if(~refused), F.count_if(refused))
        for cluster_id, clean, bad in counts.collect():
            outcome.setdefault(cluster_id, {})[name] = (clean, bad)
    return outcome


def _write(
    lake: Lake, cluster_id: str, parsed: Mapping[str, DataFrame], outcome: Mapping[str, tuple[int, int]],
    mapping: TableMapping,
) -> RunCounts:  # fmt: skip
    of_this = {name: rows.where(F.col("cluster_id") == cluster_id) for name, rows in parsed.items()}
    refused = [
        rows.where("problem IS NOT NULL").select("cluster_id", "source_file", "problem.*", "raw")
        for rows in of_this.values()
    ]
    quarantine = reduce(DataFrame.unionAll, refused).withColumns(
        {"source_line": F.lit(None), "rows_kept": F.lit(False), "ingest_run": F.lit(lake.run_id)}
    )
    if not any(clean for clean, _ in outcome.values()):
        # Rows that cover no time replace nothing.
        return RunCounts(rows_quarantined=lake.replace(QUARANTINE, quarantine, rows_of_cluster(cluster_id)))
    frames = _frames({name: rows.where("problem IS NULL") for name, rows in of_this.items()}, mapping)
    tables: dict[str, DataFrame | pa.Table] = {
        table.name: frames[table.name].withColumn("event_date", F.col(time).cast("date")).select(table.column_names)
        if table.name in frames
        else arrow_schema(table).empty_table()
        for table, time in CUT_BY
    }
    few_refused = sum(bad for _, bad in outcome.values()) <= FEW_ROWS
    tables[QUARANTINE.name] = quarantine.toArrow() if few_refused else quarantine
    with ArrowSql() as sql:
        written, _ = replace_covered_rows(lake, tables, cluster_id, small=SmallTables(lake, sql))
    rows_refused = written.pop(QUARANTINE.name)
    for name, counts in outcome.items():
        assert written[name] == counts[0], (cluster_id, name, written, outcome)
    assert rows_refused == sum(bad for _, bad in outcome.values()), (cluster_id, rows_refused, outcome)
    return RunCounts(rows_out=sum(written.values()), rows_quarantined=rows_refused)


def _frames(clean: Mapping[str, DataFrame], mapping: TableMapping) -> dict[str, DataFrame]:
    given = clean.get(LEADER_EPOCHS.name)
    frames = {FETCH_LOG.name: _with_epochs(clean[FETCH_LOG.name], "handled_time", given)}
    if APPEND_LOG.name in clean:
        frames[APPEND_LOG.name] = _with_epochs(clean[APPEND_LOG.name], "append_time", given)
    known = mapped_columns(mapping.epochs.columns) if mapping.epochs else {}
    frames[LEADER_EPOCHS.name] = complete_leader_epochs(
        given, known, frames[FETCH_LOG.name], frames.get(APPEND_LOG.name), mapping
    )
    return frames


def _with_epochs(rows: DataFrame, time: str, terms: DataFrame | None) -> DataFrame:
    """Look up a missing leader epoch in the terms, by time."""
    if terms is None:
        return rows.withColumn("leader_epoch", F.coalesce("leader_epoch", F.lit(NO_EPOCH)))
    term = F.struct("start_time", "leader_epoch")
    begun = terms.groupBy(*PARTITION).agg(F.array_sort(F.collect_list(term)).alias("begun"))
    before = F.filter("begun", lambda each: each.start_time <= F.col(time))
    in_force = F.coalesce(F.try_element_at(before, F.lit(-1)).leader_epoch, F.lit(UNKNOWN_EPOCH))
    return (
        rows.join(F.broadcast(begun), list(PARTITION), "left")
        .withColumn("leader_epoch", F.coalesce("leader_epoch", in_force))
        .drop("begun")
    )

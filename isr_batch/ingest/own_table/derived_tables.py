"""Derive daily sums, and the terms, silences and checks of leaders, from the rows of users' tables.

The sums of a day are derived again if the data files with its rows have changed. Therefore, if an ingest is killed
after it has added rows, the next command completes the work.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest.own_table.broker_days import FetchDay
from isr_batch.ingest.own_table.checks import checks_of_changes, silences_until_changes
from isr_batch.ingest.own_table.growth_of_logs import with_growth_of_logs
from isr_batch.ingest.own_table.leader_epochs import GAP_US, leader_epochs_of_own_table, require_known_observers
from isr_batch.ingest.own_table.mapping import INSTANTS
from isr_batch.ingest.own_table.silences import leader_silences
from isr_batch.lake.arrow_read import contract_schema, open_columns, read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.day_files import files_by_day, made_from
from isr_batch.lake.ddl import days_as_sql, sql_literal
from isr_batch.lake.duckdb_engine import InProcess, replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import BROKER_DAYS, LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import FETCH_DAYS, MAPPED_CLUSTERS

_INSTANT: Final = pa.timestamp("us", "UTC")


def derive_tables(lake: Lake) -> None:
    """Update the derived tables of all clusters from users' tables, for the days whose rows have changed."""
    clusters = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id"])["cluster_id"].to_pylist()
    if not clusters:
        return
    with ArrowSql() as sql:
        lake.ensure_all((FETCH_DAYS, BROKER_DAYS))
        now, stale = files_by_day(lake), set[date]()
        for table, make in ((FETCH_DAYS, partial(_derived_fetch_days, sql=sql)), (BROKER_DAYS, _derived_broker_days)):
            before = made_from(lake, table.name, "made_from")
            stale |= {day for day in now.keys() | before.keys() if now.get(day) != before.get(day)}
            for day in sorted(day for day in stale if now.get(day) != before.get(day)):
                # One day at a time, so that memory use does not grow with the number of days.
                rows = make(lake, clusters, day) if day in now else arrow_schema(table).empty_table()
                _replace_derived_days(
                    lake, sql, table, clusters, [day], _derived_rows(table, rows, now.get(day, ""), day)
                )
    require_known_observers(lake)
    with log_sql() as sql:
        terms, events = _terms_and_events(lake, sql, clusters, stale)
        _replace_changed_days(lake, sql, LEADER_EPOCHS, clusters, terms)
        _replace_changed_days(lake, sql, BROKER_EVENTS, clusters, events)


def derive_in_memory(lake: MemoryLake, sql: ArrowSql) -> None:
    """Derive tables as `derive_tables` does, for a lake in memory.

    Parameters
    ----------
    lake : MemoryLake
        Result of `isr_batch.ingest.own_table.in_memory.input_tables`. It may already contain the daily sums.
    sql : ArrowSql
        Engine with the functions of `isr_batch.broker_lines.log_sql`.
    """
    if not lake.has(FETCH_DAYS.name):
        put_days(lake, sql, FETCH_DAYS, BROKER_DAYS)
    clusters = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id"])["cluster_id"].to_pylist()
    days = pc.unique(read_columns(lake, FETCH_DAYS.name, ["event_date"])["event_date"]).to_pylist()
    terms, events = _terms_and_events(lake, sql, clusters, days)
    lake.put(LEADER_EPOCHS, terms)
    lake.put(BROKER_EVENTS, events)


def put_days(lake: MemoryLake, sql: ArrowSql, *tables: Table) -> None:
    """Derive daily sums from the input tables of a lake in memory, and add the sums to the lake.

    Parameters
    ----------
    lake : MemoryLake
    sql : ArrowSql
    *tables : Table
        The tables to add: fetch_days, broker_days or both.
    """
    clusters = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id"])["cluster_id"].to_pylist()
    of_rows = (read_columns(lake, table.name, ["event_date"])["event_date"] for table in (FETCH_LOG, APPEND_LOG))
    days = sorted({day for column in of_rows for day in pc.unique(column).to_pylist()})
    for table in tables:
        make = _derived_broker_days if table is BROKER_DAYS else partial(_derived_fetch_days, sql=sql)
        rows = (_derived_rows(table, make(lake, clusters, day), "", day) for day in days)
        schema = contract_schema(table.name, table.column_names)
        lake.put(table, pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in rows)]))


def _terms_and_events(
    lake: Lake, sql: ArrowSql, clusters: Sequence[str], stale: Collection[date]
) -> tuple[pa.Table, pa.Table]:
    """Return the terms of all leaders in ``clusters``, and their events: silences, and checks that dropped a replica.

    ``stale`` are the days whose rows have changed.
    """
    days = read_columns(lake, BROKER_DAYS.name, BROKER_DAYS.column_names, {"cluster_id": clusters})
    names = OBSERVED_ISR_CHANGES.column_names
    changes = read_columns(lake, OBSERVED_ISR_CHANGES.name, names, {"cluster_id": clusters})
    every = leader_epochs_of_own_table(lake, sql)
    terms, events = [every.slice(0, 0)], [contract_schema(BROKER_EVENTS.name, BROKER_EVENTS.column_names).empty_table()]
    for cluster in clusters:
        led, of_days, seen = (rows.filter(pc.equal(rows["cluster_id"], cluster)) for rows in (every, days, changes))
        spans = _in_us(led, "start", "end").select(["leader_id", "start_us", "end_us"])
        silences = leader_silences(_in_us(of_days, "first", "last"), spans)
        silences = with_growth_of_logs(lake, sql, cluster, silences, stale)
        silences = silences_until_changes(sql, silences, seen)
        checks, origins = checks_of_changes(sql, seen, silences, led)
        terms.append(_derived_check_origins(led, origins))
        for found in (silences, checks):
            times = {f"{name}_time": found[f"{name}_us"].cast(pa.int64()).cast(_INSTANT) for name in ("event", "end")}
            made = pa.table({
                "cluster_id": pa.repeat(cluster, found.num_rows), "broker_id": found["broker_id"],
                "kind": found["kind"], "event_date": times["event_time"].cast(pa.date32()), **times,
            })  # fmt: skip
            events.append(made.select(events[0].column_names).cast(events[0].schema))
    return pa.concat_tables(terms), pa.concat_tables(events)


def _derived_check_origins(terms: pa.Table, origins: Mapping[int, int]) -> pa.Table:
    """Fill in check_origin_ms, an instant at which isr-expiration ran, in terms for which it is unknown.

    Parameters
    ----------
    terms : pa.Table
        Rows of ``leader_epochs``.
    origins : mapping of int to int
        By leader, the time of a check, in milliseconds since 1970, derived from shrinks.
    """
    found = pa.array([origins.get(leader) for leader in terms["leader_id"].to_pylist()], pa.int64())
    is_new = pc.and_(pc.equal(terms["check_origin_source"], "unknown"), pc.is_valid(found))
    for name, value in (("check_origin_ms", found), ("check_origin_source", pa.scalar("shrinks"))):
        column = pc.if_else(is_new, value, terms[name])
        terms = terms.set_column(terms.column_names.index(name), terms.schema.field(name), column)
    return terms


def _derived_fetch_days(lake: Lake, clusters: Sequence[str], day: date, sql: ArrowSql) -> pa.Table:
    """Return the rows of ``fetch_days`` for one day of some clusters.

    A row sums up the fetches of a replica from a leader in a leader epoch. If a partition has several leaders or leader
    epochs on the day, there is a separate row for each period without a change of leadership.
    """
    here = all(lake.direct(table.name) for table in (FETCH_LOG, APPEND_LOG))
    with InProcess(lake, sql) if here else BySpark(lake) as engine:
        wanted = f"cluster_id IN ({', '.join(map(engine.literal, clusters))}) AND {days_as_sql([day])}"
        first = engine.struct({"arrival_us": "unix_micros(arrival_time)", "fetch_offset": "fetch_offset"})
        text = text_of("isr_batch.ingest.own_table", "fetch_days", first=first, wanted=wanted)
        tables = {table.name: engine.table(table.name) for table in (FETCH_LOG, APPEND_LOG)}
        found = engine.arrow(engine(text, **tables))
        moved = sql(
            """
            SELECT cluster_id, topic, partition_id FROM found WHERE replica_id <> leader_id GROUP BY ALL
            HAVING count(DISTINCT (leader_id, leader_epoch)) > 1
            """,
            found=found,
        )
        if not moved.num_rows:
            return found
        first = engine.struct({"arrival_us": "arrival_us", "fetch_offset": "fetch_offset"})
        text = text_of("isr_batch.ingest.own_table", "spans_of_moved", first=first, wanted=wanted, gap_us=GAP_US)
        spans = engine.arrow(engine(text, **tables, moved=engine.rows(moved)))
        still = sql(
            """
            SELECT found.* FROM found LEFT JOIN (SELECT *, true AS has_moved FROM moved) AS moved
              USING (cluster_id, topic, partition_id)
            WHERE has_moved IS NULL OR replica_id = leader_id
            """,
            found=found, moved=moved,
        )  # fmt: skip
        return pa.concat_tables([still, spans.select(still.column_names).cast(still.schema)])


def _derived_broker_days(lake: Lake, clusters: Sequence[str], day: date) -> pa.Table:
    """Return the rows of ``broker_days`` for one day of some clusters."""
    days = {cluster: FetchDay(day) for cluster in clusters}
    for batch in _instants_of_day(lake, clusters, day):
        for cluster in pc.unique(batch["cluster_id"]).to_pylist():
            rows = batch.filter(pc.equal(batch["cluster_id"], cluster))
            us = rows["handled_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            days[cluster].add(np.asarray(rows["leader_id"]), np.asarray(rows["replica_id"]), np.asarray(us))
    mapped = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id", "mapped"], {"cluster_id": clusters}).to_pylist()
    return pa.concat_tables(
        broker_days_of(row["cluster_id"], days[row["cluster_id"]], json.loads(row["mapped"])["fetches"])
        for row in mapped
    )


def broker_days_of(cluster_id: str, day: FetchDay, mapped: Collection[str]) -> pa.Table:
    """Return the rows of ``broker_days`` for one day of a cluster, without column ``made_from``.

    Parameters
    ----------
    cluster_id : str
    day : FetchDay
        The fetches of the day.
    mapped : collection of str
        Names of the columns that are mapped in the user's table of fetches.
    """
    made = day.broker_days()
    columns = {name: made[name] for name in ("leader_id", "replica_id", "event_date", "rows", "cadence_us", "pauses")}
    columns |= {f"{name}_time": made[f"{name}_us"].cast(_INSTANT) for name in ("first", "last")}
    columns["cluster_id"] = pa.repeat(cluster_id, made.num_rows)
    instants = ",".join(name.removesuffix("_time") for name in INSTANTS if name in mapped)
    columns["instants"] = pa.repeat(instants, made.num_rows)
    return pa.table(columns)


def _instants_of_day(lake: Lake, clusters: Sequence[str], day: date) -> Iterator[pa.RecordBatch]:
    """Yield cluster, leader, follower and time of each successful fetch of a day."""
    names = ["cluster_id", "leader_id", "replica_id", "handled_time"]
    files = open_columns(lake, FETCH_LOG.name, [*names, "event_date", "error_code"])
    if files is None:
        where = f"{_condition_of_clusters(clusters)} AND {days_as_sql([day])} AND error_code = 0"
        yield from lake.read(FETCH_LOG.name).where(where).select(*names).toArrow().to_batches()
        return
    wanted = ds.field("cluster_id").isin(clusters) & (ds.field("error_code") == 0)
    wanted &= ds.field("event_date") == pa.scalar(day, pa.date32())
    yield from (ds.dataset(files) if isinstance(files, pa.Table) else files).to_batches(columns=names, filter=wanted)


def _in_us(rows: pa.Table, *names: str) -> pa.Table:
    """For each name ``x``, convert column ``x_time`` to microseconds since 1970, and add it as column ``x_us``."""
    for name in names:
        rows = rows.append_column(f"{name}_us", rows[f"{name}_time"].cast(pa.int64()))
    return rows


def _condition_of_clusters(clusters: Sequence[str]) -> str:
    """Return the SQL condition that selects the rows of the clusters."""
    return f"cluster_id IN ({', '.join(map(sql_literal, clusters))})"


def _derived_rows(table: Table, rows: pa.Table, files: str, day: date) -> pa.Table:
    """Add the day, and the hash of the data files from which the rows were derived, to rows of a derived table."""
    for name, value in (("made_from", files), ("event_date", pa.scalar(day, pa.date32()))):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows.select(table.column_names)


def _replace_derived_days(  # noqa: PLR0913, PLR0917
    lake: Lake, sql: ArrowSql, table: Table, clusters: Sequence[str], days: Sequence[date], rows: pa.Table
) -> None:
    """Replace all rows of the given clusters and days in a derived table."""
    where = f"{_condition_of_clusters(clusters)} AND {days_as_sql(days)}"
    bounds = str(days[0]), str(days[-1])
    replace_arrow(lake, sql, table, rows.cast(arrow_schema(table)), where, days=bounds)


def _replace_changed_days(lake: Lake, sql: ArrowSql, table: Table, clusters: Sequence[str], now: pa.Table) -> None:
    """Compare the new rows (``now``) with the lake's, and replace the days on which they differ."""
    before = read_columns(lake, table.name, table.column_names, {"cluster_id": clusters})
    text = """
        SELECT DISTINCT event_date FROM (
          (SELECT * FROM before EXCEPT SELECT * FROM now) UNION ALL (SELECT * FROM now EXCEPT SELECT * FROM before)
        ) ORDER BY event_date
    """
    changed = sql(text, before=without_zones(before), now=without_zones(now))["event_date"]
    if len(changed):
        rows = now.filter(pc.is_in(now["event_date"], changed))
        _replace_derived_days(lake, sql, table, clusters, changed.to_pylist(), rows)

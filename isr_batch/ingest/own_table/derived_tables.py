"""What follows from the fetches and appends of tables: facts of each day, terms of leaders, silences.

Facts of a day are made again when its data files are others, so that whatever runs next completes an ingest that was
killed after its rows were in.
"""

import pyarrow as pa

from isr_batch.ingest.own_table.leader_epochs import GAP_US, write_leader_epochs
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.day_files import days_as_sql, files_by_day, made_from
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import InProcess, replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG
from isr_batch.lake.tables.own_tables import FETCH_DAYS, MAPPED_CLUSTERS


def derive_tables(lake: Lake) -> None:
    """Bring up to date what is made of the rows of tables; nothing where no cluster's fetches come from one."""
    clusters = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id"])["cluster_id"].to_pylist()
    if not clusters:
        return
    with ArrowSql() as sql:
        _write_fetch_days(lake, sql, clusters)
        write_leader_epochs(lake, sql)


def _write_fetch_days(lake: Lake, sql: ArrowSql, clusters: list[str]) -> None:
    lake.ensure(FETCH_DAYS)
    now, before = files_by_day(lake), made_from(lake, FETCH_DAYS.name, "made_from")
    stale = sorted(day for day in now.keys() | before.keys() if now.get(day) != before.get(day))
    of_clusters = f"cluster_id IN ({', '.join(map(sql_literal, clusters))})"
    for day in stale:  # one by one, so that memory does not grow with the days
        where = f"{of_clusters} AND {days_as_sql([day])}"
        with _engine(lake) as engine:
            columns = {"clusters": of_clusters, "days": days_as_sql([day]), "gap_us": GAP_US}
            first = engine.struct({"arrival_us": "arrival_us", "fetch_offset": "fetch_offset"})
            text = text_of("isr_batch.ingest.own_table", "fetch_days", first=first, **columns)
            tables = {table.name: engine.table(table.name) for table in (FETCH_LOG, APPEND_LOG)}
            rows = engine.arrow(engine(text, **tables))
        rows = rows.append_column("made_from", pa.repeat(now.get(day, ""), rows.num_rows))
        rows = rows.select(FETCH_DAYS.column_names).cast(arrow_schema(FETCH_DAYS))
        replace_arrow(lake, sql, FETCH_DAYS, rows, where, days=(str(day), str(day)))


def _engine(lake: Lake) -> LakeEngine:
    here = all(lake.direct_store(table.name) and lake.is_plain(table.name) for table in (FETCH_LOG, APPEND_LOG))
    return InProcess(lake) if here else BySpark(lake)

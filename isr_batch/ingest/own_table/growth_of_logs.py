"""Distinguish two causes of a silence: the leader was stopped, or was out of reach while its log still grew."""

from collections.abc import Collection
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.own_table.broker_days import SECOND_US
from isr_batch.ingest.own_table.silences import SILENCES, quiet_where_logs_grew
from isr_batch.lake.arrow_read import contract_schema, open_columns, read_columns
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView, quoted, without_zones
from isr_batch.lake.ddl import days_as_sql, sql_literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import BROKER_EVENTS, FETCH_LOG

_COLUMNS = ("leader_id", "topic", "partition_id", "handled_time", "fetch_offset", "leader_log_end_offset")


def with_growth_of_logs(
    lake: Lake, sql: ArrowSql, cluster: str, silences: pa.Table, stale: Collection[date]
) -> pa.Table:  # fmt: skip
    """Change the kind of silences from ``silent`` to ``quiet`` where the leader's log grew meanwhile.

    A silence is a period without fetches from the leader. Its kind is ``silent`` if the leader was stopped or out of
    reach, and ``quiet`` if the reason is unknown. If none of a silence's days has changed, its fetches are not read
    again, and its kind in the lake is kept.

    Parameters
    ----------
    lake : Lake
    sql : ArrowSql
    cluster : str
    silences : pa.Table
        Result of `isr_batch.ingest.own_table.silences.leader_silences`.
    stale : collection of date
        Days whose rows have changed.

    Returns
    -------
    pa.Table
        The silences with the new ``kind``. Columns of `SILENCES`.
    """
    names = ["broker_id", "kind", "event_time"]
    found = sql(
        f"""
        WITH known AS (
          SELECT broker_id, kind, epoch_us(event_time) AS event_us FROM stored WHERE kind = 'silent'
        ), changed AS (
          SELECT DISTINCT broker_id, event_us FROM silences JOIN stale
            ON day BETWEEN CAST(make_timestamp(2 * event_us - end_us) AS DATE)
              AND CAST(make_timestamp(end_us + {SECOND_US}) AS DATE)
        )
        SELECT silences.* REPLACE (
            CASE WHEN silences.kind = 'silent' THEN coalesce(known.kind, 'silent') ELSE silences.kind END AS kind
          ),
          known.kind IS NULL AND silences.kind = 'silent' AS is_asked
        FROM silences LEFT JOIN (FROM known ANTI JOIN changed USING (broker_id, event_us)) AS known
          USING (broker_id, event_us)
        """,
        silences=silences,
        stored=without_zones(read_columns(lake, BROKER_EVENTS.name, names, {"cluster_id": cluster})),
        stale=pa.table({"day": pa.array(sorted(stale), pa.date32())}),
    )
    asked, settled = (
        found.filter(each).select(SILENCES.names) for each in (found["is_asked"], pc.invert(found["is_asked"]))
    )
    if not asked.num_rows:
        return settled.cast(SILENCES)
    return pa.concat_tables([
        settled.cast(SILENCES), quiet_where_logs_grew(sql, asked.cast(SILENCES), _fetches_near(lake, cluster, asked))
    ])  # fmt: skip


def _fetches_near(lake: Lake, cluster: str, silences: pa.Table) -> ArrowView:
    """Return the fetches from the leaders that were silent, on the days of the silences.

    The days of an equally long time before each silence are included.
    """
    spans = [
        (date(1970, 1, 1) + timedelta(microseconds=2 * row["event_us"] - row["end_us"]),
         date(1970, 1, 1) + timedelta(microseconds=row["end_us"] + SECOND_US))
        for row in silences.to_pylist()
    ]  # fmt: skip
    days = {first + timedelta(days=n) for first, last in spans for n in range((last - first).days + 1)}
    leaders = ", ".join(map(str, sorted(set(silences["broker_id"].to_pylist()))))
    rest = f"{days_as_sql(sorted(days))} AND leader_id IN ({leaders})"
    columns = [*_COLUMNS, "cluster_id", "event_date"]
    files = open_columns(lake, FETCH_LOG.name, columns)
    if files is None:
        where = f"cluster_id = {sql_literal(cluster)} AND {rest}"
        files = lake.read(FETCH_LOG.name).where(where).select(*columns).toArrow()
    text = "SELECT * EXCLUDE (handled_time), epoch_us(handled_time) AS handled_us FROM fetch_log "
    text += f"WHERE cluster_id = {quoted(cluster)} AND {rest}"
    kept = contract_schema(FETCH_LOG.name, [name for name in columns if name != "handled_time"])
    return ArrowView(text, {"fetch_log": files}, kept.append(pa.field("handled_us", pa.int64())))

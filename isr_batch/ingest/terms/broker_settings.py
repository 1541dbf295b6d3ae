"""Resolve each broker's settings: given by the user, in server.properties, logged at its start, or Kafka's default."""

from collections.abc import Sequence

import pyarrow as pa

from isr_batch.broker_lines.forms import LAG_TIME, MIN_ISR, SETTING, VERSION
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.broker_lines.server_log import process_starts
from isr_batch.broker_lines.vendors import default_lag_time_ms, numbers_of_release, vendor_release
from isr_batch.ingest.folder.settings_files import MAX_INT, Broker, ClusterSettings
from isr_batch.lake.arrow_sql import ArrowSql, quoted
from udfs.rules import RELEASED_RULES

BROKER_SETTINGS = pa.schema([
    ("broker_id", pa.int32()), ("replica_lag_time_max_ms", pa.int64()), ("min_insync_replicas", pa.int32()),
    ("starts_us", pa.list_(pa.int64())), ("checks_per_lag_time", pa.int32()), ("lag_time_source", pa.string()),
    ("version", pa.string()),
])  # fmt: skip


def broker_settings(
    sql: ArrowSql,
    server: pa.Table,
    brokers: Sequence[Broker],
    given: ClusterSettings = ClusterSettings(),  # noqa: B008 frozen
    assumed: str | None = None,
) -> pa.Table:
    """Return each broker's settings: replica_lag_time_max_ms, min_insync_replicas, starts_us, checks_per_lag_time.

    The result also has ``version``, logged or given, and ``lag_time_source``, which names where the lag time is from:
    given, properties, logged (at the start of the broker) or default, in that order of precedence. Kafka's default was
    10 s before 2.5, and has been 30 s since (KIP-537). ``assumed`` is the release whose defaults apply if no log names
    the release. ``starts_us`` is sorted.
    """
    printed = sql(
        f"""
        WITH printed AS (
            SELECT broker_id, max(number) FILTER (setting = {quoted(LAG_TIME)}) AS lag_ms,
                max(number) FILTER (setting = {quoted(MIN_ISR)} AND number <= {MAX_INT}) AS min_isr
            FROM settings GROUP BY broker_id
        ), ran AS (
            SELECT broker_id, list(DISTINCT version) AS versions FROM versions GROUP BY broker_id
        ), started AS (
            SELECT broker_id, list(stamp_us ORDER BY stamp_us) AS starts_us FROM starts GROUP BY broker_id
        )
        SELECT * FROM printed FULL JOIN ran USING (broker_id) FULL JOIN started USING (broker_id)
        """,
        settings=rows_of(sql, server, SETTING),
        versions=rows_of(sql, server, VERSION),
        starts=process_starts(sql, server),
    )
    of_broker = {row["broker_id"]: row for row in printed.to_pylist()}
    rows = []
    for broker in brokers:
        logged = of_broker.get(broker.broker_id, {})
        names = [name for printed in logged.get("versions") or [] if (name := vendor_release(printed))]
        version = given.release or max(names, key=numbers_of_release, default=None)
        release = version or assumed
        numbers = None if release is None else numbers_of_release(release)
        stated = {
            "given": given.replica_lag_time_max_ms, "properties": broker.replica_lag_time_max_ms,
            "logged": logged.get("lag_ms"), "default": default_lag_time_ms(release),
        }  # fmt: skip
        source = next(name for name, value in stated.items() if value is not None)
        min_isr = (given.min_insync_replicas, broker.min_insync_replicas, logged.get("min_isr"), 1)
        rows.append({
            "broker_id": broker.broker_id, "replica_lag_time_max_ms": stated[source],
            "min_insync_replicas": next(value for value in min_isr if value is not None),
            "starts_us": logged.get("starts_us") or [], "checks_per_lag_time": _checks_per_lag_time(numbers),
            "lag_time_source": source, "version": version,
        })  # fmt: skip
    return pa.Table.from_pylist(rows, BROKER_SETTINGS)


def _checks_per_lag_time(release: list[int] | None) -> int:
    """Return how often isr-expiration runs per lag time in a release; an unknown release is treated as the newest."""
    rules = [rule for since, rule in RELEASED_RULES if release is not None and release >= list(since)]
    return (rules or [RELEASED_RULES[-1][1]])[-1].checks_per_lag_time

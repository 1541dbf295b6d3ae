"""Find each broker's settings: given by the user, in server.properties, logged at its start, or Kafka's defaults."""

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
    """Return the settings of each broker, with the columns of `BROKER_SETTINGS`.

    Some columns need an explanation:

    - ``lag_time_source``: the source of the lag time. In order of precedence: given, properties, logged (at the
      broker's start) or default. Kafka's default is 10 s before 2.5, and 30 s since (KIP-537).
    - ``starts_us``: times at which the broker was started, sorted, in microseconds since 1970.
    - ``checks_per_lag_time``: number of runs of isr-expiration per lag time.
    - ``version``: the release, given or logged.

    Parameters
    ----------
    sql : ArrowSql
    server : pa.Table
        Lines of server.log.
    brokers : sequence of Broker
        Settings in server.properties.
    given : ClusterSettings
        Settings that the user gave.
    assumed : str, optional
        Release whose defaults apply to a broker whose release is neither given nor logged.
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
    """Return the number of runs of isr-expiration per lag time in a release; for None, that in the newest release."""
    rules = [rule for since, rule in RELEASED_RULES if release is not None and release >= list(since)]
    return (rules or [RELEASED_RULES[-1][1]])[-1].checks_per_lag_time

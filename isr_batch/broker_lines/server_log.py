"""Parse server.log into tables: shrinks, durations of ISR writes, troubles of followers, and broker processes."""

import pyarrow as pa

from isr_batch.broker_lines.forms import (
    CHECKS_SCHEDULED,
    CREATED,
    FETCHER,
    OF_PARTITION,
    OUT_OF_SYNC,
    OWN_STATES,
    SHRINK,
    STARTED,
    STARTING,
    TROUBLES,
    VERSION,
    ZOOKEEPER_STOPS,
)  # fmt: skip
from isr_batch.broker_lines.log_sql import SOURCE, columns_of, groups, matches, rows_of
from isr_batch.broker_lines.vendors import vendor_release
from isr_batch.lake.arrow_sql import ArrowSql, quoted

_SAME_START_US = 60_000_000
_WRITE_TAKES_AT_MOST_US = 5_000_000


def shrink_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the Shrinking lines. Column ``dropped`` is a list with one struct for each replica that the leader dropped.

    Parameters
    ----------
    sql : ArrowSql
    server : pa.Table
        Lines of server.log: broker_id, source_file, source_line, stamp_us, message.
    """
    replica = "replica_id INTEGER, follower_log_end_offset BIGINT, last_caught_up_time_ms BIGINT"
    dropped = ", ".join(
        f"{name} := TRY_CAST(replica.{name} AS {type_})"  # null if the line does not show it, or shows "unknown"
        for name, type_ in (column.split(" ") for column in replica.split(", "))
    )
    return sql(
        f"""
        SELECT * EXCLUDE (printed),
            CASE WHEN printed IS NULL THEN list_transform(
                list_without(isr_before, isr_after),
                lambda replica: struct_pack(replica_id := replica, follower_log_end_offset := CAST(NULL AS BIGINT),
                    last_caught_up_time_ms := CAST(NULL AS BIGINT)))
            ELSE list_transform(
                {groups("printed", OUT_OF_SYNC, replica).replace("regexp_extract(", "regexp_extract_all(", 1)},
                lambda replica: struct_pack({dropped})) END AS dropped
        FROM lines
        """,
        lines=rows_of(sql, server, SHRINK),
    )


def isr_write_times(sql: ArrowSql, shrinks: pa.Table, updates: pa.Table, led: pa.Table) -> pa.Table:
    """Return the median duration of each broker's ISR writes: broker_id, isr_write_ms.

    A write lasts from the Shrinking line (``shrinks``) to the line with the new ISR. The latter is "ISR updated"
    (``updates``) or, in releases in which a shrink begins a new term (KRaft up to 3.6), the line about the start of the
    term (``led``).
    """
    written = "SELECT broker_id, topic, partition_id, stamp_us, isr FROM"
    return sql(
        f"""
        WITH took AS (
            SELECT s.broker_id, min(u.stamp_us - s.stamp_us) AS took_us
            FROM shrinks s JOIN ({written} updates UNION ALL {written} led) u ON s.broker_id = u.broker_id
                AND s.topic = u.topic AND s.partition_id = u.partition_id AND list_sort(s.isr_after) = list_sort(u.isr)
                AND u.stamp_us - s.stamp_us BETWEEN 0 AND {_WRITE_TAKES_AT_MOST_US}
            GROUP BY s.broker_id, s.topic, s.partition_id, s.stamp_us
        )
        SELECT broker_id, CAST(round(median(took_us) / 1000) AS BIGINT) AS isr_write_ms FROM took GROUP BY broker_id
        """,
        shrinks=shrinks,
        updates=updates,
        led=led,
    )


def min_isr_of_logs(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return min.insync.replicas by topic, as printed in the lines of server.log about newly created partition logs."""
    return sql(
        """
        SELECT topic, max(min_insync_replicas) AS min_insync_replicas
        FROM created WHERE min_insync_replicas IS NOT NULL GROUP BY topic
        """,
        created=rows_of(sql, server, CREATED),
    )


def trouble_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return the lines of ``server`` (server.log) in which a follower reports a failed fetch.

    Returns
    -------
    pa.Table
        broker_id, source_file, source_line, stamp_us, kind (a key of `forms.TROUBLES`), follower_id, leader_id, topic,
        partition_id. Each of the last four is null if the line does not name it.
    """
    kind = " ".join(f"WHEN {matches('message', pattern)} THEN {quoted(kind)}" for kind, pattern in TROUBLES.items())
    fetcher = "follower_id INTEGER, leader_id INTEGER, leader_of_thread INTEGER"
    partition = "topic VARCHAR, partition_id INTEGER"
    return sql(
        f"""
        WITH split AS (
            SELECT {SOURCE}, CASE {kind} END AS kind, {groups("message", FETCHER, fetcher)} AS f,
                {groups("in_new_words(message)", OF_PARTITION, partition)} AS p
            FROM server WHERE {matches("message", "|".join(TROUBLES.values()))}
        )
        SELECT * EXCLUDE (leader_of_thread) REPLACE (coalesce(leader_id, leader_of_thread) AS leader_id)
        FROM (SELECT {SOURCE}, kind, {columns_of("f", fetcher)}, {columns_of("p", partition)} FROM split)
        """,
        server=server,
    )


def process_starts(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return one row per start of a broker process, as server.log shows it: the `SOURCE` columns of the first line."""
    return sql(
        f"""
        WITH marks AS (
            SELECT {SOURCE}, {matches("message", STARTED)} AS first FROM server
            WHERE {matches("message", f"{STARTED}|{STARTING}")}
        )
        SELECT {SOURCE} FROM marks
        WINDOW of_broker AS (PARTITION BY broker_id ORDER BY stamp_us, source_line)
        QUALIFY first OR NOT coalesce(
            lag(first) OVER of_broker AND stamp_us - lag(stamp_us) OVER of_broker <= {_SAME_START_US}, false)
        """,
        server=server,
    )


def brokers_without_processes(sql: ArrowSql, server: pa.Table, settings: pa.Table) -> pa.Table:
    """Return the brokers that logged nothing at INFO in server.log, so that the starts of their processes are unknown.

    ``settings`` holds, in column broker_id, the brokers to consider, and ``server`` has the lines of server.log.
    """
    return sql(
        """
        SELECT broker_id FROM settings ANTI JOIN (SELECT broker_id FROM server WHERE contains(message, '] INFO '))
            USING (broker_id)
        """,
        server=server,
        settings=settings,
    )


def own_states(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return the times at which brokers logged that they became fenced, unfenced, shutting down or stopping.

    KRaft brokers log fenced, unfenced and shutting down. ZooKeeper brokers only log that they are stopping.

    Returns
    -------
    pa.Table
        broker_id, kind, at_us.
    """
    kinds = " ".join(f"WHEN {matches('message', said)} THEN {quoted(kind)}" for kind, said in OWN_STATES.items())
    return sql(
        f"""
        WITH lines AS (SELECT broker_id, CASE {kinds} END AS kind, stamp_us AS at_us FROM server)
        FROM lines WHERE at_us IS NOT NULL AND kind IS NOT NULL
            AND broker_id IN (SELECT broker_id FROM lines WHERE kind = 'unfenced')
        UNION ALL
        SELECT broker_id, 'stopping', stamp_us FROM server
        WHERE stamp_us IS NOT NULL AND {matches("message", ZOOKEEPER_STOPS)}
        """,
        server=server,
    )


def process_lines(sql: ArrowSql, server: pa.Table, settings: pa.Table) -> pa.Table:
    """Return the version and the start time of each broker process in server.log.

    The columns are broker_id, process, broker_version and startup_us.

    ``process`` numbers the starts of a broker: 0 before the first start in the log.

    ``startup_us``, in microseconds since 1970, is at most a few milliseconds away from the time at which isr-expiration
    was scheduled.
    """
    facts = sql(
        f"""
        SELECT broker_id, process_of(starts_us, stamp_us) AS process,
            max(versions.version) AS broker_version,
            min(stamp_us) FILTER ({matches("message", CHECKS_SCHEDULED)}) AS startup_us
        FROM server LEFT JOIN versions USING (source_file, source_line) JOIN settings USING (broker_id)
        WHERE message IS NOT NULL AND stamp_us IS NOT NULL
        GROUP BY ALL
        """,
        server=server,
        versions=sql("SELECT source_file, source_line, version FROM v", v=rows_of(sql, server, VERSION)),
        settings=settings,
    )
    printed = facts["broker_version"].to_pylist()
    named = pa.array([vendor_release(version) if version else None for version in printed], pa.string())
    return facts.set_column(facts.schema.get_field_index("broker_version"), "broker_version", named)

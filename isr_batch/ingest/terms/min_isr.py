"""Find min.insync.replicas of topics over time, in brokers' lines about changes or in metadata records.

If these do not show a topic's setting, it is taken from a listing, from the line about the creation of the topic's log,
or from the broker's setting, in this order.
"""

import pyarrow as pa

from isr_batch.broker_lines import forms
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.broker_lines.metadata_log import metadata_min_isr_records
from isr_batch.broker_lines.server_log import min_isr_of_logs
from isr_batch.lake.arrow_sql import ArrowSql

_SOON_US = 5_000_000
"""Maximum time, in microseconds, from the start of a term to the line in which the leader prints a new topic's
settings."""


def min_isr_settings(
    sql: ArrowSql, server: pa.Table, metadata: pa.Table, settings: pa.Table, min_isr: pa.Table
) -> pa.Table:  # fmt: skip
    """Return the times at which values of topics' min.insync.replicas came into force on each broker.

    Parameters
    ----------
    sql : ArrowSql
    server, metadata : pa.Table
        Lines of server.log, and records of the metadata log.
    settings, min_isr : pa.Table
        As in `isr_batch.ingest.terms.parsed_logs.ParsedLogs`.

    Returns
    -------
    pa.Table
        broker_id, topic, at_us, min_insync_replicas, changed (whether the value differs from the one before),
        source_file, source_line.
    """
    return sql(
        """
        WITH lines AS (
            SELECT broker_id, topic, stamp_us AS at_us, min_insync_replicas, source_file, source_line FROM configured
            UNION ALL
            SELECT broker_id, topic, stamp_us, min_insync_replicas, source_file, source_line
            FROM created SEMI JOIN configured USING (broker_id, topic)
        ), every AS (
            SELECT * FROM lines
            UNION ALL BY NAME
            SELECT broker_id, recorded.* FROM recorded CROSS JOIN (SELECT broker_id FROM defaults)
                ANTI JOIN configured USING (broker_id, topic)
        ), known AS (
            SELECT * REPLACE (coalesce(min_insync_replicas, of_broker) AS min_insync_replicas)
            FROM every JOIN defaults USING (broker_id)
        )
        SELECT * EXCLUDE (of_broker), coalesce(min_insync_replicas !=
            lag(min_insync_replicas) OVER (PARTITION BY broker_id, topic ORDER BY at_us, source_line), true) AS changed
        FROM known
        """,
        configured=rows_of(sql, server, forms.TOPIC_CONFIGURED),
        created=rows_of(sql, server, forms.CREATED),
        recorded=metadata_min_isr_records(sql, metadata),
        defaults=_min_isr_of_brokers(sql, settings, min_isr),
    )


def _min_isr_of_brokers(sql: ArrowSql, settings: pa.Table, min_isr: pa.Table) -> pa.Table:
    """Return each broker's own setting, which applies to topics without a setting: broker_id, of_broker.

    Records in ``min_isr`` take precedence over the properties files in ``settings``.
    """
    return sql(
        """
        SELECT s.broker_id, coalesce(m.min_insync_replicas,
            (SELECT max(min_insync_replicas) FROM min_isr WHERE resource_broker = ''), s.min_insync_replicas)
            AS of_broker
        FROM settings s LEFT JOIN min_isr m ON m.resource_broker = CAST(s.broker_id AS VARCHAR)
        """,
        settings=settings,
        min_isr=min_isr,
    )


def min_isr_of_terms(  # noqa: PLR0913, PLR0917 the settings, and what is known without a time
    sql: ArrowSql, spans: pa.Table, known: pa.Table, server: pa.Table, settings: pa.Table, min_isr: pa.Table
) -> pa.Table:
    """Return min.insync.replicas at the start of each term: broker_id, topic, partition_id, stamp_us, at_start.

    Parameters
    ----------
    sql : ArrowSql
    spans : pa.Table
        Terms: broker_id, topic, partition_id, stamp_us.
    known : pa.Table
        Result of `min_isr_settings`.
    server, settings, min_isr : pa.Table
        As for `min_isr_settings`.
    """
    return sql(
        f"""
        WITH timed AS (
            SELECT s.broker_id, s.topic, s.partition_id, s.stamp_us,
                arg_max(k.min_insync_replicas, at_us) FILTER (at_us <= stamp_us) AS before,
                arg_min(k.min_insync_replicas, at_us) FILTER (at_us BETWEEN stamp_us AND stamp_us + {_SOON_US}) AS soon
            FROM spans s JOIN known k USING (broker_id, topic) GROUP BY ALL
        )
        SELECT s.broker_id, s.topic, s.partition_id, s.stamp_us, coalesce(
            before, soon, m.min_insync_replicas, b.min_insync_replicas,
            (SELECT max(min_insync_replicas) FROM min_isr WHERE resource_broker = ''), l.min_insync_replicas,
            settings.min_insync_replicas) AS at_start
        FROM spans s LEFT JOIN timed USING (broker_id, topic, partition_id, stamp_us)
            LEFT JOIN min_isr m ON m.topic = s.topic
            LEFT JOIN min_isr b ON b.resource_broker = CAST(s.broker_id AS VARCHAR)
            LEFT JOIN of_logs l ON l.topic = s.topic LEFT JOIN settings ON settings.broker_id = s.broker_id
        """,
        spans=spans,
        known=known,
        min_isr=min_isr,
        of_logs=min_isr_of_logs(sql, server),
        settings=settings,
    )

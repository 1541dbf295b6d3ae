"""Derive table leader_epochs, the terms of leaders, from state-change.log and, before 2.5, also from server.log."""

from functools import partial

import pyarrow as pa

from isr_batch.broker_lines import forms, server_log
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.ingest.requests.in_force import EARLY_US
from isr_batch.ingest.terms.min_isr import min_isr_of_terms
from isr_batch.ingest.terms.parsed_logs import NOTED_WITHIN_US, ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns
from udfs.batches.listed_partitions import FETCHED, LISTED, listed_by_fetches

UNKNOWN_LEADER = UNKNOWN_EPOCH = -1

_INTS = pa.list_(pa.int32())
TERMS = pa.schema([
    ("leader_id", pa.int32()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_epoch", pa.int32()),
    ("start_us", pa.int64()), ("end_us", pa.int64()), ("in_force_us", pa.int64()), ("next_us", pa.int64()),
    ("begins_mid_term", pa.bool_()), ("term_source", pa.string()), ("made_again", pa.int32()),
    ("start_offset", pa.int64()), ("start_high_watermark", pa.int64()), ("assigned", _INTS), ("isr_at_start", _INTS),
    ("previous_leader_id", pa.int32()), ("start_offset_source", pa.string()),
    ("replica_lag_time_max_ms", pa.int64()), ("lag_time_source", pa.string()), ("min_insync_replicas", pa.int32()),
    ("broker_version", pa.string()), ("version", pa.string()), ("check_origin_ms", pa.int64()),
    ("isr_write_ms", pa.int64()), ("metadata_delay_ms", pa.int64()), ("check_origin_source", pa.string()),
])  # fmt: skip
"""Schema of `leader_epochs`. ``made_again`` is the number of times that the topic had been deleted and created again.
"""
_TERM_START = "broker_id, topic, partition_id, leader_epoch, stamp_us"
_SHOWN = arrow_columns(
    "broker_id INT, topic STRING, partition_id INT, leader_epoch INT, stamp_us BIGINT, replica_id INT, "
    "shown_before BIGINT, first_offset BIGINT, first_us BIGINT"
)
_OF_FETCHES = (*FETCHED, "error_code", "partitions")


def leader_epochs(
    sources: ParsedLogs, starts: pa.Table, begun: pa.Table, followers: pa.Table, processes: pa.Table
) -> pa.Table:
    """Derive all terms of leaders, with the columns of `TERMS`.

    ``in_force_us`` is the earliest time at which the term may have begun: some milliseconds before its line, but after
    the previous term. ``next_us`` is the time at which the broker received its next state of the partition.

    Parameters
    ----------
    sources : ParsedLogs
    starts : pa.Table
        Result of `term_starts`.
    begun : pa.Table
        Terms that were in progress when the log begins, with the fields of `isr_batch.ingest.terms.mid_term.Begun`.
    followers : pa.Table
        Followers in each term: broker_id (the leader), topic, partition_id, leader_epoch, and ``fetched``, the list of
        replicas that fetched the partition.
    processes : pa.Table
        Result of `isr_batch.ingest.terms.broker_events.broker_processes`.

    Returns
    -------
    pa.Table
    """
    spans = sources.sql(
        """
        WITH every AS (
            SELECT * FROM starts
            UNION ALL BY NAME
            SELECT *, true AS leads, broker_id AS new_leader_id, true AS tells_previous, true AS begins_mid_term,
                CAST([] AS INTEGER[]) AS isr
            FROM begun
        ), superseded AS (
            -- The line that ends it may be missing: a later epoch does; without server.log, another leader ends it.
            SELECT b.broker_id, b.topic, b.partition_id, b.leader_epoch, min(e.stamp_us) AS superseded_us
            FROM every b JOIN every e ON b.topic = e.topic AND b.partition_id = e.partition_id
                AND e.leads AND e.leader_epoch > b.leader_epoch AND b.leader_epoch >= 0 AND e.stamp_us > b.stamp_us
            WHERE b.begins_mid_term OR (b.leads AND e.broker_id != b.broker_id
                AND b.broker_id IN (FROM unseen))
            GROUP BY ALL
        ), lasting AS (
            SELECT every.* EXCLUDE (begins_mid_term), settings.* EXCLUDE (broker_id), begins_mid_term,
                least(lead(stamp_us) OVER (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line),
                    superseded_us) AS next_us,
                process_of(starts_us, stamp_us) AS process
            FROM every JOIN settings USING (broker_id)
                LEFT JOIN superseded USING (broker_id, topic, partition_id, leader_epoch)
        ), led AS (
            SELECT * REPLACE (CASE WHEN tells_previous THEN previous_leader_id ELSE lag(new_leader_id) OVER
                (PARTITION BY broker_id, topic, partition_id, process ORDER BY stamp_us, source_line) END
                AS previous_leader_id)
            FROM lasting
        ), ended AS (
            SELECT *, greatest(stamp_us, least(next_us, coalesce(last_led_us, next_us))) AS end_us
            FROM led LEFT JOIN processes USING (broker_id, process) LEFT JOIN write_times USING (broker_id)
                LEFT JOIN delays USING (broker_id)
            WHERE leads
        )
        SELECT *, lag(end_us) OVER (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
            AS former_end_us
        FROM ended
        """,
        starts=starts,
        begun=begun,
        settings=sources.settings,
        processes=processes,
        write_times=server_log.isr_write_times(sources.sql, sources.shrinks, sources.isr_updates, sources.led),
        delays=_metadata_delays(sources),
        unseen=server_log.brokers_without_processes(sources.sql, sources.server, sources.settings),
    )
    return sources.sql(
        f"""
        SELECT broker_id AS leader_id, topic, partition_id, leader_epoch, stamp_us AS start_us, end_us,
            least(stamp_us, greatest(former_end_us + 1, stamp_us - {EARLY_US})) AS in_force_us, next_us,
            coalesce(begins_mid_term, false) AS begins_mid_term, coalesce(term_source, 'logged') AS term_source,
            made_again_by(again_us, stamp_us) AS made_again, start_offset, start_high_watermark, assigned,
            isr AS isr_at_start, previous_leader_id, start_offset_source,
            replica_lag_time_max_ms, lag_time_source, min_insync_replicas, broker_version, version,
            coalesce(check_origin_ms, 0) AS check_origin_ms, isr_write_ms, metadata_delay_ms,
            coalesce(check_origin_source, 'unknown') AS check_origin_source
        FROM spans LEFT JOIN made_again USING (topic, partition_id)
        """,
        spans=_with_offsets(_terms_with_min_isr_and_replicas(spans, sources, followers), sources),
        made_again=sources.made_again,
    ).cast(TERMS)


def term_starts(sources: ParsedLogs) -> pa.Table:
    """Return the times at which brokers began to lead (``leads``) or follow a partition, or deleted its log.

    ``new_leader_id`` is -1 if the line does not name the leader. It is null for a deletion, after which the broker
    knows nothing about the partition.
    """
    # The partition epoch (zkVersion) of requests is dropped, because a term with one is assumed to log it with every
    # ISR change.
    return sources.sql(
        f"""
        WITH logged AS (
            SELECT *, true AS leads, broker_id AS new_leader_id FROM led
            UNION ALL BY NAME SELECT *, false AS leads, {UNKNOWN_LEADER} AS new_leader_id FROM followed
            UNION ALL BY NAME
            SELECT *, {UNKNOWN_EPOCH} AS leader_epoch, false AS leads, NULL AS new_leader_id FROM deleted
        ), unlogged AS (
            SELECT a.* EXCLUDE (replicas, leader_id, partition_epoch), leader_id AS new_leader_id,
                CAST(NULL AS INTEGER) AS partition_epoch, false AS tells_previous
            FROM accepted a ANTI JOIN logged USING (broker_id, topic, partition_id, leader_epoch)
        ), nearest AS (
            SELECT u.broker_id, u.topic, u.partition_id, u.leader_epoch, u.stamp_us, l.stamp_us AS line_us,
                l.start_offset, l.start_high_watermark
            FROM unlogged u JOIN lines l ON u.broker_id = l.broker_id AND u.topic = l.topic
                AND u.partition_id = l.partition_id AND u.leader_epoch = l.leader_epoch
                AND abs(l.stamp_us - u.stamp_us) <= {NOTED_WITHIN_US}
            QUALIFY row_number() OVER (PARTITION BY u.broker_id, u.topic, u.partition_id, u.leader_epoch, u.stamp_us
                ORDER BY abs(l.stamp_us - u.stamp_us)) = 1
        )
        SELECT * FROM logged
        UNION ALL BY NAME
        SELECT * EXCLUDE (line_us) REPLACE (coalesce(line_us, stamp_us) AS stamp_us)
        FROM unlogged LEFT JOIN nearest USING (broker_id, topic, partition_id, leader_epoch, stamp_us)
        """,
        led=sources.led,
        followed=rows_of(sources.sql, sources.state_changes, forms.FOLLOWER),
        deleted=sources.deleted,
        accepted=sources.accepted,
        lines=rows_of(sources.sql, sources.server, forms.START_OFFSET),
    )


def _with_offsets(spans: pa.Table, sources: ParsedLogs) -> pa.Table:
    """Derive start_offset and start_high_watermark from fetches for terms (``spans``) whose lines do not show them.

    The log end offset at the start is at least the highest offset from which a follower fetched before the term. The
    high watermark is at most the lowest offset in the first fetches of ISR members in the term.
    """
    if not sources.accepted.num_rows:
        return sources.sql("SELECT *, 'logged' AS start_offset_source FROM spans", spans=spans)
    incomplete = sources.sql(
        """
        SELECT broker_id, topic, partition_id, leader_epoch, stamp_us, next_us, isr AS members,
            coalesce(list_filter(again_us, lambda us: us <= stamp_us)[-1], 0) AS made_us
        FROM spans LEFT JOIN made_again USING (topic, partition_id)
        WHERE NOT coalesce(begins_mid_term, false) AND (start_offset IS NULL OR start_high_watermark IS NULL)
        """,
        spans=spans,
        made_again=sources.made_again,
    )
    return sources.sql(
        """
        WITH of_term AS (
            SELECT broker_id, topic, partition_id, leader_epoch, stamp_us, max(shown_before) AS shown_before,
                min(first_offset) AS held_by_all
            FROM shown GROUP BY ALL
        )
        SELECT * REPLACE (
                CASE WHEN logged THEN coalesce(start_offset, shown_before, 0) ELSE start_offset END AS start_offset,
                CASE WHEN logged THEN coalesce(start_high_watermark,
                    least(coalesce(start_offset, shown_before, 0),
                        coalesce(held_by_all, start_offset, shown_before, 0)))
                    ELSE start_high_watermark END AS start_high_watermark),
            CASE WHEN start_offset IS NULL THEN 'inferred' ELSE 'logged' END AS start_offset_source
        FROM (SELECT *, NOT coalesce(begins_mid_term, false) AS logged FROM spans)
            LEFT JOIN of_term USING (broker_id, topic, partition_id, leader_epoch, stamp_us)
        """,
        spans=spans,
        shown=_offsets_shown(sources, incomplete),
    )


def _offsets_shown(sources: ParsedLogs, incomplete: pa.Table) -> pa.Table:
    """Return the offsets of followers' fetches before and in each term in ``incomplete``.

    Returns
    -------
    pa.Table
        One row per term and replica, with ``shown_before``, its highest fetch offset before the term, and, for ISR
        members, ``first_offset``, the offset of its first fetch in the term.
    """
    fetches = sources.engine.select(sources.fetches, _OF_FETCHES)
    listed = sources.engine.map(fetches, listed_by_fetches, LISTED)
    at_start = partial(_offsets_at_term_start, topics=sources.topics, terms=incomplete)
    seen = sources.engine.by_key(["topic_id", "partition_id"], at_start, _SHOWN, listed=listed)
    return sources.sql(
        f"""
        SELECT {_TERM_START}, replica_id, max(shown_before) AS shown_before,
            first(first_offset ORDER BY first_us) FILTER (first_us IS NOT NULL) AS first_offset
        FROM shown GROUP BY {_TERM_START}, replica_id
        """,
        shown=sources.engine.collect(seen),
    )


def _offsets_at_term_start(sql: ArrowSql, listed: pa.Table, topics: pa.Table, terms: pa.Table) -> pa.Table:
    return sql(
        f"""
        WITH seen AS (
            SELECT {", ".join(f"t.{name}" for name in _TERM_START.split(", "))}, replica_id, fetch_offset, handled_us,
                handled_us < stamp_us AS is_before,
                l.broker_id = t.broker_id AND list_contains(members, replica_id) AND handled_us >= stamp_us
                    AND (next_us IS NULL OR handled_us < next_us) AS is_within
            FROM (SELECT l.*, coalesce(n.topic, topic_id) AS topic FROM listed l LEFT JOIN topics n USING (topic_id)) l
                JOIN terms t ON l.topic = t.topic AND l.partition_id = t.partition_id AND l.handled_us >= t.made_us
        )
        SELECT {_TERM_START}, replica_id, max(fetch_offset) FILTER (is_before) AS shown_before,
            first(fetch_offset ORDER BY handled_us, fetch_offset) FILTER (is_within) AS first_offset,
            min(handled_us) FILTER (is_within) AS first_us
        FROM seen WHERE is_before OR is_within GROUP BY {_TERM_START}, replica_id
        """,
        listed=listed,
        topics=topics,
        terms=terms,
    )


def _terms_with_min_isr_and_replicas(spans: pa.Table, sources: ParsedLogs, followers: pa.Table) -> pa.Table:
    """Add min.insync.replicas and the assigned replicas to each term in ``spans``.

    ``followers`` lists the followers that fetched in each term, for terms whose assignment is not logged.
    """
    return sources.sql(
        """
        SELECT * EXCLUDE (at_start, replicas, fetched) REPLACE (at_start AS min_insync_replicas),
            list_union(coalesce(replicas, list_union(isr, coalesce(fetched, isr))), [broker_id]) AS assigned
        FROM spans JOIN min_isr USING (broker_id, topic, partition_id, stamp_us)
            LEFT JOIN assignments USING (broker_id, topic, partition_id, stamp_us)
            LEFT JOIN followers USING (broker_id, topic, partition_id, leader_epoch)
        """,
        spans=spans,
        min_isr=min_isr_of_terms(
            sources.sql, spans, sources.min_isr_settings, sources.server, sources.settings, sources.min_isr
        ),
        assignments=_assignments(sources, spans),
        followers=followers,
    )


def _metadata_delays(sources: ParsedLogs) -> pa.Table:
    """Return the median time from a metadata record to the leader's line about it: broker_id, metadata_delay_ms."""
    return sources.sql(
        f"""
        SELECT broker_id, CAST(round(median(stamp_us - at_us) / 1000) AS BIGINT) AS metadata_delay_ms
        FROM noted n JOIN recorded r ON n.topic = r.topic AND n.partition_id = r.partition_id
            AND n.leader_epoch = r.leader_epoch AND list_sort(n.isr) = list_sort(r.isr)
            AND stamp_us - at_us BETWEEN 0 AND {NOTED_WITHIN_US}
        GROUP BY broker_id
        """,
        noted=sources.stayed,
        recorded=sources.history,
    )


def _assignments(sources: ParsedLogs, spans: pa.Table) -> pa.Table:
    """Return the last known assignment in each term of ``spans``.

    The columns are broker_id, topic, partition_id, stamp_us and replicas.
    """
    return sources.sql(
        """
        WITH every AS (
            SELECT topic, partition_id, leader_epoch, replicas, position, at_us FROM recorded
            UNION ALL SELECT topic, partition_id, leader_epoch, replicas, partition_epoch, stamp_us FROM stayed
            UNION ALL SELECT topic, partition_id, leader_epoch, replicas, partition_epoch, stamp_us FROM accepted
        )
        -- After the term, it is another topic of the same name that has this epoch; before it, likewise.
        SELECT DISTINCT ON (broker_id, topic, partition_id, stamp_us) broker_id, topic, partition_id, stamp_us, replicas
        FROM spans JOIN every USING (topic, partition_id, leader_epoch)
        ORDER BY coalesce(at_us <= next_us, true) DESC, at_us DESC, position DESC NULLS LAST, replicas DESC NULLS LAST
        """,
        spans=spans,
        recorded=sources.history,
        stayed=sources.stayed,
        accepted=sources.accepted,
    )

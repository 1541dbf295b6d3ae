"""Derive table observed_isr_changes: the ISR changes that leaders logged or that the controller made.

In releases without AlterPartition (ZooKeeper, up to 2.7), leaders log their own changes in Shrinking and Expanding
lines, and the controller sends its changes to them in LeaderAndIsr requests. In later releases, the metadata log
contains all changes.
"""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.metadata_log import metadata_brokers
from isr_batch.broker_lines.unread import unread_isr_lines
from isr_batch.ingest.folder.log_folder import SERVER
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.requests.in_force import epochs_in_force, with_log_stretch
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql

_RECORD_EARLY_US, _RECORD_LATE_US = 1_000_000, 5_000_000
_LATE_ANSWER_US = 1_000_000
"""If the response to a shrink is not logged, the time of the controller's record replaces it if it is more than this
many microseconds after the shrink. For usual responses, which take milliseconds, the median of other responses is
precise enough."""
_TICKS_US = 60_000_000
"""The metadata log is considered to have ended if it contains no record for this long, in microseconds. No controller
election takes longer."""
_CHANGE = "topic, partition_id, leader_epoch, leader_id, at_us, isr_before, isr_after, source_file, source_line"
_POSITION = "(CAST(made_again_by(again_us, at_us) AS BIGINT) << 32) + partition_epoch"
_STATE = "leader_id, leader_epoch, partition_epoch, isr, at_us, source_file, source_line"


def isr_shrinks_by_term(sources: ParsedLogs, terms: pa.Table, stretches: Sequence[Stretch] = ()) -> pa.Table:
    """Return the parsed Shrinking lines with their terms: leader_id, leader_epoch, at_us, answered_us and so on.

    ``answered_us`` is the time at which the leader learned that its ISR write had succeeded. It is the time of the line
    "ISR updated" or, where a shrink begins a new term (KRaft up to 3.6), the start of that term. If neither is logged,
    it is the time of the controller's record of the change, provided that the record is more than a second after the
    shrink. In all other cases it is null. Lines about retries after a failed write to ZooKeeper are skipped.
    """
    lines = sources.sql(
        f"""
        WITH first_tries AS (
            SELECT s.*, lead(stamp_us) OVER (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us) AS next_us
            FROM shrinks s ANTI JOIN (SELECT * FROM writes WHERE repeated) USING (source_file, source_line)
        ), answers AS (
            SELECT broker_id, topic, partition_id, stamp_us, isr FROM updates
            -- Before 2.7 a write is over when the line is printed; a term that begins later has nothing to do with it.
            UNION ALL SELECT broker_id, topic, partition_id, stamp_us, isr FROM led WHERE EXISTS (FROM updates)
        ), later AS (
            SELECT leader_id, topic, partition_id, at_us, isr FROM history
            UNION ALL SELECT leader_id, topic, partition_id, stamp_us, isr FROM stayed
        )
        SELECT s.* EXCLUDE (next_us),
            CASE WHEN list_sort(u.isr) = list_sort(s.isr_after) AND coalesce(u.stamp_us < next_us, true) THEN u.stamp_us
            WHEN list_sort(h.isr) = list_sort(s.isr_after) AND h.at_us > s.stamp_us + {_LATE_ANSWER_US}
                AND coalesce(h.at_us < next_us, true) THEN h.at_us
            END AS answered_us
        FROM first_tries s ASOF LEFT JOIN answers u ON s.broker_id = u.broker_id AND s.topic = u.topic
            AND s.partition_id = u.partition_id AND s.stamp_us <= u.stamp_us
        ASOF LEFT JOIN later h ON h.leader_id = s.broker_id AND s.topic = h.topic
            AND s.partition_id = h.partition_id AND s.stamp_us <= h.at_us
        """,
        shrinks=sources.shrinks,
        writes=sources.isr_writes,
        updates=sources.isr_updates,
        led=sources.led,
        history=sources.history,
        stayed=sources.stayed,
    )
    in_terms = _in_their_terms(sources.sql, lines, terms)
    return with_log_stretch(in_terms, epochs_in_force(sources.sql, terms), stretches, "at_us")


def isr_shrinks_in_read_logs(
    shrinks: pa.Table,
    files: pa.Table,
    begins_us: Mapping[int, int],
    ends_us: Mapping[int, int],
    gone: Collection[int] = (),
) -> pa.Table:
    """Select the shrinks in the result of `isr_shrinks_by_term` that happened in the period of the ingested logs.

    Server and request logs rotate separately. The file with a Shrinking line may have been deleted while the request
    log of that time still exists.

    Parameters
    ----------
    shrinks : pa.Table
    files : pa.Table
        The logs of this ingest except request logs: source_file.
    begins_us, ends_us : mapping of int to int
        By leader, the times at which the request logs of this ingest begin and end, in microseconds since 1970.
        Earlier ingests may have read later logs.
    gone : collection of int
        Brokers with request logs that are no longer in the folder. If none of a broker's request logs is left, its
        Shrinking lines are skipped, because the appends before them may be in the logs that have left the folder.
    """
    times = zip(shrinks["leader_id"].to_pylist(), shrinks["at_us"].to_pylist(), strict=True)
    with_requests = pa.array(
        [leader in begins_us and begins_us[leader] <= at_us <= ends_us[leader] for leader, at_us in times], pa.bool_()
    )
    elsewhere = pc.is_in(shrinks["leader_id"], pa.array([*{*gone} - {*begins_us}], shrinks["leader_id"].type))
    in_files = pc.and_(pc.is_in(shrinks["source_file"], files["source_file"]), pc.invert(elsewhere))
    return shrinks.filter(pc.or_(in_files, with_requests))


def _in_their_terms(sql: ArrowSql, lines: pa.Table, terms: pa.Table) -> pa.Table:
    return sql(
        """
        SELECT l.* EXCLUDE (broker_id, stamp_us), broker_id AS leader_id, stamp_us AS at_us,
            epoch_at(in_force, stamp_us) AS leader_epoch
        FROM lines l LEFT JOIN terms f
            ON f.leader_id = l.broker_id AND f.topic = l.topic AND f.partition_id = l.partition_id
        """,
        lines=lines,
        terms=epochs_in_force(sql, terms),
    )


def isr_changes_recorded_until(sources: ParsedLogs, log_ends_us: int) -> int | None:
    """Return the time, in microseconds since 1970, up to which the metadata log contains every ISR change, or None.

    The result is None without a metadata log. The dump of the metadata log may have been made before the logs end.
    Since 3.3, an active controller writes a record twice a second. If the last record is more than a minute older than
    the end of the logs, later changes are unknown. Before 3.3, they are only unknown if a leader logged a later change.
    In all other cases, the metadata log is complete up to the end of the logs.
    """
    last_us = pc.max(sources.metadata["at_us"]).as_py()
    if last_us is None:
        return None
    ticks = pc.any(pc.equal(sources.metadata["type"], "NO_OP_RECORD")).as_py()
    lines = (sources.isr_updates, sources.stayed, sources.led)
    goes_on = any((pc.max(each["stamp_us"]).as_py() or 0) > last_us + _RECORD_LATE_US for each in lines)
    ended = ticks and last_us < log_ends_us - _TICKS_US
    return int(last_us) if goes_on or ended else max(last_us, log_ends_us)


def observed_isr_changes(  # noqa: PLR0913 all that changes are found in
    sources: ParsedLogs, shrinks: pa.Table, terms: pa.Table, begun: pa.Table, files: pa.Table, *, controller_known: bool
) -> pa.Table:
    """Derive the rows of table observed_isr_changes, with times in microseconds since 1970.

    ``begun`` contains the terms that began before the log, with isr_at_start, the ISR before the first logged change.
    ``files`` contains one row per log file: kind, broker_id, first_us and last_us.

    A shrink without a Shrinking line near its time is attributed to the controller if the leader's server.log would
    contain the line (`_with_maker`). An expand in the same record as a change of leader is attributed to the
    controller's election. If that record completes a reassignment, the expand is instead attributed to the former
    leader, which requested it. A Shrinking line without a matching metadata record is a failed attempt (for example by
    a deposed leader), but is kept as a row.

    ``earliest_us`` is set if the change may have happened before its line: the partition epochs show that changes
    before it were not logged. It is not set for the removal of a former leader.
    """
    late = "false" if controller_known else "partition_epoch - lag(partition_epoch) OVER of_partition > 1"
    if controller_known:
        history = sources.history
    else:
        history = _with_beginnings(sources.sql, _from_leaders(sources, terms), begun)
    changes = sources.sql(
        f"""
        WITH following AS (
            SELECT * EXCLUDE (isr), isr AS isr_after,
                lag(isr) OVER of_partition AS isr_before, lag(leader_id) OVER of_partition AS leader_before,
                lag(leader_epoch) OVER of_partition AS epoch_before,
                CASE WHEN {late} THEN lag(at_us) OVER of_partition END AS earliest_us,
                lag(replicas) OVER of_partition AS replicas_before
            FROM history WINDOW of_partition AS (PARTITION BY topic, partition_id ORDER BY position, at_us)
        )
        SELECT {_CHANGE}, earliest_us, leader_before, epoch_before,
            CASE WHEN leader_epoch = epoch_before + 1 THEN leader_before END AS left_now_id,
            coalesce(leader_before >= 0 AND len(list_without(replicas_before, replicas)) > 0, false) AS is_reassigned
        FROM following WHERE isr_before IS NOT NULL AND NOT begins
        """,
        history=history,
    )
    expands = sources.sql(
        """
        SELECT * REPLACE (CASE WHEN is_reassigned THEN leader_before ELSE leader_id END AS leader_id,
            CASE WHEN is_reassigned THEN epoch_before ELSE leader_epoch END AS leader_epoch)
        FROM changes
        """,
        changes=changes,
    )
    expanding = sources.sql("SELECT * FROM writes WHERE NOT shrinks AND NOT repeated", writes=sources.isr_writes)
    expanding = sources.sql(
        "SELECT *, NULL::BIGINT AS answered_us FROM expanding",
        expanding=_in_their_terms(sources.sql, expanding, terms),
    )
    in_records = _without_line(sources.sql, changes, shrinks).drop_columns("epoch_before")
    without_line = pa.concat_tables([in_records, _changes_in_requests(sources, terms, begun)])
    return sources.sql(
        f"""
        SELECT {_CHANGE}, high_watermark, leader_log_end_offset, 'shrink' AS kind, 'leader' AS made_by, answered_us,
            d.replica_id AS replica_id, d.follower_log_end_offset AS follower_log_end_offset,
            d.last_caught_up_time_ms AS last_caught_up_time_ms
        FROM (SELECT *, unnest(dropped) AS d FROM shrinks)
        UNION ALL BY NAME
        SELECT {_CHANGE}, replica_id, 'shrink' AS kind, made_by,
            CASE WHEN replica_id IS DISTINCT FROM left_now_id THEN earliest_us END AS earliest_us
        FROM without_shrink
        UNION ALL BY NAME
        SELECT {_CHANGE}, earliest_us, unnest(list_without(isr_after, isr_before)) AS replica_id, 'expand' AS kind,
            CASE WHEN leader_id = coalesce(leader_before, leader_id) THEN 'leader' ELSE 'controller' END AS made_by
        FROM (SELECT * FROM without_expand UNION ALL BY NAME SELECT {_CHANGE} FROM expanding)
        """,
        shrinks=shrinks,
        without_shrink=_with_maker(sources, without_line, shrinks, files, controller_known),
        without_expand=_without_line(sources.sql, expands, expanding),
        expanding=expanding,
    )


def _with_maker(
    sources: ParsedLogs,
    changes: pa.Table,
    shrinks: pa.Table,
    files: pa.Table,
    controller_known: bool,  # noqa: FBT001 as given
) -> pa.Table:
    """Decide whether the leader or the controller removed each replica that left without a Shrinking line.

    It was the controller if the leader's server.log would contain the line: it covers the time, contains other ISR
    lines and no unreadable ones near that time, and does not show that Shrinking lines are filtered out. If not, the
    metadata records decide: the controller removes a replica if its broker is fenced or shuts down, and also when it
    elects another leader or completes a reassignment. If the records do not show such a cause, it is unknown who
    removed the replica. Up to 3.2, they do not show that a broker shuts down.
    """
    return sources.sql(
        f"""
        WITH dropped AS (
            SELECT {_CHANGE}, earliest_us, left_now_id, leader_before, is_reassigned,
                unnest(list_without(isr_before, isr_after)) AS replica_id
            FROM changes
        ), spans AS (
            SELECT broker_id, min(first_us) AS first_us, max(last_us) AS last_us FROM files
            WHERE kind = '{SERVER}' AND informs AND first_us IS NOT NULL GROUP BY broker_id
        ), filtered AS (
            SELECT DISTINCT c.leader_id FROM changes c JOIN updates u ON u.broker_id = c.leader_id
                AND (u.topic, u.partition_id) = (c.topic, c.partition_id) AND list_sort(u.isr) = list_sort(c.isr_after)
                AND u.stamp_us BETWEEN c.at_us - {_RECORD_EARLY_US} AND c.at_us + {_RECORD_LATE_US}
            WHERE len(list_without(c.isr_before, c.isr_after)) > 0 AND (
                len(list_without(c.isr_after, c.isr_before)) = 0 OR c.leader_id NOT IN (SELECT leader_id FROM shrinks))
        ), lines AS (
            SELECT d.*, coalesce(d.at_us BETWEEN s.first_us AND s.last_us, false) AND NOT EXISTS (
                FROM unread u WHERE u.broker_id = d.leader_id
                    AND coalesce((u.topic, u.partition_id) = (d.topic, d.partition_id), true)
                    AND d.at_us BETWEEN u.stamp_us - {_RECORD_EARLY_US} AND u.stamp_us + {_RECORD_LATE_US}) AS covered,
                d.leader_id NOT IN (FROM filtered) AND d.leader_id IN (
                    SELECT broker_id FROM writes UNION SELECT broker_id FROM updates) AS printed
            FROM dropped d LEFT JOIN spans s ON s.broker_id = d.leader_id
        )
        SELECT d.*, CASE
            WHEN d.leader_id IS DISTINCT FROM d.leader_before OR d.is_reassigned OR d.covered AND d.printed
                OR coalesce(b.kind, 'unfenced') <> 'unfenced' THEN 'controller'
            WHEN {controller_known} AND NOT d.covered THEN 'leader'
            ELSE 'unknown' END AS made_by
        FROM lines d
        ASOF LEFT JOIN states b ON b.broker_id = d.replica_id AND d.at_us + 1000 >= b.at_us
        """,
        changes=changes,
        shrinks=shrinks,
        writes=sources.isr_writes,
        updates=sources.isr_updates,
        files=files,
        states=metadata_brokers(sources.sql, sources.metadata),
        unread=unread_isr_lines(sources.sql, sources.server),
    )


def _without_line(sql: ArrowSql, changes: pa.Table, announced: pa.Table) -> pa.Table:
    late_us = f"greatest(l.at_us + {_RECORD_LATE_US}, coalesce(l.answered_us, 0))"
    return sql(
        f"""
        SELECT c.* FROM changes c ANTI JOIN announced l ON c.topic = l.topic AND c.partition_id = l.partition_id
            AND list_sort(c.isr_after) = list_sort(l.isr_after)
            AND c.at_us BETWEEN l.at_us - {_RECORD_EARLY_US} AND {late_us}
        """,
        changes=changes,
        announced=announced,
    )


def _changes_in_requests(sources: ParsedLogs, terms: pa.Table, begun: pa.Table) -> pa.Table:
    """Return the ISR changes that LeaderAndIsr requests show: requests whose ISR differs from the last known ISR.

    The requests are only logged at TRACE. Without them, removals are derived from the next ISR line of a leader, which
    shows the ISR before its change.
    """
    return sources.sql(
        f"""
        WITH orders AS (
            SELECT a.* EXCLUDE (leader_id) FROM accepted a
                ANTI JOIN (SELECT * FROM led WHERE partition_epoch IS NOT NULL)
                USING (broker_id, topic, partition_id, leader_epoch)
            WHERE leads
        ), every AS (
            SELECT topic, partition_id, leader_epoch, broker_id AS leader_id, stamp_us AS at_us, isr AS isr_after,
                source_file, source_line, true AS ordered
            FROM orders
            UNION ALL BY NAME
            SELECT topic, partition_id, leader_id, at_us, isr_after, source_file, source_line, false AS ordered
            FROM writes WHERE NOT failed
            UNION ALL BY NAME
            SELECT topic, partition_id, leader_epoch, leader_id, at_us - 1 AS at_us, isr_before AS isr_after,
                source_file, source_line, true AS ordered, true AS late
            FROM writes WHERE NOT failed AND NOT repeated AND NOT EXISTS (FROM updates)
            UNION ALL BY NAME
            SELECT topic, partition_id, broker_id AS leader_id, stamp_us AS at_us, isr AS isr_after, source_file,
                source_line, false AS ordered
            FROM updates
            UNION ALL BY NAME
            SELECT topic, partition_id, leader_epoch, leader_id, start_us AS at_us, isr_at_start AS isr_after,
                false AS ordered
            FROM begun
        ), following AS (
            SELECT *, lag(isr_after) OVER of_partition AS isr_before, lag(leader_id) OVER of_partition AS leader_before,
                lag(at_us) OVER of_partition AS before_us
            FROM every WINDOW of_partition AS (PARTITION BY topic, partition_id ORDER BY at_us, source_line)
        )
        SELECT {_CHANGE}, CASE WHEN late OR leader_id IS DISTINCT FROM leader_before THEN before_us END AS earliest_us,
            leader_before, leader_before AS left_now_id, false AS is_reassigned
        FROM following WHERE ordered AND isr_before IS NOT NULL
        """,
        accepted=sources.accepted,
        led=sources.led,
        writes=_in_their_terms(sources.sql, sources.isr_writes, terms),
        updates=sources.isr_updates,
        begun=begun,
    )


def _with_beginnings(sql: ArrowSql, history: pa.Table, begun: pa.Table) -> pa.Table:
    """Add to ``history`` the ISR at the start of each term in ``begun``, so that the next change can be derived."""
    return sql(
        """
        SELECT * REPLACE (2 * position AS position) FROM history
        UNION ALL BY NAME
        SELECT b.topic, b.partition_id, b.leader_id, b.leader_epoch, b.isr_at_start AS isr,
            2 * min(h.position) - 1 AS position, b.start_us AS at_us, true AS begins
        FROM begun b JOIN history h ON b.topic = h.topic AND b.partition_id = h.partition_id AND h.at_us > b.start_us
        GROUP BY b.topic, b.partition_id, b.leader_id, b.leader_epoch, b.isr_at_start, b.start_us
        """,
        history=history,
        begun=begun,
    )


def _from_leaders(sources: ParsedLogs, terms: pa.Table) -> pa.Table:
    """Return the partition states that leaders logged, with the earliest line of each, in place of a metadata log.

    ``begins`` is true for a state that is only compared with the next one, but is not itself compared with the previous
    one. Such states are terms whose line shows no partition epoch (2.5 to 3.2), terms that are only known from a
    request, and the first state of a topic that was created again, whose epochs count from 0. A term without a
    partition epoch is sorted after the last state that was logged before it.
    """
    states = sources.sql(
        f"""
        WITH every AS (
            SELECT topic, partition_id, {_STATE} FROM (
                SELECT *, broker_id AS leader_id, stamp_us AS at_us FROM began)
            UNION ALL SELECT topic, partition_id, {_STATE} FROM (SELECT *, stamp_us AS at_us FROM stayed)
            UNION ALL SELECT topic, partition_id, {_STATE} FROM updated
        ), ordered AS (
            SELECT every.*, made_again_by(again_us, at_us) AS again, {_POSITION} AS position
            FROM every LEFT JOIN made_again USING (topic, partition_id) WHERE partition_epoch IS NOT NULL
        ), states AS (
            SELECT DISTINCT ON (topic, partition_id, position) * FROM ordered ORDER BY at_us, {_STATE}
        )
        SELECT * EXCLUDE (again), NULL::INTEGER[] AS replicas,
            again > 0 AND row_number() OVER (PARTITION BY topic, partition_id, again ORDER BY position) = 1 AS begins
        FROM states
        """,
        began=sources.led,
        stayed=sources.stayed,
        updated=_in_their_terms(sources.sql, sources.isr_updates, terms),
        made_again=sources.made_again,
    )
    return sources.sql(
        f"""
        SELECT * FROM states
        UNION ALL BY NAME
        SELECT topic, partition_id, {_STATE}, true AS begins, coalesce((SELECT max(s.position) FROM states s
            WHERE s.topic = b.topic AND s.partition_id = b.partition_id AND s.at_us <= b.at_us), -1) AS position
        FROM (SELECT *, broker_id AS leader_id, stamp_us AS at_us FROM began) b WHERE partition_epoch IS NULL
        UNION ALL BY NAME
        SELECT topic, partition_id, leader_id, leader_epoch, partition_epoch, isr, at_us, source_file,
            source_line, true AS begins, {_POSITION} AS position
        FROM (SELECT *, stamp_us AS at_us FROM accepted ANTI JOIN began
                USING (broker_id, topic, partition_id, leader_epoch) WHERE leads)
            LEFT JOIN made_again USING (topic, partition_id)
        """,
        states=states,
        began=sources.led,
        accepted=sources.accepted,
        made_again=sources.made_again,
    )

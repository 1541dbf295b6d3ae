"""Parse the logs of ZooKeeper clusters: LeaderAndIsr requests, which begin terms, and ISR writes.

A request was accepted if a later line shows that the broker began to act on it. A request that the broker ignored,
because its epoch was not higher, has no such line. Every accepted request begins a term, even if the leader stays the
same: up to 3.2, the leader then resets what it knows about its followers.
"""

import pyarrow as pa

from isr_batch.broker_lines.forms import (
    CORRELATION,
    EXPAND,
    FOLLOWS,
    FOR_PARTITION,
    FROM_CONTROLLER,
    LEADS,
    RECEIVED,
    SHRINK,
    WRITE_FAILED,
)  # fmt: skip
from isr_batch.broker_lines.log_sql import SOURCE, columns_of, groups, matches, rows_of
from isr_batch.lake.arrow_sql import ArrowSql


def zookeeper_accepted(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Return the LeaderAndIsr requests that brokers acted on, one row per partition.

    Parameters
    ----------
    sql : ArrowSql
    state_changes : pa.Table
        Lines of state-change.log: broker_id, source_file, source_line, stamp_us, message.

    Returns
    -------
    pa.Table
        broker_id, source_file, source_line, stamp_us, topic, partition_id; ``leads``, whether the broker becomes or
        stays the leader; leader_id, leader_epoch, isr, partition_epoch (the zkVersion) and replicas, as sent in the
        request. If ``leads`` is true, the new term begins at ``stamp_us`` or a few milliseconds before.
    """
    # Sorted by time, because correlation ids begin again after a broker is restarted.
    return sql(
        f"""
        WITH in_order AS (
            SELECT *, last_value(received IGNORE NULLS) OVER (
                PARTITION BY broker_id, topic, partition_id, controller, controller_epoch, correlation
                ORDER BY stamp_us, source_line) AS state
            FROM named
        )
        SELECT {SOURCE}, topic, partition_id, leads, state.leader_id AS leader_id, state.leader_epoch AS leader_epoch,
            state.isr AS isr, state.partition_epoch AS partition_epoch, state.replicas AS replicas
        FROM in_order WHERE (leads OR follows) AND state IS NOT NULL
        """,
        named=leader_and_isr_lines(sql, state_changes),
    )


def leader_and_isr_lines(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Parse the lines about LeaderAndIsr requests in state-change.log.

    Such a line reports that the broker has received a request, or that it begins to lead or follow the partition
    because of a request.

    Returns
    -------
    pa.Table
        `SOURCE`, topic, partition_id, leads, follows; controller, controller_epoch and correlation of the request;
        ``received``, a struct with the partition's state in the request (null unless the line reports the receipt).
    """
    of_partition = "named_topic VARCHAR, named_partition INTEGER"
    of_controller, of_request = "controller INTEGER, controller_epoch INTEGER", "correlation INTEGER"
    return sql(
        f"""
        WITH relevant AS (
            SELECT {SOURCE}, in_new_words(message) AS said FROM state_changes
            WHERE {matches("message", f"{RECEIVED.mark}|{LEADS}|{FOLLOWS}")}
        ), split AS (
            SELECT {SOURCE}, {matches("said", LEADS)} AS leads, {matches("said", FOLLOWS)} AS follows,
                {groups("said", FOR_PARTITION, of_partition)} AS p,
                {groups("said", FROM_CONTROLLER, of_controller)} AS c, {groups("said", CORRELATION, of_request)} AS r
            FROM relevant
        ), lines AS (
            SELECT {SOURCE}, leads, follows, {columns_of("p", of_partition)}, {columns_of("c", of_controller)},
                {columns_of("r", of_request)}
            FROM split
        )
        SELECT {SOURCE}, coalesce(state_topic, named_topic) AS topic,
            coalesce(state_partition, named_partition) AS partition_id, leads, follows, controller, controller_epoch,
            correlation, CASE WHEN leader_epoch IS NOT NULL THEN struct_pack(leader_id := leader_id,
                leader_epoch := leader_epoch, isr := isr, partition_epoch := partition_epoch,
                replicas := replicas) END AS received
        FROM lines LEFT JOIN (SELECT * EXCLUDE (broker_id, stamp_us) FROM received) USING (source_file, source_line)
        """,
        state_changes=state_changes,
        received=rows_of(sql, state_changes, RECEIVED),
    )


def zookeeper_isr_writes(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return the Shrinking and Expanding lines of server.log, and whether ZooKeeper refused each of these ISR writes.

    Returns
    -------
    pa.Table
        `SOURCE`, topic, partition_id, isr_before, isr_after, shrinks; ``failed``, whether ZooKeeper refused the write
        because the leader's zkVersion was outdated, so that the ISR did not change; ``repeated``, whether the line is a
        retry of a refused write. The leader retries at every check or fetch until it learns that it no longer leads.
    """
    return sql(
        f"""
        WITH named AS (
            SELECT *, true AS shrinks, false AS fails FROM shrunk
            UNION ALL BY NAME SELECT *, false AS shrinks, false AS fails FROM expanded
            UNION ALL BY NAME SELECT *, true AS fails FROM failures WHERE failure = 'Cached zkVersion '
        ), answered AS (
            SELECT *, coalesce(lead(fails) OVER of_partition, false) AS failed,
                struct_pack(shrinks := shrinks, isr_before := isr_before, isr_after := isr_after) AS attempt
            FROM named
            WINDOW of_partition AS (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
        )
        SELECT {SOURCE}, topic, partition_id, shrinks, isr_before, isr_after, failed,
            coalesce(lag(failed) OVER of_partition AND lag(attempt) OVER of_partition = attempt, false) AS repeated
        FROM answered WHERE NOT fails
        WINDOW of_partition AS (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
        """,
        shrunk=rows_of(sql, server, SHRINK),
        expanded=rows_of(sql, server, EXPAND),
        failures=rows_of(sql, server, WRITE_FAILED),
    )

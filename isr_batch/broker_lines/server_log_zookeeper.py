"""Parse terms and ISR changes in the logs of ZooKeeper clusters, whose controller sends LeaderAndIsr requests.

=============  ====================================================  ==============================================
release        a term in state-change.log (TRACE, its default)       its first offset
=============  ====================================================  ==============================================
0.9 - 0.10.2   ``Broker 1 received LeaderAndIsr request``, then      not printed
               ``stopped fetchers as part of become-leader request``
0.11 - 2.4     the same; 1.0: ``[Broker id=1] Received ...``         server.log: ``starts at Leader Epoch``; 2.4.1:
                                                                     with high watermark
2.5 - 3.x      ``Leader t-0 starts at leader epoch`` as well         in that line
=============  ====================================================  ==============================================

A request counts if the broker began to act on it; one that is "ignored" (its epoch is not higher) has no such line.
Every accepted request begins a term, even if the leader stays: up to 3.2 the leader then resets the state of its
followers.
"""

import pyarrow as pa

from isr_batch.broker_lines.log_sql import SOURCE, columns_of, groups, matches
from isr_batch.broker_lines.shrink_line import END, INT, INTS, LONG
from isr_batch.lake.arrow_sql import ArrowSql

_RECEIVED = (
    rf"eceived LeaderAndIsr request (?:LeaderAndIsr)?PartitionState\((?:topicName='([^']*)', partitionIndex=({INT}), )?"
    rf"controllerEpoch=\d+, leader=(-?{INT}), leaderEpoch=({INT}), isr=\[?((?:{INTS})?)\]?, "
    rf"(?:zkVersion|partitionEpoch)=({INT}), replicas=\[?({INTS}){END}"
)
_LEADS = r"topped fetchers as part of become-leader request|kipped the become-leader state change after marking"
_FOLLOWS = r"tarting the become-follower transition"
_PARTITION = rf"for partition (\S+)-({INT}){END}"
_CONTROLLER = rf"controller ({INT}) epoch ({INT}){END}"
_CORRELATION = rf"correlation ?[iI]d ({INT}){END}"
STATE_CHANGES_OF_INTEREST = f"eceived LeaderAndIsr request|{_LEADS}|{_FOLLOWS}"

_CHANGE = (
    rf"\[Partition (\S+)-({INT}) broker=\d+\] (Shrinking|Expanding) ISR (?:for partition \S+ )?"
    rf"from ({INTS}) to (?:({INTS}){END}|)"
)
_WRITE_FAILED = rf"\[Partition (\S+)-({INT}) broker=\d+\] Cached zkVersion "
OF_INTEREST = "Expanding ISR|Cached zkVersion|starts at [Ll]eader [Ee]poch"

_STARTS = (
    rf"\[Partition \S+ broker=\d+\] (\S+)-({INT}) starts at [Ll]eader [Ee]poch ({INT}) from offset ({LONG})"
    rf"(?: with high watermark ({LONG}){END}|{END})"
)


def zookeeper_accepted(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """List the LeaderAndIsr requests that a broker acted on, one row per partition.

    Parameters
    ----------
    sql : ArrowSql
    state_changes : pa.Table
        Lines of state-change.log: broker_id, source_file, source_line, stamp_us, message.

    Returns
    -------
    pa.Table
        broker_id, source_file, source_line, stamp_us, topic, partition_id; ``leads``: the broker is the leader, and
        the new term begins at ``stamp_us`` or some ms before; of the request: leader_id, leader_epoch, isr,
        partition_epoch (the zkVersion), replicas.
    """
    state = (
        "state_topic VARCHAR, state_partition INTEGER, leader_id INTEGER, leader_epoch INTEGER, isr VARCHAR, "
        "partition_epoch INTEGER, replicas VARCHAR"
    )
    of_partition = "named_topic VARCHAR, named_partition INTEGER"
    of_controller, of_request = "controller INTEGER, controller_epoch INTEGER", "correlation INTEGER"
    # A broker that restarts gets requests with the same numbers again.
    return sql(
        f"""
        WITH relevant AS (
            SELECT {SOURCE}, in_new_words(message) AS said FROM state_changes
            WHERE {matches("message", f"{_RECEIVED}|{_LEADS}|{_FOLLOWS}")}
        ), split AS (
            SELECT {SOURCE}, {matches("said", _LEADS)} AS leads, {matches("said", _FOLLOWS)} AS follows,
                {groups("said", _PARTITION, of_partition)} AS p, {groups("said", _CONTROLLER, of_controller)} AS c,
                {groups("said", _CORRELATION, of_request)} AS r, {groups("said", _RECEIVED, state)} AS s
            FROM relevant
        ), lines AS (
            SELECT {SOURCE}, leads, follows, {columns_of("p", of_partition)}, {columns_of("c", of_controller)},
                {columns_of("r", of_request)}, {columns_of("s", state)}
            FROM split
        ), named AS (
            SELECT *, coalesce(state_topic, named_topic) AS topic,
                coalesce(state_partition, named_partition) AS partition_id,
                CASE WHEN leader_epoch IS NOT NULL THEN struct_pack(leader_id := leader_id,
                    leader_epoch := leader_epoch, isr := int_list(isr), partition_epoch := partition_epoch,
                    replicas := int_list(replicas)) END AS received
            FROM lines
        ), in_order AS (
            SELECT *, last_value(received IGNORE NULLS) OVER (
                PARTITION BY broker_id, topic, partition_id, controller, controller_epoch, correlation
                ORDER BY stamp_us, source_line) AS state
            FROM named
        )
        SELECT {SOURCE}, topic, partition_id, leads, state.leader_id AS leader_id, state.leader_epoch AS leader_epoch,
            state.isr AS isr, state.partition_epoch AS partition_epoch, state.replicas AS replicas
        FROM in_order WHERE (leads OR follows) AND state IS NOT NULL
        """,
        state_changes=state_changes,
    )


def zookeeper_start_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the start offsets of terms in server.log: broker_id, topic, partition_id, leader_epoch and offsets."""
    columns = (
        "topic VARCHAR, partition_id INTEGER, leader_epoch INTEGER, start_offset BIGINT, start_high_watermark BIGINT"
    )
    return sql(
        f"""
        WITH split AS (
            SELECT broker_id, stamp_us, {groups("in_new_words(message)", _STARTS, columns)} AS s FROM server
            WHERE contains(lower(message), 'starts at leader epoch')
        )
        SELECT broker_id, stamp_us, {columns_of("s", columns)} FROM split WHERE s.topic != ''
        """,
        server=server,
    )


def zookeeper_isr_writes(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """List the Shrinking and Expanding lines with their outcome: isr_before, isr_after, ``shrinks``, failed, repeated.

    ``failed``: the conditional write to ZooKeeper found another version, so the ISR did not change. The leader retries
    at each check or fetch until it learns that it no longer leads: such lines are ``repeated``.
    """
    change = "changed_topic VARCHAR, changed_partition INTEGER, verb VARCHAR, before VARCHAR, after VARCHAR"
    failure = "failed_topic VARCHAR, failed_partition INTEGER"
    return sql(
        f"""
        WITH lines AS (
            SELECT {SOURCE}, in_new_words(message) AS said FROM server
            WHERE {matches("message", "(Shrinking|Expanding) ISR |Cached zkVersion ")}
        ), split AS (
            SELECT {SOURCE}, {groups("said", _CHANGE, change)} AS c, {groups("said", _WRITE_FAILED, failure)} AS f
            FROM lines
        ), named AS (
            SELECT *, coalesce(changed_topic, failed_topic) AS topic,
                coalesce(changed_partition, failed_partition) AS partition_id
            FROM (SELECT {SOURCE}, {columns_of("c", change)}, {columns_of("f", failure)} FROM split)
        ), answered AS (
            SELECT *, coalesce(lead(failed_topic) OVER of_partition IS NOT NULL, false) AS failed,
                struct_pack(verb := verb, before := before, after := after) AS attempt
            FROM named
            WINDOW of_partition AS (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
        )
        SELECT {SOURCE}, topic, partition_id, verb = 'Shrinking' AS shrinks, int_list(before) AS isr_before,
            int_list(after) AS isr_after, failed,
            coalesce(lag(failed) OVER of_partition AND lag(attempt) OVER of_partition = attempt, false) AS repeated
        FROM answered WHERE verb IS NOT NULL
        WINDOW of_partition AS (PARTITION BY broker_id, topic, partition_id ORDER BY stamp_us, source_line)
        """,
        server=server,
    )

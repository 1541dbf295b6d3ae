"""The parsed logs of a folder, from which the modules in `isr_batch.ingest.terms` derive tables."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from isr_batch.broker_lines import forms, metadata_log, server_log, server_log_zookeeper
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.requests.in_force import topics_made_again
from isr_batch.ingest.terms.min_isr import min_isr_settings
from isr_batch.lake.arrow_sql import ArrowSql

NOTED_WITHIN_US = 5_000_000
"""Maximum time, in microseconds, between two lines about the start of the same term."""
_LINE_LATE_US = 1_000_000
"""Maximum time, in microseconds, from the completion of a LeaderAndIsr request to the line about the term that it
begins.
"""


@dataclass(frozen=True)
class ParsedLogs:
    """The parsed logs of a folder. Tables that several modules use are computed on first use.

    Parameters
    ----------
    sql : ArrowSql
    engine : Engine
    fetches : Rows
        Followers' fetches: the result of the query `isr_batch.ingest.requests.request_log.FETCHES`.
    from_controller : pa.Table
        Result of `isr_batch.ingest.requests.leader_and_isr.accepted_requests`.
    topics : pa.Table
        Names of topics: topic_id, topic.
    server, state_changes : pa.Table
        Lines of server.log and state-change.log.
    metadata : pa.Table
        Records of the metadata log.
    settings : pa.Table
        Result of `isr_batch.ingest.terms.broker_settings.broker_settings`.
    min_isr : pa.Table
        Values of min.insync.replicas in metadata records and listings: topic, resource_broker, min_insync_replicas.
    """

    sql: ArrowSql
    engine: Engine
    fetches: Rows
    from_controller: pa.Table
    topics: pa.Table
    server: pa.Table
    state_changes: pa.Table
    metadata: pa.Table
    settings: pa.Table
    min_isr: pa.Table

    @cached_property
    def shrinks(self) -> pa.Table:
        """Shrinking lines, parsed by `server_log.shrink_lines`. The leader is the broker that wrote the line."""
        return server_log.shrink_lines(self.sql, self.server).drop_columns(["leader_id"])

    @cached_property
    def isr_updates(self) -> pa.Table:
        """Lines about a successful ISR write (`forms.ISR_UPDATED`)."""
        return rows_of(self.sql, self.server, forms.ISR_UPDATED)

    @cached_property
    def isr_writes(self) -> pa.Table:
        """Lines about ISR writes to ZooKeeper, parsed by `server_log_zookeeper.zookeeper_isr_writes`."""
        return server_log_zookeeper.zookeeper_isr_writes(self.sql, self.server)

    @cached_property
    def led(self) -> pa.Table:
        """Lines about the start of a term (`forms.LEADER`)."""
        return rows_of(self.sql, self.state_changes, forms.LEADER)

    @cached_property
    def stayed(self) -> pa.Table:
        """Lines about a changed partition state with the same leader and leader epoch (`forms.STILL_LEADER`)."""
        return rows_of(self.sql, self.state_changes, forms.STILL_LEADER)

    @cached_property
    def accepted(self) -> pa.Table:
        """Accepted LeaderAndIsr requests in state-change.log, and those that are only in the request log.

        For a request in the request log, ``stamp_us`` is the start of the term according to server.log or, if
        server.log does not show it, the end of the request.
        """
        return self.sql(
            f"""
            WITH unnoted AS (
                SELECT o.* FROM from_controller o ANTI JOIN accepted a ON o.broker_id = a.broker_id
                    AND o.topic = a.topic AND o.partition_id = a.partition_id AND o.leader_epoch = a.leader_epoch
                    AND abs(o.stamp_us - a.stamp_us) <= {NOTED_WITHIN_US}
            )
            SELECT * FROM accepted
            UNION ALL BY NAME
            SELECT o.* REPLACE (CASE WHEN leads AND l.stamp_us >= o.stamp_us - {NOTED_WITHIN_US} THEN l.stamp_us
                ELSE o.stamp_us END AS stamp_us)
            FROM unnoted o ASOF LEFT JOIN begun l ON o.broker_id = l.broker_id AND o.topic = l.topic
                AND o.partition_id = l.partition_id AND o.leader_epoch = l.leader_epoch
                AND o.stamp_us + {_LINE_LATE_US} >= l.stamp_us
            """,
            accepted=server_log_zookeeper.zookeeper_accepted(self.sql, self.state_changes),
            from_controller=self.from_controller,
            begun=rows_of(self.sql, self.server, forms.START_OFFSET),
        )

    @cached_property
    def made_again(self) -> pa.Table:
        """Partitions of topics that were deleted and created again: the result of `in_force.topics_made_again`."""
        return topics_made_again(self.sql, self.led, self.accepted, self.deleted)

    @cached_property
    def deleted(self) -> pa.Table:
        """Deletions of partitions' logs in server.log and the metadata log, with the columns of `forms.DELETED`."""
        logged = rows_of(self.sql, self.server, forms.DELETED)
        return metadata_log.with_deletions(self.sql, logged, self.metadata, self.topics)

    @cached_property
    def min_isr_settings(self) -> pa.Table:
        """Values of min.insync.replicas by topic and time: the result of `min_isr.min_isr_settings`."""
        return min_isr_settings(self.sql, self.server, self.metadata, self.settings, self.min_isr)

    @cached_property
    def history(self) -> pa.Table:
        """Partition states in the metadata log: the result of `metadata_log.metadata_partitions`."""
        return metadata_log.metadata_partitions(self.sql, self.metadata, self.topics)

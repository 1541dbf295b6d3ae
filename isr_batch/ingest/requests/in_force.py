"""Find the term to which a row about a leader belongs, and topics that were deleted and created again."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.engine.in_spark import worker_sql
from isr_batch.ingest.requests.coverage import Stretch, with_stretch_number
from isr_batch.ingest.requests.log_end_offsets import PARTITION
from isr_batch.lake.arrow_sql import ArrowSql

EARLY_US = 100_000
"""Maximum time, in microseconds, from the start of a term to its line in state-change.log."""


def topics_made_again(sql: ArrowSql, led: pa.Table, accepted: pa.Table, deleted: pa.Table) -> pa.Table:
    """Find the partitions of topics that were deleted and created again with the same name.

    A topic was created again if a term with leader epoch 0 follows the deletion of a log. After a reassignment, which
    also deletes logs, the next leader epoch is higher.

    Parameters
    ----------
    sql : ArrowSql
    led, accepted : pa.Table
        Starts of terms: topic, partition_id, leader_epoch, stamp_us. Rows of ``accepted`` are only used if their
        ``leads`` is true.
    deleted : pa.Table
        Lines about deleted logs: topic, partition_id, stamp_us.

    Returns
    -------
    pa.Table
        topic, partition_id, and ``again_us``, the list of times at which the topic was created again, in microseconds
        since 1970.
    """
    return sql(
        f"""
        WITH starts AS (
            SELECT topic, partition_id, leader_epoch, stamp_us FROM led
            UNION ALL SELECT topic, partition_id, leader_epoch, stamp_us FROM accepted WHERE leads
        ), following AS (
            SELECT *, lag(stamp_us) OVER (PARTITION BY topic, partition_id ORDER BY stamp_us) AS before_us FROM starts
        )
        SELECT topic, partition_id, list(stamp_us - {EARLY_US} ORDER BY stamp_us) AS again_us
        FROM following f SEMI JOIN deleted d ON f.topic = d.topic AND f.partition_id = d.partition_id
            AND d.stamp_us < f.stamp_us AND d.stamp_us > coalesce(f.before_us, 0)
        WHERE leader_epoch = 0 GROUP BY topic, partition_id
        """,
        led=led,
        accepted=accepted,
        deleted=deleted,
    )


def epochs_in_force(sql: ArrowSql, terms: pa.Table) -> pa.Table:
    """Return, for each leader and partition, its terms as a list, which the SQL macro ``epoch_at`` searches."""
    partition = ", ".join(PARTITION)
    return sql(
        f"""
        SELECT {partition}, list({{in_force_us: in_force_us, leader_epoch: leader_epoch, made_again: made_again}}
            ORDER BY in_force_us, leader_epoch) AS in_force,
            max(made_again) AS made_again
        FROM terms GROUP BY {partition}
        """,
        terms=terms,
    )


def with_log_stretch(rows: pa.Table, in_force: pa.Table, stretches: Sequence[Stretch], us: str) -> pa.Table:
    """Add ``log_stretch``, the number (from 0) of the part of a partition's history to which each row belongs.

    A new part begins after a gap in the leader's request log, and when the topic is created again.

    Parameters
    ----------
    rows : pa.Table
        Rows with leader_id, topic, partition_id and a time.
    in_force : pa.Table
        Result of `epochs_in_force`.
    stretches : sequence of Stretch
        Periods that the leaders' request logs cover.
    us : str
        Name of the column with the time, in microseconds since 1970.
    """
    rows = with_stretch_number(rows, stretches, "leader_id", us)
    again = in_force.filter(pc.greater(in_force["made_again"], 0))
    if not again.num_rows:
        return rows
    return worker_sql()(
        f"""
        SELECT rows.* REPLACE (CAST(log_stretch + made_again_at(in_force, {us}) AS INTEGER) AS log_stretch)
        FROM rows LEFT JOIN again USING ({", ".join(PARTITION)})
        """,
        rows=rows,
        again=again,
    )

"""Derive table fetch_log: one row per fetch and partition, including partitions that only the fetch session lists."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query, worker_sql
from isr_batch.ingest.requests.coverage import Stretch, with_stretch_number
from isr_batch.ingest.requests.in_force import with_log_stretch
from isr_batch.ingest.requests.log_end_offsets import PARTITION
from isr_batch.ingest.requests.request_log import FETCHES as FETCHES_LOGGED
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns, int64_array
from udfs.batches.partitions_read import READ_SCHEMA, UNKNOWN_OFFSET, sessions_read
from udfs.batches.sessions import STRETCH_OF_SESSION, Members
from udfs.request_log.fields import NULL

_TERM = ", ".join((*PARTITION, "leader_epoch"))
_RENAMED = {"broker_id": "leader_id"}
FETCHES = pa.schema(
    [pa.field(_RENAMED.get(field.name, field.name), field.type) for field in READ_SCHEMA]
    + [("leader_log_end_offset", pa.int64()), ("leader_leo_source", pa.string()), ("log_stretch", pa.int32())]
)
"""Schema of `fetches_of`: one row per fetch and partition."""
IN_SESSIONS = pa.schema(
    [field for field in FETCHES_LOGGED.schema if field.name not in {"asked_session", "given_session"}]
    + [("session", pa.int64())]
)
"""Schema of `requests_in_sessions`: one row per follower's fetch request, with its fetch session."""
SESSION_ORDER = ("broker_id", "session", "session_epoch", "source_line")
DOUBTFUL = arrow_columns("source_file STRING, source_line BIGINT, reason STRING, detail STRING")
"""Schema of doubtful lines. They are listed in quarantine, but the rows that are derived from them are kept."""


def requests_in_sessions(engine: Engine, fetches: Rows, stretches: Sequence[Stretch]) -> Rows:
    """Number the fetch sessions of followers' fetches, and sort the fetches by session.

    Parameters
    ----------
    engine : Engine
    fetches : Rows
        Result of the query `isr_batch.ingest.requests.request_log.FETCHES`.
    stretches : sequence of Stretch
        Periods that the brokers' request logs cover. After a gap, a session gets another number, because its partitions
        may have changed in the gap.

    Returns
    -------
    Rows
        The fetches with a column ``session``. Rows with equal broker_id and session are adjacent, and sorted by
        `SESSION_ORDER`.
    """
    in_sessions = engine.map(fetches, partial(_requests_in_sessions, stretches=stretches), IN_SESSIONS)
    return engine.ordered(in_sessions, SESSION_ORDER[:2], SESSION_ORDER)


def _requests_in_sessions(batches: Iterator[pa.RecordBatch], stretches: Sequence[Stretch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbered = with_stretch_number(pa.table(batch), stretches, "broker_id", "completed_us")
        opens = int64_array(batch.column("session_epoch")) <= 0
        asked = int64_array(batch.column("asked_session").cast(pa.int64()), NULL)
        given = int64_array(batch.column("given_session"))
        found = np.where(opens, np.where(given == 0, NULL, given), asked)
        later = np.asarray(numbered["log_stretch"]).astype(np.int64) * STRETCH_OF_SESSION
        # A request without a session gets a number that no other request has.
        session = np.where(found == NULL, -int64_array(batch.column("source_line")), found + later)
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in IN_SESSIONS.names[:-1]), pa.array(session)], schema=IN_SESSIONS
        )


def fetches_of(  # noqa: PLR0913, PLR0917 one argument for each thing that a session's fetch is resolved with
    engine: Engine,
    sessions: Rows,
    topic_names: pa.Table,
    terms: pa.Table,
    members: Members,
    stretches: Sequence[Stretch] = (),
) -> Rows:
    """Derive the rows of table fetch_log, one per fetch and partition. Times are in microseconds since 1970.

    There are further columns: ``log_stretch``, and ``records_size`` (bytes), ``fell_from``, ``last_read_us`` and
    ``last_waited_us``, which `udfs.batches.partitions_read.sessions_read` describes. A row with a ``reason`` is not a
    fetch but a problem, which the query `SESSION_GAPS` selects.

    Parameters
    ----------
    engine : Engine
    sessions : Rows
        Result of `requests_in_sessions`.
    topic_names : pa.Table
        Names of topics: topic_id, topic.
    terms : pa.Table
        The terms of all leaders: the result of `isr_batch.ingest.requests.in_force.epochs_in_force`.
    members : mapping
        Partitions of the sessions that were opened before the log begins (`isr_batch.ingest.terms.session_partitions`).
    stretches : sequence of Stretch
        Periods that the brokers' request logs cover.
    """
    names = dict(zip(topic_names["topic_id"].to_pylist(), topic_names["topic"].to_pylist(), strict=True))
    work = partial(_fetch_log_rows, members=members, topic_names=names, terms=terms, stretches=stretches)
    return engine.map(sessions, work, FETCHES)


def _fetch_log_rows(
    batches: Iterator[pa.RecordBatch],
    members: Members,
    topic_names: Mapping[str, str],
    terms: pa.Table,
    stretches: Sequence[Stretch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fetch_log for batches of requests that are sorted by session."""
    for batch in sessions_read(batches, members):
        read = {_RENAMED.get(name, name): batch.column(name) for name in batch.schema.names}
        topics, offset = pc.dictionary_encode(read["topic"]), read["fetch_offset"]
        named = pa.array([topic_names.get(topic, topic) for topic in topics.dictionary.to_pylist()], pa.string())
        read["topic"] = named.take(topics.indices)
        read["fetch_offset"] = pc.if_else(pc.equal(offset, UNKNOWN_OFFSET), None, offset)
        read["leader_log_end_offset"] = pa.nulls(batch.num_rows, pa.int64())
        read["leader_leo_source"] = pa.repeat(pa.scalar("appends"), batch.num_rows)
        rows = with_log_stretch(pa.table(read), terms, stretches, "completed_us")
        # Only fetch requests before version 9 lack the leader epoch.
        if pc.any(pc.less(rows["leader_epoch"], 0)).as_py():
            rows = worker_sql()(_WITH_EPOCHS, rows=rows, terms=terms)
        yield from rows.to_batches()


_WITH_EPOCHS = f"""
    SELECT rows.* REPLACE (CASE WHEN rows.leader_epoch < 0 AND in_force IS NOT NULL
        THEN epoch_at(in_force, handled_us) ELSE rows.leader_epoch END AS leader_epoch)
    FROM rows LEFT JOIN terms USING ({", ".join(PARTITION)})
    """


SESSION_GAPS = Query("SELECT source_file, source_line, reason, detail FROM rows WHERE reason IS NOT NULL", DOUBTFUL)
"""Query on the result of `fetches_of`: selects the requests that do not continue their session, because lines before
them are missing."""
GOING_BACK = Query(
    """
    SELECT source_file, source_line, 'offset goes back without a truncation' AS reason,
        printf('replica %d of %s-%d in epoch %d, from %d to %d', replica_id, topic, partition_id, leader_epoch,
            fell_from, fetch_offset) AS detail
    FROM rows WHERE fell_from IS NOT NULL AND reason IS NULL
    """,
    DOUBTFUL,
)
"""Query on the result of `fetches_of`: selects fetches with a lower offset than the one before, although no response
made the follower truncate its log."""
FOLLOWERS = Query(
    f"""
    SELECT {_TERM}, replica_id, CAST(sum(run_length) AS BIGINT) AS fetches,
        first(source_file ORDER BY source_file, source_line) AS source_file,
        first(source_line ORDER BY source_file, source_line) AS source_line
    FROM rows WHERE reason IS NULL GROUP BY {_TERM}, replica_id
    """,
    arrow_columns(
        "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, replica_id INT, fetches BIGINT, "
        "source_file STRING, source_line BIGINT"
    ),
)
"""Query on the result of `fetches_of`: counts the fetches of each follower in each term, with the line of the first
one. Its results on parts of the rows must be combined.
"""


def fetchers_not_assigned(engine: Engine, followers: Rows, terms: pa.Table) -> Rows:
    """Find followers that fetched a partition to which they are not assigned.

    This may happen briefly after a reassignment. The fetches are kept in fetch_log.

    Parameters
    ----------
    engine : Engine
    followers : Rows
        Result of the query `FOLLOWERS`.
    terms : pa.Table
        The terms of all leaders, with column ``assigned``.

    Returns
    -------
    Rows
        A row for the first fetch of each such follower in each term, with the columns of `DOUBTFUL`.
    """

    def others(sql: ArrowSql, parts: pa.Table) -> pa.Table:
        """Select the followers in ``parts`` that are not assigned to the partition that they fetched."""
        return sql(
            f"""
            WITH of_term AS (SELECT {_TERM}, flatten(list(assigned)) AS assigned FROM terms GROUP BY {_TERM}),
            followers AS (
                SELECT {_TERM}, replica_id, CAST(sum(fetches) AS BIGINT) AS fetches,
                    first(source_file ORDER BY source_file, source_line) AS source_file,
                    first(source_line ORDER BY source_file, source_line) AS source_line
                FROM parts GROUP BY {_TERM}, replica_id
            )
            SELECT source_file, source_line, 'replica not assigned' AS reason,
                printf('replica %d of %s-%d in epoch %d, %d times', replica_id, topic, partition_id, leader_epoch,
                    fetches) AS detail
            FROM followers JOIN of_term USING ({_TERM}) WHERE NOT list_contains(assigned, replica_id)
            """,
            parts=parts,
            terms=assigned,
        )

    assigned = terms.select([*PARTITION, "leader_epoch", "assigned"])
    return engine.by_key(PARTITION, others, DOUBTFUL, parts=followers)

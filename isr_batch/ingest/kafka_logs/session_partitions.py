"""Reconstruct the partitions of fetch sessions that were opened before the log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from isr_batch.ingest.kafka_logs import mid_term
from isr_batch.ingest.kafka_logs.engine import Engine, Rows
from udfs.batches.partitions_read import REQUEST_COLUMNS
from udfs.batches.sessions import FIRST_REQUESTS, Members, first_session_requests

_FETCHER = r"(?:fetcher|ReplicaFetcherThread)-(\d{1,4})\b"


def members_before(
    engine: Engine,
    sessions: Rows,
    led: Sequence[Mapping[str, Any]],
    topic_names: pa.Table,
    fetchers: Mapping[int, int],
) -> Members:
    """Find the partitions of sessions that were opened before the log, or before a gap in it.

    An incremental request lists only what has changed, but fetches all partitions of its session: those that the leader
    leads, that the follower is assigned, and that belong to the same fetcher thread.

    Parameters
    ----------
    engine : Engine
    sessions : Rows
        As `isr_batch.ingest.kafka_logs.fetch_log.requests_in_sessions` gives them.
    led : sequence of dict
        Terms, with ``assigned``.
    topic_names : pa.Table
        topic_id, topic.
    fetchers : mapping of int to int
        num.replica.fetchers of each broker, where known.
    """
    opened = _opened_before(engine, sessions)
    if not opened:
        return {}
    threads: dict[int, int] = defaultdict(lambda: 1)
    for row in opened:
        threads[row["replica_id"]] = max(threads[row["replica_id"]], int(row["thread"] or 0) + 1)
    ids: dict[str, list[str]] = defaultdict(list)
    for row in topic_names.to_pylist():
        ids[row["topic"]].append(row["topic_id"])
    by_leader: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for term in led:
        by_leader[term["leader_id"]].append(term)
    members = {}
    for row in opened:
        count = fetchers.get(row["replica_id"], threads[row["replica_id"]])
        held: dict[str, set[int]] = defaultdict(set)
        for term in by_leader[row["broker_id"]]:
            # What the leader takes over later is listed by the follower when it begins to fetch it.
            late_us = _LATE_US if term["begins_mid_term"] else 0
            at_work = term["start_us"] <= row["handled_us"] + late_us and row["handled_us"] <= term["end_us"]
            mine = not row["thread"] or (
                mid_term.mid_term_fetcher(term["topic"], term["partition_id"], count) == int(row["thread"])
            )
            if at_work and mine and row["replica_id"] in term["assigned"]:
                held[term["topic"]].add(term["partition_id"])
        members[row["broker_id"], row["session"]] = [
            (ids[topic], topic, sorted(partitions)) for topic, partitions in sorted(held.items())
        ]
    return members


def _opened_before(engine: Engine, sessions: Rows) -> list[dict[str, Any]]:
    """Find the first requests of such sessions, and ``thread``, the number of the fetcher thread; '' if unknown."""
    requests = engine.select(sessions, [*REQUEST_COLUMNS[:-1], "client_id"])
    first = engine.map(requests, first_session_requests, FIRST_REQUESTS)
    opened = engine.sql(
        first,
        f"""
        SELECT *, coalesce(regexp_extract(client_id, '{_FETCHER}', 1), '') AS thread FROM rows
        WHERE session_epoch > 0 AND error_code = 0
        """,
        FIRST_REQUESTS.append(pa.field("thread", pa.string())),
    )
    found: list[dict[str, Any]] = engine.collect(opened).to_pylist()
    return found


_LATE_US = 1_000_000
"""A fetch may be handled this long before the first line of the log, as lines are written at completion."""

"""Find the partitions of fetch sessions that were opened before the log begins."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.requests.coverage import NO_NUMBERS
from isr_batch.ingest.terms import mid_term
from udfs.batches.partitions_read import REQUEST_COLUMNS, UNKNOWN_OFFSET
from udfs.batches.sessions import FIRST_REQUESTS, STRETCH_OF_SESSION, Members, first_session_requests

_FETCHER = r"(?:fetcher|ReplicaFetcherThread)-(\d{1,4})\b"


def members_before(  # noqa: PLR0913, PLR0917 all evidence of a session's partitions
    engine: Engine,
    sessions: Rows,
    led: Sequence[Mapping[str, Any]],
    topic_names: pa.Table,
    fetchers: Mapping[int, int],
    held: Sequence[Mapping[str, Any]] = (),
    numbers: pa.Table = NO_NUMBERS,
) -> Members:
    """Find the partitions of fetch sessions that were opened before the log, or before a gap in it.

    An incremental request only lists partitions that have changed, but fetches all partitions of its session. These are
    the partitions that the leader leads, that are assigned to the follower, and that belong to the session's fetcher
    thread.

    Parameters
    ----------
    engine : Engine
    sessions : Rows
        Result of `isr_batch.ingest.requests.fetch_log.requests_in_sessions`.
    led : sequence of dict
        Terms of leaders, with the replicas in ``assigned``.
    topic_names : pa.Table
        Names of topics: topic_id, topic.
    fetchers : mapping of int to int
        num.replica.fetchers of each broker for which it is known.
    held : sequence of dict
        The last fetches in earlier logs.
    numbers : pa.Table
        The last request of each session in earlier logs (`isr_batch.ingest.kafka_logs.earlier_logs`). A session that
        continues from such a request still has the same partitions.
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
    last = {(row["broker_id"], row["session"], row["number"]) for row in numbers.to_pylist()}
    members = {}
    for row in opened:
        goes_on = (row["broker_id"], row["session"] % STRETCH_OF_SESSION, row["session_epoch"] - 1) in last
        if goes_on and (went_on := _went_on(row, held, fetchers, opened)):
            members[row["broker_id"], row["session"]] = [
                (ids[topic], topic, partitions) for topic, partitions in sorted(went_on.items())
            ]
            continue
        count = fetchers.get(row["replica_id"], threads[row["replica_id"]])
        of_terms: dict[str, set[int]] = defaultdict(set)
        for term in by_leader[row["broker_id"]]:
            # Partitions that the leader takes over later are not added: the follower lists them when it begins to fetch
            # them.
            late_us = _LATE_US if term["begins_mid_term"] else 0
            at_work = term["start_us"] <= row["handled_us"] + late_us and row["handled_us"] <= term["end_us"]
            mine = not row["thread"] or (
                mid_term.mid_term_fetcher(term["topic"], term["partition_id"], count) == int(row["thread"])
            )
            if at_work and mine and row["replica_id"] in term["assigned"]:
                of_terms[term["topic"]].add(term["partition_id"])
        members[row["broker_id"], row["session"]] = [
            (ids[topic], topic, [(partition, -1, UNKNOWN_OFFSET) for partition in sorted(partitions)])
            for topic, partitions in sorted(of_terms.items())
        ]
    return members


def _went_on(
    opened: Mapping[str, Any],
    held: Sequence[Mapping[str, Any]],
    fetchers: Mapping[int, int],
    others: Sequence[Mapping[str, Any]],
) -> dict[str, list[tuple[int, int, int]]]:
    """Return the partitions of a session that continues from earlier logs, taken from its last request there.

    They are (partition, leader epoch, fetch offset), by topic. ``opened`` is the first request of the session, ``held``
    are the followers' last fetches in earlier logs, ``fetchers`` the numbers of fetcher threads by broker, and
    ``others`` the first requests of all sessions that continue. If it is unclear which of a follower's sessions made
    the last request, the result is empty.
    """
    pair = opened["broker_id"], opened["replica_id"]
    before = [each for each in held if (each["leader_id"], each["replica_id"]) == pair]
    if sum((each["broker_id"], each["replica_id"]) == pair for each in others) > 1:
        count = fetchers.get(opened["replica_id"], 0)
        if not count or not opened["thread"]:
            return {}
        before = [each for each in before if int(opened["thread"])
                  == mid_term.mid_term_fetcher(each["topic"], each["partition_id"], count)]  # fmt: skip
    last_us = max((each["last_handled_us"] for each in before), default=0)
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for each in before:
        if each["last_handled_us"] == last_us:
            offset = UNKNOWN_OFFSET if each["fetch_offset"] is None else each["fetch_offset"]
            found[each["topic"]].append((each["partition_id"], each["leader_epoch"], offset))
    return found


def _opened_before(engine: Engine, sessions: Rows) -> list[dict[str, Any]]:
    """Return the first logged request of each fetch session that was opened before the log.

    ``thread`` is the number of the follower's fetcher thread as text; it is empty if unknown.
    """
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
"""Maximum time, in microseconds, by which a fetch may have been handled before the log's first line. It is only logged
when it is completed."""

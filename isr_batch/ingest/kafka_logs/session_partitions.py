"""Reconstruct the partitions of fetch sessions that were opened before the log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import mid_term

_FETCHER = r"(?:fetcher|ReplicaFetcherThread)-(\d{1,4})\b"


def sessions_begun_before(sessions: DataFrame) -> DataFrame:
    """Find the first requests of fetch sessions that were opened before the log, or before a gap in it."""
    return sessions.where("previous_epoch IS NULL AND session_epoch > 0 AND error_code = 0")


def with_members(
    sessions: DataFrame,
    led: Sequence[Mapping[str, Any]],
    topic_names: DataFrame,
    fetchers: Mapping[int, int],
) -> DataFrame:
    """Prepend the partitions of a session opened before the log to its first request in the log.

    An incremental request lists only what has changed, but fetches all partitions of its session: those that the leader
    leads, that the follower is assigned, and that belong to the same fetcher thread.

    Parameters
    ----------
    sessions : DataFrame
        As `isr_batch.ingest.kafka_logs.request_log.in_sessions` gives them.
    led : sequence of dict
        Terms, with ``assigned``.
    topic_names : DataFrame
        topic_id, topic.
    fetchers : mapping of int to int
        num.replica.fetchers of each broker, where known.
    """
    first = sessions_begun_before(sessions).select("broker_id", "session", "replica_id", "client_id", "handled_us")
    opened = first.withColumn("thread", F.regexp_extract("client_id", _FETCHER, 1)).toArrow().to_pylist()
    if not opened:
        return sessions
    threads: dict[int, int] = defaultdict(lambda: 1)
    for row in opened:
        threads[row["replica_id"]] = max(threads[row["replica_id"]], int(row["thread"] or 0) + 1)
    ids: dict[str, list[str]] = defaultdict(list)
    for row in topic_names.toArrow().to_pylist():
        ids[row["topic"]].append(row["topic_id"])
    by_leader: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for term in led:
        by_leader[term["leader_id"]].append(term)
    members = []
    for row in opened:
        count = fetchers.get(row["replica_id"], threads[row["replica_id"]])
        held: dict[str, set[int]] = defaultdict(set)
        for term in by_leader[row["broker_id"]]:
            at_work = term["start_us"] <= row["handled_us"] + _LATE_US and row["handled_us"] <= term["end_us"]
            mine = not row["thread"] or (
                mid_term.fetcher_of(term["topic"], term["partition_id"], count) == int(row["thread"])
            )
            if at_work and mine and row["replica_id"] in term["assigned"]:
                held[term["topic"]].add(term["partition_id"])
        topics = [(ids[topic], topic, sorted(partitions)) for topic, partitions in sorted(held.items())]
        members.append((row["broker_id"], row["session"], topics))
    known = sessions.sparkSession.createDataFrame(
        members, "broker_id INT, session BIGINT, held ARRAY<STRUCT<ids: ARRAY<STRING>, topic: STRING, of: ARRAY<INT>>>"
    )
    return _in_front(sessions, known)


_LATE_US = 1_000_000
"""A fetch may be handled this long before the first line of the log, as lines are written at completion."""


def _in_front(sessions: DataFrame, known: DataFrame) -> DataFrame:
    by_id = F.exists("topics", lambda t: t.topicId.isNotNull()) | F.exists("responses", lambda t: t.topicId.isNotNull())
    by_id = by_id | F.exists("forgotten", lambda t: t.topicId.isNotNull())
    by_name = F.exists("topics", lambda t: t.topic.isNotNull()) | F.exists("responses", lambda t: t.topic.isNotNull())
    types = dict(sessions.dtypes)["topics"]
    unknown = F.lit(mid_term.UNKNOWN_EPOCH)

    def entry(held: Column) -> Column:
        # Of a request that lists nothing it does not matter; sessions of ids and of names do not mix.
        topic_id = F.coalesce(F.try_element_at(held.ids, F.lit(1)), held.topic)
        named = F.coalesce(by_name, F.lit(False)) & ~F.coalesce(by_id, F.lit(False))
        partition = F.transform(held.of, lambda number: F.struct(
            number.alias("partition"), unknown.alias("currentLeaderEpoch"), unknown.cast("bigint").alias("fetchOffset"),
            F.lit(0).cast("bigint").alias("recordsSizeInBytes"),
        ))  # fmt: skip
        return F.struct(
            F.when(~named, topic_id).alias("topicId"), F.when(named, held.topic).alias("topic"),
            partition.alias("partitions"),
        )  # fmt: skip

    joined = sessions.join(F.broadcast(known), ["broker_id", "session"], "left")
    first = F.col("held").isNotNull() & F.col("previous_epoch").isNull()
    in_front = F.transform("held", entry).cast(types)
    return joined.withColumn("topics", F.when(first, F.concat(in_front, "topics")).otherwise(F.col("topics"))).drop(
        "held"
    )

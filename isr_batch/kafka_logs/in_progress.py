"""Logs that begin in mid-term: gathers what `isr_batch.kafka_logs.mid_term` asks for, and puts its answers into rows.

All that comes to the driver here is small: terms, lines about ISRs, and one row for each follower of a partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isr_batch.kafka_logs import broker_log, metadata, mid_term, zookeeper
from isr_batch.kafka_logs.coverage import Stretch, stretch_number
from isr_batch.kafka_logs.mid_term import INFERRED, LOGGED, SNAPSHOT, Begun, IsrTold, Partition, partition_of
from isr_batch.kafka_logs.request_log import FOLLOWER_FETCH
from isr_batch.kafka_logs.snapshots import Listed
from isr_batch.kafka_logs.terms import PARTITION, Sources, listed_fetches
from udfs.records import SENT_FROM_UNKNOWN

BEGUN = (
    "broker_id INT, topic STRING, partition_id INT, leader_epoch INT, stamp_us BIGINT, term_source STRING, "
    "source_line BIGINT"
)
FOLLOWERS = "broker_id INT, topic STRING, partition_id INT, leader_epoch INT, fetched ARRAY<INT>"
GIVEN = "given"
_FETCHER = r"(?:fetcher|ReplicaFetcherThread)-(\d{1,4})\b"


def followers_seen(sources: Sources, stretches: Sequence[Stretch]) -> list[dict[str, Any]]:
    """Who asked which leader for a partition, by leader epoch and stretch.

    Returns
    -------
    list of dict
        broker_id, stretch, topic, partition_id, leader_epoch, replica_id; ``fetches`` that were served without an
        error, and of these first_us and last_us.
    """
    served = F.when(~F.col("failed"), F.col("handled_us"))
    asked = listed_fetches(sources).withColumnRenamed("leader_id", "broker_id")
    return (
        asked.withColumn("stretch", stretch_number(stretches, "broker_id", "completed_us"))
        .groupBy("broker_id", "stretch", "topic", "partition_id", "leader_epoch", "replica_id")
        .agg(F.min(served).alias("first_us"), F.max(served).alias("last_us"), F.count(served).alias("fetches"))
        .toArrow().to_pylist()
    )  # fmt: skip


def as_followers(spark: SparkSession, seen: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Followers of each term, as `FOLLOWERS`."""
    sets: dict[tuple[int, str, int, int], set[int]] = defaultdict(set)
    for row in seen:
        sets[row["broker_id"], row["topic"], row["partition_id"], row["leader_epoch"]].add(row["replica_id"])
    return spark.createDataFrame([(*key, sorted(replicas)) for key, replicas in sets.items()], FOLLOWERS)


@dataclass
class Told:
    """What lines, records and snapshots say of each partition.

    Parameters
    ----------
    isr : dict of partition to list of IsrTold
        In order of time.
    complete_from_us : dict of partition to int
        Since when the controller's records tell every change of its ISR.
    replicas : dict of partition to (list of int, str)
        Assigned replicas as told last, and by what.
    led : dict of partition to list of (at_us, leader_id, leader_epoch, source)
        Who led, by records and snapshots.
    named : list of dict
        Lines of leaders about partitions of their own.
    """

    isr: dict[Partition, list[IsrTold]] = field(default_factory=lambda: defaultdict(list))
    complete_from_us: dict[Partition, int] = field(default_factory=dict)
    replicas: dict[Partition, tuple[list[int], str]] = field(default_factory=dict)
    led: dict[Partition, list[tuple[int, int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    named: list[dict[str, Any]] = field(default_factory=list)
    shrinks: dict[tuple[int, Partition], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))


def gather(sources: Sources, starts: DataFrame, listed: Sequence[Listed], log_begins_us: int) -> Told:
    """Read everything that tells who led, who followed and who was in sync.

    Parameters
    ----------
    sources : Sources
    starts : DataFrame
        As `isr_batch.kafka_logs.terms.starts_told` gives them.
    listed : sequence of Listed
        Partitions of snapshots.
    log_begins_us : int
        First instant of the logs; a snapshot whose time is not known is taken to be of then.
    """
    told = Told()
    shrinks = broker_log.shrink_lines(sources.server).drop("source_file", "source_line").toArrow().to_pylist()
    for row in shrinks:
        told.shrinks[row["broker_id"], partition_of(row)].append(row)
    writes = zookeeper.isr_writes(sources.server).where("NOT failed").drop("source_file", "source_line")
    updated = broker_log.isr_updated_lines(sources.server).drop("source_file", "source_line")
    stayed = broker_log.still_leader_lines(sources.state_changes).drop("source_file", "source_line")
    for row in [*shrinks, *writes.toArrow().to_pylist()]:
        _tell(told, row, row["isr_before"], row["isr_after"])
    for row in updated.toArrow().to_pylist():
        _tell(told, row, None, row["isr"])
    for row in [*stayed.toArrow().to_pylist(), *sources.accepted.toArrow().to_pylist()]:
        _tell(told, row, None, row["isr"])
        told.replicas[partition_of(row)] = row["replicas"], LOGGED
    begun = starts.where("leads").select("broker_id", *PARTITION[1:], "stamp_us", "isr").toArrow().to_pylist()
    for row in begun:
        told.isr[partition_of(row)].append(IsrTold(row["stamp_us"], None, tuple(row["isr"] or ()), LOGGED))
    history = metadata.partition_history(sources.metadata).join(F.broadcast(sources.topic_names), "topic_id")
    for row in sorted(history.toArrow().to_pylist(), key=lambda row: row["position"]):
        key = partition_of(row)
        if row["replicas"]:
            told.replicas[key] = row["replicas"], LOGGED
        if row["leader_id"] >= 0:
            told.led[key].append((row["at_us"], row["leader_id"], row["leader_epoch"], LOGGED))
        if row["isr"]:
            told.complete_from_us.setdefault(key, row["at_us"])
            told.isr[key].append(IsrTold(row["at_us"], None, tuple(row["isr"]), LOGGED))
    for partition in listed:
        key = (partition.topic, partition.partition_id)
        at_us = partition.at_us if partition.at_us is not None else log_begins_us
        told.led[key].append((at_us, partition.leader_id, mid_term.UNKNOWN_EPOCH, SNAPSHOT))
        told.replicas.setdefault(key, (list(partition.replicas), SNAPSHOT))
        if partition.at_us is not None or not told.isr[key]:
            told.isr[key].append(IsrTold(at_us, None, tuple(partition.isr), SNAPSHOT))
    for lines in told.isr.values():
        lines.sort(key=lambda each: each.at_us)
    for leaders in told.led.values():
        leaders.sort(key=lambda each: each[0])
    return told


def _tell(told: Told, row: Mapping[str, Any], before: Sequence[int] | None, after: Sequence[int]) -> None:
    key = partition_of(row)
    told.isr[key].append(IsrTold(row["stamp_us"], tuple(before) if before else None, tuple(after), LOGGED))
    told.named.append(
        {"broker_id": row["broker_id"], "topic": key[0], "partition_id": key[1], "at_us": row["stamp_us"]}
    )


def as_begun(spark: SparkSession, begun: Iterable[Begun]) -> DataFrame:
    """Terms that go on, as `isr_batch.kafka_logs.terms.terms` takes them."""
    return spark.createDataFrame([(*each, 0) for each in begun], BEGUN)


def vouched_for(led: Iterable[dict[str, Any]], stretches: Sequence[Stretch], told: Told) -> list[dict[str, Any]]:
    """Keep the time of each term for which its leader's request log can vouch.

    Returns
    -------
    list of dict
        As given, ``end_us`` cut at holes, with ``ends_mid_term``, ``log_stretch``, ``assigned`` completed and
        ``assigned_source``.
    """
    of_broker: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        of_broker[stretch.broker_id].append(stretch)
    kept = []
    for row in led:
        for number, stretch in enumerate(of_broker[row["leader_id"]]):
            last = number == len(of_broker[row["leader_id"]]) - 1
            begun = stretch.from_start or row["start_us"] >= stretch.first_us
            if begun and (last or row["start_us"] <= stretch.until_us):
                end_us = row["end_us"] if last else min(row["end_us"], stretch.until_us)
                replicas, source = told.replicas.get(partition_of(row), ([], LOGGED))
                by_lines = [replica for each in told.isr[partition_of(row)] for replica in (each.before or each.after)]
                assigned = list(dict.fromkeys([*replicas, *row["assigned"], *(() if replicas else by_lines)]))
                if row["begins_mid_term"] and not replicas:
                    source = INFERRED
                kept.append({
                    **row, "end_us": end_us, "ends_mid_term": end_us != row["next_us"], "log_stretch": number,
                    "assigned": assigned if row["begins_mid_term"] else row["assigned"], "assigned_source": source,
                    "isr_source": LOGGED,
                })  # fmt: skip
                break
    return kept


FETCH_OF_RELEASE = (
    (18, "4.1"), (17, "3.9"), (16, "3.7"), (14, "3.5"), (13, "3.1"), (12, "2.7"), (11, "2.3"), (10, "2.1"), (8, "2.0"),
    (7, "1.1"), (4, "0.11"), (3, "0.10.1"), (2, "0.10.0"),
)  # fmt: skip
"""Version of a follower's Fetch, and the first release whose followers send it (MetadataVersion.fetchRequestVersion;
before 3.2 ReplicaFetcherThread): the inter-broker protocol may hold it back, so that the release is this one or later."""


def with_releases(led: list[dict[str, Any]], requests: DataFrame, release: str | None) -> None:
    """Say which release each leader ran, and who says so; changes the rows.

    Logged is the line of its own process, of another process of the same broker, or of another broker of the cluster.
    """
    logged = {row["leader_id"]: row["broker_version"] or row["version"] for row in led}
    others = max((version for version in logged.values() if version), default=None)
    oldest = None
    for row in led:
        row["broker_version_source"] = LOGGED if release is None else GIVEN
        row["broker_version"] = release or row["broker_version"] or logged[row["leader_id"]] or others
        if row["broker_version"] is None:
            oldest = oldest or _oldest_release(requests)
            row["broker_version"], row["broker_version_source"] = oldest, INFERRED


def _oldest_release(requests: DataFrame) -> str | None:
    asked = requests.where(F.col("kind") == FOLLOWER_FETCH).agg(F.max("api_version")).collect()[0][0]
    return next((release for version, release in FETCH_OF_RELEASE if asked is not None and version <= asked), None)


# -- sessions


def sessions_begun_before(sessions: DataFrame) -> DataFrame:
    """First requests of fetch sessions that were opened before the log, or before a hole in it."""
    return sessions.where("previous_epoch IS NULL AND session_epoch > 0 AND error_code = 0")


def with_members(
    sessions: DataFrame,
    led: Sequence[Mapping[str, Any]],
    topic_names: DataFrame,
    fetchers: Mapping[int, int],
) -> DataFrame:
    """Put what a session held before its first request here in front of that request's own list.

    An incremental request lists only what has changed, but all partitions of its session are fetched: those that the
    leader leads, the follower follows, and the follower's thread of that number fetches.

    Parameters
    ----------
    sessions : DataFrame
        As `isr_batch.kafka_logs.request_log.in_sessions` gives them.
    led : sequence of dict
        Terms, with ``assigned``.
    topic_names : DataFrame
        topic_id, topic.
    fetchers : mapping of int to int
        num.replica.fetchers of each broker, as far as it is told.
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
            mine = row["thread"] == "" or (
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
"""A fetch may have been taken up some time before the first line of the log, which is written when it is done."""


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


# -- how things stood


def settle(
    spark: SparkSession,
    led: list[dict[str, Any]],
    stretches: Sequence[Stretch],
    told: Told,
    fetched: DataFrame,
    produced: DataFrame,
) -> None:
    """Fill in who was in sync, and where the log ended, for the terms that begin in mid-term; changes the rows."""
    unsettled = {number: row for number, row in enumerate(led) if row["begins_mid_term"]}
    if not unsettled:
        return
    term = spark.createDataFrame(
        [(n, row["leader_id"], row["topic"], row["partition_id"], row["start_us"], row["end_us"])
         for n, row in unsettled.items()],
        "number INT, leader_id INT, topic STRING, partition_id INT, start_us BIGINT, end_us BIGINT",
    )  # fmt: skip
    asked: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in _first_fetches(fetched, term).toArrow().to_pylist():
        asked[row["number"]].append(row)
    appended = {row["number"]: row["base_offset"] for row in _first_appends(produced, term).toArrow().to_pylist()}
    holes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for before, after in zip(stretches, stretches[1:], strict=False):
        if before.broker_id == after.broker_id:
            holes[before.broker_id].append((before.until_us, after.first_us))
    for number, row in unsettled.items():
        _settle_one(row, told, holes[row["leader_id"]], asked[number], appended.get(number))


def _settle_one(
    row: dict[str, Any], told: Told, holes: list[tuple[int, int]], asked: list[dict[str, Any]], appended: int | None
) -> None:
    key, start_us = partition_of(row), row["start_us"]
    lines = told.isr[key]
    complete_us = told.complete_from_us.get(key)
    if complete_us is not None and complete_us <= start_us:
        # The controller's records: nothing is missing from them.
        known = [each for each in lines if each.at_us <= start_us]
        isr, source = sorted({*known[-1].after, row["leader_id"]}), known[-1].source
    else:
        first_change = min((each.at_us for each in lines if each.at_us > start_us), default=row["end_us"])
        seems_in = {f["replica_id"]: not _is_passed(f) for f in asked if f["first_us"] < first_change}
        isr, source = mid_term.isr_at(
            start_us, row["assigned"], row["leader_id"], lines, holes, row["end_us"], seems_in
        )
    shrinks = [s for s in told.shrinks[row["leader_id"], key] if start_us <= s["stamp_us"] <= row["end_us"]][:1]
    offsets = mid_term.offsets_at(
        {fetch["replica_id"]: fetch["asked"] for fetch in asked if fetch["asked"] is not None}, isr, appended,
        [s["leader_log_end_offset"] for s in shrinks if s["leader_log_end_offset"] is not None],
        [fetch["told"] for fetch in asked if fetch["told"] is not None]
        + [s["high_watermark"] for s in shrinks if s["high_watermark"] is not None],
    )  # fmt: skip
    # The order is the leader's: that of the assignment.
    row["assigned"] = list(dict.fromkeys([*row["assigned"], *isr]))
    row["isr_at_start"] = [replica for replica in row["assigned"] if replica in isr]
    row["isr_source"] = source
    row["start_offset"], row["start_high_watermark"] = offsets
    row["start_offset_source"] = INFERRED


def _is_passed(fetch: Mapping[str, Any]) -> bool:
    """Whether the high watermark had passed what the follower held: then it was not in the ISR."""
    return fetch["asked"] is not None and fetch["answered"] is not None and fetch["answered"] > fetch["asked"]


def _first_fetches(fetched: DataFrame, term: DataFrame) -> DataFrame:
    """By term and follower, each the first: what it ``asked`` for, and was ``answered`` then as high watermark.

    And first_us, its first fetch, and ``told``, the first high watermark that it was answered.
    """
    first = F.struct("handled_us", "source_line")
    listed = F.when(F.col("fetch_offset").isNotNull() & (F.col("error_code") == 0), first)
    return (
        fetched.where(F.col("error_code").isin(0, int(SENT_FROM_UNKNOWN)))
        .join(F.broadcast(term), list(PARTITION))
        .where("handled_us BETWEEN start_us AND end_us")
        .groupBy("number", "replica_id")
        .agg(
            F.min("handled_us").alias("first_us"),
            F.min_by("fetch_offset", listed).alias("asked"),
            F.min_by("high_watermark", listed).alias("answered"),
            F.min_by("high_watermark", F.when(F.col("high_watermark").isNotNull(), first)).alias("told"),
        )
    )


def _first_appends(produced: DataFrame, term: DataFrame) -> DataFrame:
    """By term: base_offset of the first append in it."""
    return (
        produced.where("NOT repeated AND base_offset IS NOT NULL")
        .join(F.broadcast(term), list(PARTITION))
        .where("append_us BETWEEN start_us AND end_us")
        .groupBy("number")
        .agg(F.min_by("base_offset", F.struct("append_us", "base_offset")).alias("base_offset"))
    )

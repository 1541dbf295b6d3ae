"""Parse server.log and state-change.log: broker starts, settings, terms and ISR changes."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.request_log import RAW_CHARACTERS, stamp_us
from isr_batch.ingest.kafka_logs.server_log_zookeeper import (
    INT,
    INTS,
    LONG,
    OF_INTEREST,
    fields,
    in_new_words,
    int_list,
)
from isr_batch.ingest.kafka_logs.server_log_zookeeper import SOURCE as _SOURCE
from isr_batch.ingest.kafka_logs.settings_files import LAG_TIME, MIN_ISR, Broker, ClusterSettings
from isr_batch.ingest.log_files.kinds import SERVER, STATE_CHANGE
from isr_batch.ingest.log_files.vendors import named_release
from udfs.rules import RELEASED_RULES

_PARTITION = rf"(\S+)-({INT})"

# Offsets are printed since 2.2, lastCaughtUpTimeMs since 3.6; before 2.2 nothing but the logger may follow.
_SHRINK = (
    rf"\[Partition {_PARTITION} broker=\d+\] Shrinking ISR (?:for partition \S+ )?from ({INTS}) to ((?:{INTS})?)"
    rf"(?:\. Leader: \(highWatermark: (-?{LONG}), endOffset: (-?{LONG})\)\. Out of sync replicas: "
    rf"((?:\(brokerId: {INT}, endOffset: -?{LONG}(?:, lastCaughtUpTimeMs: -?{LONG})?\) ?)+)\."
    r"|(?: \([\w.$]+\))?\s*$)"
)
_OUT_OF_SYNC = rf"\(brokerId: ({INT}), endOffset: (-?{LONG})(?:, lastCaughtUpTimeMs: (-?{LONG}))?\)"
_ISR_UPDATED = (
    rf"\[Partition {_PARTITION} broker=\d+\] ISR updated (?:from AlterIsr )?to \[?({INTS})\b"
    rf".*ersion updated to \[?({INT})"
)
# 2.5 to 2.8 have neither the partition epoch nor the leader before.
_LEADER = (
    rf"Leader {_PARTITION} .*?starts at leader epoch ({INT}) from offset ({LONG}) with (?:partition epoch ({INT}), )?"
    rf"high watermark ({LONG}),? ISR \[((?:{INTS})?)\](?:.* Previous leader (?:None|Some\((-?{INT})\)))?"
)
_TELLS_PREVIOUS = r" Previous leader (?:None|Some\()"
_FOLLOWER = rf"Follower {_PARTITION} starts at leader epoch ({INT})"
_STILL_LEADER = (
    rf"Skipped the become-leader state change for {_PARTITION} .*leader=({INT}), leaderEpoch=({INT}), "
    rf"isr=\[((?:{INTS})?)\], partitionEpoch=({INT}), replicas=\[((?:{INTS})?)\]"
)
# 4.2 on: a PartitionRegistration, whose members have another order.
_STILL_LEADER_NOW = (
    rf"Skipped the become-leader state change for {_PARTITION} .*PartitionRegistration\(replicas=\[((?:{INTS})?)\].*, "
    rf"isr=\[((?:{INTS})?)\].*, leader=({INT}), .*leaderEpoch=({INT}), partitionEpoch=({INT})"
)
_TOPIC_ID = rf"{_PARTITION} with topic id (?:Some\()?([\w-]{{22}})\b"
_MIN_ISR_OF_LOG = rf"Created log for partition {_PARTITION} in .*[{{ ]min\.insync\.replicas(?:=| -> )({INT})"

_STARTED = r"kafka\.Log4jController`? MBean"
_STARTING = r"Transition from SHUTDOWN to STARTING|\] INFO starting \(kafka\.server\.KafkaServer\)"
# isr-expiration is scheduled right after; up to 0.11 there is nothing nearer than the purgatory of the replica manager.
_CHECKS_SCHEDULED = r"\[LogDirFailureHandler\]: Starting|\[ExpirationReaper-\d+(-Produce)?\], Starting"
_VERSION = r"Kafka version ?: (\S+)"
_SAME_START_US = 60_000_000
LAG_TIME_MS, OLD_LAG_TIME_MS = 30_000, 10_000
_WRITE_TAKES_AT_MOST_US = 5_000_000

_OF_INTEREST = (
    r"Shrinking ISR|ISR updated |Log4jController|Kafka version ?: |Created log for partition"
    f"|{_STARTING}|{_CHECKS_SCHEDULED}|{OF_INTEREST}"
)
_SETTING = r"^\t(replica\.lag\.time\.max\.ms|min\.insync\.replicas) = (\d{1,18})$"


def parse_server_log(lines: DataFrame) -> DataFrame:
    """Parse server.log: keep every line with a timestamp, its text if it is of interest, and the settings at start-up.

    Returns
    -------
    DataFrame
        broker_id, source_file, source_line, stamp_us (null for settings), message (null where of no interest);
        ``problem`` and ``detail`` of a file that could not be read.
    """
    setting = F.rlike("value", F.lit(_SETTING))
    read = setting | F.rlike("value", F.lit(_OF_INTEREST))
    return _stamped(lines, F.when(read, F.col("value"))).where(
        F.col("stamp_us").isNotNull() | F.col("problem").isNotNull() | F.rlike("message", F.lit(_SETTING))
    )


def parse_state_changes(lines: DataFrame) -> DataFrame:
    """Parse state-change.log: broker_id, source_file, source_line, stamp_us, message; and problem, detail."""
    return _stamped(lines, F.col("value")).where("stamp_us IS NOT NULL OR problem IS NOT NULL")


def _stamped(lines: DataFrame, message: Column) -> DataFrame:
    return lines.select(
        *_SOURCE[:-1], stamp_us(F.col("value")).alias("stamp_us"), message.alias("message"), "problem", "detail"
    )


def shrink_lines(server: DataFrame) -> DataFrame:
    """Parse the Shrinking ISR lines; ``dropped`` is an array with a struct per replica that was out of sync."""
    text = (
        "topic STRING, partition_id INT, before STRING, after STRING, high_watermark BIGINT, "
        "leader_log_end_offset BIGINT, out STRING"
    )
    names = {"replica_id": "int", "follower_log_end_offset": "bigint", "last_caught_up_time_ms": "bigint"}
    printed = F.arrays_zip(*(
        F.transform(F.regexp_extract_all("out", F.lit(_OUT_OF_SYNC), group), lambda v: F.nullif(v, F.lit("")))
        .cast(f"array<{type_}>").alias(name)
        for group, (name, type_) in enumerate(names.items(), 1)
    ))  # fmt: skip
    not_printed = F.transform(
        F.array_except("isr_before", "isr_after"),
        lambda replica: F.struct(
            replica.alias("replica_id"),
            *(F.lit(None).cast(type_).alias(name) for name, type_ in list(names.items())[1:]),
        ),
    )
    return (
        _said(server, "Shrinking ISR", _SHRINK)
        .select(*_SOURCE, *fields("said", _SHRINK, text))
        .withColumn("isr_before", int_list(F.col("before")))
        .withColumn("isr_after", int_list(F.coalesce("after", F.lit(""))))
        .select(
            *_SOURCE, "topic", "partition_id", "high_watermark", "leader_log_end_offset", "isr_before", "isr_after",
            F.when(F.col("out").isNull(), not_printed).otherwise(printed).alias("dropped"),
        )
    )  # fmt: skip


def _said(lines: DataFrame, words: str, pattern: str) -> DataFrame:
    """Keep the lines with these words; ``said`` is the line in the form of newer releases that the pattern matches."""
    said = lines.where(F.contains("message", F.lit(words))).withColumn("said", in_new_words(F.col("message")))
    return said.where(F.rlike("said", F.lit(pattern)))


def unreadable_lines(server: DataFrame, state_changes: DataFrame) -> dict[str, DataFrame]:
    """List the lines about a shrink or a term that have an unknown form, by log: source, reason, raw."""
    said = in_new_words(F.col("message"))
    shrink = server.where(F.contains("message", F.lit("Shrinking ISR")) & ~F.rlike(said, F.lit(_SHRINK)))
    term = state_changes.where(F.rlike("message", F.lit(r"\] (Leader|Follower) \S+ .*starts at leader epoch"))
                               & ~F.rlike("message", F.lit(f"{_LEADER}|{_FOLLOWER}")))  # fmt: skip
    raw = F.substring("message", 1, RAW_CHARACTERS).alias("raw")
    reasons = "Shrinking ISR line of an unknown form", "leader or follower line of an unknown form"
    return {
        SERVER: shrink.select(*_SOURCE, F.lit(reasons[0]).alias("reason"), raw),
        STATE_CHANGE: term.select(*_SOURCE, F.lit(reasons[1]).alias("reason"), raw),
    }


def isr_updated_lines(server: DataFrame) -> DataFrame:
    """Parse the "ISR updated" lines of a leader: topic, partition_id, isr, partition_epoch."""
    text = "topic STRING, partition_id INT, isr STRING, partition_epoch INT"
    return server.where(F.rlike("message", F.lit(_ISR_UPDATED))).select(
        *_SOURCE, *fields("message", _ISR_UPDATED, text)
    ).withColumn("isr", int_list(F.col("isr")))  # fmt: skip


def isr_write_times(server: DataFrame) -> DataFrame:
    """Compute the median time from a Shrinking line to its "ISR updated" line: broker_id, isr_write_ms."""
    partition = ["broker_id", "topic", "partition_id"]
    asked = shrink_lines(server).select(
        *partition, F.array_sort("isr_after").alias("isr"), F.col("stamp_us").alias("asked_us")
    )
    answered = isr_updated_lines(server).select(*partition, F.array_sort("isr").alias("isr"), "stamp_us")
    took_us = F.col("stamp_us") - F.col("asked_us")
    return (
        asked.join(answered, [*partition, "isr"])
        .where(took_us.between(0, _WRITE_TAKES_AT_MOST_US))
        .groupBy(*partition, "asked_us")
        .agg(F.min(took_us).alias("took_us"))
        .groupBy("broker_id")
        .agg(F.round(F.median("took_us") / 1000).cast("bigint").alias("isr_write_ms"))
    )


def leader_lines(state_changes: DataFrame) -> DataFrame:
    """Parse starts of terms as leader; with ``tells_previous``, a null previous_leader_id means that there was none."""
    text = (
        "topic STRING, partition_id INT, leader_epoch INT, start_offset BIGINT, partition_epoch INT, "
        "start_high_watermark BIGINT, isr STRING, previous_leader_id INT"
    )
    return (
        state_changes.where(F.rlike("message", F.lit(_LEADER)))
        .select(
            *_SOURCE,
            *fields("message", _LEADER, text),
            F.rlike("message", F.lit(_TELLS_PREVIOUS)).alias("tells_previous"),
        )
        .withColumn("isr", int_list(F.coalesce("isr", F.lit(""))))
    )


def follower_lines(state_changes: DataFrame) -> DataFrame:
    """Parse the starts of terms as follower: topic, partition_id, leader_epoch."""
    text = "topic STRING, partition_id INT, leader_epoch INT"
    return state_changes.where(F.rlike("message", F.lit(_FOLLOWER))).select(
        *_SOURCE, *fields("message", _FOLLOWER, text)
    )


def still_leader_lines(state_changes: DataFrame) -> DataFrame:
    """Parse the state changes after which a leader stayed leader: isr, replicas, partition_epoch, leader_epoch."""
    text = (
        "topic STRING, partition_id INT, leader_id INT, leader_epoch INT, isr STRING, partition_epoch INT, "
        "replicas STRING"
    )
    now = (
        "topic STRING, partition_id INT, replicas STRING, isr STRING, leader_id INT, leader_epoch INT, "
        "partition_epoch INT"
    )
    skipped = state_changes.where(F.contains("message", F.lit("Skipped the become-leader state change")))
    return (
        skipped.where(F.rlike("message", F.lit(_STILL_LEADER)))
        .select(*_SOURCE, *fields("message", _STILL_LEADER, text))
        .unionByName(
            skipped.where(F.rlike("message", F.lit(_STILL_LEADER_NOW))).select(
                *_SOURCE, *fields("message", _STILL_LEADER_NOW, now)
            )
        )
        .withColumn("isr", int_list(F.coalesce("isr", F.lit(""))))
        .withColumn("replicas", int_list(F.coalesce("replicas", F.lit(""))))
    )


def topic_ids(state_changes: DataFrame) -> DataFrame:
    """List the topic ids in the lines: topic_id, topic."""
    text = "topic STRING, partition_id INT, topic_id STRING"
    return state_changes.select(*fields("message", _TOPIC_ID, text)).where("topic_id IS NOT NULL").select(
        "topic_id", "topic"
    )  # fmt: skip


def min_isr_of_logs(server: DataFrame) -> DataFrame:
    """Parse the min.insync.replicas logged when a partition's log was created: topic, min_insync_replicas."""
    text = "topic STRING, partition_id INT, min_insync_replicas INT"
    said = in_new_words(F.col("message"))
    created = server.select(*fields(said, _MIN_ISR_OF_LOG, text)).where("topic IS NOT NULL")
    return created.groupBy("topic").agg(F.max("min_insync_replicas").alias("min_insync_replicas"))


def broker_settings(
    server: DataFrame, brokers: list[Broker], given: ClusterSettings = ClusterSettings(), assumed: str | None = None  # noqa: B008 frozen
) -> DataFrame:  # fmt: skip
    """Resolve each broker's settings: replica_lag_time_max_ms, min_insync_replicas, starts_us, checks_per_lag_time.

    Also ``version``, logged or given, and ``lag_time_source``: given, properties, logged (at the start of the broker)
    or default, in that order of precedence. Kafka's default was 10 s before 2.5, and is 30 s since (KIP-537).
    ``assumed`` is the release whose defaults are used if no log has the release. ``starts_us`` is sorted.
    """
    printed = server.where("stamp_us IS NULL AND message IS NOT NULL").select(
        "broker_id", *fields("message", _SETTING, "setting STRING, number BIGINT")
    )
    printed = printed.groupBy("broker_id").agg(
        *(F.max(F.when(F.col("setting") == name, F.col("number"))).alias(name) for name in (LAG_TIME, MIN_ISR))
    )
    ran = server.groupBy("broker_id").agg(F.max(_release(server)).alias("version"))
    starts = process_starts(server).groupBy("broker_id").agg(F.array_sort(F.collect_list("stamp_us")).alias("starts"))
    known = server.sparkSession.createDataFrame(
        [(b.broker_id, b.replica_lag_time_max_ms, b.min_insync_replicas) for b in brokers],
        "broker_id INT, lag BIGINT, min_isr INT",
    )
    version = F.coalesce(F.lit(given.release).cast("string"), "version")
    release = F.coalesce(version, F.lit(assumed).cast("string"))
    numbers = _numbers(release)
    default_ms = F.when(numbers < F.array(F.lit(2), F.lit(5)), OLD_LAG_TIME_MS).otherwise(LAG_TIME_MS)
    stated = {"given": F.lit(given.replica_lag_time_max_ms).cast("bigint"), "properties": F.col("lag"),
              "logged": F.col(f"`{LAG_TIME}`")}  # fmt: skip
    source = F.coalesce(*(F.when(value.isNotNull(), name) for name, value in stated.items()), F.lit("default"))
    return (
        known.join(F.broadcast(printed), "broker_id", "left")
        .join(F.broadcast(starts), "broker_id", "left")
        .join(F.broadcast(ran), "broker_id", "left")
        .select(
            "broker_id",
            F.coalesce(*stated.values(), default_ms).alias("replica_lag_time_max_ms"),
            F.coalesce(F.lit(given.min_insync_replicas).cast("int"), "min_isr", f"`{MIN_ISR}`", F.lit(1))
            .cast("int")
            .alias("min_insync_replicas"),
            F.coalesce("starts", F.array().cast("array<bigint>")).alias("starts_us"),
            _checks_per_lag_time(release).alias("checks_per_lag_time"),
            source.alias("lag_time_source"),
            version.alias("version"),
        )
    )


def _release(server: DataFrame) -> Column:
    """Read the release in a line, as `named_release` names it; null in other lines, and where it is not known."""
    printed = F.nullif(F.regexp_extract("message", _VERSION, 1), F.lit(""))
    release = F.lit(None).cast("string")
    for (text,) in server.select(printed).distinct().collect():
        named = named_release(text or "")
        release = F.when(printed == text, named).otherwise(release) if named else release
    return release


def _numbers(release: Column) -> Column:
    """Take the numbers of a Kafka release as an array, without those of a vendor."""
    apaches = F.coalesce(F.nullif(F.regexp_extract(release, r"\(Kafka ([\d.]+)\)$", 1), F.lit("")), release)
    return F.regexp_extract_all(apaches, F.lit(r"\d+"), F.lit(0)).cast("array<int>")


def _checks_per_lag_time(version: Column) -> Column:
    """Look up how often a release checks the ISR per lag time; an unknown release counts as the newest."""
    release = _numbers(version)
    checks = F.lit(None).cast("int")
    for since, rule in RELEASED_RULES:
        checks = F.when(release >= F.array(*(F.lit(number) for number in since)), rule.checks_per_lag_time).otherwise(
            checks
        )
    return F.coalesce(checks, F.lit(RELEASED_RULES[-1][1].checks_per_lag_time))


def process_starts(server: DataFrame) -> DataFrame:
    """Find the times at which broker processes started: broker_id, stamp_us."""
    first = F.rlike("message", F.lit(_STARTED))
    marks = server.where(first | F.rlike("message", F.lit(_STARTING))).select(*_SOURCE, first.alias("first"))
    order = Window.partitionBy("broker_id").orderBy("stamp_us", "source_line")
    repeated = F.lag("first").over(order) & (F.col("stamp_us") - F.lag("stamp_us").over(order) <= _SAME_START_US)
    return (
        marks.withColumn("repeated", F.coalesce(repeated, F.lit(False)))
        .where("first OR NOT repeated")
        .select("broker_id", "stamp_us")
    )


def process_of(instant_us: str) -> Column:
    """Number the broker process at a time, by ``starts_us``; 0 is before the first logged start."""
    return F.size(F.filter("starts_us", lambda start: start <= F.col(instant_us)))


def process_facts(server: DataFrame, settings: DataFrame) -> DataFrame:
    """Describe each process: broker_version, startup_us (when isr-expiration was scheduled, or some ms later)."""
    stamped = server.where("message IS NOT NULL AND stamp_us IS NOT NULL").join(F.broadcast(settings), "broker_id")
    version = _release(server)
    scheduled = F.when(F.rlike("message", F.lit(_CHECKS_SCHEDULED)), F.col("stamp_us"))
    return stamped.groupBy("broker_id", process_of("stamp_us").alias("process")).agg(
        F.max(version).alias("broker_version"), F.min(scheduled).alias("startup_us")
    )

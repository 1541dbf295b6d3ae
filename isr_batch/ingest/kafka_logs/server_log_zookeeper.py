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

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SOURCE = ("broker_id", "source_file", "source_line", "stamp_us")

# A line with a number that no Kafka could have printed has another form than any line that is read.
INT = r"(?:1\d{9}|20\d{8}|\d{1,9})(?!\d)"
LONG = r"\d{1,18}(?!\d)"
INTS = rf"{INT}(?:, ?{INT})*"

_RECEIVED = (
    rf"eceived LeaderAndIsr request (?:LeaderAndIsr)?PartitionState\((?:topicName='([^']*)', partitionIndex=({INT}), )?"
    rf"controllerEpoch=\d+, leader=(-?{INT}), leaderEpoch=({INT}), isr=\[?((?:{INTS})?)\]?, "
    rf"(?:zkVersion|partitionEpoch)=({INT}), replicas=\[?({INTS})"
)
_LEADS = r"topped fetchers as part of become-leader request|kipped the become-leader state change after marking"
_FOLLOWS = r"tarting the become-follower transition"
_PARTITION = rf"for partition (\S+)-({INT})"
_CONTROLLER = rf"controller ({INT}) epoch ({INT})"
_CORRELATION = rf"correlation ?[iI]d ({INT})"

_CHANGE = (
    rf"\[Partition (\S+)-({INT}) broker=\d+\] (Shrinking|Expanding) ISR (?:for partition \S+ )?"
    rf"from ({INTS}) to ((?:{INTS})?)"
)
_WRITE_FAILED = rf"\[Partition (\S+)-({INT}) broker=\d+\] Cached zkVersion "
OF_INTEREST = "Expanding ISR|Cached zkVersion|starts at [Ll]eader [Ee]poch"

_STARTS = (
    rf"\[Partition \S+ broker=\d+\] (\S+)-({INT}) starts at [Ll]eader [Ee]poch ({INT}) from offset ({LONG})"
    rf"(?: with high watermark ({LONG}))?"
)


def in_new_words(message: Column) -> Column:
    """Rewrite the partitions and brokers in a line of server.log or state-change.log in the form used since 1.0."""
    old = F.contains(message, F.lit(",")) & F.rlike(message, F.lit(r"artition \[[^\],]+,\d+\]"))
    partition = F.regexp_replace(message, F.lit(r"\bpartition \[([^\],]+),(\d+)\]"), F.lit("partition $1-$2"))
    ident = F.regexp_replace(
        partition, F.lit(r"Partition \[([^\],]+),(\d+)\] on broker (\d+):"), F.lit("[Partition $1-$2 broker=$3]")
    )
    return F.when(old, ident).otherwise(message)


def int_list(text: Column) -> Column:
    """Parse ``1,2,3`` or ``1, 2, 3`` into an array of ints."""
    return F.filter(F.split(text, r"[,\s]+"), lambda number: number != "").cast("array<int>")


def fields(line: Column | str, pattern: str, names_and_types: str) -> list[Column]:
    """Extract each group of a pattern into a column, named and typed by ``name TYPE, name TYPE``; empty is null."""
    return [
        F.nullif(F.regexp_extract(line, pattern, group), F.lit("")).cast(type_).alias(name)
        for group, (name, type_) in enumerate((column.split(" ") for column in names_and_types.split(", ")), start=1)
    ]


def accepted(state_changes: DataFrame) -> DataFrame:
    """List the LeaderAndIsr requests that a broker acted on, one row per partition.

    Returns
    -------
    DataFrame
        broker_id, source_file, source_line, stamp_us, topic, partition_id; ``leads``: the broker is the leader, and
        the new term begins at ``stamp_us`` or some ms before; of the request: leader_id, leader_epoch, isr,
        partition_epoch (the zkVersion), replicas.
    """
    relevant = state_changes.where(F.rlike("message", F.lit(f"{_RECEIVED}|{_LEADS}|{_FOLLOWS}")))
    state = (
        "state_topic STRING, state_partition INT, leader_id INT, leader_epoch INT, isr STRING, partition_epoch INT, "
        "replicas STRING"
    )
    lines = (
        relevant.select(*SOURCE, in_new_words(F.col("message")).alias("said"))
        .select(
            *SOURCE,
            F.rlike("said", F.lit(_LEADS)).alias("leads"), F.rlike("said", F.lit(_FOLLOWS)).alias("follows"),
            *fields("said", _PARTITION, "named_topic STRING, named_partition INT"),
            *fields("said", _CONTROLLER, "controller INT, controller_epoch INT"),
            *fields("said", _CORRELATION, "correlation INT"),
            *fields("said", _RECEIVED, state),
        )
        .withColumn("topic", F.coalesce("state_topic", "named_topic"))
        .withColumn("partition_id", F.coalesce("state_partition", "named_partition"))
    )  # fmt: skip
    request = ["broker_id", "topic", "partition_id", "controller", "controller_epoch", "correlation"]
    members = ["leader_id", "leader_epoch", "isr", "partition_epoch", "replicas"]
    # A broker that restarts gets requests with the same numbers again.
    order = Window.partitionBy(*request).orderBy("stamp_us", "source_line")
    received = F.last(F.when(F.col("leader_epoch").isNotNull(), F.struct(*members)), ignorenulls=True).over(order)
    return (
        lines.withColumn("state", received)
        .where("(leads OR follows) AND state IS NOT NULL")
        .select(*SOURCE, "topic", "partition_id", "leads", "state.*")
        .withColumn("isr", int_list(F.coalesce("isr", F.lit(""))))
        .withColumn("replicas", int_list(F.coalesce("replicas", F.lit(""))))
    )


def start_lines(server: DataFrame) -> DataFrame:
    """Parse the start offsets of terms in server.log: broker_id, topic, partition_id, leader_epoch and offsets."""
    text = "topic STRING, partition_id INT, leader_epoch INT, start_offset BIGINT, start_high_watermark BIGINT"
    lines = server.where(F.contains(F.lower("message"), F.lit("starts at leader epoch")))
    return lines.select(
        "broker_id", "stamp_us", *fields(in_new_words(F.col("message")), _STARTS, text)
    ).where("topic IS NOT NULL")  # fmt: skip


def isr_writes(server: DataFrame) -> DataFrame:
    """List the Shrinking and Expanding lines with their outcome: isr_before, isr_after, ``shrinks``, failed, repeated.

    ``failed``: the conditional write to ZooKeeper found another version, so the ISR did not change. The leader retries
    at each check or fetch until it learns that it no longer leads: such lines are ``repeated``.
    """
    text = "topic STRING, partition_id INT, verb STRING, before STRING, after STRING"
    of_interest = server.where(F.rlike("message", F.lit("(Shrinking|Expanding) ISR |Cached zkVersion ")))
    lines = of_interest.select(*SOURCE, in_new_words(F.col("message")).alias("said")).select(
        *SOURCE, *fields("said", _CHANGE, text),
        *fields("said", _WRITE_FAILED, "failed_topic STRING, failed_partition INT"),
    )  # fmt: skip
    order = Window.partitionBy("broker_id", "topic", "partition_id").orderBy("stamp_us", "source_line")
    named = lines.withColumn("topic", F.coalesce("topic", "failed_topic")).withColumn(
        "partition_id", F.coalesce("partition_id", "failed_partition")
    )
    failed = F.coalesce(F.lead("failed_topic").over(order).isNotNull(), F.lit(False))
    attempt = F.struct("verb", "before", "after")
    changes = named.withColumn("failed", failed).where("verb IS NOT NULL")
    repeated = F.lag("failed").over(order) & (F.lag(attempt).over(order) == attempt)
    return changes.select(
        *SOURCE, "topic", "partition_id", (F.col("verb") == "Shrinking").alias("shrinks"),
        int_list(F.col("before")).alias("isr_before"),
        int_list(F.coalesce("after", F.lit(""))).alias("isr_after"),
        "failed", F.coalesce(repeated, F.lit(False)).alias("repeated"),
    )  # fmt: skip

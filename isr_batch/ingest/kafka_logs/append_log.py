"""Build table append_log: the appends to each leader's log, from produce requests and from fetch offsets.

The broker logs name some past log end offsets: the base offset in a produce response, the offset of a follower's next
fetch, the offsets in a Shrinking line, the start offset of a term. The records between two such offsets are one append.
It belongs to the produce request whose response names the first offset. Otherwise it belongs to requests whose response
names none (acks=0; before Kafka 1.0 no response is logged). Otherwise to no request: transaction markers and committed
offsets are such appends.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.coverage import Stretch, is_last, stretch_number
from isr_batch.ingest.kafka_logs.kernels import with_kernels
from isr_batch.ingest.kafka_logs.leader_epochs import PARTITION, Sources, epoch_at, in_force, named
from isr_batch.ingest.kafka_logs.request_log import PRODUCE
from udfs.batches.listed_partitions import PRODUCED, WHOLE, produced_partitions

STAMPS_US = 3_000
"""Two instants closer than this may have happened in the other order: timestamps, and durations before 0.11, are
truncated to milliseconds."""

UNKNOWN_ERROR = -1
"""Kafka's UNKNOWN_SERVER_ERROR; here: refused by a broker that does not log responses."""

_TERM = (*PARTITION, "leader_epoch", "log_stretch")
"""Key of an append. The stretch is part of it: across a gap in the log, two offsets do not bound a single append."""


def produced(sources: Sources, terms: DataFrame, stretches: Sequence[Stretch] = ()) -> DataFrame:
    """List the produce requests, one row per partition of each request.

    The rows have the term, append_us, base_offset, error_code, size, answered and repeated. A base offset above -1
    means that the records were appended, whatever the error code. ``answered`` is false where no response is logged;
    only then is the ``size`` in bytes given. ``log_stretch`` is the number of the stretch of the broker's log. A
    producer that sends a batch again gets the first attempt's offset; such rows are ``repeated`` and are not appends.
    """
    requests = sources.requests.where(F.col("kind") == PRODUCE).select(*WHOLE, "partitions")
    produced = requests.mapInArrow(with_kernels(produced_partitions), PRODUCED)
    answered_us = F.when(F.col("acks") == 0, F.col("processed_us")).otherwise(F.col("completed_us"))
    rows = (
        named(produced, sources.topic_names)
        .withColumn("log_stretch", stretch_number(stretches, "broker_id", "completed_us"))
        .withColumnRenamed("broker_id", "leader_id")
        .join(F.broadcast(in_force(terms)), list(PARTITION), "left")
        .select(
            *PARTITION, epoch_at("processed_us").alias("leader_epoch"), "log_stretch",
            F.col("processed_us").alias("append_us"),
            "handled_us", "base_offset", "acks", F.when(F.col("error_code") == 0, answered_us).alias("acknowledged_us"),
            "error_code", "size", "answered", "source_file", "source_line",
        )
    )  # fmt: skip
    again = Window.partitionBy(*_TERM).orderBy("base_offset", "append_us", "source_line")
    same = F.coalesce(F.lag("base_offset").over(again) == F.col("base_offset"), F.lit(False))
    return rows.withColumn("repeated", same)


def append_log(
    rows: DataFrame, fetched: DataFrame, shrinks: DataFrame, terms: DataFrame, stretches: Sequence[Stretch] = ()
) -> DataFrame:
    """Build the columns of append_log; times are still microseconds.

    Parameters
    ----------
    rows : DataFrame
        As `produced` gives them.
    fetched : DataFrame
        As `isr_batch.ingest.kafka_logs.fetch_log.fetches_of` gives them.
    shrinks, terms : DataFrame
        Shrinking lines with their term; all terms.
    stretches : sequence of Stretch
        Of the brokers' logs; the rows of all frames have the number of their stretch.
    """
    once = rows.where("NOT repeated")
    logged = once.where("base_offset IS NOT NULL")
    between = _stretches(_named_offsets(logged, fetched, shrinks, terms), terms, stretches)
    refused = once.where("answered AND base_offset IS NULL").withColumns(_ends(F.lit(None), F.lit(None), F.lit(None)))
    columns = (
        *_TERM, "append_us", "base_offset", "log_end_offset", "log_end_source", "log_end_error", "acks",
        "acknowledged_us", "error_code", "source_file", "source_line",
    )  # fmt: skip
    return (
        _answered(between).select(*columns)
        .unionAll(refused.select(*columns))
        .unionAll(_unanswered(once.where("NOT answered"), between).select(*columns))
    )  # fmt: skip


def _ends(end: Column, source: Column, error: Column) -> dict[str, Column]:
    return {
        "log_end_offset": end.cast("bigint"), "log_end_source": source.cast("string"),
        "log_end_error": error.cast("bigint"),
    }  # fmt: skip


def _named_offsets(logged: DataFrame, fetched: DataFrame, shrinks: DataFrame, terms: DataFrame) -> DataFrame:
    """Collect the known log end offsets, in no order: term, offset, named_in, and bounds on when the log ended there.

    The log end offset was this one or a higher one at ``named_us``, a higher one at ``grown_us``, and exactly this one
    at ``still_us``. ``append`` is the request whose base offset it is.
    """
    request = F.struct("append_us", "handled_us", "acks", "acknowledged_us", "error_code", "source_file", "source_line")
    given = logged.select(
        *_TERM, F.col("base_offset").alias("offset"), F.lit("appends").alias("named_in"),
        F.col("append_us").alias("named_us"), request.alias("append"), "source_file",
    )  # fmt: skip
    printed = shrinks.select(
        *_TERM, F.explode(F.array("leader_log_end_offset", "high_watermark")).alias("offset"),
        F.lit("shrinks").alias("named_in"), F.col("at_us").alias("named_us"), "source_file",
    )  # fmt: skip
    begun = terms.select(
        *_TERM, F.col("start_offset").alias("offset"), F.lit("terms").alias("named_in"),
        F.col("start_us").alias("named_us"),
    )  # fmt: skip
    parts = _asked_for(fetched), printed, begun
    every = given
    for part in parts:
        every = every.unionByName(part, allowMissingColumns=True)
    return every.where("offset IS NOT NULL")


def _asked_for(fetched: DataFrame) -> DataFrame:
    """Collect the fetch offsets. If a follower's next offset is higher, the last response before it had records.

    A fetch that waited for data was read twice: the first read reached the log end. In a row of identical fetches no
    response had records.
    """
    own = Window.partitionBy(*_TERM, "replica_id").orderBy("offset")
    return (
        fetched.where("error_code = 0 AND fetch_offset IS NOT NULL")
        .groupBy(*_TERM, "replica_id", F.col("fetch_offset").alias("offset"))
        .agg(
            F.min("arrival_us").alias("named_us"),
            F.min(F.when(F.col("records_size") > 0, F.col("last_read_us"))).alias("brought_us"),
            F.max_by("last_read_us", F.struct("last_handled_us", "last_read_us")).alias("last_read_us"),
            F.max("last_waited_us").alias("still_us"),
            F.min_by("source_file", F.struct("arrival_us", "source_file")).alias("source_file"),
        )
        .withColumn("asked_more", F.lead("offset").over(own).isNotNull())
        .select(
            *_TERM, "offset", F.lit("fetches").alias("named_in"), "named_us", "still_us", "source_file",
            F.least("brought_us", F.when(F.col("asked_more"), F.col("last_read_us"))).alias("grown_us"),
        )
    )  # fmt: skip


def _stretches(offsets: DataFrame, terms: DataFrame, stretches: Sequence[Stretch]) -> DataFrame:
    """List the ranges from each known offset to the next: term, offset, end, end_source, grown_us, still_us, append.

    The records were in the log at ``grown_us``, and not yet at ``still_us``. The last range of a term ends at the start
    offset of a later term, if that is higher; otherwise ``end`` is null.
    """
    by_offset = Window.partitionBy(*_TERM).orderBy("offset")
    downwards = Window.partitionBy(*_TERM).orderBy(F.desc("offset"))
    further = downwards.rowsBetween(Window.unboundedPreceding, -1)
    from_here = downwards.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = F.min(F.when(F.col("named_in") == "terms", F.col("offset"))).over(Window.partitionBy(*_TERM))
    starts = terms.groupBy("topic", "partition_id").agg(
        F.collect_list(F.struct("leader_epoch", "start_offset")).alias("starts")
    )
    after = F.filter("starts", lambda t: (t.leader_epoch > F.col("leader_epoch")) & (t.start_offset > F.col("offset")))
    # After a gap in its broker's log, the next term's start offset no longer bounds this term's last append.
    next_term = F.when(
        is_last(stretches, "leader_id", "log_stretch"), F.array_min(F.transform(after, lambda t: t.start_offset))
    )
    named = F.struct(F.isnull("named_us"), "named_us", "source_file")
    return (
        offsets.withColumn("begins", begins)
        .where("begins IS NULL OR offset >= begins")
        .groupBy(*_TERM, "offset")
        .agg(
            F.min("named_in").alias("named_in"), F.min("named_us").alias("named_us"),
            F.min("grown_us").alias("grown_us"), F.max("still_us").alias("still_us"),
            F.first("append", ignorenulls=True).alias("append"),
            F.min_by("source_file", F.when(F.col("source_file").isNotNull(), named)).alias("source_file"),
        )
        .withColumns({
            "end": F.lead("offset").over(by_offset), "end_source": F.lead("named_in").over(by_offset),
            # Terms come from several files: an end known only from a later term counts to the file of the beginning.
            "seen_in": F.coalesce(F.lead("source_file").over(by_offset), "source_file"),
            "grown_us": F.least(F.min("grown_us").over(from_here), F.min("named_us").over(further)),
        })
        .join(F.broadcast(starts), ["topic", "partition_id"], "left")
        .withColumn("end_source", F.coalesce("end_source", F.when(next_term.isNotNull(), "terms")))
        .withColumn("end", F.coalesce("end", next_term))
        .drop("starts")
    )  # fmt: skip


def _answered(stretches: DataFrame) -> DataFrame:
    """List the appends whose base offset is logged. If no later offset is known, count one record."""
    end, source = F.coalesce("end", F.col("offset") + 1), F.coalesce("end_source", F.lit("inferred"))
    error = F.when(F.col("end").isNotNull(), 0)
    began = F.greatest("append.handled_us", F.least("append.append_us", "grown_us"))
    rows = stretches.where("append IS NOT NULL").withColumns(_ends(end, source, error))
    return (
        rows.drop("source_file")
        .select("*", "append.*")
        .withColumn("append_us", began)
        .withColumn("base_offset", F.col("offset"))
    )


def _unanswered(unanswered: DataFrame, stretches: DataFrame) -> DataFrame:
    """Assign the ranges that no response names to the requests that fit in time; otherwise to no producer.

    Several requests share a range in proportion to their sizes, so their borders may be off by ``log_end_error``
    records. A request was refused if the log end offset was the same after it.
    """
    open_stretches = stretches.where("append IS NULL OR end IS NULL").select(
        *_TERM, F.col("grown_us").alias("by_us"), F.lit(1).alias("is_stretch"),
        F.struct(
            # What follows the last append of a term begins after it.
            F.when(F.col("append").isNull(), F.col("offset")).otherwise(F.col("offset") + 1).alias("offset"),
            F.when(F.col("append").isNull(), F.col("end")).alias("end"),
            "grown_us", "still_us", "end_source", "seen_in",
        ).alias("stretch"),
    )  # fmt: skip
    requests = unanswered.withColumn("by_us", F.col("handled_us") - STAMPS_US).withColumn("is_stretch", F.lit(0))
    # Going backwards in time: the last range passed is the first one that was in the log when the request was done.
    backwards = (
        Window.partitionBy(*_TERM)
        .orderBy(F.desc_nulls_first("by_us"), F.desc("is_stretch"), F.desc("source_line"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    refused = F.col("append_us") + STAMPS_US < F.col("stretch.still_us")
    takes_part = (F.col("is_stretch") == 0) & ~F.coalesce(refused, F.lit(False))
    same = Window.partitionBy(*_TERM, "stretch", "takes_part").orderBy("handled_us", "source_file", "source_line")
    upto = same.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = Window.partitionBy(*_TERM, "stretch")
    rows = (
        requests.unionByName(open_stretches, allowMissingColumns=True)
        .withColumn("stretch", F.last("stretch", ignorenulls=True).over(backwards))
        .withColumn("takes_part", takes_part)
        .withColumns({
            "nth": F.row_number().over(same), "upto": F.sum(F.greatest("size", F.lit(1))).over(upto),
            "requests": F.count_if("takes_part").over(whole),
            "all": F.sum(F.when(F.col("takes_part"), F.greatest("size", F.lit(1)))).over(whole),
        })
    )  # fmt: skip
    return _shared(rows).unionByName(_by_nobody(rows))


def _shared(rows: DataFrame) -> DataFrame:
    first, end, nth, count = (F.col(name) for name in ("stretch.offset", "stretch.end", "nth", "requests"))
    share = F.floor((end - first) * F.col("upto") / F.col("all"))
    upto = F.when(end.isNull(), first + nth).otherwise(first + share)
    order = Window.partitionBy(*_TERM, "stretch", "takes_part").orderBy("nth")
    base = F.coalesce(F.lag("log_end_offset").over(order), first)
    exact = (count == nth) & end.isNotNull()
    error = F.when(exact, 0).when(end.isNotNull(), F.greatest(F.lit(0), upto - first - nth, end - (count - nth) - upto))
    grew = F.col("takes_part") & (F.col("log_end_offset") > F.col("base_offset"))
    of_appends = ("base_offset", "log_end_offset", "log_end_source", "log_end_error")
    return (
        rows.where("is_stretch = 0")
        .withColumns(_ends(upto, F.when(exact, F.col("stretch.end_source")).otherwise("inferred"), error))
        .withColumn("base_offset", base)
        .withColumn("grew", grew)
        .withColumns({name: F.when(F.col("grew"), F.col(name)) for name in of_appends})
        .withColumns({
            "append_us": F.greatest("handled_us", F.least("append_us", "stretch.grown_us")),
            "error_code": F.when(F.col("grew"), F.col("error_code")).otherwise(UNKNOWN_ERROR),
            "acknowledged_us": F.when(F.col("grew"), F.col("acknowledged_us")),
        })
    )  # fmt: skip


def _by_nobody(rows: DataFrame) -> DataFrame:
    grown = rows.where("is_stretch = 1 AND requests = 0 AND stretch.end IS NOT NULL AND by_us IS NOT NULL")
    return grown.withColumns(
        {
            **_ends(F.col("stretch.end"), F.lit("inferred"), F.lit(0)),
            "base_offset": F.col("stretch.offset"),
            "append_us": F.col("by_us"),
            "error_code": F.lit(0),
            "source_file": F.col("stretch.seen_in"),
            "grew": F.lit(True),
        }
    )

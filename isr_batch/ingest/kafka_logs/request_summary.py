"""What the other tables need of the request logs: few rows, aggregated by Spark."""

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.coverage import GAP_US
from isr_batch.ingest.kafka_logs.log_sql import BUCKET_US
from isr_batch.ingest.kafka_logs.request_log import FOLLOWER_FETCH, OTHER_FETCH

SILENCE_US = 500_000
WAITED_US = 100_000


def by_file(requests: DataFrame) -> pa.Table:
    """Count the lines of each file by outcome.

    Parameters
    ----------
    requests : DataFrame
        As `isr_batch.ingest.kafka_logs.request_log.read_requests` gives them.

    Returns
    -------
    pa.Table
        By broker_id, source_file, kind and reason: lines, first_us and last_us (completed), days (of requests, as days
        since 1970), api_version (the highest).
    """
    day = F.array_distinct(F.array(*(
        F.unix_date(F.timestamp_micros(us).cast("date")) for us in ("handled_us", "processed_us")
    )))  # fmt: skip
    return (
        requests.groupBy("broker_id", "source_file", "kind", "reason")
        .agg(
            F.count("*").alias("lines"),
            F.min("completed_us").alias("first_us"), F.max("completed_us").alias("last_us"),
            F.array_distinct(F.flatten(F.collect_set(F.when(F.col("completed_us").isNotNull(), day)))).alias("days"),
            F.max("api_version").alias("api_version"),
        )
        .toArrow()
    )  # fmt: skip


def pauses(requests: DataFrame, settings: pa.Table) -> pa.Table:
    """Find the times in which a broker did nothing about requests, or completed none.

    Activity is every step of a request: arrival, handling, processing, response. It is bucketed by time, and a row is
    about a bucket that begins after a pause, that is the first one of a process, or that is the last one of all.

    Parameters
    ----------
    requests : DataFrame
        As `isr_batch.ingest.kafka_logs.request_log.read_requests` gives them.
    settings : pa.Table
        With broker_id and starts_us, the times at which its processes started.

    Returns
    -------
    pa.Table
        broker_id; before_us, first_us and last_us: the last step before the bucket, and its own; before_done_us and
        done_us: the completions before and after the pause; process_before and process, the numbers of the broker's
        process; is_last; waiting_since_us: since when a request has waited for its broker that is processed or answered
        after the pause (null if none waited for `WAITED_US`).
    """
    held, overdue = F.col("processed_us") - F.col("arrival_us"), F.col("answered_us") - F.col("released_us")
    fetch = F.col("kind").isin(FOLLOWER_FETCH, OTHER_FETCH)
    nothing, no = F.lit(None).cast("bigint"), F.lit(False)
    steps = [
        F.struct(F.col(us).alias("at_us"), since.alias("since_us"), done.alias("is_done"))
        for us, since, done in (
            ("arrival_us", nothing, no), ("handled_us", nothing, no), ("completed_us", nothing, F.lit(True)),
            ("processed_us", F.when(held >= WAITED_US, F.col("arrival_us")), no),
            ("answered_us", F.when(fetch & (overdue >= WAITED_US), F.col("released_us")), no),
        )
    ]  # fmt: skip
    started = requests.sparkSession.createDataFrame(settings.select(["broker_id", "starts_us"]))
    taken = requests.where("arrival_us IS NOT NULL AND reason IS NULL").select(
        "broker_id", F.explode(F.array(*steps)).alias("step")
    )
    buckets = (
        taken.groupBy("broker_id", F.floor(F.col("step.at_us") / BUCKET_US).alias("bucket"))
        .agg(
            F.min("step.at_us").alias("first_us"), F.max("step.at_us").alias("last_us"),
            F.min("step.since_us").alias("since_us"),
            F.min(F.when(F.col("step.is_done"), F.col("step.at_us"))).alias("done_us"),
            F.max(F.when(F.col("step.is_done"), F.col("step.at_us"))).alias("last_done_us"),
        )
        .join(F.broadcast(started), "broker_id")
    )  # fmt: skip
    process = F.size(F.filter("starts_us", lambda start: F.floor(start / BUCKET_US) <= F.col("bucket")))
    of_broker = Window.partitionBy("broker_id").orderBy("bucket")
    earlier = of_broker.rowsBetween(Window.unboundedPreceding, -1)
    from_here = Window.partitionBy("broker_id").orderBy(F.desc("bucket"))
    rows = buckets.withColumn("process", process).select(
        "broker_id", "first_us", "last_us", "done_us", "process",
        F.lag("last_us").over(of_broker).alias("before_us"),
        F.lag("process").over(of_broker).alias("process_before"),
        F.last("last_done_us", ignorenulls=True).over(earlier).alias("before_done_us"),
        F.lead("bucket").over(of_broker).isNull().alias("is_last"),
        F.min("since_us").over(from_here).alias("waiting_since_us"),
    )  # fmt: skip
    return rows.where(
        f"first_us - before_us >= {SILENCE_US} OR done_us - before_done_us >= {GAP_US} OR process_before != process "
        "OR is_last"
    ).toArrow()

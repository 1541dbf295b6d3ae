"""Build table broker_events: when each broker was silent, and when its isr-expiration checks ran."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import server_log
from isr_batch.ingest.kafka_logs.request_log import FOLLOWER_FETCH, OTHER_FETCH
from isr_batch.ingest.kafka_logs.server_log import process_of

_BUCKET_US = 50_000
_SILENCE_US = 500_000
_WAITED_US = 100_000
_AFTER_SILENCE_US = 500_000
_ONE_CHECK_US = 500_000
_PHASE_SPREAD_MS = 100


def activity(requests: DataFrame, server: DataFrame, settings: DataFrame) -> DataFrame:
    """Bucket the activity of each broker by time: broker_id, process, first_us, last_us, last_led_us.

    Activity is every step of a request (arrival, handling, processing, response) and every line of server.log. A replay
    ends earlier, at ``last_led_us``: the last request or Shrinking line, null in a bucket without any. A process that
    was killed while it was paused may still write a line or two, and does not log its last requests.
    """
    steps = F.array("arrival_us", "handled_us", "processed_us", "answered_us", "completed_us")
    answered = requests.where("arrival_us IS NOT NULL AND reason IS NULL").select(
        "broker_id", F.explode(steps).alias("at_us"), F.lit(True).alias("led")
    )
    shrinks = F.coalesce(F.contains("message", F.lit("Shrinking ISR")), F.lit(False))
    stamped = server.where("stamp_us IS NOT NULL").select("broker_id", "stamp_us", shrinks)
    buckets = (
        answered.unionAll(stamped)
        .groupBy("broker_id", F.floor(F.col("at_us") / _BUCKET_US).alias("bucket"))
        .agg(
            F.min("at_us").alias("first_us"),
            F.max("at_us").alias("last_us"),
            F.max(F.when(F.col("led"), F.col("at_us"))).alias("last_led_us"),
        )
    )
    return buckets.join(F.broadcast(settings.select("broker_id", "starts_us")), "broker_id").select(
        "broker_id", process_of("last_us").alias("process"), "first_us", "last_us", "last_led_us"
    )


def silences(busy: DataFrame, requests: DataFrame) -> DataFrame:
    """Find silences, when a broker did nothing though a request was waiting: broker_id, process, from_us, until_us.

    An idle time is not a silence: in a quiet cluster all followers may wait half a second for data at the same time,
    and stopped followers send nothing.
    """
    order = Window.partitionBy("broker_id", "process").orderBy("first_us")
    gaps = busy.select(
        "broker_id", "process", F.lag("last_us").over(order).alias("from_us"), F.col("first_us").alias("until_us")
    )
    gaps = gaps.where(F.col("until_us") - F.col("from_us") >= _SILENCE_US)
    waited = (F.col("waiting.from_us") <= F.col("gap.until_us") - _WAITED_US) & (
        F.col("waiting.until_us") >= F.col("gap.until_us")
    )
    same = F.col("waiting.broker_id") == F.col("gap.broker_id")
    return gaps.alias("gap").join(_waits(requests).alias("waiting"), same & waited, "left_semi")


def _waits(requests: DataFrame) -> DataFrame:
    """List the requests that waited for their broker: in its queue, in processing, or for an overdue response."""
    held = F.struct(F.col("arrival_us").alias("from_us"), F.col("processed_us").alias("until_us"))
    overdue = F.struct(F.col("released_us").alias("from_us"), F.col("answered_us").alias("until_us"))
    fetch = F.col("kind").isin(FOLLOWER_FETCH, OTHER_FETCH)
    return (
        requests.select("broker_id", F.explode(F.array_compact(F.array(held, F.when(fetch, overdue)))).alias("wait"))
        .select("broker_id", "wait.from_us", "wait.until_us")
        .where(F.col("until_us") - F.col("from_us") >= _WAITED_US)
    )


def checks_seen(shrinks: DataFrame, settings: DataFrame, silent: DataFrame) -> DataFrame:
    """Find the isr-expiration checks that logged Shrinking lines: broker_id, process, at_us, silent_from_us, period_ms.

    ``silent_from_us`` is the start of the silence that ended just before the check, if there was one.
    """
    order = Window.partitionBy("broker_id").orderBy("stamp_us")
    gap = F.col("stamp_us") - F.lag("stamp_us").over(order)
    first_lines = shrinks.select("broker_id", "stamp_us", gap.alias("gap")).where(
        f"gap IS NULL OR gap > {_ONE_CHECK_US}"
    )
    stretches = silent.groupBy("broker_id").agg(F.collect_list(F.struct("from_us", "until_us")).alias("silent"))
    just_ended = F.filter(
        "silent",
        lambda s: (s.until_us - 1000 <= F.col("stamp_us")) & (F.col("stamp_us") <= s.until_us + _AFTER_SILENCE_US),
    )
    return (
        first_lines.join(F.broadcast(settings), "broker_id")
        .join(F.broadcast(stretches), "broker_id", "left")
        .select(
            "broker_id", process_of("stamp_us").alias("process"), F.col("stamp_us").alias("at_us"),
            F.array_min(F.transform(just_ended, lambda s: s.from_us)).alias("silent_from_us"),
            _period_ms().alias("period_ms"),
        )
    )  # fmt: skip


def _period_ms() -> Column:
    return F.floor(F.col("replica_lag_time_max_ms") / F.col("checks_per_lag_time"))


def processes(busy: DataFrame, server: DataFrame, settings: DataFrame, checks: DataFrame) -> DataFrame:
    """Describe each broker process: broker_id, process, last_led_us, broker_version, check_origin.

    isr-expiration runs with a fixed period from the start of its process; a check may be late, but never early. So the
    origin is the check that most other checks share their phase with, or follow a little later. Without checks it is
    about the time at which the task was scheduled.
    """
    key = ["broker_id", "process"]
    facts = server_log.process_facts(server, settings)
    return (
        busy.groupBy(*key)
        .agg(F.max("last_led_us").alias("last_led_us"))
        .join(F.broadcast(facts), key, "left")
        .join(F.broadcast(_phases(checks)), key, "left")
        .select(
            *key, "last_led_us", "broker_version",
            F.coalesce("shrink_ms", F.floor(F.col("startup_us") / 1000), F.lit(0)).alias("check_origin_ms"),
            F.when(F.col("shrink_ms").isNotNull(), "shrinks").when(F.col("startup_us").isNotNull(), "startup")
            .otherwise("unknown").alias("check_origin_source"),
        )
    )  # fmt: skip


def _phases(checks: DataFrame) -> DataFrame:
    regular = checks.where("silent_from_us IS NULL").groupBy("broker_id", "process").agg(
        F.array_sort(F.collect_set(F.floor(F.col("at_us") / 1000))).alias("at_ms"),
        F.max("period_ms").alias("period_ms"),
    )  # fmt: skip

    def followed_by(first_ms: Column) -> Column:
        return F.size(F.filter("at_ms", lambda ms: F.pmod(ms - first_ms, F.col("period_ms")) <= _PHASE_SPREAD_MS))

    best = F.array_max(F.transform("at_ms", lambda ms: F.struct(followed_by(ms).alias("n"), (-ms).alias("minus_ms"))))
    return regular.select("broker_id", "process", (-best.minus_ms).alias("shrink_ms"))


def check_events(checks: DataFrame, known: DataFrame) -> DataFrame:
    """List the checks with the time at which each was due: broker_id, kind, at_us, end_us.

    The check right after a silence is the first one that was due in it; the broker then catches up on the others.
    """
    period, origin = F.col("period_ms") * 1000, F.col("check_origin_ms") * 1000
    spread = _PHASE_SPREAD_MS * 1000
    last_due = F.col("at_us") + spread - F.pmod(F.col("at_us") + spread - origin, period)
    first_due = F.col("silent_from_us") + F.pmod(origin - F.col("silent_from_us"), period)
    due = F.when(F.col("check_origin_source") == "unknown", F.col("at_us")).otherwise(
        F.least(first_due, last_due, "at_us")
    )
    return checks.join(F.broadcast(known), ["broker_id", "process"]).select(
        "broker_id", F.lit("check").alias("kind"), due.alias("at_us"), F.col("at_us").alias("end_us")
    )

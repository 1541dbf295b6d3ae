"""Parse the request log: one line per completed request, JSON since Kafka 2.8, text before.

Times are epoch microseconds, computed backwards from the timestamp of the line, which is the completion.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.request_log_text import FETCH, PRODUCE_API, json_names, with_text_as_json

FOLLOWER_FETCH, OTHER_FETCH, PRODUCE, OTHER = "follower fetch", "other fetch", "produce", "other"
BLANK, REFUSED, FILE = "blank", "refused", "file"
RAW_CHARACTERS = 500
SESSION_ORDER = ("broker_id", "session", "session_epoch", "source_line")

_PARTITION_ASKED = "partition INT, currentLeaderEpoch INT, fetchOffset BIGINT, recordsSizeInBytes BIGINT"
_PARTITION_ANSWERED = (
    "partitionIndex INT, partition INT, index INT, errorCode INT, highWatermark BIGINT, recordsSizeInBytes BIGINT, "
    "recordSetSizeInBytes BIGINT, recordsStart BIGINT, recordsEnd BIGINT, "
    "baseOffset BIGINT, divergingEpoch STRUCT<epoch: INT>"
)
_SCHEMA = f"""
    requestHeader STRUCT<
        requestApiKey: INT, requestApiVersion: INT, correlationId: BIGINT, clientId: STRING, fetchVersion: INT>,
    request STRUCT<
        replicaId: INT, replicaState: STRUCT<replicaId: INT>, maxWaitMs: BIGINT, sessionId: INT, sessionEpoch: INT,
        topics: ARRAY<STRUCT<topicId: STRING, topic: STRING, partitions: ARRAY<STRUCT<{_PARTITION_ASKED}>>>>,
        forgottenTopicsData: ARRAY<STRUCT<topicId: STRING, topic: STRING, partitions: ARRAY<INT>>>,
        acks: INT,
        topicData: ARRAY<STRUCT<
            topicId: STRING, name: STRING, partitionData: ARRAY<STRUCT<index: INT, recordsSizeInBytes: BIGINT>>>>>,
    response STRUCT<
        errorCode: INT, sessionId: INT,
        responses: ARRAY<STRUCT<
            topicId: STRING, topic: STRING, name: STRING,
            partitions: ARRAY<STRUCT<{_PARTITION_ANSWERED}>>,
            partitionResponses: ARRAY<STRUCT<{_PARTITION_ANSWERED}>>>>>,
    totalTimeMs DOUBLE, requestQueueTimeMs DOUBLE, localTimeMs DOUBLE, remoteTimeMs DOUBLE, sendTimeMs DOUBLE,
    malformed STRING"""
"""The fields of Fetch v4 to v18 and Produce v3 to v13 that are used; null if a version does not have one."""
_TEXT_SCHEMA = json_names(_SCHEMA)

FETCH_VERSIONS, PRODUCE_VERSIONS = (4, 18), (3, 13)
MAX_OFFSET = 1 << 53
"""At a million records a second, 285 years."""

FIRST_US, LAST_US = 1_262_304_000_000_000, 4_102_444_800_000_000
"""2010, the year before Kafka was published, and 2100."""

MAX_TOTAL_MS = 86_400_000
"""One day. A broker that was paused for hours has requests of hours; a longer one would shift its whole session."""

_ALL = (1 << 31) - 1
_BODY_AFTER = " Completed request:"
_ROUNDING_MS = 1.0
_SAME_LINE = ("broker_id", "completed_us", "line_hash")
DUPLICATE = "duplicate line"
UNKNOWN_VERSION = "API version not known here"
_STAMP = r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3})\]"


def stamp_us(line: Column) -> Column:
    """Parse the timestamp at the start of a log line, in epoch microseconds; null if there is none."""
    text = F.regexp_extract(line, _STAMP, 1)
    return F.unix_micros(F.try_to_timestamp(F.replace(text, F.lit(","), F.lit("."))))


def parse_requests(lines: DataFrame) -> DataFrame:
    """Parse every line into one row: the kind of request, its times, and its partitions.

    Parameters
    ----------
    lines : DataFrame
        As `isr_batch.ingest.kafka_logs.lines.read_lines` gives them.

    Returns
    -------
    DataFrame
        ``kind`` is one of the constants above. Requests have ``arrival_us <= handled_us <= processed_us <=
        released_us <= completed_us``, and ``answered_us``, when sending the response began; refused lines have
        ``reason``, ``detail`` and ``raw``.
    """
    # Plain searches: a regular expression over all lines takes half as long as reading the JSON in them.
    begin = F.instr("value", _BODY_AFTER)
    body = F.when(begin > 0, F.substring("value", begin + len(_BODY_AFTER), _ALL)).otherwise("")
    parsed = lines.select("*", stamp_us(F.col("value")).alias("stamp_us"), body.alias("body")).withColumn(
        "json", F.when(F.startswith("body", F.lit('{"')), _json(F.col("body"))).otherwise("")
    )
    parsed = with_text_as_json(parsed).withColumn("r", _read_json())
    api, version = F.col("r.requestHeader.requestApiKey"), F.col("r.requestHeader.requestApiVersion")
    replica = F.coalesce("r.request.replicaState.replicaId", "r.request.replicaId", F.lit(-1))
    kind = (
        F.when(F.col("problem").isNotNull() & F.col("source_line").isNull(), FILE)
        .when(F.trim("value") == "", BLANK)
        .when(F.col("why").isNotNull(), REFUSED)
        .when((api == FETCH) & (replica >= 0), FOLLOWER_FETCH)
        .when(api == FETCH, OTHER_FETCH)
        .when(api == PRODUCE_API, PRODUCE)
        .otherwise(OTHER)
    )
    known = parsed.withColumn("why", _why_refused(api, version, replica)).withColumn("kind", kind)
    versions = F.when(F.col("why") == UNKNOWN_VERSION, F.format_string("API %d, version %d", api, version))
    return _with_instants(known).select(
        "kind", "broker_id", "source_file", "source_line",
        "arrival_us", "handled_us", "processed_us", "released_us", "answered_us", "completed_us",
        replica.alias("replica_id"),
        F.col("r.request.sessionId").alias("asked_session"),
        F.coalesce("r.request.sessionEpoch", F.lit(-1)).alias("session_epoch"),
        F.col("r.response.sessionId").alias("given_session"),
        F.coalesce("r.response.errorCode", F.lit(0)).alias("error_code"),
        F.coalesce(version, "r.requestHeader.fetchVersion").alias("api_version"),
        F.col("r.requestHeader.correlationId").alias("correlation_id"),
        F.when(F.col("kind") == FOLLOWER_FETCH, F.col("r.requestHeader.clientId")).alias("client_id"),
        F.col("r.request.acks").alias("acks"),
        F.when(_is_used("kind"), F.coalesce("r.request.topics", _produced_to())).alias("topics"),
        F.when(_is_used("kind"), F.col("r.request.forgottenTopicsData")).alias("forgotten"),
        F.when(_is_used("kind"), _responses()).alias("responses"),
        F.coalesce("problem", F.when(F.col("kind") == REFUSED, F.col("why"))).alias("reason"),
        F.coalesce("detail", versions).alias("detail"),
        F.when(F.col("kind") == REFUSED, F.substring("value", 1, RAW_CHARACTERS)).alias("raw"),
        F.when(F.col("why").isNull(), F.xxhash64("value")).alias("line_hash"),
    )  # fmt: skip


def _produced_to() -> Column:
    """List the partitions of a produce request in the same form as those of a fetch."""

    def partition(data: Column) -> Column:
        unknown = F.lit(None).cast("int"), F.lit(None).cast("bigint")
        return F.struct(
            data["index"].alias("partition"), unknown[0].alias("currentLeaderEpoch"),
            unknown[1].alias("fetchOffset"), data.recordsSizeInBytes.alias("recordsSizeInBytes"),
        )  # fmt: skip

    return F.transform(
        "r.request.topicData",
        lambda t: F.struct(
            t.topicId.alias("topicId"),
            t["name"].alias("topic"),
            F.transform(t.partitionData, partition).alias("partitions"),
        ),
    )


def _read_json() -> Column:
    malformed = {"columnNameOfCorruptRecord": "malformed"}
    json = F.from_json("json", _SCHEMA, malformed)
    text = F.from_json("text_json", _TEXT_SCHEMA, malformed)
    # Structs are cast by position: the fields of the text get the names that they have in JSON.
    return F.when(F.col("text_json").isNull(), json).otherwise(text.cast(f"struct<{_SCHEMA}>"))


def _responses() -> Column:
    """Rename the fields of a response as in Fetch since 3.0; 2.8 and text have other names."""
    responses = F.col("r.response.responses")

    def partition(p: Column) -> Column:
        size = F.coalesce(p.recordsSizeInBytes, p.recordSetSizeInBytes, p.recordsEnd - p.recordsStart)
        return p.withField("partitionIndex", F.coalesce(p.partitionIndex, p.partition)).withField(
            "recordsSizeInBytes", size
        )

    renamed = F.transform(
        responses,
        lambda t: t.withField("partitions", F.transform(F.coalesce(t.partitions, t.partitionResponses), partition)),
    )
    older = F.exists(responses, lambda t: t.partitions.isNull())
    return F.when((F.col("kind") == FOLLOWER_FETCH) & older, renamed).otherwise(responses)


def _is_used(kind: str) -> Column:
    return F.col(kind).isin(FOLLOWER_FETCH, PRODUCE)


def _is_malformed(json: str) -> Column:
    return (F.col(json) == "") | F.col("r.malformed").isNotNull()


def _json(body: Column) -> Column:
    """Cut off what the log4j layout puts after the JSON, such as `` (kafka.request.logger)``, which has no brace.

    Requests without a response, such as Produce with acks=0, have an empty string instead of an object.
    """
    json = F.substring(body, F.lit(1), F.length(body) - F.length(F.substring_index(body, "}", -1)))
    return F.replace(json, F.lit('"response":"",'), F.lit('"response":null,'))


def _why_refused(api: Column, version: Column, replica: Column) -> Column:
    follower = (api == FETCH) & (replica >= 0)
    durations = [F.col(f"r.{name}TimeMs") for name in ("total", "requestQueue", "local", "remote")]
    unmeasured = F.greatest(*(d.isNull() | (d < 0) for d in durations))
    # The parts add up to the total; each is rounded by itself, and the total is the last one measured.
    total, *parts = durations
    send = F.coalesce("r.sendTimeMs", F.lit(0))
    impossible = F.greatest(*(part > total + _ROUNDING_MS for part in (*parts, send)), send < 0)
    began_us = F.col("stamp_us") - total * 1000
    unbalanced = F.length(F.translate("body", "{", "")) < F.length(F.translate("body", "}", ""))
    is_text = F.col("text_json").isNotNull()
    return (
        F.when(F.col("problem").isNotNull(), F.col("problem"))
        .when(F.col("body") == "", "not a line of the request log")
        .when(F.col("stamp_us").isNull(), "no readable time stamp")
        .when(~F.col("stamp_us").between(FIRST_US, LAST_US), "time out of range")
        .when(F.col("text_problem").isNotNull(), F.col("text_problem"))
        .when(is_text & _is_malformed("text_json"), "text request of an unknown form")
        .when(~is_text & _is_malformed("json") & unbalanced, "truncated line")
        .when(~is_text & _is_malformed("json"), "malformed JSON")
        # The JSON reader ignores what comes after the first object.
        .when(F.contains("body", F.lit(_BODY_AFTER)), "two requests in one line")
        .when(api.isNull() | unmeasured, "request without api key or durations")
        .when(~(total <= MAX_TOTAL_MS) | ~(began_us >= FIRST_US) | impossible, "time out of range")
        .when(
            ((api == FETCH) & (version > FETCH_VERSIONS[1]))
            | (follower & (version < FETCH_VERSIONS[0]))
            | ((api == PRODUCE_API) & ~version.between(*PRODUCE_VERSIONS)),
            UNKNOWN_VERSION,
        )
        .when(((api == FETCH) & _no_topics()) | ((api == PRODUCE_API) & _no_acks()), "values out of range")
        .when(
            ((api == FETCH) & _odd_fetch(follower)) | ((api == PRODUCE_API) & _odd_produce()),
            "offset or partition out of range",
        )
    )


def _no_topics() -> Column:
    return F.col("r.request.topics").isNull()


def _no_acks() -> Column:
    return ~F.coalesce(F.col("r.request.acks").between(-1, 1), F.lit(False))


def _any(entries: Column | str, odd: Callable[[Column], Column]) -> Column:
    """Whether any entry is odd; an entry for which that is null counts as odd, and an empty list does not."""
    return F.coalesce(F.exists(entries, lambda entry: ~F.coalesce(~odd(entry), F.lit(False))), F.lit(False))


def _odd_fetch(follower: Column) -> Column:
    def nameless(topic: Column) -> Column:
        return (topic.topicId.isNull() & topic.topic.isNull()) | topic.partitions.isNull()

    asked = _any(
        "r.request.topics",
        lambda t: nameless(t) | _any(
            t.partitions,
            lambda p: ~(p.partition >= 0) | ~p.fetchOffset.between(0, MAX_OFFSET)
            | (F.coalesce(p.currentLeaderEpoch, F.lit(-1)) < -1),
        ),
    )  # fmt: skip
    forgotten = _any("r.request.forgottenTopicsData", lambda t: nameless(t) | _any(t.partitions, lambda p: ~(p >= 0)))
    answered = _any(
        "r.response.responses",
        lambda t: _any(
            F.coalesce(t.partitions, t.partitionResponses),
            lambda p: ~(F.coalesce(p.partitionIndex, p.partition) >= 0)
            | ~F.coalesce(p.highWatermark, F.lit(-1)).between(-1, MAX_OFFSET)
            | (F.coalesce(p.recordsSizeInBytes, F.lit(0)) < -1),
        ),
    )  # fmt: skip
    unnamed = _any(
        "r.response.responses",
        lambda t: (t.topicId.isNull() & t.topic.isNull()) | F.coalesce(t.partitions, t.partitionResponses).isNull(),
    )
    # Nothing else is read from a consumer's fetch or its response.
    return asked | (follower & (forgotten | answered | unnamed))


def _odd_produce() -> Column:
    asked = _any(
        F.coalesce("r.request.topics", _produced_to()),
        lambda t: (t.topicId.isNull() & t.topic.isNull()) | t.partitions.isNull() | _any(
            t.partitions, lambda p: ~(p.partition >= 0) | (F.coalesce(p.recordsSizeInBytes, F.lit(0)) < -1)
        ),
    )  # fmt: skip
    return asked | _any(
        "r.response.responses",
        lambda t: (t.topicId.isNull() & t.topic.isNull() & t["name"].isNull()) | t.partitionResponses.isNull() | _any(
            t.partitionResponses,
            lambda p: ~(p.index >= 0) | ~p.baseOffset.between(-1, MAX_OFFSET) | p.errorCode.isNull(),
        ),
    )  # fmt: skip


def _us(milliseconds: str) -> Column:
    # Lines with absurd durations come here too: a value too large for BIGINT would fail the job.
    return F.round(F.col(f"r.{milliseconds}") * 1000).try_cast("bigint")


def _with_instants(parsed: DataFrame) -> DataFrame:
    waited = F.greatest(F.lit(0), F.least("r.remoteTimeMs", F.coalesce("r.request.maxWaitMs", F.lit(0))))
    read = parsed.withColumns({
        name: F.when(F.col("why").isNull(), value)
        for name, value in {
            "stamp_us": F.col("stamp_us"), "total_us": _us("totalTimeMs"), "queue_us": _us("requestQueueTimeMs"),
            "local_us": _us("localTimeMs"), "send_us": F.coalesce(_us("sendTimeMs"), F.lit(0)),
            "waited_us": F.round(waited * 1000).try_cast("bigint"),
        }.items()
    })  # fmt: skip
    return (
        read.withColumn("completed_us", F.col("stamp_us"))
        .withColumn("arrival_us", F.col("stamp_us") - F.col("total_us"))
        .withColumn("handled_us", F.least(F.col("arrival_us") + F.col("queue_us"), "completed_us"))
        .withColumn("processed_us", F.least(F.col("handled_us") + F.col("local_us"), "completed_us"))
        .withColumn("released_us", F.least(F.col("processed_us") + F.col("waited_us"), "completed_us"))
        .withColumn("answered_us", F.col("completed_us") - F.col("send_us"))
    )


def copies(requests: DataFrame) -> DataFrame:
    """Find duplicate lines, as in two overlapping copies of a log, or written by two appenders.

    A line has the connection, the request's number on it and the millisecond, so equal text means the same request.

    Returns
    -------
    DataFrame
        The key of such lines, and ``first``, the source of the line that is kept.
    """
    line = F.struct("source_file", "source_line")
    same = requests.where("line_hash IS NOT NULL").groupBy(*_SAME_LINE)
    return same.agg(F.min(line).alias("first"), F.count("*").alias("times")).where("times > 1").drop("times")


def refuse_copies(requests: DataFrame, found: DataFrame) -> DataFrame:
    """Refuse all but the first of the duplicates that `copies` found."""
    first = F.col("first")
    again = F.coalesce(first != F.struct("source_file", "source_line"), F.lit(False))
    refusal = {
        "kind": F.lit(REFUSED),
        "reason": F.lit(DUPLICATE),
        "detail": F.format_string("as line %d of %s", "first.source_line", "first.source_file"),
    }
    joined = requests.join(found, list(_SAME_LINE), "left")
    return joined.withColumns(
        {name: F.when(again, value).otherwise(F.col(name)) for name, value in refusal.items()}
    ).drop("first")


STRETCH_OF_SESSION = 1 << 32
"""Larger than any session id: a session that continues after a gap in the log counts as a new one."""


def in_sessions(requests: DataFrame, stretch: Column) -> DataFrame:
    """Assign follower fetches to their fetch sessions, and correct timestamps that were logged late.

    A session has one request in flight. So if a request seems to complete after the next one of its session arrived,
    its line was logged late by at least the difference.

    Parameters
    ----------
    requests : DataFrame
        As `parse_requests` gives them.
    stretch : Column
        Number of the stretch of its broker's log that a request is in (`isr_batch.ingest.kafka_logs.coverage`): what a
        session had before a gap may have changed in it.

    Returns
    -------
    DataFrame
        Hashed by (broker_id, session) and sorted by `SESSION_ORDER`; with ``previous_epoch`` (null for the first of
        a session).
    """
    own = -F.col("source_line")  # a request without a session is one of its own
    session = F.coalesce(
        F.when(F.col("session_epoch") <= 0, F.nullif("given_session", F.lit(0))).otherwise(F.col("asked_session"))
        + stretch.cast("bigint") * STRETCH_OF_SESSION,
        own,
    )
    fetches = requests.where(F.col("kind") == FOLLOWER_FETCH).withColumn("session", session.cast("bigint"))
    order = Window.partitionBy(*SESSION_ORDER[:2]).orderBy(*SESSION_ORDER[2:])
    late = F.coalesce(F.greatest(F.lit(0), F.col("completed_us") - F.lead("arrival_us").over(order)), F.lit(0))
    linked = fetches.repartition(*SESSION_ORDER[:2]).select(
        "*",
        F.when(F.col("session") > 0, late).otherwise(F.lit(0)).alias("late_us"),
        F.lag("session_epoch").over(order).alias("previous_epoch"),
    )
    instants = ("arrival_us", "handled_us", "processed_us", "released_us", "answered_us", "completed_us")
    return linked.withColumns({name: F.col(name) - F.col("late_us") for name in instants})


def session_gaps(sessions: DataFrame) -> DataFrame:
    """Find the requests whose predecessors in the session are missing: ``reason``, ``detail``, source."""
    epoch, previous = F.col("session_epoch"), F.col("previous_epoch")
    served = (F.col("error_code") == 0) & (epoch > 0)
    reason = F.when(previous.isNull(), "fetch session began before the log").when(
        epoch > previous + 1, "gap in fetch session"
    )
    detail = F.format_string(
        "session %d of broker %d with replica %d: epoch %d after %s",
        F.pmod("session", F.lit(STRETCH_OF_SESSION)), "broker_id", "replica_id", epoch,
        F.coalesce(previous.cast("string"), F.lit("none")),
    )  # fmt: skip
    return sessions.where(served & reason.isNotNull()).select(
        "source_file", "source_line", reason.alias("reason"), detail.alias("detail")
    )

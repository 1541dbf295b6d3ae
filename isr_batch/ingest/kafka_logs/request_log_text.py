"""Convert the text lines of request logs before Kafka 2.8 into JSON, with the field names of the text.

===============  ========================================================================================
release          what a line holds
===============  ========================================================================================
0.9 - 0.10.1     a follower's fetch as ``Name: FetchRequest; ...; RequestInfo: ([t,0],PartitionFetchInfo(5,9))``,
                 a produce request (0.10) as the whole structure; no answers. TRACE only
0.10.2           structures; produce as ``{acks=..,timeout=..,partitionSizes=[t-0=670]}``; no answers. TRACE only
0.11             as before, durations with decimals, at DEBUG (partitionSizes: TRACE)
1.0 - 2.7        the answer after ``,response:``; 1.1: fetch sessions; 2.1: ``current_leader_epoch``
===============  ========================================================================================

Durations are whole milliseconds up to 0.10.2, each rounded down by itself: there ``remoteTime:0`` does not prove
that a fetch was answered at once. From 0.11 on they have microseconds, with the decimal mark of the broker's locale.

Client ids, rack ids and principal names are chosen by users. A line is read only if each of the separators
that separate its parts occurs exactly once; then the user-chosen text is in a known part, which is left out.
"""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FETCH, PRODUCE_API = 1, 0
_ANOTHER_API = -1

_TWO_READINGS = "text request that can be read in two ways"
_NO_PARTITIONS = "fetch logged without its partitions (TRACE is needed)"
_PRODUCE_0_9 = "produce request of a broker older than 0.10"

_MESSAGE, _ANSWER, _CONNECTION, _TIMES = " -- ", ",response:", " from connection ", ";totalTime:"
_OLD_FETCH = "Name: FetchRequest; "
_OLD_REPLICA = "; ReplicaId: "

_API = r"^(?:RequestHeader\(apiKey=|\{api_key=)(\w+), ?api_?[vV]ersion="
_OLD_ASKED = (
    r"^Name: FetchRequest; Version: \d+; CorrelationId: -?\d+; ClientId: .*; ReplicaId: (-?\d+); MaxWait: (\d+) ms; "
    r"MinBytes: -?\d+ bytes(?:; MaxBytes: ?-?\d+ bytes)?; RequestInfo: (.*)$"
)
_CORRELATION = r"orrelation_?[iI]d[=:] ?(\d{1,9})\b"
_CLIENT = r"[cC]lient_?[iI]d[=:] ?([\w.-]+)"
_API_VERSION = (
    r"^(?:RequestHeader\(apiKey=\w+, apiVersion=|\{api_key=\d+,api_version=|Name: FetchRequest; Version: )(\d{1,4})\b"
)
_NUMBER = r"(\d+(?:\.\d+)?(?:E-?\d+)?)"
_DURATIONS = (
    rf"^{_NUMBER},requestQueueTime:{_NUMBER},localTime:{_NUMBER},remoteTime:{_NUMBER},(?:throttleTime:{_NUMBER},)?"
    rf"responseQueueTime:{_NUMBER},sendTime:{_NUMBER}\b.*$"
)
_DURATIONS_AS_JSON = (
    '"total_time_ms":$1,"request_queue_time_ms":$2,"local_time_ms":$3,"remote_time_ms":$4,"send_time_ms":$7'
)

_NO_TAGS = (r",_tagged_fields=\{\}", "")
_ASKED = (
    _NO_TAGS,
    (r",rack_id=.*$", "}"),  # the last member, and whatever a user made of it
    (r"max_wait_time=", "max_wait_ms="),
    (r",epoch=(-?\d+),topics=", ",session_epoch=$1,topics="),  # of the session: up to 2.0
    (r"partitionSizes=\[", "topics=["),
    (r"([\w.-]+)-(\d+)=(\d+)", "{topic=$1,partitions=[{partition=$2,records_size_in_bytes=$3}]}"),
    (r"topic_data=\[", "topics=["),
    (r",data=\[", ",partitions=["),
    (r"record_set=null", "records_size_in_bytes=0"),
    (r"record_set=java\.nio\.\w+\[pos=0 lim=(\d+) cap=\d+\]", "records_size_in_bytes=$1"),
)
_ANSWERED = (
    _NO_TAGS,
    (r"record_set=(?:\[\]|null)", "records_size_in_bytes=0"),
    (r"record_set=FileRecords\(file=[^(){}]*, start=(\d+), end=(\d+)\)", "records_start=$1,records_end=$2"),
    (r"record_set=\w+Records\(size=(\d+)[^(){}]*\)", "records_size_in_bytes=$1"),
    # Records turned into an older format are listed one by one, without a size: a byte, for "some".
    (r"record_set=\[\(record=[^\[\]{}]*\]", "records_size_in_bytes=1"),
    (r"\{partition_header=\{", "{"),
    (r"\},(records_)", ",$1"),
    # Why an append was refused, in words.
    (r"\{batch_index=\d+,batch_index_error_message=[^{}]*\},?", ""),
    (r",record_errors=\[\],error_message=[^{}]*\}", "}"),
    (r",_tagged_fields=\{0=(\{epoch=-?\d+,end_offset=-?\d+\})\}", ",diverging_epoch=$1"),
)
_TO_JSON = (
    (r"topic=([\w.-]+)", 'topic="$1"'),
    (r"(\w+)=", '"$1":'),
)


def json_names(ddl: str) -> str:
    """Rename the fields of a schema as in the text: ``fetchOffset`` becomes ``fetch_offset``."""
    return re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter.group().lower()}", ddl)


def with_text_as_json(lines: DataFrame) -> DataFrame:
    """Add ``text_json`` and ``text_problem`` to lines that have a ``body``: both null where the body is JSON.

    ``text_json`` is the object that a later release would have logged, with the field names of the text (`json_names`)
    and only the fields that are used: for APIs other than Fetch and Produce only the durations. A Produce request has
    ``topics`` with ``partition`` and ``records_size_in_bytes`` if the log level prints them. Empty if the line has
    another form.
    """
    text = F.when(~F.startswith("body", F.lit('{"')) & (F.col("body") != ""), F.col("body"))
    split = (
        lines.withColumn("text", text)
        .withColumn("front", F.substring_index("text", _TIMES, 1))
        .withColumn("said", F.substring_index("front", _CONNECTION, 1))
        .withColumn("is_old_fetch", F.startswith("text", F.lit(_OLD_FETCH)))
        .withColumn("message", F.when(~F.col("is_old_fetch"), _after(F.col("said"), _MESSAGE)))
        .withColumn("api_name", F.regexp_extract("text", _API, 1))
    )
    name = F.col("api_name")
    api = (
        F.when(F.col("is_old_fetch") | name.isin("FETCH", str(FETCH)), FETCH)
        .when(name.isin("PRODUCE", str(PRODUCE_API)), PRODUCE_API)
        .when((name != "") | F.startswith("text", F.lit("Name: ")), _ANOTHER_API)
    )
    used = F.col("api").isin(FETCH, PRODUCE_API)
    asked = _replaced(F.substring_index("message", _ANSWER, 1), (*_ASKED, *_TO_JSON))
    answered = _replaced(_after(F.col("message"), _ANSWER), (*_ANSWERED, *_TO_JSON))
    # A Produce answer has called it index since 2.8.
    answered = F.when(
        F.col("api") == PRODUCE_API, F.replace(answered, F.lit('"partition":'), F.lit('"index":'))
    ).otherwise(answered)
    has_answer = F.contains("message", F.lit(_ANSWER))
    complete = (
        split.withColumn("api", api)
        .withColumn("asked", F.when(F.col("is_old_fetch"), _old_fetch()).when(used, asked).otherwise("{}"))
        .withColumn("answered", F.when(used & has_answer, answered).otherwise("null"))
        .withColumn("times", _durations())
    )
    json = F.concat(
        F.lit('{"request_header":{"request_api_key":'), F.col("api").cast("string"), _header(), F.lit('},"request":'),
        "asked",
        F.lit(',"response":'), "answered", F.lit(","), "times", F.lit("}"),
    )  # fmt: skip
    return complete.withColumns(
        {"text_json": F.when(text.isNotNull(), F.coalesce(json, F.lit(""))), "text_problem": _problem()}
    ).drop("text", "front", "said", "is_old_fetch", "message", "api_name", "api", "asked", "answered", "times")


def _header() -> Column:
    """Extract API version, correlation id and client id; only for fetches, which are matched across lines."""
    header = F.substring_index("said", _MESSAGE, 1)

    def value(pattern: str, quote: str = "") -> Column:
        found = F.nullif(F.regexp_extract(header, pattern, 1), F.lit(""))
        return F.coalesce(F.concat(F.lit(quote), found, F.lit(quote)), F.lit("null"))

    members = F.concat(
        F.lit(',"fetch_version":'), value(_API_VERSION), F.lit(',"correlation_id":'), value(_CORRELATION),
        F.lit(',"client_id":'), value(_CLIENT, '"'),
    )  # fmt: skip
    return F.when(F.col("api") == FETCH, members).otherwise("")


def _after(text: Column, mark: str) -> Column:
    return F.substring_index(text, mark, -1)


def _replaced(text: Column, steps: tuple[tuple[str, str], ...]) -> Column:
    for pattern, by in steps:
        text = F.regexp_replace(text, F.lit(pattern), F.lit(by))
    return text


def _old_fetch() -> Column:
    """Convert a request of 0.9 to 0.10.1, with one topic entry per partition."""
    partition = r"\(\[([\w.-]+),(\d+)\],PartitionFetchInfo\((-?\d+),-?\d+\)\)"
    entry = '{"topic":"$1","partitions":[{"partition":$2,"fetch_offset":$3}]}'
    whole = F.regexp_replace("said", F.lit(_OLD_ASKED), F.lit('{"replica_id":$1,"max_wait_ms":$2,"topics":[$3]}'))
    return F.regexp_replace(whole, F.lit(partition), F.lit(entry))


def _durations() -> Column:
    with_points = F.regexp_replace(_after(F.col("text"), _TIMES), F.lit(r"(Time:|^)(\d+),(?=\d)"), F.lit("$1$2."))
    times = F.regexp_replace(with_points, F.lit(_DURATIONS), F.lit(_DURATIONS_AS_JSON))
    return F.when(F.startswith(times, F.lit('"total')), times)


def _problem() -> Column:
    """Say why a line cannot be used although its form is known."""

    def count(mark: str) -> Column:
        return (F.length("text") - F.length(F.replace("text", F.lit(mark)))) / len(mark)

    old = F.startswith("text", F.lit("Name: "))
    marks = (count(_TIMES) > 1) | (count(_CONNECTION) > 1) | (count(_ANSWER) > 1)
    header_ends = F.when(old, count(_OLD_REPLICA) > 1).otherwise(count(_MESSAGE) > 1)
    no_partitions = F.col("is_old_fetch") & ~F.contains("said", F.lit("; RequestInfo: "))
    return (
        F.when(marks | header_ends, _TWO_READINGS)
        .when(no_partitions, _NO_PARTITIONS)
        .when(F.startswith("text", F.lit("Name: ProducerRequest; ")), _PRODUCE_0_9)
    )

"""Broker logs to tables: the way through, from the folder to the rows."""

from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from isr_batch import tables as contracts
from isr_batch.kafka_logs import (
    appends,
    broker_log,
    events,
    fetches,
    files,
    isr_changes,
    lines,
    metadata,
    request_log,
    terms,
    zookeeper,
)  # fmt: skip
from isr_batch.kafka_logs.request_log import FILE, REFUSED


@dataclass(frozen=True)
class KafkaLogs:
    """What a folder of broker logs says, as tables.

    Parameters
    ----------
    tables : dict of str to DataFrame
        By name, each with the columns of `isr_batch.tables`.
    requests : DataFrame
        The request log, a row a line, kept after the first reading.
    """

    tables: dict[str, DataFrame]
    requests: DataFrame
    _kept: list[DataFrame] = field(repr=False)

    def account(self) -> dict[str, int]:
        """Count the lines of the request logs by what became of them.

        Returns
        -------
        dict of str to int
            ``lines read`` is the sum of all others: ``follower fetch``, ``other fetch``, ``produce``, ``other``,
            ``blank`` and ``refused``.
        """
        counts = dict.fromkeys(
            (request_log.FOLLOWER_FETCH, request_log.OTHER_FETCH, request_log.PRODUCE, request_log.OTHER,
             request_log.BLANK, request_log.REFUSED), 0,
        )  # fmt: skip
        rows = self.requests.where(F.col("kind") != FILE).groupBy("kind").count().collect()
        counts |= {row["kind"]: row["count"] for row in rows}
        return {"lines read": sum(counts.values()), **counts}

    def release(self) -> None:
        """Forget what was kept between tables."""
        for frame in self._kept:
            frame.unpersist()


def read_kafka_logs(spark: SparkSession, folder: Path, cluster_id: str, run_id: str) -> KafkaLogs:
    """Read the brokers' logs in a folder: all lines once, here; the large tables are made when they are used.

    Parameters
    ----------
    spark : SparkSession
        Its time zone must be UTC, and so must be that of the logs.
    folder : Path
        A folder a broker, with request.log, server.log and state-change.log (also rotated or .gz) and
        server.properties; a decoded metadata log beside them, if there is one. Workers must see the same path.
    cluster_id : str
        Name for the cluster, put into every row.
    run_id : str
        Put into the rows of quarantine.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    found = files.find_logs(folder)
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def small(frame: DataFrame) -> DataFrame:
        # All small, and broadcast later, which takes them here anyway. Plans that start from the rows, and not from
        # how these came about, are analysed in half the time.
        return spark.createDataFrame(frame.toArrow(), frame.schema)

    raw = {kind: lines.read_lines(spark, found.of_kind(kind))
           for kind in (files.REQUEST, files.SERVER, files.STATE_CHANGE, files.METADATA)}  # fmt: skip
    requests = keep(request_log.parse_requests(raw[files.REQUEST]))
    server = keep(broker_log.parse_server_log(raw[files.SERVER]))
    state_changes = keep(broker_log.parse_state_changes(raw[files.STATE_CHANGE]))
    records = keep(metadata.parse_metadata(raw[files.METADATA]))
    names = metadata.topic_names(records).unionAll(broker_log.topic_ids(state_changes))
    sources = terms.Sources(
        requests, server, state_changes, records,
        settings=small(broker_log.broker_settings(server, list(found.brokers.values()))),
        topic_names=small(names.groupBy("topic_id").agg(F.max("topic").alias("topic"))),
        min_isr=small(metadata.min_isr_settings(records)),
        accepted=small(zookeeper.accepted(state_changes)),
    )  # fmt: skip

    busy = keep(events.activity(requests, server, sources.settings))
    silent = small(events.silences(busy, requests))
    checks = small(events.checks_seen(broker_log.shrink_lines(server), sources.settings, silent))
    processes = small(events.processes(busy, server, sources.settings, checks))
    led = small(terms.terms(sources, processes))
    shrinks = small(isr_changes.led_shrinks(server, led))
    sessions = request_log.in_sessions(requests)
    fetched = keep(fetches.fetches_of(sessions, sources.topic_names, led))
    produced = keep(appends.produced(sources, led))

    frames = {
        contracts.FETCH_LOG.name: fetched,
        contracts.APPEND_LOG.name: appends.append_log(produced, fetched, shrinks, led),
        contracts.LEADER_EPOCHS.name: led,
        contracts.OBSERVED_ISR_CHANGES.name: isr_changes.observed_isr_changes(
            sources, shrinks, led, controller_known=bool(found.of_kind(files.METADATA))
        ),
        contracts.BROKER_EVENTS.name: _broker_events(sources, silent, events.check_events(checks, processes)),
        contracts.QUARANTINE.name: _quarantine(spark, found, sources, sessions, produced)
        .withColumn("ingest_run", F.lit(run_id)),
    }  # fmt: skip
    conformed = {table.name: _conform(frames[table.name], table, cluster_id) for table in contracts.INPUT_TABLES}
    return KafkaLogs(conformed, requests, kept)


def _broker_events(sources: terms.Sources, silent: DataFrame, checks: DataFrame) -> DataFrame:
    at = F.col("at_us")
    started = broker_log.process_starts(sources.server).select("broker_id", F.lit("started").alias("kind"), "stamp_us")
    silences = silent.select("broker_id", F.lit("silent").alias("kind"), "from_us", "until_us")
    told = metadata.broker_changes(sources.metadata).select("broker_id", "kind", "at_us", at.alias("end_us"))
    return (
        started.withColumn("end_us", F.col("stamp_us")).toDF("broker_id", "kind", "at_us", "end_us")
        .unionAll(silences).unionAll(checks).unionAll(told)
    )  # fmt: skip


def _quarantine(
    spark: SparkSession, found: files.LogFolder, sources: terms.Sources, sessions: DataFrame, produced: DataFrame,
) -> DataFrame:  # fmt: skip
    folder = spark.createDataFrame(
        [(r.source_file, r.reason, r.detail) for r in found.refused], "source_file STRING, reason STRING, detail STRING"
    )
    columns = ("source_file", "source_line", "reason", "detail", "raw")
    parts = [
        sources.requests.where(F.col("kind").isin(REFUSED, FILE)),
        *(
            frame.where("problem IS NOT NULL").withColumn("reason", F.col("problem"))
            for frame in (sources.server, sources.state_changes, sources.metadata)
        ),
        broker_log.unreadable_lines(sources.server, sources.state_changes),
        sources.metadata.where("malformed").withColumn("reason", F.lit("malformed metadata record")),
        request_log.session_gaps(sessions),
        produced.where("repeated").withColumns(
            {
                "reason": F.lit("produce request sent again"),
                "detail": F.format_string(
                    "partition %s-%d has offset %d already", "topic", "partition_id", "base_offset"
                ),
            }
        ),
    ]
    missing = F.lit(None).cast("string")
    for part in parts:
        known = part.withColumns({name: missing for name in columns if name not in part.columns})
        folder = folder.unionByName(known.select(*columns), allowMissingColumns=True)
    return folder


def _conform(frame: DataFrame, table: contracts.Table, cluster_id: str) -> DataFrame:
    """Give the frame exactly the table's columns: ``x_time`` from ``x_us``, the rest by name."""
    instants = {
        contracts.FETCH_LOG.name: {"event_date": "handled_us"},
        contracts.APPEND_LOG.name: {"event_date": "append_us"},
        contracts.LEADER_EPOCHS.name: {"event_date": "start_us"},
        contracts.OBSERVED_ISR_CHANGES.name: {"event_date": "at_us", "change_time": "at_us"},
        contracts.BROKER_EVENTS.name: {"event_date": "at_us", "event_time": "at_us"},
        contracts.QUARANTINE.name: {},
    }[table.name]

    def value(column: contracts.Column) -> Column:
        if column.name == "cluster_id":
            return F.lit(cluster_id)
        if column.type in ("TIMESTAMP", "DATE"):
            us = instants.get(column.name, column.name.removesuffix("_time") + "_us")
            return F.timestamp_micros(F.col(us)).cast(column.type)
        return F.col(column.name).cast(column.type)

    return frame.select(*(value(column).alias(column.name) for column in table.columns))

"""Read a folder of broker logs into the input tables; calls all other modules of this package in order."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import (
    append_log,
    broker_events,
    coverage,
    fetch_log,
    isr_changes,
    leader_epochs,
    lines,
    log_folder,
    metadata_log,
    mid_term,
    mid_term_rows,
    partition_lines,
    partition_listing,
    releases,
    request_log,
    server_log,
    server_log_zookeeper,
    session_partitions,
)
from isr_batch.ingest.kafka_logs.assumptions import Note, notes
from isr_batch.ingest.kafka_logs.line_account import Tally, account_of, require_balance
from isr_batch.ingest.kafka_logs.request_log import FILE, REFUSED
from isr_batch.lake.tables import inputs as contracts
from isr_batch.lake.tables.contract import Column as TableColumn
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS


@dataclass(frozen=True)
class KafkaLogs:
    """The input tables made of a folder of broker logs.

    Parameters
    ----------
    tables : dict of str to DataFrame
        By name, each with the columns of `isr_batch.lake.tables.inputs`.
    found : LogFolder
        What the folder holds, with fingerprints.
    raw : dict of str to DataFrame
        Lines by kind of log, but for those of request logs.
    requests, server, state_changes, records : DataFrame
        The parsed logs, checkpointed; ``requests`` has one row per line, the others one row per line of interest.
    notes : list of Note
        For the user: what the rows are based on.
    """

    tables: dict[str, DataFrame]
    found: log_folder.LogFolder
    raw: dict[str, DataFrame]
    requests: DataFrame
    server: DataFrame
    state_changes: DataFrame
    records: DataFrame
    notes: list[Note] = field(default_factory=list)

    def account(self) -> list[Tally]:
        """Count the lines of all logs by outcome: used, skipped or refused.

        Raises
        ------
        AccountError
            When they do not add up to the lines that there are.
        """
        of_interest = {
            log_folder.SERVER: self.server.where("message IS NOT NULL"),
            log_folder.STATE_CHANGE: self.state_changes.where("message IS NOT NULL"),
            log_folder.METADATA: self.records.where("NOT malformed AND problem IS NULL"),
        }
        tallies = account_of(self.found, self.raw, self.requests, of_interest, self.tables[contracts.QUARANTINE.name])
        require_balance(tallies)
        return tallies

    def times(self) -> DataFrame:
        """Find the time range of each file: source_file, first_time, last_time, days (an array of dates)."""
        asked = self.requests.where("completed_us IS NOT NULL").select(
            "source_file", F.col("completed_us").alias("us"), F.array("handled_us", "processed_us").alias("at")
        )
        others = [
            frame.where(F.col(us).isNotNull()).select("source_file", F.col(us).alias("us"), F.array(us).alias("at"))
            for frame, us in ((self.server, "stamp_us"), (self.state_changes, "stamp_us"), (self.records, "at_us"))
        ]
        days = F.transform("at", lambda us: F.timestamp_micros(us).cast("date"))
        every = asked.unionAll(others[0]).unionAll(others[1]).unionAll(others[2]).withColumn("days", days)
        return every.groupBy("source_file").agg(
            F.timestamp_micros(F.min("us")).alias("first_time"),
            F.timestamp_micros(F.max("us")).alias("last_time"),
            F.array_distinct(F.flatten(F.collect_set("days"))).alias("days"),
        )


def survey(
    spark: SparkSession, folder: Path, beginnings: Callable[[log_folder.LogFile], list[int]] = lambda _: []
) -> log_folder.LogFolder:
    """List the logs in a folder, and compute the fingerprint of each.

    A file with the same content as another of its broker and kind, such as a log beside its compressed copy, is
    refused as a whole.

    Parameters
    ----------
    spark : SparkSession
        Workers must see the same path.
    folder : Path
        As for `read_kafka_logs`.
    beginnings : callable
        Returns the prefix lengths of a file, in decompressed bytes, whose hashes are wanted.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    found = log_folder.find_logs(folder)
    looked_at = lines.look_at(spark, found.files, [beginnings(file) for file in found.files])
    seen: dict[tuple[str, int | None, str], str] = {}
    found.files = []
    for file in looked_at:
        assert file.held is not None
        first = seen.setdefault((file.kind, file.broker_id, file.held.content_hash), file.name)
        if file.held.content_bytes and first != file.name and file.kind != log_folder.PROPERTIES:
            found.refused.append(log_folder.Refused(file.name, "copy of another file", f"holds what {first} holds"))
        else:
            found.files.append(file)
    return found


def read_kafka_logs(
    spark: SparkSession, folder: Path, cluster_id: str, run_id: str, found: log_folder.LogFolder | None = None
) -> KafkaLogs:
    """Read the broker logs in a folder. Lines are parsed once, here; the large tables are computed when they are used.

    Parameters
    ----------
    spark : SparkSession
        Its time zone must be UTC, and so must be that of the logs.
    folder : Path
        One folder per broker, with request.log, server.log and state-change.log (also rotated or .gz) and
        server.properties; optionally a decoded metadata log beside them. Workers must see the same path.
    cluster_id : str
        Name for the cluster, put into every row.
    run_id : str
        Put into the rows of quarantine.
    found : LogFolder, optional
        What `survey` found in the folder, by default asked here.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    found = found or survey(spark, folder)

    def keep(frame: DataFrame) -> DataFrame:
        # What follows is planned from these rows, and not again from the text of the logs: cached frames have the
        # plans of all before them, which took more of the driver's time and memory than the rows (docs/adr/0009). It
        # costs that a lost executor ends the ingest, which is then done again.
        return frame.localCheckpoint()

    def small(frame: DataFrame) -> DataFrame:
        # Broadcast later, which takes them here anyway.
        return spark.createDataFrame(frame.toArrow(), frame.schema)

    raw = {
        kind: lines.read_lines(spark, found.of_kind(kind)) for kind in log_folder.KINDS if kind != log_folder.REQUEST
    }
    requests = keep(request_log.read_requests(spark, found.of_kind(log_folder.REQUEST)))
    copies = keep(request_log.copies(requests))
    if not copies.isEmpty():
        requests = keep(request_log.refuse_copies(requests, copies))
    server = keep(_once(server_log.parse_server_log(raw[log_folder.SERVER]), found.of_kind(log_folder.SERVER)))
    state_changes = keep(
        _once(server_log.parse_state_changes(raw[log_folder.STATE_CHANGE]), found.of_kind(log_folder.STATE_CHANGE))
    )
    records = keep(metadata_log.parse_metadata(raw[log_folder.METADATA]))
    listings = _listings(found)
    names = metadata_log.topic_names(records).unionAll(server_log.topic_ids(state_changes))
    listed_ids = [pair for listing in listings for pair in listing.topic_ids.items()]
    names = names.unionAll(spark.createDataFrame(listed_ids, "topic_id STRING, topic STRING"))
    sources = leader_epochs.Sources(
        requests, server, state_changes, records,
        settings=small(_settings(server, requests, found)),
        topic_names=small(names.groupBy("topic_id").agg(F.max("topic").alias("topic"))),
        min_isr=small(metadata_log.min_isr_settings(records).unionAll(_listed_min_isr(spark, listings))),
        accepted=small(server_log_zookeeper.accepted(state_changes)),
    )  # fmt: skip

    stretches = coverage.coverage(requests)
    busy = keep(broker_events.activity(requests, server, sources.settings))
    silent = small(broker_events.silences(busy, requests))
    checks = small(broker_events.checks_seen(server_log.shrink_lines(server), sources.settings, silent))
    processes = small(broker_events.processes(busy, server, sources.settings, checks))
    starts = small(leader_epochs.term_starts(sources))
    seen = mid_term_rows.followers_seen(sources, stretches)
    listed = [partition for listing in listings for partition in listing.partitions]
    log_ends_us = max((stretch.until_us for stretch in stretches), default=0)
    controller_us = isr_changes.metadata_complete_until(sources, log_ends_us)
    earlier = partition_lines.Earlier(listed, found.earlier, controller_us)
    begun, evidence = _begun_before(sources, stretches, starts, seen, earlier)
    followers = mid_term_rows.as_followers(spark, seen)
    known = small(leader_epochs.terms(sources, starts, mid_term_rows.as_begun(spark, begun), followers, processes))
    table = known.toArrow()
    rows = mid_term_rows.vouched_for(table.to_pylist(), stretches, evidence)
    releases.with_releases(rows, requests, found.given.release)
    number = coverage.stretch_number(stretches, "broker_id", "completed_us")
    sessions = request_log.in_sessions(requests, number)
    threads = {b.broker_id: b.num_replica_fetchers for b in found.brokers.values() if b.num_replica_fetchers}
    members = session_partitions.members_before(sessions, rows, sources.topic_names, threads) if begun else {}
    number = coverage.stretch_number(stretches, "leader_id", "completed_us")
    read = keep(fetch_log.fetches_of(sessions, sources.topic_names, known, members).withColumn("log_stretch", number))
    fetched = read.where("reason IS NULL")
    produced = keep(append_log.produced(sources, known, stretches))
    mid_term_rows.settle(rows, stretches, evidence, fetched, produced)
    led = spark.createDataFrame(pa.Table.from_pylist(rows, schema=_settled(table.schema)))
    shrinks = small(isr_changes.led_shrinks(server, known, stretches))

    doubtful = [
        fetch_log.session_gaps(read),
        _sent_again(produced),
        fetch_log.going_back(fetched),
        fetch_log.not_assigned(fetched, led),
    ]
    frames = {
        contracts.FETCH_LOG.name: fetched,
        contracts.APPEND_LOG.name: append_log.append_log(produced, fetched, shrinks, led, stretches),
        LEADER_EPOCHS.name: led,
        contracts.OBSERVED_ISR_CHANGES.name: isr_changes.observed_isr_changes(
            sources, shrinks, known, led.where("begins_mid_term"),
            controller_known=controller_us is not None and controller_us >= log_ends_us,
        ),
        contracts.BROKER_EVENTS.name: _broker_events(sources, silent, broker_events.check_events(checks, processes)),
        COVERAGE.name: _coverage(spark, stretches, server, state_changes),
        contracts.QUARANTINE.name: keep(
            _quarantine(spark, found, sources, doubtful).withColumn("ingest_run", F.lit(run_id))
        ),
    }  # fmt: skip
    conformed = {table.name: _conform(frames[table.name], table, cluster_id) for table in contracts.INPUT_TABLES}
    unnamed = _unnamed(rows, sources.topic_names)
    return KafkaLogs(
        conformed, found, raw, requests, server, state_changes, records, notes(stretches, rows, unnamed)
    )  # fmt: skip


def _settings(server: DataFrame, requests: DataFrame, found: log_folder.LogFolder) -> DataFrame:
    """Read the brokers' settings; defaults of an unknown release are those of the oldest release that it may be."""
    brokers = list(found.brokers.values())
    settings = server_log.broker_settings(server, brokers, found.given)
    if settings.where("version IS NULL").isEmpty():
        return settings
    return server_log.broker_settings(server, brokers, found.given, releases.oldest_release(requests))


def _listings(found: log_folder.LogFolder) -> list[partition_listing.Listing]:
    """Read the listings; a damaged one is added to the refused files."""
    listings = []
    for file in found.of_kind(log_folder.SNAPSHOT):
        listing, bad = partition_listing.read_listing(Path(file.path))
        listings.append(listing)
        if bad:
            found.refused.append(log_folder.Refused(file.name, bad.reason, bad.detail))
    return listings


def _listed_min_isr(spark: SparkSession, listings: list[partition_listing.Listing]) -> DataFrame:
    rows = [(topic, None, number) for listing in listings for topic, number in listing.min_isr.items()]
    return spark.createDataFrame(rows, "topic STRING, resource_broker STRING, min_insync_replicas INT")


def _begun_before(
    sources: leader_epochs.Sources,
    stretches: list[coverage.Stretch],
    starts: DataFrame,
    seen: list[dict[str, Any]],
    earlier: partition_lines.Earlier,
) -> tuple[list[mid_term.Begun], partition_lines.PartitionEvidence]:
    """Find the terms whose beginning is not logged, and the evidence about their partitions."""
    lines_ = ("broker_id", "topic", "partition_id", "leader_epoch", "stamp_us", "leads")
    start_rows = starts.select(*lines_).toArrow().to_pylist()
    if not mid_term.may_begin_before(stretches, start_rows, seen):
        return [], partition_lines.PartitionEvidence()
    evidence = partition_lines.gather(sources, starts, earlier, stretches)
    process_starts = {row["broker_id"]: row["starts_us"] for row in sources.settings.collect()}
    served = [row for row in seen if row["fetches"]]
    signs = mid_term.Signs(start_rows, process_starts, served, evidence.named, evidence.led)
    return mid_term.terms_in_progress(stretches, signs), evidence


def _unnamed(rows: list[dict[str, Any]], topic_names: DataFrame) -> int:
    """Count the topics of which only the id is known."""
    named = {row["topic"] for row in topic_names.toArrow().to_pylist()}
    return len({row["topic"] for row in rows if row["topic"] not in named
                and re.fullmatch(r"[\w-]{21}[AQgw]", row["topic"])})  # fmt: skip


def _settled(schema: pa.Schema) -> pa.Schema:
    more = [("ends_mid_term", pa.bool_()), ("log_stretch", pa.int32()), ("assigned_source", pa.string()),
            ("isr_source", pa.string()), ("broker_version_source", pa.string()),
            ("held_at_start", pa.list_(pa.int64()))]  # fmt: skip
    return pa.schema([*schema, *(pa.field(*each) for each in more)])


def _coverage(
    spark: SparkSession, stretches: list[coverage.Stretch], server: DataFrame, state_changes: DataFrame
) -> DataFrame:
    requests = spark.createDataFrame(
        [(s.broker_id, log_folder.REQUEST, s.first_us, s.until_us, not s.from_start) for s in stretches],
        "broker_id INT, log STRING, from_us BIGINT, until_us BIGINT, begins_mid_term BOOLEAN",
    )
    for kind, frame in ((log_folder.SERVER, server), (log_folder.STATE_CHANGE, state_changes)):
        span = (
            frame.where("stamp_us IS NOT NULL")
            .groupBy("broker_id")
            .agg(F.lit(kind).alias("log"), F.min("stamp_us").alias("from_us"), F.max("stamp_us").alias("until_us"))
        )
        requests = requests.unionAll(span.withColumn("begins_mid_term", F.lit(None).cast("boolean")))
    return requests


def _once(stamped: DataFrame, of: list[log_folder.LogFile]) -> DataFrame:
    """Drop duplicate lines, as in overlapping copies of a log."""
    if len({file.broker_id for file in of}) == len(of):
        return stamped
    by_itself = F.when(F.col("stamp_us").isNull() | F.col("message").isNull(), F.struct("source_file", "source_line"))
    return stamped.withColumn("own", by_itself).dropDuplicates(["broker_id", "stamp_us", "message", "own"]).drop("own")


def _broker_events(sources: leader_epochs.Sources, silent: DataFrame, checks: DataFrame) -> DataFrame:
    at = F.col("at_us")
    started = server_log.process_starts(sources.server).select("broker_id", F.lit("started").alias("kind"), "stamp_us")
    silences = silent.select("broker_id", F.lit("silent").alias("kind"), "from_us", "until_us")
    recorded = metadata_log.broker_changes(sources.metadata).select("broker_id", "kind", "at_us", at.alias("end_us"))
    return (
        started.withColumn("end_us", F.col("stamp_us")).toDF("broker_id", "kind", "at_us", "end_us")
        .unionAll(silences).unionAll(checks).unionAll(recorded)
    )  # fmt: skip


def _quarantine(
    spark: SparkSession, found: log_folder.LogFolder, sources: leader_epochs.Sources, doubtful: list[DataFrame]
) -> DataFrame:
    folder = spark.createDataFrame(
        [(r.source_file, r.reason, r.detail) for r in found.refused], "source_file STRING, reason STRING, detail STRING"
    )
    columns = ("source_file", "source_line", "reason", "detail", "raw", "rows_kept")
    refused = [
        sources.requests.where(F.col("kind").isin(REFUSED, FILE)),
        *(
            frame.where("problem IS NOT NULL").withColumn("reason", F.col("problem"))
            for frame in (sources.server, sources.state_changes, sources.metadata)
        ),
        server_log.unreadable_lines(sources.server, sources.state_changes),
        sources.metadata.where("malformed").withColumn("reason", F.lit("malformed metadata record")),
    ]
    every = folder.withColumn("rows_kept", F.lit(False))
    missing = F.lit(None).cast("string")
    for part, kept in [*((part, False) for part in refused), *((part, True) for part in doubtful)]:
        known = part.withColumns({name: missing for name in columns[:-1] if name not in part.columns})
        known = known.withColumn("rows_kept", F.lit(kept))
        every = every.unionByName(known.select(*columns), allowMissingColumns=True)
    return every


def _sent_again(produced: DataFrame) -> DataFrame:
    detail = F.format_string("partition %s-%d has offset %d already", "topic", "partition_id", "base_offset")
    return produced.where("repeated").withColumns({"reason": F.lit("produce request sent again"), "detail": detail})


def _conform(frame: DataFrame, table: Table, cluster_id: str) -> DataFrame:
    """Select exactly the table's columns: ``x_time`` from ``x_us``, the rest by name."""
    instants = {
        contracts.FETCH_LOG.name: {"event_date": "handled_us"},
        contracts.APPEND_LOG.name: {"event_date": "append_us"},
        LEADER_EPOCHS.name: {"event_date": "start_us"},
        contracts.OBSERVED_ISR_CHANGES.name: {"event_date": "at_us", "change_time": "at_us"},
        contracts.BROKER_EVENTS.name: {"event_date": "at_us", "event_time": "at_us"},
        COVERAGE.name: {"event_date": "from_us"},
        contracts.QUARANTINE.name: {},
    }[table.name]

    def value(column: TableColumn) -> Column:
        if column.name == "cluster_id":
            return F.lit(cluster_id)
        if column.type in ("TIMESTAMP", "DATE"):
            us = instants.get(column.name, column.name.removesuffix("_time") + "_us")
            return F.timestamp_micros(F.col(us)).cast(column.type)
        return F.col(column.name).cast(column.type)

    return frame.select(*(value(column).alias(column.name) for column in table.columns))

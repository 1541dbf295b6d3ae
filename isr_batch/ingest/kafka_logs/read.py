"""Derive the input tables from a folder of broker logs. The steps are in the package's other modules."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines import metadata_log
from isr_batch.broker_lines.forms import TOPIC_ID
from isr_batch.broker_lines.log_sql import log_sql, rows_of
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.input_rows import with_input_columns
from isr_batch.ingest.folder import lines, log_folder, partition_listing
from isr_batch.ingest.folder.broker_ids import Refused
from isr_batch.ingest.folder.listed_observers import mark_observers
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.kafka_logs import last_requests
from isr_batch.ingest.kafka_logs.assumptions import Note, assumptions, unnamed_topics
from isr_batch.ingest.kafka_logs.earlier_logs import EarlierLogs
from isr_batch.ingest.kafka_logs.line_account import Tally, line_account, require_balance
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest, read_lines_of_interest, with_earlier_lines
from isr_batch.ingest.kafka_logs.quarantine import REFUSED_REQUESTS, quarantine, refused_folders, refused_lines
from isr_batch.ingest.requests import append_log, coverage, fetch_log, leader_and_isr, request_log, request_summary
from isr_batch.ingest.requests.in_force import epochs_in_force
from isr_batch.ingest.terms import (
    broker_events,
    controller_records,
    isr_changes,
    leader_epochs,
    mid_term,
    mid_term_rows,
    partition_lines,
    releases,
    session_partitions,
)
from isr_batch.ingest.terms.broker_settings import broker_settings
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.tables import inputs as contracts
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from udfs.batches.sessions import Members  # noqa: TC001 a type of a variable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = (date.min - _EPOCH.date()).days
"""Days from 1970 to the first date that Python can represent. It replaces dates in the year 0 of damaged lines."""

# Queries on requests, fetches and appends. They run in the pass that computes these rows, to avoid a second pass.
_OF_REQUESTS = {
    "hashes": request_log.HASHES, "files": request_summary.FILES, "buckets": request_summary.BUCKETS,
    "numbers": coverage.NUMBERS, "refused": REFUSED_REQUESTS,
    "controller": leader_and_isr.LEADER_AND_ISR_LINES, "fetches": request_log.FETCHES,
    "produced": append_log.PRODUCE_REQUESTS,
}  # fmt: skip
_OF_FETCHES = {
    "gaps": fetch_log.SESSION_GAPS, "back": fetch_log.GOING_BACK, "followers": fetch_log.FOLLOWERS,
    "asked": append_log.ASKED,
}  # fmt: skip
_OF_PRODUCED = {"again": append_log.SENT_AGAIN}


@dataclass(frozen=True)
class KafkaLogs:
    """The input tables derived from a folder of broker logs, and intermediate results that the ingest needs.

    Parameters
    ----------
    tables : dict of str to Rows
        Input tables by name, with the columns of `isr_batch.lake.tables.inputs`. Tables in Spark are computed lazily.
    found : LogFolder
        The folder, whose files have fingerprints.
    requests : pa.Table
        Summary of each request log (`isr_batch.ingest.requests.request_summary.requests_by_file`).
    lines : LinesOfInterest
        Lines of interest in the other logs, together with the stored lines of earlier logs.
    read_lines : LinesOfInterest
        Lines of interest in the other logs of the folder alone.
    refused : pa.Table
        Refused lines of the other logs: log, source_file, source_line, reason.
    replaced_appends : list of dict
        Rows of append_log to replace, because these logs complete appends at the end of earlier logs: leader_id, topic,
        partition_id, source_file, source_line, base_offset.
    numbers : pa.Table
        The last request of each fetch session in each request log (`isr_batch.ingest.requests.coverage.last_numbers`).
    last_requests : pa.Table
        Result of `isr_batch.ingest.kafka_logs.last_requests.last_requests`.
    notes : list of Note
        Notes for the user on covered time and assumed values.
    """

    tables: dict[str, Rows]
    found: log_folder.LogFolder
    requests: pa.Table
    lines: LinesOfInterest
    read_lines: LinesOfInterest
    refused: pa.Table
    replaced_appends: list[dict[str, Any]]
    numbers: pa.Table
    last_requests: pa.Table
    notes: list[Note]

    def account(self) -> list[Tally]:
        """Count the lines of each kind of log that were read, used, skipped and refused.

        Raises
        ------
        AccountError
            When lines were lost or counted twice.
        """
        tallies = line_account(self.found, self.requests, self.read_lines, self.refused)
        require_balance(tallies)
        return tallies

    def times(self) -> dict[str, dict[str, Any]]:
        """Return first_time, last_time and days (a list of dates) of each file with timestamps, by file name."""
        spans: dict[str, tuple[int, int, set[int]]] = {}
        for row in [*self.requests.to_pylist(), *self.read_lines.files.to_pylist()]:
            if row["first_us"] is not None:
                name = row["source_file"]
                first_us, last_us, days = spans.get(name, (row["first_us"], row["last_us"], set()))
                spans[name] = (
                    min(first_us, row["first_us"]),
                    max(last_us, row["last_us"]),
                    days | set(row["days"] or ()),
                )
        return {
            name: {"first_time": _instant_of_read_logs(first_us), "last_time": _instant_of_read_logs(last_us),
                   "days": sorted({_EPOCH.date() + timedelta(max(day, _FIRST_DAY)) for day in days})}
            for name, (first_us, last_us, days) in spans.items()
        }  # fmt: skip


def _instant_of_read_logs(us: int) -> datetime:
    return _EPOCH + max(timedelta(microseconds=us), timedelta(_FIRST_DAY))


def survey_logs(
    engine: Engine,
    folder: Path,
    beginnings: Callable[[log_folder.LogFile], list[int]] = lambda _: [],
    options: LogOptions = LogOptions(),  # noqa: B008 frozen
    listed: log_folder.LogFolder | None = None,
) -> log_folder.LogFolder:
    """List the logs in a folder, and compute the fingerprint of each file's content.

    If two files of the same broker and kind have the same content, such as a log and its compressed copy, one is
    refused.

    Parameters
    ----------
    engine : Engine
        Computes the fingerprints. Its workers must see the folder under the same path.
    folder : Path
        The folder, laid out as `read_kafka_logs` describes.
    beginnings : callable
        Function that returns the lengths of a file's prefixes to hash for its fingerprint, in unpacked bytes.
    options : LogOptions
        The operator's options on how to interpret timestamps.
    listed : LogFolder, optional
        The folder's listing, if the caller already has it.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    found = log_folder.find_logs(folder, options) if listed is None else replace(listed, refused=[*listed.refused])
    looked_at = lines.fingerprint_files(engine, found.files, [beginnings(file) for file in found.files])
    seen: dict[tuple[str, int | None, str | None, str], str] = {}
    found.files = []
    for file in looked_at:
        assert file.held is not None
        first = seen.setdefault((file.kind, file.broker_id, file.source, file.held.content_hash), file.name)
        if file.held.content_bytes and first != file.name and file.kind != log_folder.PROPERTIES:
            found.refused.append(Refused(file.name, "copy of another file", f"same content as {first}"))
        else:
            found.files.append(file)
    return found


def read_kafka_logs(  # noqa: PLR0913, PLR0915 the last three are for an ingest, which has them; each table in its turn
    engine: Engine,
    folder: Path,
    cluster_id: str,
    run_id: str,
    *,
    found: log_folder.LogFolder | None = None,
    sql: ArrowSql | None = None,
    earlier: EarlierLogs = EarlierLogs(),  # noqa: B008 frozen
) -> KafkaLogs:
    """Derive the input tables from the broker logs in a folder. Large tables may be computed later.

    Parameters
    ----------
    engine : Engine
        Engine that processes the rows. With Spark, the session's time zone must be UTC.
    folder : Path
        One subfolder per broker, with its logs (also rotated or compressed) and server.properties, and perhaps a
        decoded metadata log next to them. Spark's workers must see the folder under the same path.
    cluster_id : str
        Name of the cluster, stored in every row.
    run_id : str
        Id of the ingest, stored in every row that has a column for it.
    found : LogFolder, optional
        Result of `survey_logs` for the folder. By default, this function calls `survey_logs`.
    sql : ArrowSql, optional
        An engine opened by `isr_batch.broker_lines.log_sql.log_sql`; by default a new one.
    earlier : EarlierLogs, optional
        State at the end of earlier logs, from which the folder's logs continue.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    if sql is None:
        with log_sql() as own:
            return read_kafka_logs(engine, folder, cluster_id, run_id, found=found, sql=own, earlier=earlier)
    found = found or survey_logs(engine, folder)
    said = _results_on_requests(engine, found)
    read_now = read_lines_of_interest(engine, sql, found)
    of_interest = with_earlier_lines(sql, read_now, earlier)
    by_file = request_summary.requests_by_file(engine, sql, said["files"])
    controller_lines = engine.collect(said["controller"])
    from_controller = leader_and_isr.accepted_requests(controller_lines)
    sources, listings = _sources_of_terms(
        sql, engine, said["fetches"], from_controller, of_interest, found, releases.oldest_release(by_file)
    )

    begins_us = request_summary.beginnings_of_requests(by_file)
    pauses = request_summary.request_pauses(
        engine, said["buckets"], sources.settings, earlier.requests_before(begins_us)
    )
    signs = coverage.request_number_signs(engine, said["numbers"], earlier.numbers_before(begins_us))
    read_stretches = coverage.with_process_starts(
        coverage.coverage(by_file, pauses, signs), of_interest.files, sources.settings
    )  # fmt: skip
    stretches = earlier.with_stretches(read_stretches, signs)
    silent = broker_events.broker_silences(sources, pauses, of_interest.activity, signs)
    silences = pa.concat_tables([silent, earlier.silences.cast(silent.schema)])
    checks = broker_events.checks_seen(sources, silences)
    noted = broker_events.checks_noted(sources, silences)
    processes = broker_events.broker_processes(sources, pauses, of_interest.activity, checks, noted, earlier.stretches)
    starts = leader_epochs.term_starts(sources)
    seen = mid_term_rows.followers_seen_mid_term(sources, stretches)
    log_ends_us = max((stretch.until_us for stretch in stretches), default=0)
    controller_us = isr_changes.isr_changes_recorded_until(sources, log_ends_us)
    listed = [partition for listing in listings for partition in listing.partitions]
    from_elsewhere = partition_lines.Earlier(listed, controller_us)
    begun, evidence = _begun_before(sources, stretches, starts, seen, from_elsewhere)
    begun = earlier.terms_that_go_on(begun, starts, sources.settings)
    followers = mid_term_rows.as_followers(earlier.with_followers(seen))
    known = leader_epochs.leader_epochs(sources, starts, mid_term_rows.as_begun(begun), followers, processes)
    rows = mid_term_rows.vouched_for(known.to_pylist(), stretches, evidence)
    mark_observers(rows, found.given.observers)
    mid_term_rows.end_in_pauses(rows, pauses, sources)
    releases.with_releases(rows, releases.oldest_release(by_file), found.given.release)
    sessions = fetch_log.requests_in_sessions(engine, said["fetches"], stretches)
    threads = {b.broker_id: b.num_replica_fetchers for b in found.brokers.values() if b.num_replica_fetchers}
    last = earlier.last_rows(begins_us)
    members: Members = {}
    if begun or last.fetches:
        members = session_partitions.members_before(
            engine, sessions, rows, sources.topics, threads, last.fetches, earlier.numbers
        )
    in_force = epochs_in_force(sql, known)
    read, of_fetches = engine.keep_with(
        fetch_log.fetches_of(engine, sessions, sources.topics, in_force, members, stretches), _OF_FETCHES
    )
    produced, of_produced = engine.keep_with(
        append_log.append_requests(engine, said["produced"], sources.topics, in_force, stretches), _OF_PRODUCED
    )
    fetched = engine.where(read, "reason IS NULL")
    mid_term_rows.settle_mid_term(engine, rows, stretches, evidence, fetched, produced, of_interest.files)
    earlier.fill_in_what_was_logged(rows)
    led = pa.Table.from_pylist(rows, schema=mid_term_rows.settled_schema(known.schema))
    # Appends are derived again only for leaders whose request log is in the folder.
    led_here = led.filter(pc.is_in(led["leader_id"], pa.array([*begins_us], pa.int32())))
    replaced_appends = last.open_appends()
    if last.appends.num_rows:
        late = engine.where(produced, f"append_us < {max(begins_us.values())} AND base_offset IS NOT NULL")
        replaced_appends += last.answered_late(engine.collect(late))
    shrinks = isr_changes.isr_shrinks_by_term(sources, known, stretches)
    ends_us, gone = request_summary.ends_of_requests(by_file), {broker_id for broker_id, _ in earlier.requests}
    shrinks_read = isr_changes.isr_shrinks_in_read_logs(shrinks, read_now.files, begins_us, ends_us, gone)
    doubtful = [
        of_fetches["gaps"], of_produced["again"], of_fetches["back"],
        fetch_log.fetchers_not_assigned(engine, of_fetches["followers"], led),
        leader_and_isr.partly_read_leader_and_isr(controller_lines),
    ]  # fmt: skip
    refused = refused_lines(sql, read_now)
    tables = {
        contracts.FETCH_LOG.name: fetched,
        contracts.APPEND_LOG.name: engine.keep(
            append_log.append_log(
                engine, produced, of_fetches["asked"], shrinks_read, led_here, known, in_force, stretches, last)
        ),
        LEADER_EPOCHS.name: led,
        contracts.OBSERVED_ISR_CHANGES.name: isr_changes.observed_isr_changes(
            sources, shrinks, known, led.filter(led["begins_mid_term"]), of_interest.files,
            controller_known=controller_us is not None and controller_us >= log_ends_us,
        ),
        contracts.BROKER_EVENTS.name: broker_events.broker_events(
            sources, silent, broker_events.check_events(sql, checks, processes)
        ),
        COVERAGE.name: coverage.coverage_rows(sql, stretches, of_interest.files),
        CONTROLLER_RECORDS.name: controller_records.controller_records(
            sources, listed if rows else [], min((row["start_us"] for row in rows), default=0)
        ),
        contracts.QUARANTINE.name: quarantine(
            engine, pa.concat_tables([refused_folders(found.refused), refused.drop_columns("log")]), said["refused"],
            doubtful,
        ),
    }  # fmt: skip
    constants = {"cluster_id": cluster_id, "ingest_run": run_id}
    return KafkaLogs(
        {
            table.name: with_input_columns(engine, tables[table.name], table, constants)
            for table in contracts.INPUT_TABLES
        },
        found, by_file, of_interest, read_now, refused, replaced_appends,
        coverage.last_numbers(engine, said["numbers"]),
        last_requests.last_requests(engine, produced, said["fetches"], by_file),
        assumptions(stretches, rows, unnamed_topics(rows, sources.topics)),
    )  # fmt: skip


def _results_on_requests(engine: Engine, found: log_folder.LogFolder) -> dict[str, Rows]:
    requests = request_log.read_requests(engine, found.of_kind(log_folder.REQUEST))
    said = engine.answers(requests, _OF_REQUESTS)
    without_copies = request_log.refuse_duplicate_requests(engine, requests, said.pop("hashes"))
    return said if without_copies is None else engine.answers(without_copies, _OF_REQUESTS)


def _sources_of_terms(  # noqa: PLR0913, PLR0917 all that is read
    sql: ArrowSql,
    engine: Engine,
    fetches: Rows,
    from_controller: pa.Table,
    of_interest: LinesOfInterest,
    found: log_folder.LogFolder,
    oldest: str | None,
) -> tuple[ParsedLogs, list[partition_listing.Listing]]:
    """Collect the parsed lines and listings from which terms are derived. Damaged listings are added to ``found``."""
    listings = []
    for file in found.of_kind(log_folder.SNAPSHOT):
        listing, bad = partition_listing.read_listing(file.path)
        listings.append(listing)
        if bad:
            found.refused.append(Refused(file.name, bad.reason, bad.detail))
    server, state_changes, records = of_interest.server, of_interest.state_changes, of_interest.records
    listed_ids = [pair for listing in listings for pair in listing.topic_ids.items()]
    listed_min_isr = [pair for listing in listings for pair in listing.min_isr.items()]
    topics = sql(
        """
        SELECT topic_id, max(topic) AS topic FROM (
            SELECT * FROM recorded UNION ALL SELECT * FROM noted UNION ALL SELECT * FROM listed) GROUP BY topic_id
        """,
        recorded=metadata_log.metadata_topics(sql, records),
        noted=rows_of(sql, state_changes, TOPIC_ID).select(["topic_id", "topic"]),
        listed=_table_of_pairs(listed_ids, topic_id=pa.string(), topic=pa.string()),
    )
    min_isr = sql(
        "SELECT * FROM recorded UNION ALL BY NAME SELECT * FROM listed",
        recorded=metadata_log.metadata_min_isr(sql, records),
        listed=_table_of_pairs(listed_min_isr, topic=pa.string(), min_insync_replicas=pa.int32()),
    )
    settings = broker_settings(sql, server, list(found.brokers.values()), found.given, oldest)
    sources = ParsedLogs(
        sql, engine, fetches, from_controller, topics, server, state_changes, records, settings, min_isr
    )  # fmt: skip
    return sources, listings


def _table_of_pairs(rows: list[tuple[str, Any]], **types: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(types, row, strict=True)) for row in rows], pa.schema(types))


def _begun_before(
    sources: ParsedLogs,
    stretches: list[coverage.Stretch],
    starts: pa.Table,
    seen: list[dict[str, Any]],
    earlier: partition_lines.Earlier,
) -> tuple[list[mid_term.Begun], partition_lines.PartitionEvidence]:
    """Return two things: the terms that began before the logs, and what the log lines show about their partitions."""
    start_rows = starts.select(
        ["broker_id", "topic", "partition_id", "leader_epoch", "stamp_us", "leads"]
    ).to_pylist()  # fmt: skip
    if not mid_term.may_begin_before(stretches, start_rows, seen):
        return [], partition_lines.PartitionEvidence()
    evidence = partition_lines.gather_partition_lines(sources, starts, earlier, stretches)
    process_starts = {row["broker_id"]: row["starts_us"] for row in sources.settings.to_pylist()}
    served = [row for row in seen if row["fetches"]]
    signs = mid_term.Signs(start_rows, process_starts, served, evidence.named, evidence.led)
    return mid_term.terms_in_progress(stretches, signs), evidence

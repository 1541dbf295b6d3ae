"""Ingest a folder of broker logs into the input tables of a lake."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.broker_lines.unread import UNREAD_ISR, UNREAD_SHRINK
from isr_batch.errors import UsageError
from isr_batch.evidence.broker_troubles import broker_troubles, write_broker_troubles
from isr_batch.evidence.evidence_table import TERM_COLUMNS, evidence_rows, write_evidence_table
from isr_batch.ingest.engine.engine import Engine, ingest_engine_for
from isr_batch.ingest.engine.in_spark import InSpark, packets_at_once
from isr_batch.ingest.folder.folder_warnings import unread_sentence
from isr_batch.ingest.folder.listed_observers import EVERY, Observers, require_known_names, sentences_on_idle_observers
from isr_batch.ingest.folder.log_folder import REQUEST, LogFolder
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.ingested_files import (
    IngestedFile,
    PlanOfFiles,
    ReadFiles,
    beginnings_of_file,
    plan_files_to_ingest,
    sql_instant,
)
from isr_batch.ingest.kafka_logs.assumptions import Note, note_on_later_logs, note_on_shorter_copies
from isr_batch.ingest.kafka_logs.earlier_logs import EarlierLogs
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.line_account import READ, Tally, refused_as_bad, total_lines
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest, read_lines_of_interest
from isr_batch.ingest.kafka_logs.quarantine_gate import require_few_refused
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs, survey_logs
from isr_batch.ingest.lake_of_earlier_logs import fetches_without_offset, keep_for_later_logs, read_earlier_logs
from isr_batch.ingest.log_files.content import text_bytes
from isr_batch.ingest.replace_rows import CUT_BY, replace_covered_rows, rows_of_cluster
from isr_batch.ingest.runs_taken_apart import take_runs_apart
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import RunCounts
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE
from isr_batch.lake.tables.inputs import (
    APPEND_LOG,
    BROKER_EVENTS,
    FETCH_LOG,
    INGESTED_FILES,
    INPUT_TABLES,
    OBSERVED_ISR_CHANGES,
    QUARANTINE,
)
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from isr_batch.lake.tables.outputs import LATE_CHECKS
from isr_batch.lake.tables.own_tables import MAPPED_CLUSTERS
from isr_batch.progress import uncounted

# Each row of these tables comes from one file. If several files contain the same part of a log, the time at which the
# row's request was completed, in one of these columns, decides which file's row is kept.
_DONE_AT = {
    FETCH_LOG.name: ("completed_time",),
    APPEND_LOG.name: ("acknowledged_time", "append_time"),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BROKER = {LEADER_EPOCHS.name: "leader_id", OBSERVED_ISR_CHANGES.name: "leader_id", BROKER_EVENTS.name: "broker_id",
           COVERAGE.name: "broker_id"}  # fmt: skip
_UNTIL = {LEADER_EPOCHS.name: "end_time", COVERAGE.name: "until_time"}
"""Column with the time at which a row ends, for the tables whose rows may begin in an earlier log and end in one that
is read now."""


@dataclass(frozen=True)
class IngestOfBrokerLogs:
    """The outcome of an ingest of broker logs.

    Attributes
    ----------
    counts : RunCounts
    account : list of Tally
        Numbers of lines by kind of log and outcome (read, used, skipped, refused). Empty if no file was read.
    notes : list of Note
        Messages to the operator.
    """

    counts: RunCounts
    account: list[Tally]
    notes: list[Note] = field(default_factory=list)


def ingest_broker_logs(  # noqa: PLR0913 three of them have a default
    lake: Lake,
    folder: Path,
    cluster_id: str,
    release: str | None = None,
    options: LogOptions = LogOptions(),  # noqa: B008 frozen
    *,
    listed: LogFolder | None = None,
) -> IngestOfBrokerLogs:
    """Ingest a folder of broker logs into the lake. If every file of the folder has been ingested already, do nothing.

    `isr_batch.ingest.ingested_files` decides which rows of earlier ingests are replaced. Lines that cannot be parsed go
    to table quarantine.

    Parameters
    ----------
    lake : Lake
        The lake to write to.
    folder : Path
        A folder with one subfolder per broker.
    cluster_id : str
        The cluster's name.
    release : str, optional
        Kafka release of all brokers. It overrides the release in their logs and in ``cluster.yaml``.
    options : LogOptions, optional
        The operator's options on how to interpret timestamps.
    listed : LogFolder, optional
        The folder's listing, if the caller already has it.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    AccountError
        When lines were lost or counted twice. Nothing has been written then.
    """
    with log_sql() as sql:
        return _ingest(SmallTables(lake, sql), folder, cluster_id, release, options, listed)


def _ingest(  # noqa: PLR0913, PLR0917 those of `ingest_broker_logs`
    small: SmallTables,
    folder: Path,
    cluster_id: str,
    release: str | None,
    options: LogOptions,
    listed: LogFolder | None,
) -> IngestOfBrokerLogs:
    """Plan the ingest of a folder and run it.

    If there are no new files or options, return an outcome with zero counts.
    """
    lake = small.lake
    if read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id"], {"cluster_id": cluster_id}).num_rows:
        raise UsageError(
            f"the lake has fetches of {cluster_id} from your own table: logs and a table may disagree about a leader",
            "name the logs' cluster differently with --cluster, or use another lake",
        )
    known = _known_broker_logs(lake, cluster_id)
    engine = ingest_engine_for(lake, small.sql, text_bytes(folder))
    work = plan_files_to_ingest(
        survey_logs(engine, folder, lambda file: beginnings_of_file(known, file), options, listed), known
    )
    if release:
        work.found.given = replace(work.found.given, release=release)
    # Even if no file has changed, the operator's options may have.
    said = release is not None or options != LogOptions()
    if work.nothing_new and not said and all(lake.has(table.name) for table in INPUT_TABLES):
        if not lake.has(SHRINK_EVIDENCE.name):  # the lake was written by an earlier version
            _write_evidence(small, read_lines_of_interest(engine, small.sql, work.found), None, cluster_id)
        return IngestOfBrokerLogs(RunCounts(), [], note_on_shorter_copies(work.shorter))
    # The engine is chosen again: the survey has found the unpacked sizes, and which files the lake already has.
    unpacked = {file.path: file.held.content_bytes for file in work.found.files if file.held}
    engine = ingest_engine_for(lake, small.sql, sum(unpacked.values()))
    with packets_at_once(lake.spark) if isinstance(engine, InSpark) else nullcontext():
        return _read_and_write_broker_logs(small, engine, folder, work, cluster_id)


def _read_and_write_broker_logs(
    small: SmallTables, engine: Engine, folder: Path, work: PlanOfFiles, cluster_id: str
) -> IngestOfBrokerLogs:
    """Read the planned files, check that no line was lost, and write the input tables and the evidence tables."""
    lake = small.lake
    earlier = read_earlier_logs(lake, work, cluster_id)
    work.found.brokers = dict(earlier.brokers)
    with uncounted("works out terms and offsets"):
        logs = read_kafka_logs(
            engine, folder, cluster_id, lake.run_id, found=work.found, sql=small.sql, earlier=earlier
        )
        account = logs.account()
        read = ReadFiles(work, logs.times())
    listed = work.found.given.observers
    if listed.keys() - {EVERY}:
        stored = read_columns(lake, LEADER_EPOCHS.name, ["topic", "partition_id"], {"cluster_id": cluster_id})
        tables = (engine.collect(logs.tables[LEADER_EPOCHS.name]), stored)
        terms = (row for table in tables for row in table.select(["topic", "partition_id"]).to_pylist())
        require_known_names(listed, ((row["topic"], row["partition_id"]) for row in terms), "cluster.yaml")
    with uncounted("writes tables"):
        rows_out, broken = _write(small, logs, read, earlier, cluster_id)
    _write_evidence(small, logs.read_lines, logs.lines, cluster_id)
    names = {record.source_file for record in work.superseded} | {file.name for file in work.found.files}
    troubles = broker_troubles(small.sql, logs.read_lines.server, logs.read_lines.of_jvms, cluster_id)
    write_broker_troubles(small, cluster_id, troubles, names)
    keep_for_later_logs(small, cluster_id, logs, earlier)
    later = read.later_request_logs
    lacking = fetches_without_offset(lake, cluster_id, later) if later else 0
    now = read.records(lake.run_id, datetime.now(UTC))
    rows = pa.Table.from_pylist(
        [{"cluster_id": cluster_id, **asdict(record)} for record in now], arrow_schema(INGESTED_FILES)
    )
    # This table is written last: if the ingest is killed before, the next one reads the files again.
    replace_arrow(lake, small.sql, INGESTED_FILES, rows, rows_of_cluster(cluster_id))
    return IngestOfBrokerLogs(
        RunCounts(total_lines(account, READ), rows_out, refused_as_bad(account) + broken), account,
        [*note_on_shorter_copies(work.shorter), *note_on_later_logs(later, lacking), *logs.notes],
    )  # fmt: skip


def _write_evidence(small: SmallTables, read: LinesOfInterest, every: LinesOfInterest | None, cluster_id: str) -> None:
    """Find the lines that show why replicas were dropped from the ISR, and write them to table shrink_evidence."""
    found = find_evidence(small.sql, read, every)
    terms = read_columns(small.lake, LEADER_EPOCHS.name, TERM_COLUMNS, {"cluster_id": cluster_id})
    write_evidence_table(small, cluster_id, evidence_rows(found, cluster_id, terms), found)


def _known_broker_logs(lake: Lake, cluster_id: str) -> list[IngestedFile]:
    """Return the files of a cluster that earlier ingests have read, using table ingested_files."""
    names = [name for name in INGESTED_FILES.column_names if name != "cluster_id"]
    rows = read_columns(lake, INGESTED_FILES.name, names, {"cluster_id": cluster_id})
    return [IngestedFile(**row) for row in rows.to_pylist(maps_as_pydicts="strict")]


def _write(
    small: SmallTables, logs: KafkaLogs, read: ReadFiles, earlier: EarlierLogs, cluster_id: str
) -> tuple[int, int]:
    """Write the rows of all input tables.

    Returns
    -------
    int, int
        Number of rows written (not counting quarantine), and number of rows that violate their table's contract.
    """
    refused = {refused.source_file for refused in read.work.found.refused}
    still = {record.source_file for record in read.remaining} - refused
    for of_file, span in read.overlaps:
        take_runs_apart(small.lake, f"{rows_of_cluster(cluster_id)} AND {of_file}", "completed_time", span)
    others = f"source_file NOT IN ({', '.join(map(sql_literal, sorted(still)))})" if still else "true"
    replaced = {name: read.rows(done_at) for name, done_at in _DONE_AT.items()}
    replaced[APPEND_LOG.name] = " OR ".join([replaced[APPEND_LOG.name], *map(_is_append, logs.replaced_appends)])
    written, broken = replace_covered_rows(
        small.lake, logs.tables, cluster_id, small=small, replaced_days=read.days_of_rows,
        replaced={QUARANTINE.name: others} | replaced,
        left_alone={
            table.name: _rows_to_keep(read, earlier, table, time)
            for table, time in CUT_BY if table.name in _BROKER
        },
    )  # fmt: skip
    days = ", ".join(f"DATE'{day}'" for day in sorted(read.days))
    if days and small.lake.has(LATE_CHECKS.name):
        # On these days, rows may have been derived from a log that has changed since. They are deleted.
        none = arrow_schema(LATE_CHECKS).empty_table()
        replace_arrow(
            small.lake,
            small.sql,
            LATE_CHECKS,
            none,
            f"{rows_of_cluster(cluster_id)} AND event_date IN ({days})",
        )
    return sum(rows for name, rows in written.items() if name != QUARANTINE.name), broken


def _rows_to_keep(read: ReadFiles, earlier: EarlierLogs, table: Table, time: str) -> str:
    """Return the SQL condition that selects the existing rows of a table that stay in the lake.

    ``time`` is the table's column with the time of a row.

    These rows were derived from logs that are no longer in the folder, and cannot be derived from the remaining logs.
    """
    broker = _BROKER[table.name]
    alone = read.time_of_gone_files(broker, time, _UNTIL.get(table.name))
    if table is COVERAGE:
        return f"log = '{REQUEST}' AND ({alone})"
    if table is BROKER_EVENTS:  # a silence is only found when the requests after it are read
        silent = read.time_of_gone_files(broker, "end_time")
        alone = f"kind = 'silent' AND ({silent}) OR kind <> 'silent' AND ({alone})"
    begins = {each: _EPOCH + timedelta(microseconds=us) for each, us in earlier.begin_us().items()}
    # Logs rotate separately: the request log of some hour may be deleted while a new file still has server.log lines of
    # that hour.
    small = read.small_logs_since(begins)
    since = {
        LEADER_EPOCHS.name: [_since_broker_logs(broker, time, begins)],
        BROKER_EVENTS.name: [f"kind = 'check' AND ({_since_broker_logs(broker, 'end_time', begins)})",
                             f"kind <> 'silent' AND ({_since_broker_logs(broker, time, small)})"],
        OBSERVED_ISR_CHANGES.name: [_since_broker_logs(broker, time, small)],
    }.get(table.name)  # fmt: skip
    return f"({alone}) AND NOT ({' OR '.join(since)})" if since else alone


def _since_broker_logs(broker: str, time: str, begins: Mapping[int, datetime]) -> str:
    """Return a SQL condition: whether a row's time is not before the instant given for its broker in ``begins``."""
    rows = [f"{broker} = {broker_id} AND {time} >= {sql_instant(at)}" for broker_id, at in sorted(begins.items())]
    return " OR ".join(rows) or "false"


def _is_append(row: Mapping[str, Any]) -> str:
    """Return the SQL condition that selects the row of one append in table append_log."""
    line = "source_line IS NULL" if row["source_line"] is None else f"source_line = {row['source_line']}"
    same = [line, *(f"{name} = {row[name]}" for name in ("leader_id", "partition_id", "base_offset")),
            *(f"{name} = {sql_literal(row[name])}" for name in ("topic", "source_file"))]  # fmt: skip
    return f"({' AND '.join(same)})"


def warnings_of_observers(lake: Lake, cluster_id: str, listed: Observers) -> list[str]:
    """Return a sentence on the brokers that ``cluster.yaml`` lists as observers in vain; else an empty list."""
    terms = (
        read_columns(lake, LEADER_EPOCHS.name, ["observers", "isr_at_start"], {"cluster_id": cluster_id})
        if listed
        else None
    )
    return sentences_on_idle_observers(listed, terms.to_pylist() if terms else ())


def ingested_clusters(lake: Lake) -> set[str]:
    """Return the names of the clusters whose broker logs have been ingested into the lake."""
    return {*read_columns(lake, INGESTED_FILES.name, ["cluster_id"])["cluster_id"].to_pylist()}


def require_clean_broker_logs(lake: Lake, cluster_id: str, counts: RunCounts, max_quarantine_ratio: float) -> None:
    """Raise an error if an ingest of broker logs refused too large a share of the lines.

    Raises
    ------
    QualityGateError
        When the share of refused lines exceeds ``max_quarantine_ratio``; see
        `isr_batch.ingest.kafka_logs.quarantine_gate.require_few_refused`.
    """
    if counts.rows_quarantined:
        names = ["source_file", "source_line", "reason", "detail", "raw", "rows_kept"]
        rows = read_columns(lake, QUARANTINE.name, names, {"cluster_id": cluster_id}).to_pylist()
        require_few_refused(counts.rows_in, counts.rows_quarantined, rows, max_quarantine_ratio)


def brokers_in_tables(lake: Lake, cluster_id: str) -> tuple[set[int], set[int]]:
    """Return the ids of the brokers named in ISR changes, and of the brokers whose logs have been ingested."""
    of_cluster = {"cluster_id": cluster_id}
    columns = ("leader_id", "isr_before", "isr_after")
    changed = read_columns(lake, OBSERVED_ISR_CHANGES.name, columns, of_cluster).to_pylist()
    named = {each for row in changed for each in (row["leader_id"], *row["isr_before"], *row["isr_after"])}
    known = read_columns(lake, INGESTED_FILES.name, ("broker_id",), of_cluster)["broker_id"].to_pylist()
    return named - {None}, {*known} - {None}


def warnings_of_unread_lines(lake: Lake, cluster_id: str) -> list[str]:
    """Return warnings about log lines that mention an ISR change in a format that isr-batch does not know."""
    columns = ("source_file", "source_line", "raw")
    reasons = [UNREAD_ISR.reason, UNREAD_SHRINK.reason]
    rows = read_columns(lake, QUARANTINE.name, columns, {"cluster_id": cluster_id, "reason": reasons}).to_pylist()
    return unread_sentence(sorted((row["source_file"], row["source_line"], row["raw"]) for row in rows))

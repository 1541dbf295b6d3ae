"""Store in the lake the state at the end of an ingest's logs, and load it for an ingest of later logs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE
from isr_batch.broker_lines.server_log import process_starts
from isr_batch.ingest.folder.log_folder import METADATA, PROPERTIES, REQUEST
from isr_batch.ingest.folder.settings_files import Broker
from isr_batch.ingest.ingested_files import PlanOfFiles
from isr_batch.ingest.kafka_logs import earlier_logs as earlier
from isr_batch.ingest.kafka_logs.earlier_logs import EarlierLogs
from isr_batch.ingest.kafka_logs.last_requests import KEPT_US, handled_times, read_times
from isr_batch.ingest.kafka_logs.read import KafkaLogs
from isr_batch.ingest.replace_rows import rows_of_cluster
from isr_batch.ingest.requests.coverage import NUMBERED, Stretch
from isr_batch.ingest.requests.last_rows import APPENDS, LastRows
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql, Value
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import KEPT_LINES, SESSION_ENDS
from isr_batch.lake.tables.leaders import COVERAGE

_LAST_US = 120_000_000
"""Length of the period before a log in which each follower's last fetch is searched, in microseconds. It is long
because a follower may have been stopped before the log begins.
"""
_NEVER_US = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_STRETCHES = """
SELECT broker_id, unix_micros(from_time) AS first_us, unix_micros(until_time) AS until_us,
  NOT coalesce(begins_mid_term, false) AS from_start
FROM coverage WHERE cluster_id IN (:clusters) AND log = 'request'
"""
_TERMS = f"""
SELECT leader_id, topic, partition_id, leader_epoch, unix_micros(start_time) AS start_us,
  unix_micros(end_time) AS end_us, ends_mid_term, {", ".join(earlier.AS_IT_BEGAN)}
FROM leader_epochs WHERE cluster_id IN (:clusters) AND (ends_mid_term OR unix_micros(start_time) >= :begin)
"""
_SILENCES = """
SELECT broker_id, CAST(NULL AS INT) AS process, unix_micros(event_time) AS from_us, unix_micros(end_time) AS until_us
FROM broker_events WHERE cluster_id IN (:clusters) AND kind = 'silent' AND unix_micros(end_time) >= :begin
"""
_LAST_FETCHES = """
SELECT leader_id, replica_id, topic, partition_id, leader_epoch, fetch_offset, last_handled_us FROM (
  SELECT *, row_number() OVER (
    PARTITION BY leader_id, replica_id, topic, partition_id, leader_epoch
    ORDER BY last_handled_us DESC, source_line DESC
  ) AS nth
  FROM (
    SELECT leader_id, replica_id, topic, partition_id, leader_epoch, fetch_offset, source_line,
      unix_micros(last_handled_time) AS last_handled_us, begins_us
    FROM fetch_log JOIN (VALUES :begins) AS begins(leader_id, begins_us) USING (leader_id)
    WHERE cluster_id IN (:clusters) AND event_date BETWEEN :days AND source_file NOT IN (:read)
  ) AS of_leader
  WHERE last_handled_us BETWEEN begins_us - :within AND begins_us
) AS ordered WHERE nth = 1
"""
_LAST_APPENDS = """
SELECT leader_id, topic, partition_id, leader_epoch, unix_micros(append_time) AS append_us, base_offset,
  log_end_offset, log_end_source, acks, client_id, unix_micros(acknowledged_time) AS acknowledged_us, error_code,
  source_file, source_line, source_file IN (:read) AS read_again
FROM append_log JOIN (VALUES :begins) AS begins(leader_id, begins_us) USING (leader_id)
WHERE cluster_id IN (:clusters) AND event_date BETWEEN :days AND base_offset IS NOT NULL
  AND unix_micros(append_time) BETWEEN begins_us - :within AND begins_us
"""
_NEXT_APPENDS = """
SELECT leader_id, topic, partition_id, leader_epoch, min(base_offset) AS base_offset,
  min_by(unix_micros(append_time), base_offset) AS append_us, min_by(acks IS NOT NULL, base_offset) AS answered
FROM append_log
WHERE cluster_id IN (:clusters) AND event_date >= :since AND base_offset IS NOT NULL AND source_file IN (:later)
GROUP BY leader_id, topic, partition_id, leader_epoch, source_file
"""
_WITHOUT_OFFSET = """
SELECT coalesce(sum(run_length), 0) AS fetches FROM fetch_log
WHERE cluster_id IN (:clusters) AND fetch_offset IS NULL AND source_file IN (:files)
"""


def fetches_without_offset(lake: Lake, cluster_id: str, files: Sequence[str]) -> int:
    """Count the fetches that have no offset in the lake, because their session began before their request log.

    Only the request logs named in ``files`` are considered.
    """
    with LakeSql(lake) as sql:
        return int(sql(_WITHOUT_OFFSET, clusters=[(cluster_id,)], files=[(name,) for name in files])[0]["fetches"])


def read_earlier_logs(lake: Lake, work: PlanOfFiles, cluster_id: str) -> EarlierLogs:
    """Load the lake's lines and rows of logs that have left the folder, as the state from which an ingest continues."""
    if not work.gone or not lake.has(KEPT_LINES.name):
        return EarlierLogs(brokers=work.found.brokers)
    of_cluster = [(cluster_id,)]
    kept = read_columns(lake, KEPT_LINES.name, earlier.KEPT_LINES.names, {"cluster_id": cluster_id})
    kept = kept.cast(earlier.KEPT_LINES)
    settings = kept.filter(pc.equal(kept["kind"], PROPERTIES))
    lines = kept.filter(pc.is_in(kept["kind"], pa.array([SERVER, STATE_CHANGE])))
    covered = read_columns(
        lake, COVERAGE.name, ["broker_id", "from_time", "until_time"], {"cluster_id": cluster_id, "log": SERVER}
    ).to_pylist()
    files = [
        {"kind": record.kind, "broker_id": record.broker_id, "first_us": _us_in_lake(record.span[0]),
         "last_us": _us_in_lake(record.span[1]),
         # A server.log without lines at INFO covers no time, because shrinks are logged at INFO.
         "informs": any(row["broker_id"] == record.broker_id
                        and _us_in_lake(row["from_time"]) <= _us_in_lake(record.span[1])
                        and _us_in_lake(row["until_time"]) >= _us_in_lake(record.span[0]) for row in covered)}
        for record in work.gone if record.span and record.kind not in (REQUEST, METADATA)
    ]  # fmt: skip
    requests = [(record.broker_id, _us_in_lake(record.last_time)) for record in work.gone
                if record.kind == REQUEST and record.broker_id is not None and record.last_time]  # fmt: skip
    of_files = pa.array({record.source_file for record in work.gone}, pa.string())
    lines = lines.filter(pc.is_in(lines["source_file"], of_files))
    last_requests = kept.filter(
        pc.and_(pc.equal(kept["kind"], REQUEST), pc.is_in(kept["source_file"], of_files))
    )  # fmt: skip
    handled_us, read_us = handled_times(last_requests), read_times(last_requests)
    numbers = read_columns(lake, SESSION_ENDS.name, NUMBERED.names, {"cluster_id": cluster_id})
    begin = str(pc.min(lines["stamp_us"]).as_py() or 0)
    with LakeSql(lake) as sql:
        stretches = [Stretch(**row) for row in sql(_STRETCHES, clusters=of_cluster)]
        terms = sql(_TERMS, clusters=of_cluster, begin=begin)
        silences = pa.Table.from_pylist(sql(_SILENCES, clusters=of_cluster, begin=begin), earlier.SILENCES)

    read = {file.name for file in work.found.files} | {record.source_file for record in work.superseded}

    def last_rows(begins_us: Mapping[int, int]) -> LastRows:
        """Load the last fetches and appends of each broker before its time in ``begins_us``."""
        if not begins_us:
            return LastRows()
        first, last = (_EPOCH + timedelta(microseconds=us) for us in (min(begins_us.values()), max(begins_us.values())))
        with LakeSql(lake) as sql:
            near: dict[str, Value] = {
                "clusters": of_cluster, "begins": list(begins_us.items()), "within": str(_LAST_US),
                "read": [(name,) for name in sorted(read)],
                "days": f"DATE'{(first - timedelta(1)).date()}' AND DATE'{last.date()}'",
            }  # fmt: skip
            appends = [
                row | {"handled_us": handled_us.get((row["source_file"], row["source_line"]))}
                for row in sql(_LAST_APPENDS, **near)
            ]
            fetches = [
                row | {"read_us": read_us.get((row["leader_id"], row["replica_id"], row["last_handled_us"]))}
                for row in sql(_LAST_FETCHES, **near)
            ]
            gone = [row for row in appends if not row["read_again"]]
            again = [row for row in appends if row["read_again"] and row["acks"] is not None]
            names = [
                (record.source_file,) for record in work.gone
                if record.kind == REQUEST and record.span
                and _us_in_lake(record.span[0]) >= begins_us.get(record.broker_id or 0, _NEVER_US)
            ]  # fmt: skip
            since = f"DATE'{(first - timedelta(1)).date()}'"
            later = sql(_NEXT_APPENDS, clusters=of_cluster, since=since, later=names) if names else []
            before, read_again = (pa.Table.from_pylist(rows, APPENDS) for rows in (gone, again))
            return LastRows(begins_us, fetches, before, read_again, later)

    return EarlierLogs(
        lines, pa.Table.from_pylist(files, earlier.FILES), requests, stretches,
        numbers.filter(pc.is_in(numbers["source_file"], of_files)).cast(NUMBERED), silences, terms, last_rows,
        last_requests, _known_brokers(settings["message"].to_pylist(), work.found.brokers),
    )  # fmt: skip


def _known_brokers(kept: Iterable[str], found: Mapping[int, Broker]) -> dict[int, Broker]:
    """Return the settings of all brokers, by broker id. Settings that ``found`` lacks are taken from ``kept``.

    ``found`` are the settings in the folder, and ``kept`` are those that earlier ingests stored, as JSON.
    """
    brokers = dict(found)
    for text in kept:
        before = json.loads(text)
        own = asdict(found.get(before["broker_id"], Broker(**before)))
        brokers[before["broker_id"]] = Broker(
            **{each.name: before[each.name] if own[each.name] is None else own[each.name] for each in fields(Broker)}
        )
    return brokers


def keep_for_later_logs(small: SmallTables, cluster_id: str, logs: KafkaLogs, earlier_logs: EarlierLogs) -> None:
    """Store the state from which later logs continue: log lines, fetch sessions, last requests and settings.

    This replaces the state that an earlier ingest stored for the cluster.

    Parameters
    ----------
    small : SmallTables
        Tables of the lake.
    cluster_id : str
    logs : KafkaLogs
        The logs that were read.
    earlier_logs : EarlierLogs
        State from logs that are no longer in the folder.
    """
    numbers = pa.concat_tables([earlier_logs.numbers, logs.numbers])
    recent = (pc.max(numbers["completed_us"]).as_py() or 0) - KEPT_US
    numbers = numbers.filter(pc.greater_equal(numbers["completed_us"], recent))
    lines = _lines_still_needed(small.sql, pa.concat_tables([earlier_logs.lines, logs.lines.kept]))
    requests = pa.concat_tables([earlier_logs.kept_requests, logs.last_requests])
    since = (pc.max(requests["stamp_us"]).as_py() or 0) - KEPT_US
    requests = requests.filter(pc.greater_equal(requests["stamp_us"], since))
    settings = [
        {"kind": PROPERTIES, "broker_id": broker.broker_id, "source_file": PROPERTIES, "source_line": 0,
         "message": json.dumps(asdict(broker))} for broker in logs.found.brokers.values()
    ]  # fmt: skip
    kept_lines = pa.concat_tables([
        lines.cast(earlier.KEPT_LINES), requests,
        pa.Table.from_pylist(settings, earlier.KEPT_LINES),
    ])  # fmt: skip
    for table, rows in ((KEPT_LINES, kept_lines), (SESSION_ENDS, numbers)):
        kept = rows.append_column("cluster_id", pa.repeat(cluster_id, rows.num_rows)).select(table.column_names)
        replace_arrow(small.lake, small.sql, table, kept.cast(arrow_schema(table)), rows_of_cluster(cluster_id))


def _lines_still_needed(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    """Drop the lines that no later log can need.

    A line is dropped if it is older than the broker's last start, as no term continues across a restart, and older than
    the last KEPT_US microseconds.
    """
    return sql(
        f"""
        WITH started AS (SELECT broker_id, max(stamp_us) AS started_us FROM starts GROUP BY broker_id),
        files AS (SELECT kind, source_file, max(stamp_us) AS last_us FROM lines GROUP BY kind, source_file)
        SELECT lines.* FROM lines JOIN files USING (kind, source_file) LEFT JOIN started USING (broker_id)
        WHERE coalesce(stamp_us, last_us) >= least(coalesce(started_us, 0),
            (SELECT max(stamp_us) FROM lines) - {KEPT_US})
        """,
        lines=lines,
        starts=process_starts(sql, lines),
    )


def _us_in_lake(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)

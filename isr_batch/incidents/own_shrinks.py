"""Join the brokers' own shrinks with the replay's verdicts, and group the shrinks into incidents, without Spark."""

from collections import defaultdict
from typing import Any, Final, NamedTuple

import pyarrow as pa

from isr_batch.evidence.broker_troubles import troubles_of_absences
from isr_batch.incidents.absences import (
    FetchesOfSpans,
    fetches_of_spans,
    find_last_seen,
    find_undelivered,
    who_was_absent,
)
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql, quoted, without_zones
from isr_batch.lake.duckdb_engine import answered
from isr_batch.lake.lake import Lake
from isr_batch.lake.observers import OF_OBSERVERS, OF_OTHERS
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.contract import SET_KEY
from udfs.rules import BASELINE

_OF_SHRINK: Final = (*SET_KEY, "replica_id")
COLUMNS: Final = {
    "observed_isr_changes": (
        *_OF_SHRINK, "change_time", "earliest_time", "kind", "made_by", "last_caught_up_time_ms", "source_file",
        "source_line",
    ),
    "replay_check": (*_OF_SHRINK, "rule", "params_json", "kind", "status", "observed_time", "replayed_time"),
    "shrink_verdicts": (
        *_OF_SHRINK, "rule", "params_json", "change_time", "made_by", "verdict", "primary_cause", "restored_time",
        "lag_ms", "leader_held_ms", "leader_silent_ms", "certainty",
    ),
    "broker_events": ("cluster_id", "broker_id", "kind", "event_time", "end_time"),
    "leader_epochs": (
        *SET_KEY, "start_time", "end_time", "previous_leader_id", "assigned", "isr_at_start", "observers",
        "replica_lag_time_max_ms", "lag_time_source", "broker_version", "broker_version_source", "begins_mid_term",
    ),
    "controller_records": ("cluster_id", "kind", "broker_id", "topic", "value", "record_time", "record_offset"),
    "mapped_clusters": ("cluster_id", "mapped", "min_insync_replicas", "min_isr_is_given", "broker_version"),
    "coverage": ("cluster_id", "broker_id", "log", "from_time", "until_time", "begins_mid_term"),
    "shrink_evidence": (
        "cluster_id", "topic", "partition_id", "leader_id", "replica_id", "change_time", "made_by", "suspect",
        "suspect_broker", "strength", "spurious",
    ),
    "broker_troubles": (
        "cluster_id", "broker_id", "kind", "from_time", "until_time", "what", "source_file", "source_line",
    ),
    "quarantine": ("cluster_id", "source_file", "source_line", "rows_kept"),
}  # fmt: skip
"""Names of the lake's tables that are read, with the columns that are needed."""
SLOTS: Final = 400
"""Number of slots into which a picture divides its time axis. A slot is two or three pixels wide."""
_PACKAGE: Final = "isr_batch.incidents"
VERDICTS: Final = ("spurious", "genuine", "excluded", "unknown")
Row = dict[str, Any]
Tables = dict[str, pa.Table]


class OwnShrinks(NamedTuple):
    """The shrinks that the brokers made (drops), with the replay's verdicts on them, grouped into incidents.

    An incident is a group of drops near in time that point at the same broker.

    Attributes
    ----------
    rule : str
        The rule that the brokers ran; the rule of Kafka's newest releases if that is unknown.
    tables : dict of str to pa.Table
        The tables in `COLUMNS`. shrink_verdicts only contains rows of the rules that brokers ran.
    drops : pa.Table
        One row per follower that left an ISR, as ``sql/drops.sql`` describes. Times are microseconds since 1970.
    incidents : list of dict
        One row per incident, as ``sql/incidents.sql`` describes.
    clusters : list of dict
        One row per cluster, as ``sql/clusters.sql`` describes.
    pairs, lanes, events, elections : list of dict
        Data for pictures: the results of the queries of these names in ``sql/``.
    """

    rule: str
    tables: Tables
    drops: pa.Table
    incidents: list[Row]
    clusters: list[Row]
    pairs: list[Row]
    lanes: list[Row]
    events: list[Row]
    elections: list[Row]


def own_shrinks(lake: Lake) -> OwnShrinks:
    """Query a lake for the shrinks that the brokers made and the replay's verdicts on them, and group them by incident.

    If the lake does not contain a table, the table is treated as empty.
    """
    tables = {name: read_columns(lake, name, COLUMNS[name]) for name in COLUMNS if name != "shrink_verdicts"}
    ran = sorted(set(tables["replay_check"]["rule"].to_pylist()))
    tables["shrink_verdicts"] = read_columns(
        lake, "shrink_verdicts", COLUMNS["shrink_verdicts"], {"rule": ran or BASELINE}
    )
    return own_shrinks_of_tables(tables, fetches_of_spans(lake))


def own_shrinks_of_tables(tables: Tables, fetches_of: FetchesOfSpans | None = None) -> OwnShrinks:
    """Do what `own_shrinks` does, using tables in memory instead of a lake.

    Parameters
    ----------
    tables : dict of str to pa.Table
        The tables in `COLUMNS`. shrink_verdicts must contain the rows of the rules that the brokers ran (column rule of
        replay_check) or, if replay_check is empty, of the rule of Kafka's newest releases.
    fetches_of : callable, optional
        Reads the fetches that show which broker was at fault, see `isr_batch.incidents.absences.who_was_absent`.
    """
    with ArrowSql() as sql:
        tables = {name: without_zones(rows) for name, rows in tables.items()}
        names = sql(
            "SELECT rule FROM replay_check GROUP BY rule ORDER BY count(*) DESC, rule",
            replay_check=tables["replay_check"],
        )["rule"].to_pylist()
        rule = names[0] if names else BASELINE
        brokers_logs = sql(
            "SELECT cluster_id FROM observed_isr_changes UNION SELECT cluster_id FROM coverage WHERE log = 'server'",
            **tables,
        )
        of_observers = answered(sql, OF_OBSERVERS, **tables)
        others = answered(sql, OF_OTHERS, of_observers=of_observers, **tables)
        known = tables | {"brokers_logs": brokers_logs, "of_observers": of_observers, "observed_isr_changes": others}
        known["dropped"] = sql(text_of(_PACKAGE, "dropped", rule=quoted(rule), key=", ".join(SET_KEY)), **known)
        known["dropped"] = find_undelivered(sql, known, fetches_of)
        drops = sql(text_of(_PACKAGE, "drops"), who=who_was_absent(sql, known, fetches_of), **known)
        known["drops"] = drops
        known["last_seen"] = find_last_seen(sql, known, fetches_of)
        incidents = _with_troubles(sql, sql(text_of(_PACKAGE, "incidents"), **known), known)
        known["clusters"] = sql(text_of(_PACKAGE, "clusters"), **known)
        clusters = known["clusters"].to_pylist()
        pictures = (
            sql(text_of(_PACKAGE, name, slots=SLOTS), **known).to_pylist()
            for name in ("pairs", "lanes", "events", "elections")
        )
        return OwnShrinks(rule, tables, drops, incidents, clusters, *pictures)


def _with_troubles(sql: ArrowSql, incidents: pa.Table, tables: Tables) -> list[Row]:
    """Add to each incident, as ``absence``, the JVM pauses and errors that the broker at fault logged around it."""
    absences = sql(text_of(_PACKAGE, "absences_of_brokers"), incidents=incidents)
    found = troubles_of_absences(sql, absences, tables["broker_troubles"], tables["coverage"])
    of_number = {one["number"]: one for one in found}
    return [one | {"absence": of_number.get(one["number"])} for one in incidents.to_pylist()]


def ask_own_shrinks(name: str, values: dict[str, str], **tables: pa.Table) -> pa.Table:
    """Run a query that is stored in the folder ``incidents/sql`` on tables in memory.

    Parameters
    ----------
    name : str
        Name of the file without its suffix.
    values : dict of str to str
        What to substitute for each ``$name`` in the query.
    **tables : pa.Table
        The tables that the query reads.
    """
    with ArrowSql() as sql:
        return sql(text_of(_PACKAGE, name, **values), **tables)


Key = tuple[str, int, int]


def incident_key(incident: Row) -> Key:
    """Return (cluster, broker at fault, number of the incident), the key that an incident and its drops share."""
    return incident["cluster_id"], incident["fault_id"], incident["incident"]


def drops_of_incidents(own: OwnShrinks) -> dict[Key, list[Row]]:
    """Return the rows of ``own.drops`` by incident. The keys are those of `incident_key`."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in own.drops.to_pylist():
        found[incident_key(row)].append(row)
    return found


def unjudged_clusters(own: OwnShrinks) -> list[str]:
    """Return the clusters in which brokers dropped followers, but the replay could judge none of these drops."""
    judged = {one["cluster_id"] for one in own.incidents if one["spurious"] + one["genuine"]}
    return sorted({one["cluster_id"] for one in own.incidents if one["unknown"]} - judged)

"""Record which columns are mapped for each cluster from users' tables, and list which results this rules out."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from isr_batch.errors import UsageError
from isr_batch.ingest.folder.listed_observers import observers_as_json, observers_from_json, sentences_on_idle_observers
from isr_batch.ingest.own_table.column_values import can_be_read
from isr_batch.ingest.own_table.mapping import INSTANTS, ColumnSource, MappedTable, TableMapping, mapped_columns
from isr_batch.ingest.own_table.read_source import Input
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import INGESTED_FILES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import MAPPED_CLUSTERS

_SECTIONS = ("fetches", "appends", "epochs", "changes")
_SOURCES = "sources"
"""Key in column ``mapped`` of table mapped_clusters under which the source of each column is recorded."""


def mapped_by(mapping: TableMapping) -> dict[str, list[str]]:
    """Return the names of the mapped columns, by section of the mapping."""
    return {name: sorted(mapped_columns(section.columns)) for name, section in _sections(mapping).items()}


def _sections(mapping: TableMapping) -> dict[str, MappedTable]:
    """Return the sections that a mapping contains, by name."""
    sections = {name: getattr(mapping, name) for name in _SECTIONS}
    return {name: section for name, section in sections.items() if section}


def require_same_mapping(lake: Lake, clusters: Iterable[str], inputs: Sequence[Input], mapping: TableMapping) -> None:
    """Raise an error unless tables are mapped as in earlier ingests of the same clusters.

    If the arrival of a fetch were mapped today but not yesterday, or were read from another column, the lake would
    contain the same fetch as two different rows. A value may be read from another column only if the table lacks the
    earlier column, as when a column was renamed.

    Raises
    ------
    UsageError
        When other columns were mapped, when they were read from other columns of the tables, or when the lake contains
        broker logs of a cluster.
    """
    wanted = {"cluster_id": [*clusters]}
    if (of_logs := read_columns(lake, INGESTED_FILES.name, ["cluster_id"], wanted)).num_rows:
        raise UsageError(
            f"the lake has broker logs of {of_logs['cluster_id'][0]}: logs and a table may disagree about a leader",
            "name the table's cluster differently with --cluster, or use another lake",
        )
    for row in read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id", "mapped"], wanted).to_pylist():
        before = json.loads(row["mapped"])
        moved = [each for given in inputs for each in _moved_columns(given, before.get(_SOURCES, {}), mapping)]
        if says := [*_other_columns(before, mapped_by(mapping)), *moved]:
            raise UsageError(
                f"{row['cluster_id']} was ingested with another mapping: {'; '.join(says)}",
                "its rows would be duplicated: map the columns as before, or use another lake or --cluster",
            )


def _other_columns(before: Mapping[str, Collection[str]], now: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield, for each section, a text with the columns that are no longer mapped, and one with newly mapped columns.

    ``before`` and ``now`` are the names of the mapped columns, by section.
    """
    for name in _SECTIONS:
        then, these = set(before.get(name, ())), set(now.get(name, ()))
        for what, columns in (("without", then - these), ("with", these - then)):
            if columns:
                yield f"{name}: {what} {', '.join(sorted(columns))} now"


def _moved_columns(given: Input, before: Mapping[str, Any], mapping: TableMapping) -> Iterator[str]:
    """Yield a text for each column of the lake that would be read from another source than before.

    A column that now has another name in the user's table is not reported: the table lacks the earlier name.
    """
    for name, source in _sources(getattr(mapping, given.section), mapping).items():
        known, now = before.get(given.section, {}).get(name, ()), _shown(source)
        for old in () if now in map(_shown, known) else (type(source).model_validate(each) for each in known):
            if None in (old.column, source.column) or can_be_read(given.source.schema, old):
                yield f"{given.section}.{name} was {_shown(old)}, and is {now} now"


def _sources(section: MappedTable, mapping: TableMapping) -> dict[str, ColumnSource]:
    """Return the source of each mapped column of a section.

    The cluster's name is included in the section of fetches.
    """
    cluster = {"cluster_id": mapping.cluster_id} if section is mapping.fetches else {}
    return {**mapped_columns(section.columns), **cluster}


def _shown(source: ColumnSource | Mapping[str, Any]) -> str:
    """Return the source of a column as text. Sources with the same text yield the same values."""
    stored = source if isinstance(source, Mapping) else source.model_dump()
    if stored.get("column") is None:
        return f"always {stored['constant']!r}"
    how = ", ".join(stored[name] for name in ("unit", "time_zone") if stored.get(name) not in (None, "UTC"))
    return f"{stored['column']} ({how})" if how else f"{stored['column']}"


def _sources_known(mapping: TableMapping, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return all sources so far, by section and column: the recorded sources, and the sources of this mapping."""
    found: dict[str, Any] = {}
    for section, given in _sections(mapping).items():
        found[section] = {}
        for name, source in _sources(given, mapping).items():
            known = before.get(section, {}).get(name, [])
            is_new = _shown(source) not in map(_shown, known)
            found[section][name] = known + [source.model_dump(exclude_none=True)] * is_new
    return found


def mapped_cluster(mapping: TableMapping, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values of a row of ``mapped_clusters`` that depend on the mapping.

    ``before`` are the sources of columns that earlier ingests recorded for the cluster.
    """
    given = mapping.model_fields_set
    return {
        "mapped": json.dumps({**mapped_by(mapping), _SOURCES: _sources_known(mapping, before or {})}),
        "replica_lag_time_max_ms": mapping.replica_lag_time_max_ms,
        "lag_time_is_given": "replica_lag_time_max_ms" in given,
        "min_insync_replicas": mapping.min_insync_replicas,
        "min_isr_is_given": "min_insync_replicas" in given,
        "broker_version": mapping.broker_version,
        "observers": observers_as_json(mapping.observers),
    }


def write_mapped_clusters(small: SmallTables, clusters: Sequence[str], mapping: TableMapping) -> None:
    """Record in table mapped_clusters how columns are mapped for the given clusters."""
    names = [*mapped_cluster(mapping)]
    stored = read_columns(small.lake, MAPPED_CLUSTERS.name, ["cluster_id", *names], {"cluster_id": clusters})
    known = {row.pop("cluster_id"): row for row in stored.to_pylist()}
    rows = []
    for name in clusters:
        before = json.loads(known[name]["mapped"]).get(_SOURCES) if name in known else None
        settings = mapped_cluster(mapping, before)
        if settings != known.get(name):
            rows.append({"cluster_id": name, **settings, "ingest_run": small.lake.run_id})
    if rows:
        where = f"cluster_id IN ({', '.join(sql_literal(row['cluster_id']) for row in rows)})"
        table = pa.Table.from_pylist(rows, arrow_schema(MAPPED_CLUSTERS))
        replace_arrow(small.lake, small.sql, MAPPED_CLUSTERS, table, where)


def lacking_input(lake: Lake) -> list[dict[str, Any]]:
    """Return one row per input that a cluster lacks, with the results that are missing or uncertain as a consequence.

    Returns
    -------
    list of dict
        ``cluster_id``, ``missing``, ``what_the_results_lack``.
    """
    rows = read_columns(lake, MAPPED_CLUSTERS.name, MAPPED_CLUSTERS.column_names).to_pylist()
    found = [lack for row in sorted(rows, key=lambda row: row["cluster_id"]) for lack in _lacks_of_cluster(row)]
    for row in rows:
        if listed := observers_from_json(row["observers"]):
            terms = read_columns(
                lake, LEADER_EPOCHS.name, ["observers", "isr_at_start"], {"cluster_id": row["cluster_id"]}
            ).to_pylist()
            found += [
                {"cluster_id": row["cluster_id"], "missing": "observers", "what_the_results_lack": said}
                for said in sentences_on_idle_observers(listed, terms)
            ]
    return found


def _lacks_of_cluster(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of `lacking_input` for one cluster, given as a row of ``mapped_clusters``."""
    mapped = json.loads(cluster["mapped"])
    rows = []

    def lacks(missing: str, results: str) -> None:
        rows.append({"cluster_id": cluster["cluster_id"], "missing": missing, "what_the_results_lack": results})

    if "appends" not in mapped:
        source = "leader_log_end_offset" if "leader_log_end_offset" in mapped["fetches"] else "the fetch offsets"
        lacks(
            "appends",
            f"the growth of the leader's log is inferred from {source}: true lag is known only to within one fetch; "
            "acks=all latency and refused appends are unknown, and so is unacked_only unless all producers use "
            "acks=all",
        )
    if "epochs" not in mapped:
        lacks(
            "epochs",
            "terms are inferred from fetches: a term ends where another leader serves the partition; the start offset "
            "of a leader epoch, and the ISR at that time are guesses",
        )
    if "replica_lag_time_max_ms" not in mapped.get("epochs", ()) and not cluster["lag_time_is_given"]:
        lacks(
            "replica_lag_time_max_ms",
            f"{cluster['replica_lag_time_max_ms']} ms is assumed, the default of Kafka since 2.5: with another value "
            "other followers are dropped",
        )
    if "min_insync_replicas" not in mapped.get("epochs", ()) and not cluster["min_isr_is_given"]:
        lacks("min_insync_replicas", f"{cluster['min_insync_replicas']} is assumed: time below min ISR depends on it")
    if "broker_version" not in mapped.get("epochs", ()) and cluster["broker_version"] is None:
        lacks("broker_version", "the rule of your brokers' release is unknown")
    if "check_origin_ms" not in mapped.get("epochs", ()):
        lacks("check_origin_ms", "the phase of isr-expiration: a shrink may be up to half the lag time early or late")
    unknown = [name for name in INSTANTS if name not in mapped["fetches"]]
    if unknown:
        lacks(
            ", ".join(unknown),
            "how long the leader held a fetch is not known: slow_leader is found too rarely, and a leader's silence "
            "is only inferred from its followers",
        )
    if "changes" not in mapped:
        lacks(
            "changes",
            "what the brokers decided: validate has nothing to compare with, and changes made by the controller are "
            "unknown",
        )
    return rows

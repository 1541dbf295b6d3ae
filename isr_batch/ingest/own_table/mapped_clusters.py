"""Record which columns are mapped for each cluster from a user's table, and list what its results lack."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.mapping import INSTANTS, TableMapping, mapped_columns
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import INGESTED_FILES
from isr_batch.lake.tables.own_tables import MAPPED_CLUSTERS

_SECTIONS = ("fetches", "appends", "epochs", "changes")


def mapped_by(mapping: TableMapping) -> dict[str, list[str]]:
    """Return the names of the mapped columns, by section of the mapping."""
    sections = {name: getattr(mapping, name) for name in _SECTIONS}
    return {name: sorted(mapped_columns(section.columns)) for name, section in sections.items() if section}


def require_same_mapping(lake: Lake, clusters: Iterable[str], mapping: TableMapping) -> None:
    """Raise an error if earlier rows of the clusters were read with other columns mapped.

    Otherwise, the same fetch could be in the lake twice, for example once with and once without its arrival time.

    Raises
    ------
    UsageError
        When other columns were mapped, or when the lake has broker logs of such a cluster.
    """
    wanted = {"cluster_id": [*clusters]}
    if (of_logs := read_columns(lake, INGESTED_FILES.name, ["cluster_id"], wanted)).num_rows:
        raise UsageError(
            f"the lake has broker logs of {of_logs['cluster_id'][0]}: logs and a table may disagree about a leader",
            "name the table's cluster differently with --cluster, or use another lake",
        )
    now = mapped_by(mapping)
    for row in read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id", "mapped"], wanted).to_pylist():
        before = json.loads(row["mapped"])
        for name in _SECTIONS:
            gone, new = (
                set(one.get(name, ())) - set(other.get(name, ())) for one, other in ((before, now), (now, before))
            )
            if gone or new:
                says = [
                    f"{name}: {what} {', '.join(sorted(names))}"
                    for what, names in (("without", gone), ("with", new))
                    if names
                ]
                raise UsageError(
                    f"{row['cluster_id']} was ingested with a mapping of other columns; this one has {'; '.join(says)}",
                    "its rows would be duplicated: map the same columns, or use another lake or --cluster",
                )


def mapped_cluster(mapping: TableMapping) -> dict[str, Any]:
    """Return the columns of ``mapped_clusters`` whose values are derived from the mapping."""
    given = mapping.model_fields_set
    return {
        "mapped": json.dumps(mapped_by(mapping)),
        "replica_lag_time_max_ms": mapping.replica_lag_time_max_ms,
        "lag_time_is_given": "replica_lag_time_max_ms" in given,
        "min_insync_replicas": mapping.min_insync_replicas,
        "min_isr_is_given": "min_insync_replicas" in given,
        "broker_version": mapping.broker_version,
    }


def write_mapped_clusters(small: SmallTables, clusters: Sequence[str], mapping: TableMapping) -> None:
    """Write the rows of ``mapped_clusters`` for the given clusters."""
    settings = mapped_cluster(mapping)
    stored = read_columns(small.lake, MAPPED_CLUSTERS.name, ["cluster_id", *settings], {"cluster_id": clusters})
    same = {row["cluster_id"] for row in stored.to_pylist() if settings.items() <= row.items()}
    rows = [{"cluster_id": name, **settings, "ingest_run": small.lake.run_id} for name in clusters if name not in same]
    if rows:
        names = ", ".join(sql_literal(str(row["cluster_id"])) for row in rows)
        table = pa.Table.from_pylist(rows, arrow_schema(MAPPED_CLUSTERS))
        replace_arrow(small.lake, small.sql, MAPPED_CLUSTERS, table, f"cluster_id IN ({names})")


def lacking_input(lake: Lake) -> list[dict[str, Any]]:
    """Return the input that is missing for each cluster, and the results that are therefore missing or uncertain.

    Returns
    -------
    list of dict
        ``cluster_id``, ``missing``, ``what_the_results_lack``.
    """
    rows = read_columns(lake, MAPPED_CLUSTERS.name, MAPPED_CLUSTERS.column_names).to_pylist()
    return [lack for row in sorted(rows, key=lambda row: row["cluster_id"]) for lack in _lacks_of_cluster(row)]


def _lacks_of_cluster(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of `lacking_input` for one cluster: a row of ``mapped_clusters``."""
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

"""Say how long leaders' deaths would leave partitions offline under the brokers' own rule, without and with ELR."""

import json
from collections.abc import Mapping
from typing import Final

from isr_batch.incidents.own_shrinks import Row
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.sql_files import sql_texts

_HAS: Final = {
    True: "this cluster has them",
    False: "this cluster does not have them",
    None: "no log shows whether this cluster has them",
}
_SUMS: Final = ("leader_alone_us", "offline_without_elr_us", "offline_with_elr_us")


def leader_deaths_sentences(sql: LakeSql, clusters: Mapping[str, Row]) -> dict[str, list[str]]:
    """Return, by cluster, two sentences on how long the death of leaders would have left partitions offline.

    The first is on the time without ELR, the eligible leader replicas of KIP-966, and the second on the time with ELR.
    A cluster has no sentences if no partition would have been offline.

    Parameters
    ----------
    sql : LakeSql
    clusters : mapping of str to dict
        For each cluster, a dict with ``rule`` (that the brokers ran) and ``lag_time_ms``.
    """
    if not sql.lake.has("eligible_leaders"):
        return {name: [] for name in clusters}
    prices = sql(sql_texts()["leader_death_by_rule_and_day"])
    enabled = {row["cluster_id"]: row["elr"] for row in sql(_ENABLED)}
    return {
        name: _sentences(
            [row for row in prices if row["cluster_id"] == name and _is_own_leader_death(row, own)], enabled.get(name)
        )
        for name, own in clusters.items()
    }


_ENABLED: Final = """
    SELECT cluster_id, max(elr_enabled) AS elr FROM eligible_leaders GROUP BY cluster_id
"""


def _is_own_leader_death(row: Row, own: Row) -> bool:
    """Whether a row belongs to the brokers' own rule and lag time."""
    lag_time_ms = json.loads(row["params_json"])["replica_lag_time_max_ms"]
    return bool(row["rule"] == own["rule"] and lag_time_ms == own["lag_time_ms"])


def _sentences(rows: list[Row], enabled: bool | None) -> list[str]:  # noqa: FBT001
    """Return two sentences: the offline time without ELR, and with ELR. ``enabled``: whether the cluster has ELR."""
    if not sum(row["offline_without_elr_us"] for row in rows):
        return []
    alone, without, with_elr = (_seconds_of_leader_deaths(sum(row[name] for row in rows)) for name in _SUMS)
    off = f"Without eligible leader replicas, a leader's death would have left its partition offline for {without}"
    of_leader = f" (leader alone: {alone})" if alone != without else ""
    return [f"{off}{of_leader}.", f"With them: {with_elr}; {_HAS[enabled]}."]


def _seconds_of_leader_deaths(us: int) -> str:
    """Format a sum of times of partitions, given in microseconds, such as "12.5 partition-seconds"."""
    seconds = int(us) / 1e6  # DuckDB gives decimals
    return f"{seconds:,.3f} partition-seconds" if round(seconds, 3) else "less than a millisecond" if us else "never"

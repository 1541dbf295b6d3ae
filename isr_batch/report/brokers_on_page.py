"""Describe the brokers of a cluster for the report: their drops as leader and as follower, silences, pauses, errors."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.incidents.own_shrinks import VERDICTS, OwnShrinks, Row
from isr_batch.incidents.sentences import CALLED, clock_format
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.phrases import seconds_text, times_in_words
from isr_batch.report.cluster_timeline import brokers_in_view
from isr_batch.shown_times import time_text

LISTED: Final = 12
"""Maximum number of silences, and also of troubles, that are listed for each broker."""


def fetches_between_brokers(sql: LakeSql) -> list[Row]:
    """Count the fetches in the lake by leader and follower: cluster_id, leader_id, replica_id and fetches (number)."""
    return sql("""
        SELECT cluster_id, leader_id, replica_id, CAST(sum(run_length) AS BIGINT) AS fetches
        FROM fetch_log GROUP BY cluster_id, leader_id, replica_id
    """)


def brokers_on_page(
    own: OwnShrinks, cluster: Row, fetches: Sequence[Row], incidents: Mapping[int, Sequence[tuple[str, str]]]
) -> list[dict[str, Any]]:
    """Return one dict for each broker of a cluster that dropped a follower, was dropped, was silent, or was at fault.

    If there are many, only those with most drops are described (`brokers_in_view`).

    Parameters
    ----------
    own : OwnShrinks
    cluster : dict
        One of ``own.clusters``.
    fetches : sequence of dict
        Result of `fetches_between_brokers`.
    incidents : mapping of int to sequence of (str, str)
        For each broker, title and HTML anchor of each incident in which it is at fault.

    Returns
    -------
    list of dict
        One dict per broker. ``broker`` is its id, ``row`` its cells in the table that compares the brokers, by heading.
        Cells that are empty for all brokers are left out. ``silences`` and ``troubles`` are lists of texts,
        ``incidents`` has the titles and anchors from the parameter of this name, and ``more`` is the number of silences
        and troubles that are not listed.
    """
    cluster_id, form = cluster["cluster_id"], clock_format(cluster)
    pairs = [row for row in own.pairs if row["cluster_id"] == cluster_id]
    fetched = [row for row in fetches if row["cluster_id"] == cluster_id]
    silences, troubles = _silences(own, cluster_id), _troubles(own, cluster_id, form)
    named = {row[side] for row in pairs for side in ("leader_id", "replica_id")}
    brokers: list[dict[str, Any]] = [
        {
            "broker": broker,
            "row": {
                "broker": str(broker),
                "as leader: fetches served": _share_of_broker(fetched, "leader_id", broker, "fetches"),
                "drops made": _drops(pairs, "leader_id", broker),
                "as follower: fetches sent": _share_of_broker(fetched, "replica_id", broker, "fetches"),
                "times dropped": _drops(pairs, "replica_id", broker),
                "silent": _lengths_of_silences([(until - since) // 1000 for since, until in silences[broker]]),
                "JVM paused": _lengths_of_silences([one["ms"] for one in troubles[broker] if one["kind"] == "pause"]),
            },
            "silences": [
                f"{time_text(since, form)} for {seconds_text([(until - since) // 1000])}"
                for since, until in silences[broker][:LISTED]
            ],
            "troubles": [one["says"] for one in troubles[broker][:LISTED]],
            "more": max(0, len(silences[broker]) - LISTED) + max(0, len(troubles[broker]) - LISTED),
            "incidents": list(incidents.get(broker, ())),
        }
        for broker in brokers_in_view(named | {*silences} | {*incidents}, pairs)[0]
    ]  # fmt: skip
    for heading in [*(brokers[0]["row"] if brokers else ())]:
        if not any(one["row"][heading] for one in brokers):
            for one in brokers:
                del one["row"][heading]
    return brokers


def _share_of_broker(rows: Sequence[Row], side: str, broker: int, number: str) -> str:
    """Return which share of a column's sum belongs to a broker, such as "20 %"; empty if the sum is 0.

    ``number`` is the name of the column, and ``side`` is leader_id or replica_id.
    """
    every = sum(row[number] for row in rows)
    of_broker = sum(row[number] for row in rows if row[side] == broker)
    return f"{100 * of_broker / every:.0f} %" if every else ""


def _drops(pairs: Sequence[Row], side: str, broker: int) -> str:
    """Format a broker's share of all drops and its drops by verdict, such as "20 %: 5 healthy, 3 behind".

    ``side`` is leader_id to count the drops that it made, or replica_id to count how often it was dropped.
    """
    counts: Counter[str] = Counter()
    for row in pairs:
        counts[row["verdict"]] += row["drops"] if row[side] == broker else 0
    said = ", ".join(f"{counts[verdict]:,} {CALLED[verdict]}" for verdict in VERDICTS if counts[verdict])
    return (
        f"{_share_of_broker(pairs, side, broker, 'drops')}: {said}"
        if said
        else _share_of_broker(pairs, side, broker, "drops")
    )


def _lengths_of_silences(times_ms: Sequence[int]) -> str:
    """Format the number of silences (or pauses) and the range of their lengths; empty without any."""
    return f"{times_in_words(len(times_ms))}, {seconds_text(times_ms)}" if times_ms else ""


def _brokers_of_cluster(rows: pa.Table, cluster_id: str, by: str) -> list[Row]:
    """Select the rows of a cluster, and sort them by the column ``by``."""
    found: list[Row] = rows.filter(pc.equal(rows["cluster_id"], cluster_id)).sort_by(by).to_pylist()
    return found


def _with_instants_in_us(rows: pa.Table, *names: str) -> pa.Table:
    """For each timestamp column ``x`` in ``names``, add a column ``x_us`` with microseconds since 1970."""
    for name in names:
        rows = rows.append_column(f"{name}_us", rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return rows


def _silences(own: OwnShrinks, cluster_id: str) -> dict[int, list[tuple[int, int]]]:
    """Return start and end, in microseconds since 1970, of the silences of each broker in a cluster."""
    events = own.tables["broker_events"]
    silent = _with_instants_in_us(events.filter(pc.equal(events["kind"], "silent")), "event_time", "end_time")
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in _brokers_of_cluster(silent, cluster_id, "event_time_us"):
        found[row["broker_id"]].append((row["event_time_us"], row["end_time_us"]))
    return found


def _troubles(own: OwnShrinks, cluster_id: str, form: str) -> dict[int, list[Row]]:
    """Return the rows of broker_troubles for each broker in a cluster: kind, length in ms, and text to show."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in _brokers_of_cluster(
        _with_instants_in_us(own.tables["broker_troubles"], "from_time", "until_time"), cluster_id, "from_time_us"
    ):
        ms = (row["until_time_us"] - row["from_time_us"]) // 1000
        lasts = f" for {seconds_text([ms])}" if ms else ""
        what = f"{row['kind'].replace('_', ' ')}{lasts}: {row['what']}"
        says = f"{time_text(row['from_time_us'], form)} {what} [{row['source_file']}:{row['source_line']}]"
        found[row["broker_id"]].append({"kind": row["kind"], "ms": ms, "says": says})
    return found

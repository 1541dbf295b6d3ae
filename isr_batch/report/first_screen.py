"""Compute what the first screen of the report shows for each cluster.

It has figures, a timeline, incidents, a matrix of drops by leader and follower, and rules that would have been better.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from isr_batch.incidents.better_rule import better_rule
from isr_batch.incidents.incident_card import incident_card, incident_markdown
from isr_batch.incidents.own_shrinks import VERDICTS, Key, OwnShrinks, Row, drops_of_incidents, incident_key
from isr_batch.incidents.rule_choices import RuleChoice, Span, rule_choices
from isr_batch.incidents.sentences import (
    brief_headline,
    cluster_notes,
    clusters_worst_first,
    incidents_worst_first,
    span_of_terms,
)
from isr_batch.phrases import later_or_sooner, lost_records_at_most, three_digits, times_in_words
from isr_batch.report.brokers_on_page import brokers_on_page
from isr_batch.report.cluster_timeline import TimelineTarget, brokers_in_view, cluster_timeline
from isr_batch.report.shrinks_on_page import ShrinkOnPage

SHOWN: Final = 2
"""Number of incidents whose cards are open above the timeline. The other incidents, up to `MOST` in all, have a line
each below the timeline."""
MOST: Final = 100


def first_screens(
    own: OwnShrinks, scores: Sequence[Row], found: Mapping[Key, ShrinkOnPage], fetches: Sequence[Row]
) -> list[dict[str, Any]]:
    """Return the variables that ``report.html.j2`` needs: one dict per cluster.

    The cluster with the most drops of healthy followers comes first.

    Parameters
    ----------
    own : OwnShrinks
    scores : sequence of dict
        Result of `isr_batch.incidents.rule_choices.read_scores_for_choices`.
    found : mapping of Key to ShrinkOnPage
        Result of `isr_batch.report.shrinks_on_page.shrinks_on_page`.
    fetches : sequence of dict
        Result of `isr_batch.report.brokers_on_page.fetches_between_brokers`.
    """
    drops = drops_of_incidents(own)
    screens = []
    for number, cluster in enumerate(clusters_worst_first(own)):
        worst = incidents_worst_first(one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"])
        keys = map(incident_key, worst)
        cells = [
            _incident_on_first_screen(one, number, found.get(key), drops[key])
            for one, key in zip(worst, keys, strict=True)
        ]
        at_fault = defaultdict(list)
        for one, cell in zip(worst[:MOST], cells, strict=False):
            if one["fault_id"] is not None:
                at_fault[one["fault_id"]].append((f"{cell['card'].when}: {cell['card'].title}", cell["id"]))
        screens.append(
            _screen(own, cluster, scores, worst, cells)
            | {"place": f"cluster-{number}", "brokers": brokers_on_page(own, cluster, fetches, at_fault)}
        )
    return screens


def _screen(
    own: OwnShrinks, cluster: Row, scores: Sequence[Row], worst: Sequence[Row], cells: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the variables that ``report.html.j2`` needs for one cluster.

    ``scores`` are the rows of rule_scores, ``worst`` are the cluster's incidents, the worst first, and ``cells`` are
    the variables for each incident.
    """
    name = cluster["cluster_id"]
    listed = {
        incident_key(one)[1:]: f"{'s-' if cell['shrink'] else ''}{cell['id']}"
        for one, cell in zip(worst[:MOST], cells, strict=False)
    }
    targets = {
        incident_key(one)[1:]: TimelineTarget(listed.get(incident_key(one)[1:], ""), cell["card"].command)
        for one, cell in zip(worst, cells, strict=True)
    }
    choices = rule_choices(own, scores, name)
    return {
        "name": name,
        "figures": figures_on_screen(worst, cluster), "notes": cluster_notes(own, cluster),
        "better": " ".join(better_rule(own, scores, name)),
        "brief": " ".join(brief_headline(own, cluster)),
        "when": span_of_terms(cluster),
        "timeline": cluster_timeline(own, cluster, targets), "matrix": drop_matrix_on_screen(own.pairs, name),
        "incidents": cells[:SHOWN],
        "more": cells[SHOWN:MOST], "count": len(worst),
        "choices": _without_zeros([_cells_of_choice(one, choices[0], known=cluster["logged"]) for one in choices]),
        "bound": lag_time_bound_on_screen(worst, cluster),
    }  # fmt: skip


def figures_on_screen(incidents: Sequence[Row], cluster: Row) -> list[dict[str, str]]:
    """Return the figures at the top of the report about a cluster.

    Each is a dict with the keys name, value, remark and verdict. The verdict sets the colour.

    Parameters
    ----------
    incidents : sequence of dict
        Incidents of the cluster.
    cluster : dict
        One of ``own.clusters``.
    """
    counts = {verdict: sum(one[verdict] for one in incidents) for verdict in VERDICTS}
    counts["unknown"] -= cluster["unknown_makers"]
    dropped = sum(counts.values()) - counts["excluded"]

    def figure(name: str, value: str, remark: str = "", verdict: str = "") -> dict[str, str]:
        return {"name": name, "value": value, "remark": remark, "verdict": verdict}

    shown = [figure("dropped by leaders", f"{dropped:,}", "" if cluster["logged"] else "by the replay")]
    if dropped:
        share = f"{100 * counts['spurious'] / dropped:.0f} % of them" if counts["spurious"] else ""
        shown += [
            figure("healthy", f"{counts['spurious']:,}", share, "spurious"),
            figure("really behind", f"{counts['genuine']:,}", "", "genuine"),
            figure("not judged", f"{counts['unknown']:,}", "", "unknown"),
        ]
    if cluster["unknown_makers"]:
        shown.append(figure("left, by leader or controller", f"{cluster['unknown_makers']:,}", "", "unknown"))
    if counts["excluded"]:
        shown.append(figure("removed by the controller", f"{counts['excluded']:,}", "", "excluded"))
    if (culprit := _culprit(incidents, counts)) is not None:
        shown.append(figure("likely culprit", *culprit))
    if cluster["changes"]:
        same = f"{cluster['matched']:,} of {cluster['changes']:,} changes"
        shown.append(figure("agrees with the brokers", f"{int(100 * cluster['matched'] / cluster['changes'])} %", same))
    elif cluster["logged"] and dropped:
        shown.append(figure("agrees with the brokers", "not compared"))
    return shown


def _culprit(incidents: Sequence[Row], counts: Mapping[str, int]) -> tuple[str, str] | None:
    """Return the broker at fault for more than half of the drops of healthy followers, and its number of drops.

    Without such a broker, the first text says so, and the second names the brokers with most drops. If no healthy
    follower was dropped, genuine drops are counted or, without these, unjudged ones. Without any drops, None is
    returned.
    """
    kinds = {"spurious": "healthy", "genuine": "behind", "unknown": "not judged"}
    verdict = next((verdict for verdict in kinds if counts[verdict]), None)
    if verdict is None:
        return None
    drops: Counter[int] = Counter()
    for one in incidents:
        if one["fault_id"] is not None:
            drops[one["fault_id"]] += one[verdict]
    if not drops.total():
        return "no broker", ""
    (broker, most), *others = drops.most_common()
    of = f"{most:,} of {counts[verdict]:,} {kinds[verdict]}"
    if 2 * most <= counts[verdict]:
        rest = ", ".join(f"{other} ({number:,})" for other, number in others[:2] if number)
        return "no single broker", f"most at {broker} ({most:,}){', ' if rest else ''}{rest}"
    return f"broker {broker}", of


def drop_matrix_on_screen(pairs: Sequence[Row], cluster_id: str) -> dict[str, Any]:
    """Count the drops in a cluster by leader and follower, as a matrix for the report.

    Parameters
    ----------
    pairs : sequence of dict
        Result of ``incidents/sql/pairs.sql``.
    cluster_id : str

    Returns
    -------
    dict
        ``brokers``: headings of the columns. ``rows``: dicts with ``leader`` and ``cells``. A cell is a list of
        (verdict, number of drops).
    """
    of = [row for row in pairs if row["cluster_id"] == cluster_id]
    brokers, others = brokers_in_view({row[side] for row in of for side in ("leader_id", "replica_id")}, of)
    names = {broker: str(broker) for broker in brokers} | dict.fromkeys(others, f"{len(others)} others")
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in of:
        cells[names[row["leader_id"]], names[row["replica_id"]]][row["verdict"]] += row["drops"]
    columns, leaders = [*dict.fromkeys(names.values())], {leader for leader, _ in cells}
    return {
        "brokers": columns,
        "rows": [
            {
                "leader": leader,
                "cells": [
                    [(verdict, there[verdict]) for verdict in VERDICTS if there[verdict]]
                    for there in (cells[leader, follower] for follower in columns)
                ],
            }
            for leader in columns if leader in leaders
        ],
    }  # fmt: skip


def lag_time_bound_on_screen(incidents: Sequence[Row], cluster: Row) -> str:
    """Say which lag time would have kept all healthy followers in the ISR; empty if none of them was dropped."""
    lags = [one["healthy_lag_ms"] for one in incidents if one["healthy_lag_ms"] is not None]
    if not lags:
        return ""
    number = sum(one["spurious"] for one in incidents)
    kept = "the healthy follower" if number == 1 else f"all {number} healthy followers"
    assumed = cluster["assumed_lag_time_ms"] is not None
    was = (
        f"{cluster['lag_time_ms']:,}, Kafka's default, is assumed" if assumed else f"it was {cluster['lag_time_ms']:,}"
    )
    return (
        f"At these checks only a replica.lag.time.max.ms of more than {max(lags):,} would have kept {kept} in the ISR "
        f"({was}); failures would be detected that much later. `isr-batch sweep` weighs "
        f"lag times."
    )


def _incident_on_first_screen(
    one: Row, number: int, shrink: ShrinkOnPage | None, drops: Sequence[Row]
) -> dict[str, Any]:
    """Return the variables that ``report.html.j2`` needs for an incident. ``number`` is the index of its cluster."""
    card = incident_card(one, drops)
    return {
        "id": f"i{number}-{one['fault_id']}-{one['incident']}", "shrink": shrink, "card": card,
        "markdown": incident_markdown(card, one["cluster_id"]),
        "brokers": sorted({*one["droppers"], *one["replicas"]}) if one["fault_id"] is None else [one["fault_id"]],
    }  # fmt: skip


def _cells_of_choice(one: RuleChoice, yours: RuleChoice, *, known: bool) -> dict[str, str]:
    """Return the cells of a choice's row in the table of rules, by heading.

    ``yours`` is the brokers' own choice, and ``known`` whether the brokers' own rule is known.
    """
    others = ", ".join(run for run in one.runs if run not in one.yours)
    alike = f"; {others} alike" if others else ""
    note = " (a reference: no broker can know this much)" if one.reference else ""
    if one.relinquishes:
        note += f" (leadership given up {times_in_words(one.relinquishes)})"
    whose = "your brokers' own" if known else "replayed, as your brokers' own is not known"
    noticed = "none detected" if one.detection_ms is None else f"{three_digits(one.detection_ms / 1000)} s"
    if one.detection_ms is not None and yours.detection_ms is not None:
        noticed = ", ".join(filter(None, [noticed, later_or_sooner(one.detection_ms, yours.detection_ms)]))
    return {
        "rule": f"{whose}: {', '.join(one.yours)}{alike}" if one.yours else f"{others}{note}",
        "lag time": f"{one.lag_time_ms / 1000:g} s",
        "healthy followers dropped": f"{one.spurious:,}",
        "failures missed": f"{one.misses:,}",
        "failures detected within": noticed,
        "under min ISR": _span_on_first_screen(one.under_min_isr_s),
        "offline if leaders died": _span_on_first_screen(one.offline_s),
        "acknowledged records lost then": lost_records_at_most(one.lost_records),
        "high watermark stalled": _span_on_first_screen(one.stalled_s),
    }


def _without_zeros(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Remove from a table the columns in which all values are zero or "none"."""
    kept = [name for name in (rows[0] if rows else ()) if {row[name] for row in rows} - {"0", "0 s", "none"}]
    return [{name: row[name] for name in kept} for row in rows]


def _span_on_first_screen(least_and_most: Span | None) -> str:
    """Format a range of seconds, such as "1 to 5 s"; "not known" for None."""
    if least_and_most is None:
        return "not known"
    least, most = map(three_digits, least_and_most)
    return f"{least} s" if least == most else f"{least} to {most} s"

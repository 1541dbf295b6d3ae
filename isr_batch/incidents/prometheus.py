"""Export the brokers' drops and the scores of rules as Prometheus metrics, in its text format.

The format is described in https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from isr_batch.incidents.incident_card import incident_title
from isr_batch.incidents.own_shrinks import VERDICTS, OwnShrinks, Row
from isr_batch.incidents.sentences import incidents_worst_first
from isr_batch.printable import printable


class PrometheusMetric(NamedTuple):
    """A gauge with a name (without the prefix), a description, and a list of (labels, value)."""

    name: str
    help: str
    values: list[tuple[dict[str, object], float]]


PREFIX: Final = "isr_batch_"
INCIDENTS: Final = 100
"""Maximum number of incidents per cluster that are exported, the worst first. Each incident is a time series."""


def prometheus_exposition(own: OwnShrinks, scores: Iterable[Row]) -> str:
    """Return all metrics of a lake in Prometheus' text format.

    Metrics with value 0 are included, so that alerts see an increase.

    Parameters
    ----------
    own : OwnShrinks
    scores : iterable of dict
        Result of `isr_batch.incidents.rule_choices.read_scores_for_choices`.

    Returns
    -------
    str
        Lines of text; the last one ends with a newline.
    """
    return "".join(
        _prometheus_text(metric)
        for metric in (*_prometheus_metrics_of_brokers(own), *_prometheus_metrics_of_rules([*scores]))
        if metric.values
    )


def _prometheus_metrics_of_brokers(own: OwnShrinks) -> Iterator[PrometheusMetric]:
    """Yield the metrics that count what the brokers did: drops, incidents, and agreement with the replay."""
    dropped: list[tuple[dict[str, object], float]] = []
    for cluster in own.clusters:
        of = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
        for verdict in VERDICTS:
            number = sum(one[verdict] for one in of)
            dropped.append(({"cluster": cluster["cluster_id"], "verdict": verdict}, number))
    yield PrometheusMetric(
        "dropped_followers", "Followers that left an ISR, as the brokers logged it, by verdict.", dropped
    )
    pairs = [
        (
            {
                "cluster": row["cluster_id"], "leader": row["leader_id"], "follower": row["replica_id"],
                "verdict": row["verdict"],
            },
            row["drops"],
        )
        for row in own.pairs
    ]  # fmt: skip
    yield PrometheusMetric(
        "dropped_followers_by_pair", "Followers that leaders dropped, by leader and follower.", pairs
    )
    for column, name, said in (
        ("changes", "checked_changes", "ISR changes of brokers and replay that were compared."),
        ("matched", "matched_changes", "ISR changes that brokers and replay agree on."),
    ):
        yield PrometheusMetric(name, said, [({"cluster": one["cluster_id"]}, one[column]) for one in own.clusters])
    ends: list[tuple[dict[str, object], float]] = [
        ({"cluster": one["cluster_id"]}, one["last_us"] / 1e6) for one in own.clusters
    ]
    yield PrometheusMetric("log_end_timestamp_seconds", "Until when the logs reach.", ends)
    begun: list[tuple[dict[str, object], float]] = [
        (
            {
                "cluster": one["cluster_id"], "broker": "none" if one["fault_id"] is None else str(one["fault_id"]),
                "incident": one["number"],
                "verdict": next(verdict for verdict in VERDICTS if one[verdict]), "title": incident_title(one),
            },
            one["since_us"] / 1e6,
        )
        for cluster in own.clusters
        for one in incidents_worst_first(
            one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]
        )[:INCIDENTS]
    ]  # fmt: skip
    yield PrometheusMetric("incident_timestamp_seconds", "When an incident began.", begun)


def _prometheus_metrics_of_rules(scores: list[Row]) -> Iterator[PrometheusMetric]:
    """Yield the metrics that show the scores of each rule run."""

    def labels(row: Row) -> dict[str, object]:
        return {"cluster": row["cluster_id"], "rule": row["rule"], **json.loads(row["params_json"])}

    shrinks = [(labels(row) | {"verdict": verdict}, row[verdict]) for row in scores for verdict in VERDICTS]
    yield PrometheusMetric("rule_shrinks", "Shrinks that a rule makes, by verdict.", shrinks)
    yield PrometheusMetric(
        "rule_misses", "Failures that a rule misses.", [(labels(row), row["misses"]) for row in scores]
    )
    noticed = [
        (labels(row), row["detection_ms_p99"] / 1000) for row in scores if row["detection_ms_p99"] is not None
    ]  # fmt: skip
    yield PrometheusMetric("rule_detection_seconds_p99", "Time within which 99 % of failures are detected.", noticed)


def _prometheus_text(metric: PrometheusMetric) -> str:
    """Format a metric: a HELP line, a TYPE line, and one line per value."""
    name = PREFIX + metric.name
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_prometheus_labels(labels)} {value!r}" for labels, value in metric.values]
    return "\n".join(lines) + "\n"


def _prometheus_labels(labels: Mapping[str, object]) -> str:
    written = (f'{name}="{_prometheus_escaped(str(value))}"' for name, value in labels.items())
    return "{" + ",".join(written) + "}"


def _prometheus_escaped(value: str) -> str:
    return printable(value).replace("\\", r"\\").replace('"', r"\"")

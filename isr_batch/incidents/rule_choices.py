"""Choose the few rule runs to show: the brokers' own, and those that no other rule run beats."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.incidents.own_shrinks import OwnShrinks, Row
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from udfs.rules import REGISTRY

MOST: Final = 5
"""Maximum number of choices that are shown, including the brokers' own rule."""
REFERENCE: Final = "reference"
"""Value of ``in_force`` of the rule true-lag, which knows more than any leader can, so that no broker can run it."""
LAG_TIME: Final = "replica_lag_time_max_ms"
MIN_ISR: Final = "min_insync_replicas"
DECISIONS: Final = (
    "shrinks", "spurious", "genuine", "excluded", "unknown", "misses", "detection_ms_p99", "relinquishes",
)  # fmt: skip
COSTS: Final = ("under_min_isr_seconds", "offline_if_leader_dies_seconds", "high_watermark_stalled_seconds")
SCORES: Final = (
    "cluster_id", "rule", "params_json", "event_date", "topic", *DECISIONS, "mistake_duration_ms_p50",
    "query_accuracy", "query_accuracy_by_blame", "early", *COSTS, "acks_all_waits_1s_seconds", "loss_records_max",
    "lost_if_leader_dies_records_max",
)  # fmt: skip
"""Columns of table rule_scores that are read."""


Span = tuple[float, float]


class RuleChoice(NamedTuple):
    """Rule runs (rules with their parameters) that make the same decisions on a log, with their scores.

    Attributes
    ----------
    runs : list of str
        Names of the rules, ordered by release. If a rule was replayed with several sets of parameters and the same lag
        time, its name is followed by the parameters.
    yours : list of str
        Those of ``runs`` with the rule and the lag time that the brokers had.
    reference : bool
        Whether all of the rules are references, which no broker can run.
    lag_time_ms : int
    spurious, genuine, unknown : int
        Number of shrinks with this verdict.
    misses : int
        Number of failures that were not detected.
    detection_ms : float or None
        Time within which 99 % of the failures were detected; None if there were none.
    relinquishes : int
        Number of times that leaders gave up leadership.
    lost_records : int or None
        Largest number of acknowledged records that the death of a leader would have lost; None if unknown.
    under_min_isr_s, offline_s, stalled_s : (float, float) or None
        Seconds under min ISR, seconds without an heir if the leader had died (None if unknown), and seconds with a
        stalled high watermark. Each is the smallest and the largest value of the runs.
    """

    runs: list[str]
    yours: list[str]
    reference: bool
    lag_time_ms: int
    spurious: int
    genuine: int
    unknown: int
    misses: int
    detection_ms: float | None
    relinquishes: int
    lost_records: int | None
    under_min_isr_s: Span
    offline_s: Span | None
    stalled_s: Span


def read_scores_for_choices(lake: Lake) -> list[Row]:
    """Read each rule's scores in each cluster, over all days and topics, sorted as in `order_scores_for_choices`."""
    rows = read_columns(lake, "rule_scores", SCORES)
    whole = rows.filter(pc.and_(pc.is_null(rows["event_date"]), pc.is_null(rows["topic"])))
    return order_scores_for_choices(whole)


def order_scores_for_choices(rows: pa.Table) -> list[Row]:
    """Convert rows of rule_scores to dicts, sorted by cluster, release and lag time.

    The dicts have two more keys: ``T``, the lag time in ms, and ``lost_records``, see `RuleChoice`.
    """
    known = {rule: position for position, rule in enumerate(REGISTRY)}
    found: list[Row] = rows.to_pylist()
    for row in found:
        row["T"] = json.loads(row["params_json"])[LAG_TIME]
        row["lost_records"] = _lost_records_of_choice(row)
    return sorted(
        found,
        key=lambda row: (
            row["cluster_id"],
            known.get(row["rule"], len(known)),
            row["rule"],
            row["T"],
            row["params_json"],
        ),
    )


def _lost_records_of_choice(row: Row) -> int | None:
    """Return the largest number of acknowledged records that the death of a leader would have lost.

    None if it is unknown, because the log of the heir is unknown in some of the time under min ISR.
    """
    lost, offline_s = row["lost_if_leader_dies_records_max"], row["offline_if_leader_dies_seconds"]
    if lost is None and (row["under_min_isr_seconds"] or 0) > (offline_s or 0):
        return None
    return max(row["loss_records_max"] or 0, lost or 0)


def alike_choices(rows: Iterable[Row]) -> list[list[Row]]:
    """Group rows of scores (one per rule run) that have the same lag time, decisions and costs, keeping the order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        price = (
            _price_in_tenths(row["under_min_isr_seconds"]),
            _price_in_tenths(row["offline_if_leader_dies_seconds"]),
        )
        key = (row["T"], *(row[name] for name in DECISIONS), *price, row["lost_records"])
        groups.setdefault(key, []).append(row)
    return [*groups.values()]


def _price_in_tenths(seconds: float | None) -> float:
    """Round seconds to tenths, so that tiny differences do not matter. For an unknown cost (None), return infinity."""
    return float("inf") if seconds is None else round(seconds, 1)


def rule_choices(own: OwnShrinks, scores: Iterable[Row], cluster_id: str) -> list[RuleChoice]:
    """Choose at most `MOST` groups of rule runs to show for a cluster: the brokers' own, then the best of the others.

    Rule runs are in one group if they have the same lag time, and make the same decisions at the same costs. A group
    beats another if none of its scores is worse and at least one is better. The scores are: healthy followers dropped,
    failures missed, detection time, time under min ISR, time offline if leaders had died, acknowledged records lost
    then, and how often leadership was given up.

    The best groups are those that no group beats. A group that neither drops fewer healthy followers than the brokers'
    own group nor beats it is left out.

    Parameters
    ----------
    own : OwnShrinks
    scores : iterable of dict
        Result of `read_scores_for_choices`.
    cluster_id : str
    """
    rows = _over_topics([row for row in scores if row["cluster_id"] == cluster_id])
    ran = _rules_of_brokers(own, cluster_id)
    choices = [_rule_choice(group, rows, ran) for group in alike_choices(rows)]
    yours = [one for one in choices if one.yours]
    best = [
        one for one in choices
        if not one.yours and not any(_choice_beats(other, one) for other in choices)
        and all(one.spurious < mine.spurious or _choice_beats(one, mine) for mine in yours)
    ]  # fmt: skip
    best.sort(key=lambda one: (one.reference, *_figures_of_choice(one), one.lag_time_ms))
    return [*yours, *best][:MOST]


def _over_topics(rows: Iterable[Row]) -> list[Row]:
    """Merge rows of rule runs that differ only in min.insync.replicas: each run covers the topics with its value."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        params = {name: value for name, value in json.loads(row["params_json"]).items() if name != MIN_ISR}
        groups.setdefault((row["rule"], json.dumps(params)), []).append(row)
    return [_scores_together(group) | {"params_json": params} for (_, params), group in groups.items()]


def _scores_together(group: Sequence[Row]) -> Row:
    """Merge rows of scores: add the numbers and the costs, and keep the largest detection time and ``lost_records``."""
    sums = ("shrinks", "spurious", "genuine", "excluded", "unknown", "misses", "relinquishes", *COSTS)
    largest = max((row["detection_ms_p99"] for row in group if row["detection_ms_p99"] is not None), default=None)
    lost = [row["lost_records"] for row in group]
    return group[0] | {
        **{name: None if any(row[name] is None for row in group) else sum(row[name] for row in group) for name in sums},
        "detection_ms_p99": largest, "lost_records": None if None in lost else max(lost),
    }  # fmt: skip


def _rules_of_brokers(own: OwnShrinks, cluster_id: str) -> set[tuple[str, int]]:
    """Return the pairs (rule, lag time) that the cluster's brokers ran, according to table replay_check.

    If the table has no row of this cluster, the cluster's lag time is paired with ``own.rule``.
    """
    checks = own.tables["replay_check"].select(["cluster_id", "rule", "params_json"])
    pairs = checks.filter(pc.equal(checks["cluster_id"], cluster_id)).group_by(["rule", "params_json"]).aggregate([])
    params = [(row["rule"], json.loads(row["params_json"])) for row in pairs.to_pylist()]
    ran = {(rule, values[LAG_TIME]) for rule, values in params if LAG_TIME in values}
    return ran or {(own.rule, one["lag_time_ms"]) for one in own.clusters if one["cluster_id"] == cluster_id}


def _rule_choice(group: Sequence[Row], rows: Sequence[Row], ran: set[tuple[str, int]]) -> RuleChoice:
    """Convert a group of rule runs that decide alike. ``ran`` holds the brokers' own pairs (rule, lag time)."""
    first = group[0]
    rules = [REGISTRY[row["rule"]] for row in group if row["rule"] in REGISTRY]
    under_min_isr_s, offline_s, stalled_s = (_cost_of_choices([row[cost] for row in group]) for cost in COSTS)
    return RuleChoice(
        [name_of_choice(row, rows) for row in group],
        [name_of_choice(row, rows) for row in group if (row["rule"], row["T"]) in ran],
        bool(rules) and all(rule.in_force == REFERENCE for rule in rules),
        first["T"], first["spurious"], first["genuine"], first["unknown"], first["misses"], first["detection_ms_p99"],
        first["relinquishes"], first["lost_records"], under_min_isr_s or (0, 0), offline_s, stalled_s or (0, 0),
    )  # fmt: skip


def _cost_of_choices(values: Sequence[float | None]) -> Span | None:
    """Return the smallest and the largest known cost; None if no cost is known."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def name_of_choice(row: Row, rows: Sequence[Row]) -> str:
    """Return the name of the rule in ``row``, with its parameters if several ``rows`` have this rule and lag time."""
    if sum((other["rule"], other["T"]) == (row["rule"], row["T"]) for other in rows) == 1:
        return str(row["rule"])
    others = [
        f"{name}={value}" for name, value in json.loads(row["params_json"]).items()
        if name != LAG_TIME
    ]  # fmt: skip
    return " ".join([row["rule"], *others])


def _figures_of_choice(one: RuleChoice) -> tuple[float, ...]:
    """Return the scores by which choices are compared. Lower values are better."""
    never = float("inf")
    return (
        one.spurious, one.misses, never if one.detection_ms is None else one.detection_ms,
        _price_in_tenths(one.under_min_isr_s[0]), _price_in_tenths(one.offline_s and one.offline_s[0]),
        never if one.lost_records is None else one.lost_records, one.relinquishes,
    )  # fmt: skip


def _choice_beats(one: RuleChoice, other: RuleChoice) -> bool:
    """Whether a choice is at least as good as another in every score, and better in at least one."""
    figures = [_figures_of_choice(each) for each in (one, other)]
    # A reference rule, which no broker can run, must not beat a rule that brokers can run.
    return (
        one.reference <= other.reference
        and figures[0] != figures[1]
        and all(a <= b for a, b in zip(*figures, strict=True))
    )

"""What a person wants to see first: the rules side by side; and whether to rely on it."""

import json
from typing import Any

from isr_batch.errors import QualityGateError
from isr_batch.scores import facts, results_of, scores
from isr_batch.store import Lake
from isr_batch.validate import ValidationSummary
from udfs.rules import REGISTRY

Rows = list[dict[str, Any]]


def rules_side_by_side(lake: Lake) -> Rows:
    """Score each rule with its parameters over the whole lake; ``T`` is its lag time in ms.

    Rules are in the order of their releases; a rule that never shrinks has a row as well.
    """
    rows = [row.asDict() for row in scores(facts(results_of(lake)), [()]).collect()]
    for row in rows:
        row["T"] = json.loads(row["params_json"])["replica_lag_time_max_ms"]
    order = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(rows, key=lambda row: (order.get(row["rule"], len(order)), row["rule"], row["T"], row["params_json"]))


def require_match(summary: ValidationSummary, min_matched_ratio: float) -> None:
    """Fail when too few ISR changes of brokers and replay are the same.

    Raises
    ------
    QualityGateError
        When the share of matches among all changes is below the limit.
    """
    if summary.matched_ratio < min_matched_ratio:
        raise QualityGateError(
            f"{summary.matched_ratio:.2%} of the ISR changes are the same in replay and brokers "
            f"({summary.matched} of them; the limit is {min_matched_ratio:.2%})",
            "table replay_check has each change; validation.min_matched_ratio is the limit",
        )

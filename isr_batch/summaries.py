"""What a person wants to see first: shrinks by rule; and whether to rely on it."""

from typing import Any, Final

from pyspark.sql import functions as F

from isr_batch.errors import QualityGateError
from isr_batch.store import Lake
from isr_batch.validate import ValidationSummary
from udfs.rules import REGISTRY

Rows = list[dict[str, Any]]

SPURIOUS_CAUSES: Final = ("caught_up", "keeping_pace", "slow_leader", "unacked_only")
VERDICTS: Final = ("spurious", "genuine", "excluded", "unknown")


def shrinks_by_rule(lake: Lake) -> Rows:
    """Count the shrinks of each rule with its parameters, by verdict and by cause of the spurious ones.

    Rules are in the order of their releases; a rule that never shrinks has a row as well.
    """
    verdicts = lake.read("shrink_verdicts")
    counts = (
        verdicts.groupBy("rule", "params_json")
        .agg(
            F.count("*").alias("shrinks"),
            *(F.count_if(F.col("verdict") == verdict).alias(verdict) for verdict in VERDICTS),
            *(
                F.count_if((F.col("verdict") == "spurious") & (F.col("primary_cause") == cause)).alias(cause)
                for cause in SPURIOUS_CAUSES
            ),
        )
        .collect()
    )
    # Every replayed rule has a state at the start of every term, whether it shrinks or not.
    replayed = lake.read("partition_timeline").select("rule", "params_json").distinct().collect()
    none = dict.fromkeys(("shrinks", *VERDICTS, *SPURIOUS_CAUSES), 0)
    rows = {(row["rule"], row["params_json"]): row.asDict() for row in replayed}
    rows = {key: row | none for key, row in rows.items()} | {
        (row["rule"], row["params_json"]): row.asDict() for row in counts
    }
    order = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(rows.values(), key=lambda row: (order.get(row["rule"], len(order)), row["rule"], row["params_json"]))


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

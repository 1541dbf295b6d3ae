"""Shell completions for rules, and for topics and brokers of the lake named on the command line."""

from typing import NoReturn

import typer


def complete_rule(incomplete: str) -> list[str]:
    """Complete the id of a rule."""
    from udfs.rules import REGISTRY

    return [rule for rule in REGISTRY if rule.startswith(incomplete)]


def complete_rules(incomplete: str) -> list[str]:
    """Complete the last of several rules, which are separated by commas, or ``all``."""
    before, comma, last = incomplete.rpartition(",")
    more = [] if comma else [name for name in ("all",) if name.startswith(last)]
    return [f"{before}{comma}{rule}" for rule in [*complete_rule(last), *more] if rule not in before.split(",")]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a topic in the lake."""
    return _completions_of_terms(context, "topic", incomplete)


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a broker that leads a partition in the lake."""
    return _completions_of_terms(context, "leader_id", incomplete)


def _completions_of_terms(context: typer.Context, column: str, incomplete: str) -> list[str]:
    """Complete a value of a column of leaders' terms, in the lake named on the command line."""
    folder = context.params.get("lake")
    if not folder:
        return []
    from isr_batch.lake.arrow_read import read_columns
    from isr_batch.lake.lake import Lake

    def no_spark() -> NoReturn:
        raise OSError("Spark is not started for a completion")

    try:
        found = read_columns(Lake(no_spark, folder, "completion"), "leader_epochs", [column])[column].to_pylist()
    except Exception:  # noqa: BLE001 (a shell that waits for a completion must not get a traceback)
        return []
    return [name for name in map(str, sorted(set(found))) if name.startswith(incomplete)]

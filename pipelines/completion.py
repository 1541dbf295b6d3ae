"""Shell completions for names of rules, and for the topics and brokers of the lake that the command line names."""

from typing import NoReturn

import typer


def complete_rule(incomplete: str) -> list[str]:
    """Return the names of the rules that begin with ``incomplete``."""
    from udfs.rules import REGISTRY

    return [rule for rule in REGISTRY if rule.startswith(incomplete)]


def complete_rules(incomplete: str) -> list[str]:
    """Return completions of the last name in a comma-separated list of rules, without rules that are in the list.

    ``all`` is only returned if it is the only item.
    """
    before, comma, last = incomplete.rpartition(",")
    more = [] if comma else [name for name in ("all",) if name.startswith(last)]
    return [f"{before}{comma}{rule}" for rule in [*complete_rule(last), *more] if rule not in before.split(",")]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics in the lake that begin with ``incomplete``."""
    return _completions_of_terms(context, "topic", incomplete)


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """Return each id that begins with ``incomplete``, of the brokers that lead a partition in the lake."""
    return _completions_of_terms(context, "leader_id", incomplete)


def _completions_of_terms(context: typer.Context, column: str, incomplete: str) -> list[str]:
    """Return those values of a column of table leader_epochs that begin with ``incomplete``.

    The list is empty if the command line names no lake (``--lake``), or if the lake cannot be read without Spark.
    """
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

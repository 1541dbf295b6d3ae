"""The order of rules and rule runs wherever they are listed: by release."""

from collections.abc import Iterable

from udfs.rules import REGISTRY


def release_sort_key(run: str) -> tuple[int, str]:
    """Sort key for names of rule runs: by release, then rules that only other versions of this program have."""
    rule = run.partition(" ")[0]
    return list(REGISTRY).index(rule) if rule in REGISTRY else len(REGISTRY), run


def rules_by_release(rules: Iterable[str]) -> list[str]:
    """Sort rules by release, several by the first; those of other versions of this program and the brokers are last."""
    known = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(set(rules), key=lambda rule: (known.get(rule.partition(", ")[0], len(known)), rule))

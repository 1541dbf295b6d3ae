"""Parse command-line options about rules, refuse unknown rules, and sort rule names by release."""

import os
from collections.abc import Iterable
from pathlib import Path

from isr_batch.errors import RULE_FILE, UsageError
from isr_batch.phrases import did_you_mean


def take_in_rule_file(file: Path | None) -> None:
    """Register the rule in a user's file (``--rule-file``) in this process and all processes that it starts.

    Parameters
    ----------
    file : Path or None
        A file with a ``RULE``, like those in ``udfs/rules``; None changes nothing.

    Raises
    ------
    UsageError
        If the file cannot be imported or does not define a rule, or if the rule's name is taken or differs from the
        file's name.
    """
    if file is None:
        return
    if not file.is_file():
        raise UsageError(f"--rule-file {file}: there is no such file")
    os.environ[RULE_FILE] = str(file.resolve())
    try:
        import udfs.rules  # noqa: F401
    except ValueError as error:
        raise UsageError(f"--rule-file {file}: {error}", "docs/add-a-rule.md has an example to start from") from error
    except Exception as error:  # the file may raise any error
        raise UsageError(
            f"--rule-file {file}: {type(error).__name__}: {error}", "Python could not import it"
        ) from error


def rule_names_sort_key(run: str) -> tuple[int, str]:
    """Return a key that sorts texts that begin with a rule's name: by the rule's release, unknown rules last."""
    from udfs.rules import REGISTRY

    rule = run.partition(" ")[0]
    return list(REGISTRY).index(rule) if rule in REGISTRY else len(REGISTRY), run


def rule_names_by_release(rules: Iterable[str]) -> list[str]:
    """Return the distinct names of rules, sorted by release, unknown ones last.

    A text with several names, such as "a, b", is sorted by the first of them.
    """
    from udfs.rules import REGISTRY

    known = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(set(rules), key=lambda rule: (known.get(rule.partition(", ")[0], len(known)), rule))


def rule_names_between_commas(value: object) -> object:
    """Split the text of ``--rules`` at commas into a list of names. A value that is not text is returned unchanged."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def parse_rule_params(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """Parse options ``RULE.PARAM=VALUE`` into {rule: {parameter: value}}. Rules and parameters may contain dots.

    Raises
    ------
    UsageError
        If an option does not have this form.
    """
    from udfs.rules import REGISTRY

    params: dict[str, dict[str, str]] = {}
    wrong = []
    for assignment in assignments:
        left, _, value = assignment.partition("=")
        known = max((rule for rule in REGISTRY if left.startswith(f"{rule}.")), key=len, default="")
        rule, _, name = (known, ".", left[len(known) + 1 :]) if known else left.rpartition(".")
        if not rule or not name or not value.strip():
            wrong.append(repr(assignment))
        else:
            params.setdefault(rule, {})[name] = value.strip()
    if wrong:
        raise UsageError(
            f"--set takes RULE.PARAM=VALUE, not {', '.join(wrong)}",
            "as in --set kafka-3.7.replica.lag.time.max.ms=10000; `isr-batch rules show RULE` lists the parameters",
        )
    return params


def require_rule_names(*rules: str) -> None:
    """Raise if a name is not the name of a rule.

    Raises
    ------
    UsageError
        If a rule is unknown. The message suggests a similar name.
    """
    from udfs.rules import REGISTRY

    for rule in rules:
        if rule not in REGISTRY:
            raise UsageError(f"no rule {rule}", did_you_mean(rule, REGISTRY))

"""Write a sentence that names a rule that drops fewer healthy followers than the brokers' own, and its cost."""

from collections.abc import Iterable
from typing import Final

from isr_batch.incidents.own_shrinks import OwnShrinks, Row
from isr_batch.incidents.rule_choices import RuleChoice, Span, rule_choices
from isr_batch.phrases import later_or_sooner, listed, lost_records_at_most, three_digits, times_in_words
from udfs.rules import REGISTRY

NAMED: Final = 3


def better_rule(own: OwnShrinks, scores: Iterable[Row], cluster_id: str) -> list[str]:
    """Return a list with a sentence that recommends a rule for a cluster, and compares its costs with the brokers' own.

    The rule must drop fewer healthy followers than the brokers' own rule. Leaders may give up leadership under it at
    most as many times as this difference. It must not have more drops that cannot be judged. Rules that miss no more
    failures than the brokers' own rule are preferred.

    If no rule meets these conditions, the sentence says so. The list is empty if the brokers dropped no healthy
    follower, or if only one rule was replayed.

    Parameters
    ----------
    own : OwnShrinks
    scores : iterable of dict
        Result of `isr_batch.incidents.rule_choices.read_scores_for_choices`.
    cluster_id : str
    """
    scores = [row for row in scores if row["cluster_id"] == cluster_id]
    choices = rule_choices(own, scores, cluster_id)
    yours = next((one for one in choices if one.yours), None)
    if not yours or not yours.spurious:
        return []
    # Every drop with an unknown verdict may be spurious, so a better rule must not have more of them.
    better = [
        one for one in choices
        if not one.reference and one.spurious < yours.spurious and one.unknown <= yours.unknown
    ]  # fmt: skip
    if len({(row["rule"], row["T"]) for row in scores}) == 1:
        return []
    if not better:
        return ["No rule that a broker could run would have kept more of them."]
    fair = [one for one in better if one.relinquishes <= yours.spurious - one.spurious]
    if not fair:
        return ["Rules that would have kept more of them give up leadership more often than that."]
    best = next((one for one in fair if one.misses <= yours.misses), fair[0])
    names, kept = _names_of_better_rules(best, yours), _followers_kept(own, best, yours, cluster_id)
    return [f"{names} {kept}: {'; '.join(_price(best, yours))}."]


def _names_of_better_rules(best: RuleChoice, yours: RuleChoice) -> str:
    """Return the names of the rules, with their lag time if it differs from the brokers' own."""
    runs = best.runs if len(best.runs) <= NAMED else [*best.runs[: NAMED - 1], f"{len(best.runs) - NAMED + 1} others"]
    names = listed(runs, "or")
    if best.lag_time_ms != yours.lag_time_ms:
        names += f" with replica.lag.time.max.ms {best.lag_time_ms}"
    rules = [REGISTRY[run.split()[0]] for run in best.runs if run.split()[0] in REGISTRY]
    return names if any(rule.in_force[:1].isdigit() for rule in rules) else f"{names} (in no release of Kafka)"


def _followers_kept(own: OwnShrinks, best: RuleChoice, yours: RuleChoice, cluster_id: str) -> str:
    """Say how many of the healthy followers the rule would have kept.

    If the replay of the brokers' own rule does not drop as many as the brokers did, the two replays are compared.
    """
    dropped = sum(one["spurious"] for one in own.incidents if one["cluster_id"] == cluster_id)
    if dropped != yours.spurious:
        number = f"{best.spurious or 'no'} healthy follower{'' if best.spurious == 1 else 's'}"
        return f"drops {number} in the replay, in which your rule, {yours.yours[0]}, drops {yours.spurious:,}"
    if yours.spurious == 1:
        return "would have kept the healthy follower"
    kept = f"{yours.spurious - best.spurious:,} of" if best.spurious else "all"
    return f"would have kept {kept} {yours.spurious:,} healthy followers"


def _price(best: RuleChoice, yours: RuleChoice) -> list[str]:
    """List the costs of a rule next to those of the brokers' own: detection time, availability, lost records."""
    said = [_detection_of_better_rule(best.detection_ms, yours.detection_ms)]
    if best.misses != yours.misses:
        said.append(f"failures missed: {best.misses:,} instead of {yours.misses:,}")
    said += [
        _price_of_better_rule(
            "under min ISR", _price_in_seconds(best.under_min_isr_s), _price_in_seconds(yours.under_min_isr_s)
        ),
        _price_of_better_rule(
            "offline if leaders had died", _price_in_seconds(best.offline_s), _price_in_seconds(yours.offline_s)
        ),
        _price_of_better_rule(
            "acknowledged records lost then",
            lost_records_at_most(best.lost_records),
            lost_records_at_most(yours.lost_records),
        ),
    ]
    said = [price for price in said if not price.endswith((": 0 s", ": none"))]
    if best.relinquishes:
        said.append(f"leadership given up {times_in_words(best.relinquishes)}")
    return said


def _detection_of_better_rule(best_ms: float | None, yours_ms: float | None) -> str:
    if best_ms is None or yours_ms is None:
        return "no failure detected" if best_ms is None and yours_ms is not None else "no failure to compare"
    later = later_or_sooner(best_ms, yours_ms)
    return f"failures detected {later}" if later else "same detection time"


def _price_of_better_rule(what: str, best: str, yours: str) -> str:
    """Return "what: best", followed by " instead of yours" if the two differ."""
    return f"{what}: {best}" if best == yours else f"{what}: {best} instead of {yours}"


def _price_in_seconds(span: Span | None) -> str:
    """Format the lower end of a range of seconds; "not known" for None."""
    return "not known" if span is None else f"{three_digits(span[0])} s"

"""Say in a sentence which rule would have kept the healthy followers that the brokers dropped, and at what price."""

from collections.abc import Iterable
from typing import Final

from isr_batch.incidents.avoided import Choice, Span, avoided
from isr_batch.incidents.own_shrinks import OwnShrinks, Row
from isr_batch.incidents.words import count_of, often

NAMED: Final = 3


def offered(own: OwnShrinks, scores: Iterable[Row], cluster_id: str) -> list[str]:
    """Tell of the rule that drops the fewest healthy followers and costs least; nothing where the brokers dropped none.

    If one can, it misses no more failures than the brokers' own.

    Parameters
    ----------
    own : OwnShrinks
    scores : iterable of dict
        Of `isr_batch.incidents.avoided.read_scores`.
    cluster_id : str
    """
    choices = avoided(own, scores, cluster_id)
    yours = next((one for one in choices if one.yours), None)
    if not yours or not yours.spurious:
        return []
    better = [one for one in choices if not one.reference and one.spurious < yours.spurious]
    if not better:
        return ["No rule that a broker could run would have kept more of them."]
    best = next((one for one in better if one.misses <= yours.misses), better[0])
    kept = count_of(yours.spurious, "healthy follower")
    of = f"the {kept}" if yours.spurious == 1 else f"all {kept}"
    if best.spurious:
        of = f"{yours.spurious - best.spurious:,} of {kept}"
    runs = best.runs if len(best.runs) <= NAMED else [*best.runs[: NAMED - 1], f"{len(best.runs) - NAMED + 1} others"]
    names = " or ".join(filter(None, [", ".join(runs[:-1]), runs[-1]]))
    return [f"{names} would have kept {of}: {'; '.join(_price(best, yours))}."]


def _price(best: Choice, yours: Choice) -> list[str]:
    """The price of a rule in detection time, availability and acknowledged records, beside that of the brokers' own."""
    said = [_noticed(best.detection_ms, yours.detection_ms)]
    if best.misses != yours.misses:
        said.append(f"failures missed: {best.misses:,} instead of {yours.misses:,}")
    said += [
        _instead("under min ISR", _seconds(best.under_min_isr_s), _seconds(yours.under_min_isr_s)),
        _instead("offline if leaders had died", _seconds(best.offline_s), _seconds(yours.offline_s)),
        _instead("acknowledged records lost then", lost_records(best.lost_records), lost_records(yours.lost_records)),
    ]
    if best.relinquishes:
        said.append(f"leadership given up {often(best.relinquishes)}")
    return said


def _noticed(best_ms: float | None, yours_ms: float | None) -> str:
    if best_ms is None or yours_ms is None:
        return "no failure noticed" if best_ms is None and yours_ms is not None else "no failure to compare"
    later = later_than(best_ms, yours_ms)
    return f"failures noticed {later}" if later else "failures noticed as soon"


def later_than(best_ms: float, yours_ms: float) -> str:
    """Write how much later, or sooner, failures are noticed; empty where it is less than a tenth of a second."""
    late_s = round((best_ms - yours_ms) / 1000, 1)
    return f"{abs(late_s):.3g} s {'later' if late_s > 0 else 'sooner'}" if late_s else ""


def _instead(what: str, best: str, yours: str) -> str:
    return f"{what}: {best}" if best == yours else f"{what}: {best} instead of {yours}"


def _seconds(span: Span | None) -> str:
    return "not known" if span is None else f"{span[0]:.3g} s"


def lost_records(number: int | None) -> str:
    """Write how many records are lost at most."""
    return "not known" if number is None else "none" if not number else f"up to {number:,}"

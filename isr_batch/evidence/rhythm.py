"""Find late isr-expiration checks: where one is late, its whole process was held up."""

from collections.abc import Sequence

from isr_batch.evidence.lines import LAG_TIME, FoundLines

SPREAD_MS = 100
"""A check may start some ms late without anything wrong."""
_MOST = 200
"""Checks that are compared with each other; the rhythm of a process shows in fewer."""


def late_checks_ms(checks: Sequence[int], leader_id: int, found: FoundLines) -> list[int | None]:
    """Compute how late each check came by the rhythm of the others of its process.

    isr-expiration runs with a fixed period from the start of the process: half a lag time since 0.10.2, a lag time
    before, of which half is a part. A check may be late, but never early, so the rhythm is that of the checks that most
    others follow by whole periods, and it must show in at least two.

    Parameters
    ----------
    checks : sequence of int
        Time of each, in epoch microseconds, in order.
    leader_id : int
    found : FoundLines
        The lag time that it printed gives the period, its process starts the processes.

    Returns
    -------
    list of int or None
        Milliseconds; None where the rhythm is not known.
    """
    lag_time = found.settings.get((leader_id, LAG_TIME))  # a default may be wrong
    late: list[int | None] = [None] * len(checks)
    if not lag_time or lag_time < 2 * SPREAD_MS:
        return late
    period = lag_time // 2
    starts = [at_us for at_us, _ in found.process_starts.get(leader_id, [])]
    processes: dict[int, list[int]] = {}
    for n, at_us in enumerate(checks):
        processes.setdefault(sum(start <= at_us for start in starts), []).append(n)
    for numbers in processes.values():
        at_ms = [checks[n] // 1000 for n in numbers]
        sample = at_ms[:_MOST]
        share = {ms: sum((other - ms) % period <= SPREAD_MS for other in sample) for ms in sample}
        best = max(share, key=lambda ms: (share[ms], -ms))
        if share[best] < 2 or 2 * share[best] < len(sample):  # noqa: PLR2004 (one check alone is no rhythm)
            continue
        for n, ms in zip(numbers, at_ms, strict=True):
            late[n] = (ms - best) % period if (ms - best) % period > SPREAD_MS else 0
    return late

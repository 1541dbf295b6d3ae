"""Judge, using server.log, whether the leader, the follower, or the link between the two caused a shrink.

This is evidence, not a verdict, because the follower's fetches are unknown. The judgement is based on three facts:
which replicas were dropped together, since when they lagged, and how soon they were back.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isr_batch.evidence.events_before import event_before
from isr_batch.evidence.expiration_checks import SAME_START_MS, CheckBurst, ExpirationCheck, expiration_checks
from isr_batch.evidence.lines import EvidencePosition, FoundLines, TroubleLine, printed_lag_time
from isr_batch.evidence.shrinks import AT_MOST, CONTROLLER, LEADER, UNKNOWN, Shrink
from isr_batch.evidence.trouble import DECIDES, KINDS, TroublesOfFollowers
from isr_batch.phrases import brokers_text, count_of, listed

FOLLOWER, EITHER = "follower", "link_or_follower"
NOT_KNOWN = "unknown"
"""The suspect of a shrink if only another broker's server.log, which is missing, would show who it is."""
STRONG, WEAK, NONE = "strong", "weak", "none"
_IN_WORDS = {STRONG: "strong evidence", WEAK: "weak evidence"}

ON_PURPOSE = (
    "It was removed on purpose (an observer, a patched release), or its two timestamps are from different clocks."
)

SOON_MS = 2_000
"""A dropped follower that never stopped fetching is back within this time, in ms. It needs one more fetch, and the
leader one ISR write."""
MOST_LINKS = 2
"""If a leader drops all its followers at about the same time, and they are at least this many, the leader is suspected
instead of the followers or the links to them."""
LATE_MS = 150
"""If a check ran at least this late, in ms, something held up the leader."""


@dataclass
class SuspectedShrink:
    """A shrink, and the suspect that probably caused it.

    Attributes
    ----------
    check : ExpirationCheck or None
        The check that made the shrink. None if the leader did not make it, if it is a retry, or if the follower did not
        lag.
    suspect : str or None
        leader, follower, link_or_follower, controller, or unknown (`NOT_KNOWN`).
    strength : str
        Strength of the evidence against the suspect: strong, weak or none.
    spurious : str
        Strength of the evidence that the follower should not have been dropped: strong, weak or none.
    reason, lines : str, list of EvidencePosition
        The reason in words, and the log lines that show it.
    trouble : TroubleLine or None
        What the follower itself reported in the minute before.
    after_event, after_ms : str, int, optional
        Event shortly before the shrink (topic_created, restart or election), and the time between the two.
    """

    shrink: Shrink
    check: ExpirationCheck | None = None
    suspect: str | None = None
    strength: str = NONE
    spurious: str = NONE
    reason: str = ""
    lines: list[EvidencePosition] = field(default_factory=list)
    trouble: TroubleLine | None = None
    after_event: str | None = None
    after_ms: int | None = None

    @property
    def suspect_broker(self) -> int | None:
        """The leader or the follower, whichever probably caused the shrink; None if neither is suspected.

        If the logs do not show whether it was the follower or the link to it, this is the follower.
        """
        if self.suspect == LEADER:
            return self.shrink.leader_id
        return self.shrink.replica_id if self.suspect in (FOLLOWER, EITHER) else None


class Suspicion(NamedTuple):
    """How strongly a broker is suspected (strong, weak or none), the reason in words, and the lines that show it.

    ``everyone`` is true if all brokers seem to have been silent: the broker dropped all its followers, and other
    brokers dropped these followers and the broker too.
    """

    strength: str
    reason: str = ""
    lines: tuple[EvidencePosition, ...] = ()
    everyone: bool = False


def suspicion_in_words(strength: str | None) -> str:
    """Return the strength of a suspicion in words: "strong evidence", "weak evidence", or "no evidence" for None."""
    return _IN_WORDS.get(strength or NONE, "no evidence")


def weigh_suspects(rows: Sequence[Shrink], found: FoundLines) -> list[SuspectedShrink]:
    """Find the suspect of each shrink of a cluster. Return the results in the order of ``rows``."""
    kept = {id(row) for row in rows if _dropped_within_lag_time(row, found)}
    by_leaders = (row for row in rows if row.made_by == LEADER and not row.retry and id(row) not in kept)
    checks = expiration_checks(by_leaders, found)
    troubles, scales = TroublesOfFollowers(found), _SuspectScales(checks, found)
    check_of = {id(row): check for check in checks for row in check.rows}
    weighed = []
    for row in rows:
        one = SuspectedShrink(row, check_of.get(id(row)), trouble=troubles.before(row), lines=list(row.lines))
        one.after_event, one.after_ms = event_before(row, found)
        if one.check:
            scales.weigh(one, one.check)
        elif row.made_by == CONTROLLER:
            one.suspect, one.strength = CONTROLLER, STRONG
            one.reason = (
                "The leader has no Shrinking line: the controller removed it (shutdown, fencing or reassignment)."
            )
        elif row.made_by == UNKNOWN:
            one.reason = (
                "There is no Shrinking line, but the leader's server.log does not cover the time, or has "
                "an unknown line about the ISR then: leader or controller."
            )
        elif row.retry:
            one.reason = "The leader repeats a shrink that it could not write before."
        else:
            one.reason = (
                f"It was last caught up {row.lag_ms} ms before, which is within replica.lag.time.max.ms "
                f"({printed_lag_time(found, row.leader_id)}): no lag rule explains it. {ON_PURPOSE}"
            )
            one.spurious = STRONG if row.records_behind == 0 else NONE
        weighed.append(one)
    return weighed


def _dropped_within_lag_time(row: Shrink, found: FoundLines) -> bool:
    """Whether a leader dropped a follower although the logged lag is below the logged lag time."""
    lag_time = printed_lag_time(found, row.leader_id)
    if row.made_by != LEADER or row.retry or lag_time is None or row.lag_ms is None:
        return False
    return row.lag_ms < lag_time


def _leaders_as_suspects(found: FoundLines) -> set[int]:
    return {attempt.leader_id for attempt in found.attempts} | {state.leader_id for state in found.states}


def _brokers_together(found: FoundLines) -> dict[int, set[int]]:
    """Return for each broker all brokers that were in an ISR together with it, including itself."""
    together: dict[int, set[int]] = defaultdict(set)
    lines = [attempt.isr_before for attempt in found.attempts] + [state.isr or () for state in found.states]
    for isr in {frozenset(each) for each in lines}:
        for broker in isr:
            together[broker] |= isr
    return together


class _SuspectScales:
    """Weighs the evidence that each check of a cluster provides, in comparison with all other checks."""

    def __init__(self, checks: Sequence[ExpirationCheck], found: FoundLines) -> None:
        self._leaders = _leaders_as_suspects(found)
        self._together = _brokers_together(found)
        self._server_us = found.server_us
        self._bursts: dict[int, list[CheckBurst]] = defaultdict(list)  # by dropped broker
        for check in checks:
            for burst in check.bursts.values():
                self._bursts[burst.replica_id].append(burst)
        self._followers: dict[int, set[int]] = defaultdict(set)  # by leader: followers that any of its checks dropped
        for check in checks:
            self._followers[check.leader_id] |= {
                broker for row in check.rows for broker in row.isr_before if broker != check.leader_id
            }
        self._of_leader = {check.number: self._leader(check) for check in checks}
        self._woke: dict[int, list[ExpirationCheck]] = defaultdict(list)  # checks after a silence, by leader
        for check in checks:
            if check.dropped_everybody or self._of_leader[check.number].strength == STRONG:
                self._woke[check.leader_id].append(check)
        self._of_follower = {
            (check.number, burst.replica_id): self._follower(burst)
            for check in checks
            for burst in check.bursts.values()
        }

    def weigh(self, one: SuspectedShrink, check: ExpirationCheck) -> None:
        """Set suspect, strength, spurious, reason and lines of a shrink that ``check`` made."""
        row = one.shrink
        leader, follower = self._of_leader[check.number], self._of_follower[check.number, row.replica_id]
        if row.failing_ms:
            why = f"Broker {row.leader_id} kept failing to write the ISR for {row.failing_ms} ms: it no longer led."
            self._suspect(one, LEADER, Suspicion(STRONG, why))
        elif leader.strength == STRONG:
            self._suspect(one, LEADER, leader)
        elif one.trouble and one.trouble.kind in DECIDES:
            why = f"The log of broker {row.replica_id} says that {KINDS[one.trouble.kind]}."
            self._suspect(one, FOLLOWER, Suspicion(STRONG, why, (one.trouble.place,)))
        elif leader.everyone:
            self._suspect(one, LEADER, leader)
        elif follower.strength == STRONG or (follower.strength == WEAK and leader.strength == NONE):
            self._suspect(one, FOLLOWER, follower)
        elif leader.strength == WEAK:
            self._suspect(one, LEADER, leader)
        elif (alone := self._weigh_all_followers_of_one_leader(check.bursts[row.replica_id])).strength != NONE:
            self._suspect(one, LEADER, alone)
        else:
            self._suspect(one, EITHER, self._pair(check, check.bursts[row.replica_id]))
        self._doubt(one, check)
        if row.records_behind == 0:
            one.spurious = STRONG
            one.reason += f" Broker {row.replica_id} was 0 records behind: spurious on its face."
        elif one.suspect == LEADER and (leader.strength != NONE or row.failing_ms):
            one.spurious = one.strength

    def _doubt(self, one: SuspectedShrink, check: ExpirationCheck) -> None:
        """Withdraw or weaken a suspicion that the missing server.log of another leader might refute.

        Strong evidence that only one leader dropped the follower becomes weak. Other suspicions are replaced by
        `NOT_KNOWN`, unless a sign shows that the leader was silent: its check was late, another leader dropped it at
        the same time, or the evidence is strong and a dropped follower was back at once.
        """
        if one.suspect == FOLLOWER or one.shrink.failing_ms:
            return
        burst = check.bursts[one.shrink.replica_id]
        bursts = [*check.bursts.values(), *self._near(burst)] if one.suspect == LEADER else [burst]
        unseen = sorted({broker for burst in bursts for broker in self._unseen(burst)})
        signs = self._signs(check)[0].keys()
        shown = signs & {"late", "itself"} or (one.strength == STRONG and "soon" in signs)
        if not unseen or (one.suspect == LEADER and shown):
            return
        missing = f"server.log of {brokers_text(unseen)} is missing for this time"
        if one.suspect == EITHER and one.strength == STRONG:
            one.strength, one.reason = WEAK, f"{one.reason} {missing}: others may have dropped it too."
            return
        followers = brokers_text(sorted({burst.replica_id for burst in bursts}))
        why = (
            f"Broker {check.leader_id} dropped {followers} at about this time. {missing}, so it is not known whether "
            "other leaders did too: the leader, the follower, or the network."
        )
        self._suspect(one, NOT_KNOWN, Suspicion(NONE, why))

    def _unseen(self, burst: CheckBurst) -> set[int]:
        """Return the brokers that may also have dropped the follower, but whose server.log does not cover the time."""
        if self._server_us is None:
            return set()
        others = self._together[burst.replica_id] - {burst.leader_id, burst.replica_id}
        return {
            broker for broker in others
            if broker not in self._server_us or self._server_us[broker][0] > burst.first_us
        }  # fmt: skip

    @staticmethod
    def _suspect(one: SuspectedShrink, suspect: str, finding: Suspicion) -> None:
        """Store the suspect and the finding in ``one``."""
        one.suspect, one.strength, one.reason = suspect, finding.strength, finding.reason
        one.lines += [place for place in finding.lines if place not in one.lines]

    def _by_others(self, replica_id: int, burst: CheckBurst) -> list[CheckBurst]:
        """Return the drops of the broker ``replica_id`` by other leaders at the same time as ``burst``."""
        return [
            other for other in self._bursts[replica_id] if other.leader_id != burst.leader_id and burst.same_time(other)
        ]

    def _leader(self, check: ExpirationCheck) -> Suspicion:
        """Judge how strongly a check suggests that its leader was silent.

        The fewer followers the check dropped, the more signs (see `_signs`) are needed.
        """
        signs, lines = self._signs(check)
        bursts = list(check.bursts.values())
        of = f"{count_of(len(bursts), 'follower')} of {count_of(len(check.partitions), 'partition')}"
        what = f"Broker {check.leader_id} dropped {of} at one check"
        if len(bursts) > 1 and all(self._by_others(burst.replica_id, burst) for burst in bursts):
            if not (check.dropped_everybody and "itself" in signs):
                return Suspicion(NONE)
            why = (
                f"{what}, but others dropped these and broker {check.leader_id} too: "
                "all were silent at once, or a clock was set."
            )
            return Suspicion(WEAK, why, lines, everyone=True)
        alone = [burst for burst in bursts if not self._by_others(burst.replica_id, burst)]
        if len(alone) == 1 < len(bursts) and not signs.keys() & {"itself", "late"}:
            return Suspicion(NONE)
        if check.dropped_everybody:
            strength = STRONG if len(signs) > 1 else WEAK
        elif len(bursts) > 1:
            strength = (NONE, NONE, WEAK, STRONG, STRONG)[len(signs)]
        elif "late" in signs and "itself" in signs:
            strength = STRONG if "soon" in signs else WEAK
        else:
            strength = WEAK if "late" in signs and len(check.alone) == len(check.partitions) else NONE
        apart = check.starts_apart_ms
        if strength == STRONG and apart is not None and apart > SAME_START_MS:
            strength = WEAK
        end = "the sign of a leader that was silent" if strength == STRONG else "the leader may have been silent"
        return Suspicion(strength, f"{'; '.join([what, *signs.values()])}: {end}.", lines)

    def _signs(self, check: ExpirationCheck) -> tuple[dict[str, str], tuple[EvidencePosition, ...]]:
        """Return two things: the signs that the leader was silent, as {name: words}, and the lines that show the signs.

        Names: ``together``, all followers stopped at the same time. ``soon``, one of the followers was back at once.
        ``late``, the check ran late. ``itself``, another leader dropped this broker, as a follower, at the same time.
        """
        signs: dict[str, str] = {}
        lines: list[EvidencePosition] = []
        apart = check.starts_apart_ms
        if apart is not None and apart <= SAME_START_MS:
            signs["together"] = f"all were last caught up within {apart} ms of each other"
        if (first := _suspect_first_back(check.rows)) and first.returned_place:
            bound = "at most " if first.returned_source == AT_MOST else ""
            signs["soon"] = f"broker {first.replica_id} was back after {bound}{first.returned_ms} ms"
            lines.append(first.returned_place)
        if check.late_ms is not None and check.late_ms >= LATE_MS:
            signs["late"] = f"the check came {check.late_ms} ms late by the schedule of its other checks"
        itself = next(
            (drops for burst in check.bursts.values() if (drops := self._by_others(check.leader_id, burst))), []
        )
        if itself:
            signs["itself"] = f"broker {itself[0].leader_id} dropped broker {check.leader_id} at the same time"
            lines.append(itself[0].place)
        return signs, tuple(lines)

    def _follower(self, burst: CheckBurst) -> Suspicion:
        """Judge how strongly the drops of a follower by one check suggest that the follower was silent.

        It is suspected if several leaders dropped it at the same time, or if it dropped its own followers then.
        """
        others = self._by_others(burst.replica_id, burst)
        own = [
            check
            for check in self._woke[burst.replica_id]
            if any(burst.same_time(each) for each in check.bursts.values())
        ]
        broker = f"broker {burst.replica_id}"
        woke = f", and {broker} dropped its own {count_of(len(own[0].bursts), 'follower')} at once" if own else ""
        lines = tuple(each.place for each in others[:1]) + tuple(check.rows[0].place for check in own[:1])
        if others:
            leaders = sorted({burst.leader_id, *(other.leader_id for other in others)})
            everyone = set(leaders) >= (self._leaders | self._unseen(burst)) - {burst.replica_id}
            why = f"Brokers {listed(leaders)} dropped {broker} at about the same time{woke}: {broker} was silent."
            return Suspicion(STRONG if everyone or own else WEAK, why, lines)
        if own:
            why = f"Broker {burst.leader_id} dropped {broker}{woke}: all of {broker} was silent."
            return Suspicion(STRONG, why, lines)
        return Suspicion(NONE)

    def _weigh_all_followers_of_one_leader(self, burst: CheckBurst) -> Suspicion:
        """Suspect the leader, weakly, if it dropped all its followers at about the same time and no other leader did.

        Otherwise the strength is `NONE`. The drops may be spread over several checks.
        """
        near = self._near(burst)
        dropped = {other.replica_id for other in near}
        if len(dropped) < MOST_LINKS or dropped != self._followers[burst.leader_id]:
            return Suspicion(NONE)
        if any(self._by_others(other.replica_id, other) for other in near):
            return Suspicion(NONE)
        why = f"Broker {burst.leader_id} dropped all its followers at about the same time, and no other leader did."
        return Suspicion(WEAK, f"{why} The leader, or its network.", (near[0].place, near[-1].place))

    def _near(self, burst: CheckBurst) -> list[CheckBurst]:
        """Return all drops of followers that the leader of ``burst`` made at about the same time, including it."""
        followers = self._followers[burst.leader_id]
        every = (other for each in followers for other in self._bursts[each] if other.leader_id == burst.leader_id)
        return [other for other in every if burst.same_time(other)]

    def _pair(self, check: ExpirationCheck, burst: CheckBurst) -> Suspicion:
        """Judge the link or the follower if only one leader dropped it. The evidence is strong or weak, never none."""
        leader, follower = burst.leader_id, burst.replica_id
        partitions = count_of(burst.partitions, "partition")
        what = f"Only broker {leader} dropped broker {follower} ({partitions} at this check)"
        if any(other.leader_id == follower and burst.same_time(other) for other in self._bursts[leader]):
            too = f"and broker {follower} dropped broker {leader}"
            return Suspicion(WEAK, f"{what}, {too}: the link between the two, or one of them.")
        if len(check.alone) < len(check.partitions):
            why = f"{what}, and kept other followers: that follower or the link to it; the lines fit both."
            return Suspicion(STRONG, why)
        why = f"{what}, and kept no follower in sync: the leader, the follower or the link; the lines fit all."
        return Suspicion(WEAK, why)


def _suspect_first_back(rows: Iterable[Shrink]) -> Shrink | None:
    """Return the shrink whose replica returned soonest; None if none returned within `SOON_MS`."""
    back = [row for row in rows if row.returned_ms is not None and row.returned_ms <= SOON_MS]
    return min(back, key=lambda row: row.returned_ms or 0, default=None)

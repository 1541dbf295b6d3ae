"""Rules of other systems in the naive model, written from their definitions; where they say nothing, like Kafka 3.7."""

import math
from statistics import median
from typing import ClassVar

from tests.naive import Follower, Leader
from tests.naive_releases import Kafka37, Rule
from tests.naive_truth import Fetch


class Kafka19996Expand(Kafka37):
    """While the ISR is below min.insync.replicas, a follower joins only if caught up; reaching HW is not enough."""

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        under_min_isr = len(leader.isr) < min(self.min_insync_replicas, len(leader.term.voters))
        if under_min_isr and not self.caught_up(follower, leader, leader.now_ms):
            return False
        return super().may_join(follower, leader)


class Fluss09(Kafka37):
    """Every term begins with a new record of each follower, all zero but the position."""

    def begin(self, follower: Follower, _leader: Leader) -> None:
        follower.leo, follower.cu, follower.pL, follower.pT = -1, 0, 0, 0

    def needs_epoch_start(self) -> bool:
        return False


class AcksMinIsr(Kafka37):
    """KIP-926, and KIP-250 with a quorum: the k-th largest log end of who counts, the leader included."""

    defaults: ClassVar = {"quorum": 0, "counted": 0}

    def acknowledged_end(self, leader: Leader) -> int:
        stays = leader.isr & leader.under_way.isr if leader.under_way else leader.isr
        counted = leader.term.voters if self.flags["counted"] == 1 else stays
        known = [f.leo for f in leader.remote if f.replica in counted and f.leo >= 0]
        ends = [leader.leo, *(min(leo, leader.leo) for leo in known)]
        k = self.flags["quorum"] or min(self.min_insync_replicas, len(leader.term.voters))
        return max(leader.hw, sorted(ends, reverse=True)[k - 1] if len(ends) >= k else 0)


class NoShrinkUnderMinIsr(Kafka37):
    """Drops no follower if fewer than the configured min.insync.replicas would remain."""

    def drop(self, leader: Leader, dropped: list[Follower]) -> None:
        if len(leader.isr) - len(dropped) >= self.min_insync_replicas:
            leader.shrink(dropped)
        else:
            self.blocked(leader, leader.isr - {follower.replica for follower in dropped})

    def blocked(self, leader: Leader, in_sync: frozenset[int]) -> None:
        """React to a check that would leave too few members: here by keeping all of them."""


class TransferAtMinIsr(NoShrinkUnderMinIsr):
    """As its base class, but then leadership moves: to any other member, or only to one that is in sync."""

    defaults: ClassVar = {"candidates": 0}

    def blocked(self, leader: Leader, in_sync: frozenset[int]) -> None:
        candidates = in_sync if self.flags["candidates"] == 1 else leader.isr
        if candidates - {leader.term.leader}:
            leader.give_up_leadership()


class LeaderHealth(Kafka37):
    """Lifeguard's local health multiplier: timeouts times one more than it."""

    defaults: ClassVar = {"prompt_ms": 500, "most_lateness": 8}

    def begin(self, follower: Follower, leader: Leader) -> None:
        super().begin(follower, leader)
        self.multiplier = 0

    def on_completed(self, _follower: Follower, leader: Leader, fetch: Fetch) -> None:
        row, answered_us = fetch.row, leader.now_us
        in_hands_us = min(row.processed_us, answered_us) - row.time_us + max(0, answered_us - row.released_us)
        step = 1 if in_hands_us > 1000 * self.flags["prompt_ms"] else -1
        self.multiplier = sorted((0, self.multiplier + step, self.flags["most_lateness"]))[1]

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        steps = self.multiplier
        if leader.now_ms - leader.check_due_us // 1000 > self.flags["prompt_ms"]:
            steps = min(steps + 1, self.flags["most_lateness"])
        lag_ms = leader.now_ms - follower.cu
        return follower.leo != leader.leo and lag_ms > self.lag_time_max_ms * (steps + 1)


class PhiAccrual(Kafka37):
    """Phi of an exponential distribution: its only parameter is the mean gap between fetches."""

    defaults: ClassVar = {"phi_threshold": 8, "silence_is": 0, "least_mean_gap_ms": 500, "gaps_remembered": 1000}

    def begin(self, follower: Follower, leader: Leader) -> None:
        super().begin(follower, leader)
        if not hasattr(self, "gaps"):
            self.gaps: dict[int, tuple[int, int]] = {}
        self.gaps[follower.replica] = (0, 0)

    def record(self, follower: Follower, fetch: Fetch) -> None:
        if follower.pT > 0:
            number, total_ms = self.gaps[follower.replica]
            if number == self.flags["gaps_remembered"]:
                number, total_ms = number - 1, total_ms - total_ms // number
            self.gaps[follower.replica] = number + 1, total_ms + max(0, fetch.T - follower.pT)
        super().record(follower, fetch)

    def phi(self, follower: Follower, now_ms: int) -> float:
        number, total_ms = self.gaps[follower.replica]
        mean_ms = max(total_ms / number if number else 0, self.flags["least_mean_gap_ms"])
        heard_of_ms = max(follower.pT, follower.cu)  # no follower is silent before the term begins
        return (now_ms - heard_of_ms) / mean_ms * math.log10(math.e)

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        silent = self.phi(follower, leader.now_ms) > self.flags["phi_threshold"]
        behind = leader.now_ms - follower.cu > self.lag_time_max_ms
        says_so = any if self.flags["silence_is"] == 1 else all
        return follower.leo != leader.leo and says_so((silent, behind))


class PeerOutlier(Kafka37):
    """Hadoop's OutlierDetector over the lags of the other followers in the ISR."""

    def lag_ms(self, follower: Follower, leader: Leader) -> int:
        return 0 if follower.leo == leader.leo else max(0, leader.now_ms - follower.cu)

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        others = [
            self.lag_ms(other, leader)
            for other in leader.remote
            if other.replica in leader.isr and other is not follower
        ]
        if not super().out_of_sync(follower, leader) or not others:
            return super().out_of_sync(follower, leader)
        middle = median(others)
        mad = median([abs(lag_ms - middle) for lag_ms in others]) * 1.4826
        return self.lag_ms(follower, leader) > max(middle * 3, middle + 3 * mad)


class Majority(Rule):
    """Raft: an entry is committed once it is stored on a majority."""

    checks_per_lag_time = 2
    writes_in_background = True

    def has_no_lag(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo == leader.leo

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.leo = -1
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.row.code:
            return
        follower.leo = fetch.row.offset
        if follower.leo >= fetch.L:
            follower.cu = fetch.T
        self.try_to_join(follower, leader)
        leader.advance_hw(fetch.T)

    def may_join(self, _follower: Follower, _leader: Leader) -> bool:
        return True

    def out_of_sync(self, _follower: Follower, _leader: Leader) -> bool:
        return False

    def hw_waits_for(self, follower: Follower, leader: Leader, _now_ms: int) -> bool:
        others = [other.leo for other in leader.remote if other.replica in leader.term.voters]
        ends = sorted([leader.leo, *others], reverse=True)
        on_a_majority = ends[len(ends) // 2]
        return follower.leo >= on_a_majority

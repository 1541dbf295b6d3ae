"""The proposed rules of the naive model, the clairvoyant, and all rules by their ids."""

from typing import ClassVar

from tests.naive import Follower, Leader
from tests.naive_elsewhere import (
    AcksMinIsr,
    Fluss09,
    Kafka19996Expand,
    LeaderHealth,
    Majority,
    NoShrinkUnderMinIsr,
    PeerOutlier,
    PhiAccrual,
    TransferAtMinIsr,
)
from tests.naive_releases import Kafka0102, Kafka08, Kafka09, Kafka21, Kafka27, Kafka33, Kafka37, Rule
from tests.naive_truth import Fetch


class Kip16CatchUpTime(Kafka09):
    """KIP-16's lag in time: the time that it will take to catch up, at the pace between the last two fetches."""

    def begin(self, follower: Follower, leader: Leader) -> None:
        if leader.leader_is_new:
            follower.leo = -1
        follower.pT = -1
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.row.code:
            follower.leo = follower.pT = -1
        else:
            behind, moved = fetch.L - fetch.row.offset, fetch.row.offset - follower.leo
            if behind <= 0:
                follower.cu = fetch.T
            elif follower.pT >= 0 and moved > 0:
                follower.cu = fetch.T - int(min(behind / moved * max(0, fetch.T - follower.pT), 2**40))
            follower.leo, follower.pT = fetch.row.offset, fetch.T
        self.try_to_join(follower, leader)
        leader.advance_hw(leader.now_ms)


class Kafka4485Design(Kafka0102):
    """Pseudo-ISR: the followers whose lag is within the lag time. The ISR: those of them that reach the HW."""

    checks_per_lag_time = 0
    defaults: ClassVar = {"caught_up_by": 0}

    def record(self, follower: Follower, fetch: Fetch) -> None:
        if self.flags["caught_up_by"] == 1 and fetch.row.offset >= fetch.L:  # before the edit of the description
            if fetch.row.offset >= follower.pL:
                follower.cu = max(follower.cu, follower.pT)
            follower.leo, follower.pL, follower.pT = fetch.row.offset, fetch.L, fetch.T
        else:
            super().record(follower, fetch)

    def errors_change_nothing(self) -> bool:
        return True

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.row.code:
            return
        self.record(follower, fetch)
        self.try_to_join(follower, leader)
        leader.advance_hw(fetch.T)

    def in_pseudo_isr(self, follower: Follower, now_ms: int) -> bool:
        return now_ms - follower.cu <= self.lag_time_max_ms

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return self.in_pseudo_isr(follower, leader.now_ms) and follower.leo >= leader.hw

    def below_hw(self, follower: Follower, leader: Leader) -> bool:
        """Whether the follower's log is known to end below HW; an unknown log end does not count."""
        return 0 <= follower.leo < leader.hw

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return not self.in_pseudo_isr(follower, leader.now_ms) or self.below_hw(follower, leader)

    def crossing_us(self, follower: Follower, leader: Leader) -> int | None:
        if follower.replica in leader.isr and self.below_hw(follower, leader):
            return leader.now_us
        crossing_us = (follower.cu + self.lag_time_max_ms + 1) * 1000
        # The high watermark waits for an outsider no longer; at a crossing that is past, it has been looked at.
        return crossing_us if follower.replica in leader.isr or crossing_us > leader.crossed_us else None

    def hw_waits_for(self, follower: Follower, _leader: Leader, now_ms: int) -> bool:
        return self.in_pseudo_isr(follower, now_ms)


class Kafka10853Acked(Kafka37):
    """KAFKA-10853: a follower is in sync if it has all acknowledged records, not all records of the leader."""

    def has_no_lag(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo >= self.acknowledged(leader)

    def acknowledged(self, leader: Leader) -> int:
        return max(leader.hw, leader.truth.acknowledged_at_once, 0)

    def end_at_start(self, leader: Leader) -> int:
        return self.acknowledged(leader)

    def on_read(self, _follower: Follower, leader: Leader, fetch: Fetch) -> None:
        fetch.acknowledged = self.acknowledged(leader)

    def end_to_reach(self, fetch: Fetch) -> int:
        return fetch.acknowledged

    def caught_up(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        return follower.leo >= self.acknowledged(leader) or now_ms - follower.cu <= self.lag_time_max_ms


class Kafka10853HW(Kafka37):
    """KAFKA-10853's rejected diff: only the check for shrinks compares with HW instead of the log end."""

    def has_no_lag(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo == leader.hw

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo != leader.hw and leader.now_ms - follower.cu > self.lag_time_max_ms


class Kip501Pending(Kafka37):
    """A pending fetch keeps a follower in sync, and its completion is when the follower was caught up."""

    defaults: ClassVar = {"pending_from": 0, "caught_up_at": 0}

    def on_arrival(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if self.flags["pending_from"] == 1:
            fetch.pending = self.qualifies(follower, fetch, leader.leo)

    def on_read(self, follower: Follower, _leader: Leader, fetch: Fetch) -> None:
        if self.flags["pending_from"] == 0:
            fetch.pending = self.qualifies(follower, fetch, fetch.L)

    def qualifies(self, follower: Follower, fetch: Fetch, end: int) -> bool:
        reached_former_end = follower.pL >= 0 and fetch.row.offset >= follower.pL
        return fetch.row.code == 0 and (fetch.row.offset >= end or reached_former_end)

    def record(self, follower: Follower, fetch: Fetch) -> None:
        if fetch.pending and self.flags["caught_up_at"] == 1:
            follower.cu = max(follower.cu, fetch.row.processed_us // 1000)
        follower.leo = fetch.row.offset
        follower.pL = max(follower.pL, fetch.L)
        follower.pT = fetch.T

    def on_completed(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.pending and self.flags["caught_up_at"] == 0:
            follower.cu = max(follower.cu, leader.now_ms)

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        fetch = leader.waiting.get(follower.replica)
        return not (fetch and fetch.pending) and super().out_of_sync(follower, leader)


class Kip501Relinquish(Kip501Pending):
    """KIP-501's solution 2: a leader that takes too long over a follower's fetch gives up leadership."""

    defaults: ClassVar = {**Kip501Pending.defaults, "follower_fetch_process_time_max_ms": 500, "count_long_poll": 0}

    def gives_up_us(self, fetch: Fetch) -> int | None:
        row = fetch.row
        limit_us = self.flags["follower_fetch_process_time_max_ms"] * 1000
        if self.flags["count_long_poll"]:
            spans = [(row.time_us, row.until_us)]
        else:
            spans = [(row.time_us, row.processed_us), (row.released_us, row.until_us)]
        for begin_us, end_us in spans:
            if end_us - begin_us > limit_us:
                return begin_us + limit_us
            limit_us -= max(0, end_us - begin_us)
        return None


class AnyFetch(Kafka37):
    """A follower that fetches is caught up."""

    defaults: ClassVar = {"outsiders": 0}

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        self.counts = self.flags["outsiders"] == 0 or follower.replica in leader.isr
        super().on_recorded(follower, leader, fetch)

    def record(self, follower: Follower, fetch: Fetch) -> None:
        super().record(follower, fetch)
        if self.counts:
            follower.cu = max(follower.cu, fetch.T)


class ShulouBraked(Kafka37):
    """No follower is dropped soon after the ISR changed, or soon after the leader wrote it."""

    defaults: ClassVar = {"isr_change_brake_ms": 5000, "isr_write_brake_ms": 60000}

    def brakes(self, leader: Leader) -> bool:
        just_changed = leader.now_ms - leader.isr_changed_us // 1000 <= self.flags["isr_change_brake_ms"]
        if leader.isr_written_us is None:
            return just_changed
        return just_changed or leader.now_ms - leader.isr_written_us // 1000 <= self.flags["isr_write_brake_ms"]


class TrueLag(Rule):
    """The clairvoyant: a follower is in sync if it lacks no record that is older than the lag time."""

    def has_no_lag(self, follower: Follower, leader: Leader) -> bool:
        return leader.leo == 0 or leader.truth.missing_since_us(follower.replica) is None

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.leo = -1
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0

    def on_arrival(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.row.code:
            return
        follower.leo = fetch.row.offset
        since = leader.truth.missing_since_us(follower.replica)
        follower.cu = (leader.now_us if since is None else min(since, leader.now_us)) // 1000
        self.try_to_join(follower, leader)
        leader.advance_hw(leader.now_ms)

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return super().may_join(follower, leader) and not self.out_of_sync(follower, leader)

    def on_append(self, follower: Follower, leader: Leader) -> None:
        since = leader.truth.missing_since_us(follower.replica)
        if since is not None and leader.truth.position(follower.replica) >= 0:
            follower.cu = since // 1000

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        since = leader.truth.missing_since_us(follower.replica)
        return since is not None and leader.now_ms - since // 1000 > self.lag_time_max_ms

    def crossing_us(self, follower: Follower, leader: Leader) -> int | None:
        since = leader.truth.missing_since_us(follower.replica)
        if since is None or follower.replica not in leader.isr:
            return None
        return (since // 1000 + self.lag_time_max_ms + 1) * 1000


RULES: dict[str, type[Rule]] = {
    "kafka-0.8": Kafka08,
    "kafka-0.9": Kafka09,
    "kafka-4485-design": Kafka4485Design,
    "kafka-0.10.2": Kafka0102,
    "kafka-2.1": Kafka21,
    "kafka-2.7": Kafka27,
    "kafka-3.3": Kafka33,
    "kafka-3.7": Kafka37,
    "kafka-10853-acked": Kafka10853Acked,
    "kafka-10853-hw": Kafka10853HW,
    "kafka-19996-expand": Kafka19996Expand,
    "kip-16-catch-up-time": Kip16CatchUpTime,
    "kip-501-pending": Kip501Pending,
    "kip-501-relinquish": Kip501Relinquish,
    "shulou-braked": ShulouBraked,
    "leader-health": LeaderHealth,
    "acks-min-isr": AcksMinIsr,
    "fluss-0.9": Fluss09,
    "any-fetch": AnyFetch,
    "majority": Majority,
    "no-shrink-under-min-isr": NoShrinkUnderMinIsr,
    "peer-outlier": PeerOutlier,
    "phi-accrual": PhiAccrual,
    "transfer-at-min-isr": TransferAtMinIsr,
    "true-lag": TrueLag,
}

"""The naive leader's interface to a rule, and the released rules by generation, as numbered in the spec.

The spec is ``spec/kafka-isr-rules.md``: G0 to G13.
"""

from typing import ClassVar

from tests.naive import Follower, Leader
from tests.naive_truth import Fetch


class Rule:
    """A rule that never changes the ISR, with the parameters and the events that all rules have in common."""

    checks_per_lag_time = 0
    """Checks in one lag time; a rule without periodic checks is evaluated at its crossings."""
    writes_in_background = False
    """Whether a write of the ISR takes ``isr_write_latency_ms``; the others hold up everything until it is done."""
    defaults: ClassVar[dict[str, int]] = {}

    def __init__(self, lag_time_max_ms: int, min_insync_replicas: int = 1, phase_ms: int = 0, **flags: int) -> None:
        """Keep the parameters; a rule without periodic checks has period 0."""
        self.lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = min_insync_replicas
        self.phase_ms = phase_ms
        self.period_ms = lag_time_max_ms // self.checks_per_lag_time if self.checks_per_lag_time else 0
        self.flags = {"isr_write_latency_ms": 0, **self.defaults}
        assert flags.keys() <= self.flags.keys(), f"{type(self).__name__} has no such flags: {flags}"
        self.flags.update(flags)
        self.write_latency_ms = self.flags["isr_write_latency_ms"] if self.writes_in_background else 0

    # Events of a follower

    def begin(self, follower: Follower, leader: Leader) -> None:
        raise NotImplementedError

    def on_arrival(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        """React to a fetch that has just arrived; most rules do not see it before it is recorded."""

    def on_read(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        """React to a fetch for which the leader has read: its T and L are known from now on."""

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        """React to a fetch that the leader records, where most rules do all their work."""

    def on_completed(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        """React to the answer to a fetch; most rules do nothing."""

    def on_append(self, follower: Follower, leader: Leader) -> None:
        """React to an append to the leader's log; most rules do nothing."""

    # Consequences

    def has_no_lag(self, _follower: Follower, _leader: Leader) -> bool:
        """Say whether the rule shows a lag of 0, whenever the follower was last caught up."""
        return False

    def shown_lag_ms(self, follower: Follower, leader: Leader) -> int | None:
        """Lag of a follower now, as the rule's metric shows it; None if it never was caught up."""
        if self.has_no_lag(follower, leader):
            return 0
        return max(0, leader.now_ms - follower.cu) if follower.cu > 0 else None

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo >= leader.hw

    def try_to_join(self, follower: Follower, leader: Leader) -> None:
        outside = follower.replica in leader.term.voters and follower.replica not in leader.isr
        if outside and leader.under_way is None and self.may_join(follower, leader):
            leader.expand(follower)

    def acknowledged_end(self, _leader: Leader) -> int:
        """Up to where acks=all is acknowledged above HW, by the copies that exist now; in Kafka nothing is."""
        return 0

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return leader.now_ms - follower.cu > self.lag_time_max_ms

    def brakes(self, _leader: Leader) -> bool:
        """Whether the rule drops no follower now, even one that is out of sync."""
        return False

    def drop(self, leader: Leader, dropped: list[Follower]) -> None:
        """Act on the followers that a check finds out of sync: remove them from the ISR."""
        leader.shrink(dropped)

    def crossing_us(self, _follower: Follower, _leader: Leader) -> int | None:
        """When to look at a follower next (us); only for rules without periodic checks."""
        return None

    def gives_up_us(self, _fetch: Fetch) -> int | None:
        """When the leader gives up leadership because of this fetch (us); None for never."""
        return None

    def hw_waits_for(self, follower: Follower, leader: Leader, _now_ms: int) -> bool:
        """Say whether the high watermark waits for this follower."""
        return follower.replica in leader.maximal_isr

    def frozen(self, _leader: Leader) -> bool:
        """Say whether HW stands still at present, whatever the followers fetch."""
        return False

    def advances_on_commit(self) -> bool:
        """Say whether HW is computed again when an ISR write is committed (else when it is sent)."""
        return True


class Kafka08(Rule):
    """G2; G1 with ``recorded_before_read``; G0 with ``idle_followers_stay`` as well. F.ut is kept in ``cu``."""

    checks_per_lag_time = 1
    defaults: ClassVar = {"replica_lag_max_messages": 4000, "recorded_before_read": 0, "idle_followers_stay": 0}

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.leo = -1
        follower.cu = leader.now_ms

    def on_read(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if self.flags["recorded_before_read"]:
            self.record(follower, leader, fetch.row.offset, fetch.T)

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if not self.flags["recorded_before_read"]:
            self.record(follower, leader, -1 if fetch.row.code else fetch.row.offset, fetch.row.processed_us // 1000)

    def record(self, follower: Follower, leader: Leader, offset: int, now_ms: int) -> None:
        follower.leo = offset
        follower.cu = now_ms
        self.try_to_join(follower, leader)
        leader.advance_hw(now_ms)

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        stuck = leader.now_ms - follower.cu > self.lag_time_max_ms
        if self.flags["idle_followers_stay"]:
            stuck = stuck and follower.leo < leader.leo
        slow = follower.leo >= 0 and leader.leo - follower.leo > self.flags["replica_lag_max_messages"]
        return stuck or slow


class Kafka09(Rule):
    """G3."""

    checks_per_lag_time = 1

    def begin(self, follower: Follower, leader: Leader) -> None:
        if not follower.known:
            follower.cu = leader.now_ms
        if leader.leader_is_new:
            follower.leo = -1

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        if fetch.row.code:
            follower.leo = -1
        else:
            follower.leo = fetch.row.offset
            if fetch.L - fetch.row.offset <= 0:
                follower.cu = fetch.row.processed_us // 1000
        self.try_to_join(follower, leader)
        leader.advance_hw(leader.now_ms)


class Kafka0102(Rule):
    """G4, and G5 with ``joins_from_epoch_start``."""

    checks_per_lag_time = 2
    defaults: ClassVar = {"joins_from_epoch_start": 0}

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.pL = leader.leo
        follower.pT = leader.now_ms
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0
        if leader.leader_is_new:
            follower.leo = follower.pL = -1
            follower.pT = 0 if self.errors_change_nothing() else -1

    def on_recorded(self, follower: Follower, leader: Leader, fetch: Fetch) -> None:
        before = follower.leo
        if not fetch.row.code:
            self.record(follower, fetch)
            self.try_to_join(follower, leader)
            if not self.errors_change_nothing() or follower.leo != before:
                leader.advance_hw(fetch.T)
        elif not self.errors_change_nothing():
            follower.leo = follower.pL = follower.pT = -1
            self.try_to_join(follower, leader)
            leader.advance_hw(-1)

    def record(self, follower: Follower, fetch: Fetch) -> None:
        end = self.end_to_reach(fetch)
        if fetch.row.offset >= end:
            follower.cu = max(follower.cu, fetch.T)
        elif fetch.row.offset >= follower.pL:
            follower.cu = max(follower.cu, follower.pT)
        follower.leo = fetch.row.offset
        follower.pL = self.remembered(follower.pL, end)
        follower.pT = fetch.T

    def end_to_reach(self, fetch: Fetch) -> int:
        return fetch.L

    def remembered(self, _before: int, end: int) -> int:
        return end

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        from_start = follower.leo >= leader.epoch_start_offset or not self.needs_epoch_start()
        return follower.leo >= leader.hw and from_start

    def needs_epoch_start(self) -> bool:
        return bool(self.flags["joins_from_epoch_start"])

    def errors_change_nothing(self) -> bool:
        return False

    def hw_waits_for(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        return super().hw_waits_for(follower, leader, now_ms) or now_ms - follower.cu <= self.lag_time_max_ms


class Kafka21(Kafka0102):
    """G6, and G7 with ``errors_change_nothing``."""

    defaults: ClassVar = {"errors_change_nothing": 0}

    def has_no_lag(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo == leader.leo

    def errors_change_nothing(self) -> bool:
        return bool(self.flags["errors_change_nothing"])

    def needs_epoch_start(self) -> bool:
        return True

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo != leader.leo and super().out_of_sync(follower, leader)


class Kafka27(Kafka21):
    """G8, and G9 with ``advances_on_commit``."""

    writes_in_background = True
    defaults: ClassVar = {"advances_on_commit": 0}

    def errors_change_nothing(self) -> bool:
        return True

    def advances_on_commit(self) -> bool:
        return bool(self.flags["advances_on_commit"])


class Kafka33(Kafka21):
    """G10 and G11, and G12 with ``only_eligible_hold_high_watermark``."""

    writes_in_background = True
    defaults: ClassVar = {"only_eligible_hold_high_watermark": 0}

    def errors_change_nothing(self) -> bool:
        return True

    def only_eligible_hold_hw(self) -> bool:
        return bool(self.flags["only_eligible_hold_high_watermark"])

    def begin(self, follower: Follower, leader: Leader) -> None:
        in_isr = follower.replica in leader.isr
        follower.cu = leader.now_ms if in_isr else 0
        if leader.leader_is_new:
            follower.leo = follower.pL = -1
            follower.pT = 0
        else:
            follower.pL = self.end_at_start(leader)
            follower.pT = leader.now_ms if in_isr else 0

    def end_at_start(self, leader: Leader) -> int:
        return leader.epoch_start_offset

    def remembered(self, before: int, end: int) -> int:
        return max(before, end)

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return follower.eligible and super().may_join(follower, leader)

    def caught_up(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        return follower.leo == leader.leo or now_ms - follower.cu <= self.lag_time_max_ms

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return not self.caught_up(follower, leader, leader.now_ms)

    def hw_waits_for(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        # Since KIP-903 a follower that this leader has not heard from has no broker epoch, and is not eligible.
        eligible = follower.eligible and follower.leo >= 0
        holds = self.caught_up(follower, leader, now_ms) and (eligible or not self.only_eligible_hold_hw())
        return follower.replica in leader.maximal_isr or holds


class Kafka37(Kafka33):
    """G13."""

    defaults: ClassVar = {}

    def only_eligible_hold_hw(self) -> bool:
        return True

    def frozen(self, leader: Leader) -> bool:
        return len(leader.isr) < min(self.min_insync_replicas, len(leader.term.voters))

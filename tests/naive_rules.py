"""The rules of the naive model, generation by generation as ``spec/kafka-isr-rules.md`` numbers them."""

from tests.naive import Follower, Leader, Rule
from tests.naive_truth import Row


class Kafka09(Rule):
    """G3."""

    checks_per_lag_time = 1

    def begin(self, follower: Follower, leader: Leader) -> None:
        if not follower.known:
            follower.cu = leader.now_ms
        if leader.term.leader_is_new:
            follower.leo = -1

    def on_recorded(self, follower: Follower, leader: Leader, row: Row, read_leo: int, read_ms: int) -> None:
        if row.code:
            follower.leo = -1
        else:
            follower.leo = row.offset
            if read_leo - row.offset <= 0:
                follower.cu = read_ms
        self.try_to_join(follower, leader)
        leader.advance_hw(read_ms)

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo >= leader.hw

    def try_to_join(self, follower: Follower, leader: Leader) -> None:
        if follower.replica not in leader.isr and self.may_join(follower, leader):
            leader.expand(follower)

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return leader.now_ms - follower.cu > self.lag_time_max_ms


class Kafka0102(Kafka09):
    """G4, and G5 with ``joins_from_epoch_start``."""

    checks_per_lag_time = 2

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.pL = leader.leo
        follower.pT = leader.now_ms
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0
        if leader.term.leader_is_new:
            follower.leo = follower.pL = -1
            follower.pT = self.previous_time_of_a_new_leader()

    def previous_time_of_a_new_leader(self) -> int:
        return -1

    def on_recorded(self, follower: Follower, leader: Leader, row: Row, read_leo: int, read_ms: int) -> None:
        if row.code:
            follower.leo = follower.pL = follower.pT = -1
            read_ms = -1
        else:
            self.record(follower, row.offset, read_leo, read_ms)
        self.try_to_join(follower, leader)
        leader.advance_hw(read_ms)

    def record(self, follower: Follower, offset: int, read_leo: int, read_ms: int) -> None:
        if offset >= read_leo:
            follower.cu = max(follower.cu, read_ms)
        elif offset >= follower.pL:
            follower.cu = max(follower.cu, follower.pT)
        follower.leo = offset
        follower.pL = self.remembered(follower.pL, read_leo)
        follower.pT = read_ms

    def remembered(self, _before: int, read_leo: int) -> int:
        return read_leo

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        from_start = follower.leo >= leader.epoch_start_offset or not self.needs_epoch_start()
        return follower.leo >= leader.hw and from_start

    def needs_epoch_start(self) -> bool:
        return bool(self.flags.get("joins_from_epoch_start"))

    def hw_waits_for(self, follower: Follower, _leader: Leader, now_ms: int) -> bool:
        return now_ms - follower.cu <= self.lag_time_max_ms


class Kafka21(Kafka0102):
    """G6, and G7 with ``errors_change_nothing``."""

    def errors_change_nothing(self) -> bool:
        return bool(self.flags["errors_change_nothing"])

    def previous_time_of_a_new_leader(self) -> int:
        return 0 if self.errors_change_nothing() else -1

    def needs_epoch_start(self) -> bool:
        return True

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return follower.leo != leader.leo and leader.now_ms - follower.cu > self.lag_time_max_ms

    def on_recorded(self, follower: Follower, leader: Leader, row: Row, read_leo: int, read_ms: int) -> None:
        if not self.errors_change_nothing():
            super().on_recorded(follower, leader, row, read_leo, read_ms)
            return
        if row.code:
            return
        before = follower.leo
        self.record(follower, row.offset, read_leo, read_ms)
        self.try_to_join(follower, leader)
        if follower.leo != before:
            leader.advance_hw(read_ms)


class Kafka37(Kafka21):
    """G13."""

    def errors_change_nothing(self) -> bool:
        return True

    def begin(self, follower: Follower, leader: Leader) -> None:
        in_isr = follower.replica in leader.isr
        follower.cu = leader.now_ms if in_isr else 0
        if leader.term.leader_is_new:
            follower.leo = follower.pL = -1
            follower.pT = 0
        else:
            follower.pL = leader.epoch_start_offset
            follower.pT = leader.now_ms if in_isr else 0

    def remembered(self, before: int, read_leo: int) -> int:
        return max(before, read_leo)

    def may_join(self, follower: Follower, leader: Leader) -> bool:
        return follower.eligible and super().may_join(follower, leader)

    def caught_up(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        return follower.leo == leader.leo or now_ms - follower.cu <= self.lag_time_max_ms

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        return not self.caught_up(follower, leader, leader.now_ms)

    def hw_waits_for(self, follower: Follower, leader: Leader, now_ms: int) -> bool:
        return follower.eligible and self.caught_up(follower, leader, now_ms)

    def frozen(self, leader: Leader) -> bool:
        return len(leader.isr) < min(self.min_insync_replicas, len(leader.term.replicas))


class TrueLag(Rule):
    """The clairvoyant: in sync while it lacks nothing that is older than the lag time."""

    def begin(self, follower: Follower, leader: Leader) -> None:
        follower.leo = -1
        follower.cu = leader.now_ms if follower.replica in leader.isr else 0

    def on_arrival(self, follower: Follower, leader: Leader, row: Row) -> None:
        if row.code:
            return
        follower.leo = row.offset
        since = leader.truth.missing_since_us(follower.replica)
        follower.cu = (leader.now_us if since is None else min(since, leader.now_us)) // 1000
        joins = follower.leo >= leader.hw and not self.out_of_sync(follower, leader)
        if follower.replica not in leader.isr and joins:
            leader.expand(follower)
        leader.advance_hw(leader.now_ms)

    def on_append(self, follower: Follower, leader: Leader) -> None:
        since = leader.truth.missing_since_us(follower.replica)
        if since is not None and leader.truth.position(follower.replica) >= 0:
            follower.cu = since // 1000

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        since = leader.truth.missing_since_us(follower.replica)
        return since is not None and leader.now_ms - since // 1000 > self.lag_time_max_ms

    def overdue_us(self, follower: Follower, leader: Leader) -> int | None:
        since = leader.truth.missing_since_us(follower.replica)
        if since is None or follower.replica not in leader.isr:
            return None
        return (since // 1000 + self.lag_time_max_ms + 1) * 1000


RULES: dict[str, type[Rule]] = {
    "kafka-0.9": Kafka09,
    "kafka-0.10.2": Kafka0102,
    "kafka-2.1": Kafka21,
    "kafka-3.7": Kafka37,
    "true-lag": TrueLag,
}

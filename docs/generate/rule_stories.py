"""Two logs in which the rules differ: a follower and its seven troubles, and a high watermark that has to wait.

Times are ms from the start; the lag time is 10 s, and checks fall on multiples of their period.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from isr_batch.simulation.proposal_examples import START_MS
from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, REMOVED, SILENCE, Row, Term
from tests.strategies import Log, Setting
from udfs.rules import BASELINE, REGISTRY

LAG_MS: Final = 10_000
WAIT_MS: Final = 500
"""replica.fetch.wait.max.ms: a fetch that finds nothing is answered then."""


class Act(NamedTuple):
    """A stretch of a story, and what happens there."""

    from_ms: int
    until_ms: int
    says: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """A leader's term as rows of a log, and what its acts are."""

    replicas: tuple[int, ...]
    end_ms: int
    rows: tuple[Row, ...]
    acts: tuple[Act, ...]
    min_insync_replicas: int = 1
    isr_write_ms: int = 0
    """Under rules whose leader goes on meanwhile."""

    def log(self) -> Log:
        """Input of the replay: a new leader, all followers in the ISR, an empty log."""
        term = Term(
            self.replicas, self.replicas[0], us(0), us(self.end_ms), 0, 0, self.replicas, leader_is_new=True,
            rows=tuple(sorted(self.rows, key=lambda row: (row.time_us, row.kind))),
        )  # fmt: skip
        return Log((term,))

    def setting(self, rule: str) -> Setting:
        """A rule with its defaults."""
        flags = {name: param.default for name, param in REGISTRY[rule].params.items() if param.default is not None}
        if REGISTRY[rule].isr_write_in_background and self.isr_write_ms:
            flags["isr_write_latency_ms"] = self.isr_write_ms
        return Setting(rule, LAG_MS, self.min_insync_replicas, 0, tuple(flags.items()))


def us(ms: float) -> int:
    return round((START_MS + ms) * 1000)


@dataclass
class _Teller:
    """Writes rows: appends first, then what followers make of them."""

    ends: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    rows: list[Row] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)

    def append(self, from_ms: int, until_ms: int, every_ms: int, records: int, acks: int = 1) -> None:
        for at_ms in range(from_ms, until_ms, every_ms):
            self.ends.append((at_ms, self.ends[-1][1] + records))
            self.rows.append(Row(us(at_ms), APPEND, offset=self.ends[-1][1], code=acks))

    def end(self, at_ms: float) -> int:
        return next(end for ms, end in reversed(self.ends) if ms <= at_ms)

    def fetch(self, replica: int, at_ms: float, handled_ms: float, recorded_ms: float, answered_ms: float) -> None:
        """A fetch whose answer has all that the log has by then."""
        waited_ms = min(max(recorded_ms, handled_ms + WAIT_MS), answered_ms)
        times = (us(ms) for ms in (handled_ms, recorded_ms, waited_ms, answered_ms))
        self.rows.append(Row(us(at_ms), FETCH, replica, self.held.get(replica, 0), 0, -1, *times))
        self.held[replica] = self.end(waited_ms)

    def follow(
        self, replica: int, from_ms: float, until_ms: float, *, pause_ms: float = 5, record_ms: float = 0,
        most: int = 10_000,
    ) -> None:  # fmt: skip
        """One fetch after the other, each when the answer before is written.

        Parameters
        ----------
        replica : int
        from_ms, until_ms : float
            First arrival; no later one than.
        pause_ms, record_ms : float
            Time between an answer and the next fetch: a fixed part, and a part per record.
        most : int
            Records in an answer.
        """
        at_ms = from_ms
        while at_ms < until_ms:
            offset = self.held.get(replica, 0)
            later = (ms for ms, end in self.ends if ms > at_ms and end > offset)
            found_ms = at_ms if self.end(at_ms) > offset else min(next(later, at_ms + WAIT_MS), at_ms + WAIT_MS)
            self.fetch(replica, at_ms, at_ms, at_ms, found_ms + 1)
            self.held[replica] = min(self.held[replica], offset + most)
            at_ms = found_ms + 1 + pause_ms + record_ms * (self.held[replica] - offset)


def troubles() -> Story:
    """Show each fault that a follower may have, one after the other."""
    teller = _Teller()
    for from_ms, until_ms, every_ms, records, acks in (
        (1_000, 9_500, 1_000, 10, 1),
        (9_500, 9_501, 1_000, 10_000, 1),
        (10_500, 19_000, 1_000, 10, 1),
        (19_000, 38_000, 100, 1, 1),
        (38_000, 41_000, 1_000, 10, 1),
        (84_000, 84_001, 1_000, 10, 1),
        (98_000, 131_000, 1_000, 10, 1),
        (131_000, 141_000, 1_000, 10, -1),
        (153_201, 160_001, 1_000, 10, -1),
        (160_000, 160_001, 1_000, 10, -1),
        (182_500, 190_000, 1_000, 10, -1),
    ):
        teller.append(from_ms, until_ms, every_ms, records, acks)
    teller.follow(2, 0, 19_000, record_ms=0.6, most=2_000)
    teller.follow(2, 19_050, 38_000, pause_ms=99)
    teller.follow(2, 38_050, 42_000)
    teller.fetch(2, 42_000, 42_000, 42_000, 64_000)
    teller.follow(2, 64_010, 66_000)
    teller.follow(2, 97_000, 102_000)
    teller.follow(2, 102_000, 130_000, pause_ms=1_000, most=0)
    teller.follow(2, 130_000, 140_500)
    teller.fetch(2, 140_600, 153_210, 153_210, 153_212)
    teller.follow(2, 153_220, 160_000)
    teller.fetch(2, 160_100, 160_100, 182_000, 182_000)
    teller.follow(2, 182_010, 190_000)
    teller.rows += [Row(us(140_550), SILENCE, until_us=us(153_200)), Row(us(153_199), CHECK, until_us=us(153_203))]
    acts = (
        Act(9_500, 17_000, ("burst",)),
        Act(19_000, 38_000, ("one batch", "behind")),
        Act(42_000, 64_000, ("idle, its answer", "is held up")),
        Act(66_000, 97_000, ("dead; the next", "append at 84 s")),
        Act(102_000, 130_000, ("alive, but gets", "no record")),
        Act(140_550, 153_200, ("leader", "pauses")),
        Act(160_100, 182_000, ("leader is slow", "to read")),
    )
    return Story((1, 2), 190_000, tuple(teller.rows), acts)


def high_watermark() -> Story:
    """Show when records become visible, and which follower is waited for: two followers, min.insync.replicas = 2."""
    teller = _Teller()
    teller.append(1_000, 10_000, 1_000, 10, acks=-1)
    teller.append(30_000, 50_000, 1_000, 10, acks=-1)
    teller.append(50_000, 125_000, 1_000, 10, acks=1)
    teller.follow(2, 0, 75_000)
    teller.follow(2, 112_000, 125_000)
    teller.follow(3, 0, 5_000)
    teller.follow(3, 36_000, 54_000)
    teller.rows += [Row(us(50_500), REMOVED, 3), Row(us(50_500), ELIGIBLE, 3, code=0)]
    acts = (
        Act(5_000, 36_000, ("broker 3 is dead; from 10 to 30 s", "all producers wait for acks")),
        Act(50_500, 70_000, ("the controller takes 3 out,", "which fetches until 54 s")),
        Act(75_000, 112_000, ("broker 2 is dead too: the leader is alone,", "producers use acks=1")),
    )
    return Story((1, 2, 3), 125_000, tuple(teller.rows), acts, min_insync_replicas=2, isr_write_ms=3_000)


STORIES: Final[dict[str, Callable[[], Story]]] = {"troubles": troubles, "high-watermark": high_watermark}


class Seen(NamedTuple):
    """The story that shows a rule, the rules drawn next to it, and a description."""

    story: str
    beside: tuple[str, ...]
    says: str


SEEN: Final = {
    "kafka-0.8": Seen(
        "troubles",
        ("kafka-0.9",),
        "The dashed lines are the two limits of the rule. The rule drops a follower that needs six seconds to fetch "
        "a burst (1). It keeps a follower whose fetches return no record for 28 s, because that follower lacks "
        "fewer than 4000 records (5).",
    ),
    "kafka-0.9": Seen(
        "troubles",
        ("kafka-0.8", "kafka-0.10.2"),
        "The follower is not dropped for the burst (1). A follower that is always one batch behind is never at "
        "the log end, so its lag exceeds the limit at some time, and the next check drops it (2).",
    ),
    "kafka-0.10.2": Seen(
        "troubles",
        ("kafka-0.9", "kafka-2.1"),
        "A follower that is one batch behind stays in the ISR (2). But on an idle partition only fetches "
        "renew the time at which a follower was last caught up. So the rule drops a follower whose response "
        "is delayed, although it has the whole log (3), and a dead follower that lacks nothing (4).",
    ),
    "kafka-2.1": Seen(
        "troubles",
        ("kafka-0.10.2",),
        "A follower that lacks no record stays in the ISR, although the time since it was last caught up "
        "exceeds the limit by far (3, 4). With the append at 84 s, the whole time since its last fetch becomes "
        "its lag at once. So the dead follower is dropped a second later, when the new records are one second "
        "old.",
    ),
    "kafka-2.7": Seen(
        "high-watermark",
        ("kafka-2.1", "kafka-3.3"),
        "The controller needs 3 s for a change of the ISR. Its response to the shrink does not move the high "
        "watermark. There is no append that could move it, because every producer waits for the high "
        "watermark. So the high watermark is stalled for twelve more seconds, until 30 s (1). Broker 3, which "
        "is shutting down, joins the ISR again, and then the high watermark waits for it (2).",
    ),
    "kafka-3.3": Seen(
        "high-watermark",
        ("kafka-2.7", "kafka-3.7"),
        "The controller's response to the shrink moves the high watermark (1). Broker 3, which is shutting "
        "down, does not join the ISR again, but the high watermark still waits for it for a lag time (2). "
        "While the leader is alone in the ISR, the high watermark advances (3).",
    ),
    "kafka-3.7": Seen(
        "high-watermark",
        ("kafka-3.3",),
        "The high watermark does not wait for broker 3, which is shutting down and may not join the ISR (2). "
        "While the leader is alone in the ISR, which is below min.insync.replicas = 2, the high watermark is "
        "stalled until broker 2 is back in the ISR, although producers use acks=1 (3).",
    ),
    "kafka-10853-acked": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "The picture shows the price of the rule. All producers use acks=all, so no record that the dead "
        "broker 3 lacks is acknowledged. Therefore broker 3 stays in the ISR, and the high watermark is stalled "
        "until it is back (1). With acks=1, the dead broker 2 is dropped as under kafka-3.7 (3).",
    ),
    "kafka-10853-hw": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "The high watermark waits for a dead broker, so it never passes that broker's log end. Therefore the "
        "rule never drops the dead broker, and no record is committed, with acks=all (1) and with acks=1 (3).",
    ),
    "kafka-4485-design": Seen(
        "troubles",
        ("kafka-0.9", "kafka-0.10.2"),
        "The rule decides as kafka-0.10.2 does, but does not wait for a check: a follower leaves the ISR in "
        "the millisecond in which its lag crosses the limit.",
    ),
    "kip-16-catch-up-time": Seen(
        "troubles",
        ("kafka-0.8", "kafka-0.9"),
        "By the rule's estimate, the follower needs little time to catch up, both after the burst (1) and when "
        "it is one batch behind (2). If a follower does not fetch, or gets no record, there is no new estimate. "
        "Then its lag is the last estimate plus the time since then, so it keeps growing (3 to 7).",
    ),
    "kip-501-pending": Seen(
        "troubles",
        ("kafka-3.7",),
        "The follower fetches from the log end at 160 s, and the leader takes 22 s to respond. All that time "
        "the fetch is pending, so the follower stays in the ISR (7). While the leader is silent, the fetch "
        "waits in the socket, where no rule can see it (6).",
    ),
    "kip-501-relinquish": Seen(
        "troubles",
        ("kafka-3.7", "kip-501-pending"),
        "At each triangle the leader gives up leadership, because a fetch that arrived half a second ago is "
        "still not completed. The leader also gives up leadership when a response is delayed on an idle "
        "partition, although the follower lacks no record (3).",
    ),
    "shulou-braked": Seen(
        "troubles",
        ("kafka-3.7",),
        "The rule drops no follower for 60 s after a write of the ISR. The dead follower returns to the ISR at "
        "97 s, so no follower is dropped until 157 s. Therefore the follower stays in the ISR while it gets no "
        "record for 28 s (5), and when the silent leader wakes up (6).",
    ),
    "kafka-19996-expand": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "The high watermark is stalled at the log end of broker 2, which is dead for 37 s. Under kafka-3.7, "
        "broker 2 joins the ISR with its first fetch after that, although it is 370 records behind. Under this "
        "rule it joins with its second fetch, which is from the log end (3).",
    ),
    "phi-accrual": Seen(
        "troubles",
        ("kafka-3.7",),
        "A follower that is alive but gets no record is not silent, so it stays in the ISR (5). A dead "
        "follower is silent (4). A follower whose leader is silent or slow to read is silent as well, because "
        "the leader does not handle its fetches (6, 7).",
    ),
    "peer-outlier": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "If only one follower is dead, it is an outlier, and is dropped as under kafka-3.7 (1). When broker 2 "
        "is the only follower in the ISR, the rule has no other follower to compare it with, and decides as "
        "kafka-3.7 does (3).",
    ),
    "leader-health": Seen(
        "troubles",
        ("kafka-3.7", "kip-501-pending"),
        "When the silent leader wakes up, its check is 12 s late. This is a sign of bad health, so the lag "
        "time is 20 s instead of 10 for this check (6). While the slow leader reads its log for 22 s, no fetch "
        "is completed, so the leader does not know yet that it is slow (7).",
    ),
    "no-shrink-under-min-isr": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "Without the dead broker 2, the ISR would have one member, and two are required. So broker 2 stays in "
        "the ISR, and the high watermark is stalled because it waits for broker 2 (3).",
    ),
    "transfer-at-min-isr": Seen(
        "high-watermark",
        ("kafka-3.7", "no-shrink-under-min-isr"),
        "At the triangles, the leader hands leadership to broker 2, which is dead but not fenced yet: first "
        "when the rule of Kafka 3.7 would drop broker 2, and again a lag time later (3). The transfer does not "
        "help here, because the leader is not at fault.",
    ),
    "acks-min-isr": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "The ISR and the high watermark are those of kafka-3.7. The picture does not show when producers are answered: "
        "with acks=all, as soon as two brokers have their records.",
    ),
    "fluss-0.9": Seen(
        "troubles",
        ("kafka-3.7",),
        "The first check of the term is at 0 s, before the follower's first fetch. So the rule drops the "
        "follower, which returns to the ISR with its first fetch. From then on, the rule decides as kafka-3.7 "
        "does.",
    ),
    "any-fetch": Seen(
        "troubles",
        ("kafka-3.7",),
        "A follower that fetches stays in the ISR, even if it gets no record (5). A dead follower leaves the "
        "ISR (4). So does a follower whose fetch the leader has not handled yet (6), or has not recorded yet "
        "(7).",
    ),
    "majority": Seen(
        "high-watermark",
        ("kafka-3.7",),
        "While one of the three replicas is dead or shutting down, records are committed without delay (1, 2). "
        "While two of the three are dead, no record is committed, and there is no ISR that could shrink (3).",
    ),
    "true-lag": Seen(
        "troubles",
        ("kafka-3.7",),
        "The rule drops the follower where it has lacked a record for more than the lag time (4, 5), and nowhere else.",
    ),
}


def seen(rule: str) -> Seen:
    """Find how a rule is shown; without an entry, by the troubles and next to today's rule."""
    return SEEN.get(rule, Seen("troubles", (BASELINE,), ""))

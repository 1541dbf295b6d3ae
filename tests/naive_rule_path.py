"""Who could lead if the leader died, microsecond by microsecond: checks `isr_batch.scoring.isr_path`.

A world with a leader, followers, a controller and a rule that shrinks, expands and gives up leadership at random. It
writes down what the tables would have, and what is so at each instant.
"""

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.naive_eligible_leaders import Change, Partition

FIRST_US = 86_400_000_000 - 300
"""Just before a midnight."""
REPLICAS = (1, 2, 3, 4)


class Instant(NamedTuple):
    """ISR, ELR and heir at an instant: by the cluster's own settings, and as if ELR were switched on."""

    isr: frozenset[int]
    elr: frozenset[int] | None
    heir: int | None
    offline: bool | None
    elr_if_on: frozenset[int] | None
    heir_if_on: int | None
    heir_if_off: int | None
    active: tuple[int, ...]


@dataclass
class World:
    """A history drawn by a seed: ``instants`` by epoch and time, and the rows that the tables would have."""

    seed: int
    enabled: bool | None
    instants: dict[tuple[int, int], Instant] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    words: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.inactive: set[int] = set()
        self.min_isr = 2
        self.set_to: dict[str, int | None] = {"topic": None, "cluster": None}
        self.isr: frozenset[int] = frozenset()
        self.pending: frozenset[int] = frozenset()
        self.due_us: int | None = None
        self.moved = True
        """Whether anything has changed that `now` depends on."""
        self.unknown, self.unknown_if_on = True, True
        self.by_log, self.if_on = Partition(set(), leader=None), Partition(set(), leader=None)
        at_us = FIRST_US
        for epoch in range(self.draw.randint(1, 4)):
            at_us = self.term(epoch, at_us + self.draw.randint(0, 30))

    def term(self, epoch: int, start_us: int) -> int:
        draw = self.draw
        leader = draw.choice(REPLICAS)
        self.order = draw.sample(REPLICAS, len(REPLICAS))
        end_us, write_us = start_us + draw.randint(1, 400), draw.choice([0, 0, 3, 12])
        self.isr = frozenset({leader, *draw.sample(REPLICAS, draw.randint(0, 3))})
        self.leader, self.pending, self.due_us = leader, self.isr, None
        key = {"leader_epoch": epoch, "leader_id": leader}
        self.rows.append(key | {
            "kind": "term", "at_us": start_us, "end_us": end_us, "assigned": self.order, "isr": sorted(self.isr),
            "min_isr": 2, "min_isr_of_term": 2, "write_us": write_us, "isr_before": self.order,
            "made_by": "controller", "elr": None,
        })  # fmt: skip
        row = self.rows[-1]
        self.moved = True
        for at_us in range(start_us, end_us):
            if draw.random() < 0.02 or at_us == start_us:
                self.say(at_us)
            if at_us == start_us:
                if epoch == 0 and draw.random() < 0.7:
                    row["elr"] = draw.sample(sorted({*REPLICAS} - self.isr), draw.randint(0, 4 - len(self.isr)))
                    if self.enabled:
                        self.by_log.elr, self.if_on.elr = {*row["elr"]}, {*row["elr"]}
                        self.unknown = self.unknown_if_on = False
                unclean = draw.random() < 0.2
                if unclean:
                    self.words.append((at_us, len(self.words), "unclean", None, None, None, None, epoch))
                self.commit(self.isr, unclean=unclean)
            elif self.due_us == at_us:
                self.commit(self.pending)
            if draw.random() < 0.03 and at_us > start_us:
                self.decide(at_us, key, write_us)
            if self.moved:
                now, self.moved = self.now(), False
            self.instants[epoch, at_us] = now
        return end_us

    def say(self, at_us: int) -> None:
        """Let the controller write a random record: a limit, a version, an active or inactive broker, a cleared ELR."""
        self.moved = True
        draw = self.draw
        kind = draw.choice(["elr_version", "min_isr", "cleared", "active", "inactive", "unclean_restart"])
        value = broker = topic = None
        if kind == "elr_version":
            value = draw.randint(0, 1)
            self.enabled = value == 1
        elif kind == "min_isr":
            topic, value = draw.choice(["t", None]), draw.choice([1, 2, 3, 9, None])
            self.set_to["topic" if topic else "cluster"] = value
            known = [given for given in self.set_to.values() if given is not None]
            self.min_isr = min(known[0] if known else 2, len(REPLICAS))
        elif kind == "cleared":
            topic = draw.choice(["t", None, "other"])
            if topic != "other":
                self.by_log.elr, self.if_on.elr = set(), set()
                self.unknown = self.unknown_if_on = False
        else:
            broker = draw.choice(REPLICAS)
            if kind == "active":
                self.inactive.discard(broker)
            else:
                self.inactive.add(broker)
            if kind == "unclean_restart":
                self.by_log.elr.discard(broker)
                self.if_on.elr.discard(broker)
        self.words.append((at_us, len(self.words), kind, topic, None, broker, value, None))

    def decide(self, at_us: int, key: dict[str, Any], write_us: int) -> None:
        """The rule changes the ISR, or the controller takes a replica out of it."""
        draw = self.draw
        others = sorted(self.isr - {self.leader})
        outside = sorted(set(REPLICAS) - self.isr)
        what = draw.choice(["shrink", "shrink", "expand", "expand", "remove", "relinquish"])
        row = key | {"at_us": at_us, "isr_before": sorted(self.isr), "made_by": "rule", "kind": what}
        if what == "remove" and others:
            gone = draw.sample(others, draw.randint(1, len(others)))
            for replica in gone:
                after = self.isr - {replica}
                self.rows.append(
                    row
                    | {"kind": "shrink", "made_by": "controller", "isr": sorted(after), "isr_before": sorted(self.isr)}
                )
                self.commit(after)
        elif what == "relinquish":
            self.rows.append(row | {"isr": sorted(self.isr)})
            self.due_us = None
        elif self.due_us is None and ((what == "shrink" and others) or (what == "expand" and outside)):
            if what == "shrink":
                gone = draw.sample(others, draw.randint(1, len(others)))
                after = self.isr - set(gone)
            else:
                gone = [draw.choice(outside)]
                after = self.isr | set(gone)
            self.rows.extend(row | {"isr": sorted(after)} for _ in gone)
            self.pending, self.due_us = after, at_us + write_us
            if write_us == 0:
                self.commit(after)

    def commit(self, isr: frozenset[int], *, unclean: bool = False) -> None:
        self.isr, self.due_us, self.moved = isr, None, True
        for partition, on in ((self.by_log, bool(self.enabled)), (self.if_on, True)):
            partition.leader = self.leader
            change = Change(isr, frozenset(REPLICAS), min_isr=self.min_isr, elr_enabled=on)
            partition.take(change)
            if unclean:
                partition.elr = set()
        whole = len(isr) >= self.min_isr or unclean
        self.unknown = self.unknown and not whole and bool(self.enabled)
        self.unknown_if_on = self.unknown_if_on and not whole

    def now(self) -> Instant:
        def heirs(elr: set[int]) -> list[int]:
            in_order = [
                replica
                for group in (self.isr, elr)
                for replica in self.order
                if replica in group and replica not in self.inactive and replica != self.leader
            ]
            return in_order[:1]

        off = heirs(set())
        on: list[int] | str = off or ("unknown" if self.unknown_if_on else heirs(self.if_on.elr))
        real: list[int] | str = off or ("unknown" if self.unknown else heirs(self.by_log.elr))
        if self.enabled is None:
            real = off if on == off else "unknown"

        def one(heir: list[int] | str) -> int | None:
            return heir[0] if isinstance(heir, list) and heir else None

        return Instant(
            self.isr,
            None if self.enabled is None or self.unknown else frozenset(self.by_log.elr),
            one(real),
            None if real == "unknown" else not real,
            None if self.unknown_if_on else frozenset(self.if_on.elr),
            one(on),
            one(off),
            tuple(replica for replica in self.order if replica not in self.inactive and replica != self.leader),
        )

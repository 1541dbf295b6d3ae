"""How long a request with acks=all would wait that is sent at any instant, by keeping every step of a leader.

Backwards: until when requests are answered at a given instant. Forwards: when a request of a given instant is answered.
The two share nothing but the steps.
"""

from itertools import pairwise
from typing import NamedTuple

from tests.naive import Leader
from tests.naive_rules import RULES
from tests.naive_truth import IDLE, THIN, Fetch, Row, Term

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
NEVER_US = 2**62


class Proof(NamedTuple):
    """From a step on, a follower is known to have the requests until an instant, and until the append that it lacks."""

    step: int
    until_us: int
    lacks_since_us: int
    is_copy: bool
    """Whether it has them; if not, requests no longer wait for it."""


class Step(NamedTuple):
    """The state from an event on."""

    time_us: int
    isr: frozenset[int]
    takes: bool
    """Whether the ISR is large enough for requests with acks=all."""
    answered_us: int
    """Until when requests are answered at the time of the step."""
    until_us: int
    """Until when they are answered later, by what the followers have; NEVER_US if no follower is waited for."""
    counted: frozenset[int]
    """Whose copies are enough, `Waits.copies` of them, even if others of the ISR have none."""


class Waits(Leader):
    """A naive leader that keeps what requests wait for; its decisions are those of `Leader`."""

    def begin(self, term: Term) -> None:
        self.steps: list[Step] = []
        self.proofs: dict[int, list[Proof]] = {replica: [] for replica in term.replicas}
        self.last_good: dict[int, Fetch] = {}
        self.had_until_us = dict.fromkeys(term.replicas, term.start_us)
        self.copied_until_us = dict(self.had_until_us)
        super().begin(term)
        self._note_step()

    def write(self) -> None:
        super().write()
        self._note_step()

    @property
    def _needed(self) -> int | None:
        """How many followers must have a request; None for those of the ISR."""
        return len(self.term.voters) // 2 if type(self.rule) is RULES["majority"] else None

    @property
    def copies(self) -> int | None:
        """How many followers must have a request under acks-min-isr, if fewer than all of the ISR; None elsewhere."""
        if type(self.rule) is not RULES["acks-min-isr"]:
            return None
        return (self.rule.flags["quorum"] or min(self.rule.min_insync_replicas, len(self.term.voters))) - 1

    def _counted(self) -> frozenset[int]:
        if self.copies is None:
            return frozenset()
        stays = self.isr & self.under_way.isr if self.under_way else self.isr
        return (frozenset(self.term.voters) if self.rule.flags["counted"] == 1 else stays) - {self.term.leader}

    def _until_us(self) -> int:
        if (needed := self._needed) is not None:
            had_us = [self.had_until_us[f.replica] for f in self.remote if f.replica in self.term.voters]
            return min(sorted(had_us, reverse=True)[:needed] or [NEVER_US])
        until_us = min([NEVER_US, *(self.had_until_us[f.replica] for f in self.remote if f.replica in self.isr)])
        if self.copies is None or len(self._counted()) < self.copies:
            return until_us
        copied_us = sorted((self.copied_until_us[replica] for replica in self._counted()), reverse=True)
        return max(until_us, min([NEVER_US, *copied_us[: self.copies]]))

    def _ask_for(self, isr: frozenset[int]) -> None:
        super()._ask_for(isr)
        self._note_step()

    def _note_step(self) -> None:
        takes = len(self.isr) >= min(self.rule.min_insync_replicas, len(self.term.voters))
        until_us = self._until_us() if takes else NEVER_US
        answered_us = max(self.term.start_us, min(self.now_us, until_us))
        if self.steps:
            answered_us = max(answered_us, self.steps[-1].answered_us, min(self.now_us, self.steps[-1].until_us))
        self.steps.append(Step(self.now_us, self.isr, takes, answered_us, until_us, self._counted()))

    def _prove(self, replica: int, until_us: int, lacks_since_us: int = NEVER_US, *, is_copy: bool = True) -> None:
        self._note_step()
        self.proofs[replica].append(Proof(len(self.steps), until_us, lacks_since_us, is_copy))
        for known in (self.had_until_us, self.copied_until_us)[: 1 + is_copy]:
            known[replica] = max(known[replica], min(until_us, lacks_since_us))
        self._note_step()

    def _take(self, row: Row) -> None:
        for follower in self.remote:
            if row.kind == IDLE or (row.kind == THIN and follower.replica == row.replica_id):
                self._prove(follower.replica, row.until_us)
        super()._take(row)

    def _go_on(self, fetch: Fetch) -> None:
        replica = fetch.row.replica_id
        if fetch.read_log_end_offset is not None and not fetch.recorded and fetch.row.code == 0:
            if former := self.last_good.get(replica):
                fetches = self.truth.fetches[replica]
                after = next(later for one, later in pairwise(fetches) if one is former)
                parked = former.row.released_us > former.row.processed_us
                answer_us = former.row.released_us if parked else former.row.handled_us
                lacks_us = [time_us for time_us, end in self.truth.appends if end > fetch.row.offset]
                if fetch.row.offset < self.term.start_offset:
                    lacks_us = [self.term.start_us]
                self._prove(replica, min(answer_us, former.row.until_us, after.row.time_us), min([NEVER_US, *lacks_us]))
            self.last_good[replica] = fetch
        super()._go_on(fetch)

    def _check(self) -> None:
        if self.under_way is None and not self.rule.brakes(self):
            self._let_go_of_whom_a_request_would_drop()
        super()._check()

    def _let_go_of_whom_a_request_would_drop(self) -> None:
        """Wait no longer for members with everything that the rule would drop for lack of one more record."""
        self.leo += 1
        late = [f for f in self.remote if f.replica in self.isr and self.rule.out_of_sync(f, self)]
        dropped: list[int] = []
        self.shrink = lambda gone: dropped.extend(f.replica for f in gone)  # type: ignore[method-assign,assignment]
        self.give_up_leadership = lambda: None  # type: ignore[method-assign]
        if late:
            self.rule.drop(self, late)
        del self.shrink, self.give_up_leadership
        self.leo -= 1
        if len(self.isr) - len(dropped) >= min(self.rule.min_insync_replicas, len(self.term.voters)):
            for replica in dropped:
                waited_us = self.now_us - self.had_until_us[replica]
                if waited_us > SECOND_US and self.followers[replica].leo >= self.leo:
                    self._prove(replica, self.now_us, is_copy=False)

    # -- when the term is over

    def _counts(self, wait_us: int) -> bool:
        """Whether requests can wait for that long: the clairvoyant drops a follower that lacks them for a lag time."""
        return type(self.rule) is not RULES["true-lag"] or wait_us <= 1000 * self.rule.lag_time_max_ms

    def waited_us(self, wait_us: int, day: int) -> int:
        """Return the time of a day in which a request sent ``wait_us`` before would still be unanswered."""
        found = 0
        for step, after in pairwise(self.steps):
            begin = max(step.time_us, self.known_from_us, day * DAY_US, max(step.answered_us, step.until_us) + wait_us)
            found += max(0, min(after.time_us, (day + 1) * DAY_US) - begin) if self._counts(wait_us) else 0
        return found

    def forward_us(self, wait_us: int) -> int:
        """Return for how long of the term the requests are sent that wait longer, request by request."""
        edges = {self.term.start_us, self.term.end_us, *(step.time_us for step in self.steps)}
        edges |= {us for proofs in self.proofs.values() for proof in proofs for us in proof[1:3]}
        inside = sorted(us for us in edges if self.term.start_us <= us <= self.term.end_us)
        found = 0
        for begin, end in pairwise(inside):
            # A request that is sent at s counts at s + wait_us.
            since = max(begin, self.known_from_us - wait_us)
            found += max(0, min(end, self._answered_at_us(begin + end) - wait_us) - since)
        return found if self._counts(wait_us) else 0

    def _answered_at_us(self, twice_sent_us: int) -> int:
        """Return when a request is answered or refused; or the end of the term."""
        first = max(n for n, step in enumerate(self.steps) if 2 * step.time_us < twice_sent_us)
        for n, step in enumerate(self.steps[first:], first):
            shown = {
                (replica, proof.is_copy)
                for replica, proofs in self.proofs.items()
                for proof in proofs
                if proof.step <= n and twice_sent_us < 2 * min(proof.until_us, proof.lacks_since_us)
            }
            having, copied = {replica for replica, _ in shown}, {replica for replica, is_copy in shown if is_copy}
            waits_for = {f.replica for f in self.remote} & step.isr - having
            enough = not waits_for if self._needed is None else len(having & {*self.term.voters}) >= self._needed
            enough = enough or (self.copies is not None and len(copied & step.counted) >= self.copies)
            if enough or not step.takes:
                return step.time_us  # of the past: at once
        return self.term.end_us

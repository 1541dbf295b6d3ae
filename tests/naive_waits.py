"""How long a request with acks=all would wait that is sent at any instant, by keeping every step of a leader.

Backwards: until when requests are answered at a given instant. Forwards: when a request of a given instant is answered.
The two share nothing but the steps.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.naive import Leader
from tests.naive_rules import RULES
from tests.naive_truth import IDLE, SILENCE, THIN, Fetch, Row, Term

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
NEVER_US = 2**62


def overlap_us(span: tuple[int, int], other: tuple[int, int]) -> int:
    return max(0, min(span[1], other[1]) - max(span[0], other[0]))


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

    def _waiting(self, wait_us: int, day: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of a day in which a request sent ``wait_us`` before would still be unanswered."""
        for step, after in pairwise(self.steps):
            begin = max(step.time_us, self.known_from_us, day * DAY_US, max(step.answered_us, step.until_us) + wait_us)
            if self._counts(wait_us):
                yield begin, max(begin, min(after.time_us, (day + 1) * DAY_US))

    def waited_us(self, wait_us: int, day: int) -> int:
        """Return the time of a day in which a request sent ``wait_us`` before would still be unanswered."""
        return sum(end - begin for begin, end in self._waiting(wait_us, day))

    def silent_us(self, day: int) -> int:
        """Return for how long of ``waited_us`` of a second the leader was silent."""
        return sum(overlap_us(span, pause) for span in self._waiting(SECOND_US, day) for pause in self._last(SILENCE))

    def unknown_us(self, day: int) -> int:
        """Return in how much of a day no fetch is known."""
        found = 0
        for step, after in pairwise(self.steps):
            span = max(step.time_us, self.known_from_us, day * DAY_US), min(after.time_us, (day + 1) * DAY_US)
            if step.takes and len(step.isr) > 1:
                found += sum(overlap_us(span, pause) for pause in self._last(IDLE))
        return found

    def unanswered_us(self, day: int) -> int:
        """Return in how much time the requests were sent that are unanswered when the term ends on that day."""
        if day != self.term.end_us // DAY_US:
            return 0
        return sum(end - begin for begin, end, at_us, _ in self._requests() if at_us == NEVER_US)

    def _last(self, kind: int) -> list[tuple[int, int]]:
        """Return the pauses of a kind; each lasts until the next at most."""
        rows = [row for row in self.term.rows if row.kind == kind and row.time_us <= self.term.end_us]
        begins = [*(row.time_us for row in rows), NEVER_US]
        return [(row.time_us, min(row.until_us, after)) for row, after in zip(rows, begins[1:], strict=True)]

    def long_waits(self, day: int) -> list[tuple[int, int]]:
        """Return how long the requests wait that are answered on a day, as spans above a second."""
        spans = [
            (max(SECOND_US, at_us - end), at_us - begin)
            for begin, end, at_us, waited_us in self._requests()
            if not waited_us and at_us != NEVER_US and at_us // DAY_US == day
        ]
        return [(least, most) for least, most in spans if least < most]

    def equal_waits(self, day: int) -> tuple[int, int]:
        """Return how long the requests wait for a follower that is then dropped, and how many do on a day (us)."""
        today, found = (day * DAY_US, (day + 1) * DAY_US), {SECOND_US: 0}
        for begin, end, _, waited_us in self._requests():
            if waited_us > SECOND_US:
                found[waited_us] = found.get(waited_us, 0) + overlap_us((begin + waited_us, end + waited_us), today)
        return max(found.items())

    def _requests(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield spans in which the requests are sent that are answered at one instant, or else wait equally long."""
        longest_us = 1000 * self.rule.lag_time_max_ms
        for first, end in pairwise(self._edges()):
            at_us, begin = self._answered_at_us(first + end), max(first, self.known_from_us)
            if type(self.rule) is RULES["true-lag"]:
                since = min(end, min(at_us, self.term.end_us) - longest_us)
                if begin < since:
                    yield begin, since, 0, longest_us
                    begin = since
            if begin < end:
                yield begin, end, at_us, 0

    def _edges(self) -> list[int]:
        edges = {self.term.start_us, self.term.end_us, *(step.time_us for step in self.steps)}
        edges |= {us for proofs in self.proofs.values() for proof in proofs for us in proof[1:3]}
        return sorted(us for us in edges if self.term.start_us <= us <= self.term.end_us)

    def forward_us(self, wait_us: int) -> int:
        """Return for how long of the term the requests are sent that wait longer, request by request."""
        found = 0
        for begin, end in pairwise(self._edges()):
            # A request that is sent at s counts at s + wait_us.
            since = max(begin, self.known_from_us - wait_us)
            at_us = min(self.term.end_us, self._answered_at_us(begin + end))
            found += max(0, min(end, at_us - wait_us) - since)
        return found if self._counts(wait_us) else 0

    def _answered_at_us(self, twice_sent_us: int) -> int:
        """Return when a request is answered or refused; NEVER_US if it is not in the term."""
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
        return NEVER_US


def by_bucket(all_us: int, spans: list[tuple[int, int]], equal: tuple[int, int]) -> tuple[int, ...]:
    """Return how long requests wait for up to a second, and then for how long by bucket, starting at that of a second.

    ``all_us`` is the length of all spans, with those up to a second. ``equal`` says how long further ones wait, and in
    how much time they are sent.
    """
    first = bucket(SECOND_US)
    found = [0] * (528 - first)
    found[bucket(equal[0]) - first] = equal[1]
    for least, most in spans:
        while least < most:
            step = 1 << least.bit_length() - 5
            end = min(most, (least // step + 1) * step)
            found[bucket(least) - first] += end - least
            least = end  # noqa: PLW2901
    return (all_us - sum(found), *found)


def bucket(latency_us: int) -> int:
    """Bucket of a latency in the histogram: one for each of the first 16, then 16 for each power of two."""
    if latency_us < 16:
        return latency_us
    doublings = 0
    while latency_us >= 32 << doublings:
        doublings += 1
    return min(16 * doublings + (latency_us >> doublings), 527)

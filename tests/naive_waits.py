"""How long a request would wait that a producer sends at any instant: by its definition, one request at a time.

A leader may acknowledge requests whenever it looks at them: when a fetch is recorded, or the ISR changes. Between two
instants at which anything happens, all requests are acknowledged at the same instant, so one of them speaks for all.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tests.naive import Follower, Leader
from tests.naive_truth import IDLE, THIN, Fetch, Row, Term

DAY_US = 86_400_000_000
SECOND_US, TIMEOUT_US = 1_000_000, 30_000_000
NEVER_US = 2**62


class Look(NamedTuple):
    """An instant at which the leader may acknowledge: for whom it waits, and when the answer goes out."""

    time_us: int
    may: bool
    waits_for: frozenset[int]
    majority: bool
    answered_us: int


@dataclass
class Answered:
    """A recorded fetch: the first look after it, since when its offset lacks records, until when its answer has all."""

    look: int
    lacks_since_us: int
    has_until_us: int | None = None


class Waits(Leader):
    """A naive leader that also notes whenever it looks, what fetches prove, and whom a check would drop."""

    def begin(self, term: Term) -> None:
        self.looks: list[Look] = []
        self.fetched: dict[int, list[Answered]] = {replica: [] for replica in term.replicas}
        self.let_go: dict[int, list[tuple[int, int]]] = {replica: [] for replica in term.replicas}
        self.unknown: dict[int, list[tuple[int, int]]] = {replica: [] for replica in term.replicas}
        self.looked_us = term.start_us
        super().begin(term)
        self._look_at_requests()

    def close(self) -> None:
        """End the term."""
        self.now_us = self.term.end_us
        self._look_when_it_no_longer_waits()

    @property
    def wanted(self) -> int:
        return min(self.rule.min_insync_replicas, len(self.term.replicas))

    def _look_at_requests(self, answered_us: int | None = None, at_us: int | None = None) -> None:
        may = len(self.isr) >= self.wanted and not self.rule.frozen(self)
        at_us = at_us or self.now_us
        majority = type(self.rule).__name__ == "Majority"
        waits_for = frozenset(f.replica for f in self.remote if majority or self._waits_for(f, at_us // 1000))
        self.looks.append(Look(at_us, may, waits_for, majority, answered_us or at_us))

    def _waits_for(self, follower: Follower, now_ms: int) -> bool:
        self.leo += 1  # with the request's record, which no follower has
        answer = self.rule.hw_waits_for(follower, self, now_ms)
        self.leo -= 1
        return answer

    def _waits_no_more(self, follower: Follower, now_ms: int) -> bool:
        return not self._waits_for(follower, now_ms)

    def _look_when_it_no_longer_waits(self) -> None:
        """Look also when time alone has ended the wait for a follower outside the ISR, before the present event."""
        if type(self.rule).__name__ != "Majority":
            past_ms = range(self.looked_us // 1000, self.now_ms + 1)
            ends_ms = {
                past_ms[0] + bisect(past_ms, False, key=lambda ms: not self._waits_for(f, ms)) for f in self.remote
            }
            for end_ms in sorted(end for end in ends_ms if self.looked_us < end * 1000 <= self.now_us):
                self._look_at_requests(at_us=end_ms * 1000)
        self.looked_us = self.now_us

    def _take(self, row: Row) -> None:
        self._look_when_it_no_longer_waits()
        super()._take(row)
        unknown = [f.replica for f in self.remote if row.kind == IDLE or row.replica_id == f.replica]
        if row.kind in (IDLE, THIN):
            for replica in unknown:
                self.unknown[replica].append((len(self.looks), row.until_us))
        self._look_at_requests()

    def grow(self, end: int) -> None:
        super().grow(end)
        self._look_at_requests()

    def _go_on(self, fetch: Fetch) -> None:
        self._look_when_it_no_longer_waits()
        row, fetched = fetch.row, self.fetched[fetch.row.replica_id]
        recording = fetch.read_log_end_offset is not None and not fetch.recorded
        if recording and row.code == 0:
            since_us = self.truth.missing_since_us(row.replica_id)
            fetched.append(Answered(len(self.looks), NEVER_US if since_us is None else since_us))
        elif fetch.recorded and row.code == 0:
            fetched[-1].has_until_us = row.released_us if row.released_us > row.processed_us else row.handled_us
        super()._go_on(fetch)
        self._look_at_requests()

    def _commit(self) -> None:
        self._look_when_it_no_longer_waits()
        super()._commit()
        self._look_at_requests()

    def _remove(self, follower: Follower) -> None:
        super()._remove(follower)
        self._look_at_requests()

    def give_up_leadership(self) -> None:
        self._look_when_it_no_longer_waits()
        super().give_up_leadership()
        self._look_at_requests()

    def _check(self) -> None:
        self._look_when_it_no_longer_waits()
        if self.under_way is None and not self.rule.brakes(self):
            self._let_go_of_who_would_be_dropped()
        super()._check()

    def _let_go_of_who_would_be_dropped(self) -> None:
        """Let go of a member that has everything, if the rule would drop it for lack of one more record."""
        self.leo += 1
        late = [f for f in self.remote if f.replica in self.isr and self.rule.out_of_sync(f, self)]
        dropped: list[Follower] = []
        self.shrink = dropped.extend  # type: ignore[method-assign,assignment]
        self.give_up_leadership = lambda: None  # type: ignore[method-assign]
        if late:
            self.rule.drop(self, late)
        del self.shrink, self.give_up_leadership
        self.leo -= 1
        gone = [f.replica for f in dropped if f.leo >= self.leo]
        if gone and len(self.isr) - len(dropped) >= self.wanted:
            for replica in gone:
                self.let_go[replica].append((len(self.looks), self.now_us))
            self._look_at_requests(self.now_us + 1000 * self.rule.write_latency_ms)

    # -- one request

    def _would_hold(self, replica: int, sent_us: float, look: int) -> bool:
        """Whether, at a look, a follower is known to hold a request sent then, or the leader lets it go.

        Several looks may have the same time, so their numbers are compared.
        """
        if any(first <= look and sent_us < end for first, end in self.let_go[replica] + self.unknown[replica]):
            return True
        asked = False
        for fetch in self.fetched[replica]:
            if asked and sent_us < fetch.lacks_since_us and fetch.look <= look:
                return True
            asked = asked or sent_us < (fetch.has_until_us or 0)
        return False

    def _answered_us(self, sent_us: float) -> int | None:
        """When a request that was sent at an instant is acknowledged; the end of the term if it is not."""
        before = max(n for n, look in enumerate(self.looks) if look.time_us < sent_us)
        for n, look in enumerate(self.looks[before:], before):
            # Its own append makes the leader look, as it did before.
            holding = [self._would_hold(replica, sent_us, n) for replica in look.waits_for]
            enough = (len(holding) + 1) // 2 <= sum(holding) if look.majority else all(holding)
            if look.may and enough:
                return look.answered_us if n > before else None  # at once
        return self.term.end_us

    def waits(self) -> Iterator[tuple[int, int, int]]:
        """Yield spans of a term, and when requests sent in each are acknowledged, by midnight at the latest."""
        edges = {self.term.start_us, self.term.end_us, self.known_from_us}
        edges |= {look.time_us for look in self.looks} | {end for spans in self.unknown.values() for _, end in spans}
        for fetches in self.fetched.values():
            edges |= {us for fetch in fetches for us in (fetch.lacks_since_us, fetch.has_until_us or 0)}
        edges |= {day * DAY_US for day in range(self.term.start_us // DAY_US, self.term.end_us // DAY_US + 2)}
        counted = sorted(us for us in edges if self.known_from_us <= us <= self.term.end_us)
        for begin, end in pairwise(counted):
            midnight_us = (begin // DAY_US + 1) * DAY_US
            answered_us = self._answered_us((begin + end) / 2)
            yield begin, end, begin if answered_us is None else min(answered_us, midnight_us)


def longer_than(spans: list[tuple[int, int, int]], wait_us: int) -> int:
    """How long (us) a request would wait for more than this."""
    return sum(max(0, min(end, answered - wait_us) - begin) for begin, end, answered in spans)


def longest_us(spans: list[tuple[int, int, int]]) -> int:
    found = max((answered - begin for begin, _, answered in spans), default=0)
    return found if found > SECOND_US else 0


def by_bucket(spans: list[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    """Time (us) by the bucket of the wait, of those over a second: sixteen for each power of two."""
    found: Counter[int] = Counter()
    for number in range(270, 528):
        doublings, step = number // 16 - 1, number % 16
        low, high = (16 + step) << doublings, (17 + step) << doublings
        found[number] = longer_than(spans, max(low, SECOND_US)) - (longer_than(spans, high) if number < 527 else 0)
    return tuple((number, us) for number, us in sorted(found.items()) if us)

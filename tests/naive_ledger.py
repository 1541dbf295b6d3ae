"""Costs of a rule, and how often it is right, by term and day: the slow and obvious twin of the kernel's ledger.

It shares no line with ``udfs``. While a term is replayed, every moment of it is kept; afterwards every number is
computed from the moments. Events at exactly midnight belong to the new day.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from tests.naive import Follower, Leader, Step
from tests.naive_ledger_rows import FollowerScore, Ledger, Moment, Piece, Produced, Score
from tests.naive_rules import RULES
from tests.naive_truth import APPEND, FETCH, REMOVED, Row, Term
from tests.naive_waits import SECOND_US, Waits, by_bucket
from tests.strategies import Log, Setting

DAY_US = 86_400_000_000
LOOK = 5
"""After everything else that falls due at the same instant."""
EXCUSES = frozenset({"caught_up", "keeping_pace", "slow_leader", "unacked_only", "unknown"})
FORGIVEN = EXCUSES - {"unknown"}
IN_FLIGHT_US = 600_000
"""Before the end of a log, requests are under way that are not in it."""
DECREASE, MEMBER_BELOW, PASSED, LEADER_OUTSIDE, STRANGER_INSIDE = range(5)
"""Violations that no rule should allow."""


class Bookkeeper(Waits):
    """A naive leader that also keeps every moment of its term; its decisions are those of `Leader`."""

    def begin(self, term: Term) -> None:
        self.moments: list[Moment] = []
        self.heard: dict[int, int] = {}
        self.produced: list[Produced] = []
        self.isr_writes: list[int] = []  # when each was asked for
        self.misses: list[tuple[int, int]] = []  # (us, replica)
        self.missed: set[int] = set()  # by whom, since it was last seen to be within the lag time
        self.excused: set[int] = set()
        self.arrivals: dict[int, int] = {}  # when the last fetch of a follower came
        self.unheard: dict[int, int] = {}  # excused, without a fetch since: the last fetch before
        self.early: list[tuple[int, int]] = []  # (us, replica)
        self.to_look_at: dict[int, int] = {}  # replica -> when to, for its present missing_us
        super().begin(term)

    def write(self) -> None:
        rows, acked_end = len(self.partition_rows), self.moments[-1].acked_end if self.moments else 0
        super().write()
        self._keep(wrote=len(self.partition_rows) > rows or self.acked_end != acked_end)

    def _keep(self, *, wrote: bool = False, arrived: bool = False) -> None:
        replicas = [follower.replica for follower in self.remote]
        missing_us = {replica: self.truth.missing_since_us(replica) for replica in replicas}
        for replica, since_us in missing_us.items():
            if not self.moments or since_us != self.moments[-1].missing_us[replica]:
                self.to_look_at.pop(replica, None)
                if since_us is not None:
                    self.to_look_at[replica] = max(look_us(self, since_us), self.now_us + 1)
        positions = {replica: self.truth.position(replica) for replica in replicas}
        row = self.partition_rows[-1]
        if self.moments:
            self.excused -= row.isr - self.moments[-1].row.isr
        eligible = tuple(follower.replica for follower in self.remote if follower.eligible)
        known = positions, missing_us, dict(self.heard), frozenset(self.missed), frozenset(self.excused), eligible
        self.moments.append(Moment(self.now_us, row, wrote, arrived, *known, self.acked_end))

    def _take(self, row: Row) -> None:
        by_follower = row.replica_id in [follower.replica for follower in self.remote]
        if row.kind == APPEND and row.code == -1:
            end = max([row.offset, *(produced.offset for produced in self.produced)])  # no log ends before it did
            self.produced.append(Produced(self.now_us, end, len(self.isr), len(self.moments)))
        if by_follower and (row.kind == REMOVED or (row.kind == FETCH and row.code == 0)):
            self.heard[row.replica_id] = row.kind
        if by_follower and row.kind == REMOVED:
            self.excused.discard(row.replica_id)
            self.unheard.pop(row.replica_id, None)
        if by_follower and row.kind == FETCH:  # it may return to the ISR by this very fetch
            self._look_whether_early(row.replica_id, self.now_us)
        super()._take(row)
        if by_follower and row.kind == FETCH:
            self.arrivals[row.replica_id] = self.now_us
            self._keep(arrived=True)
            if lag_ok(self, self.moments[-1], row.replica_id, self.now_us):
                self.missed.discard(row.replica_id)
                self.moments[-1] = self.moments[-1]._replace(missed=frozenset(self.missed))

    def _last_heard_us(self, replica: int) -> int:
        return max(self.arrivals.get(replica, 0), self.term.start_us)

    def shrink(self, dropped: list[Follower]) -> None:
        changes = len(self.changes)
        super().shrink(dropped)
        for change in self.changes[changes:]:
            self.unheard.pop(change.replica_id, None)
            self.excused.discard(change.replica_id)
            if change.causes & FORGIVEN:
                self.excused.add(change.replica_id)
                if "slow_leader" not in change.causes:
                    self.unheard[change.replica_id] = self._last_heard_us(change.replica_id)

    def _look_whether_early(self, replica: int, until_us: int) -> None:
        """Note a wrong drop as early if the follower's silence around it lasted longer than the lag time."""
        if replica in self.isr or replica not in self.excused:
            self.unheard.pop(replica, None)
        elif replica in self.unheard:
            heard_us = self.unheard.pop(replica)
            if heard_us == self._last_heard_us(replica) and until_us - heard_us > 1000 * self.rule.lag_time_max_ms:
                self.early.append((self.now_us, replica))

    def close(self) -> None:
        """End the term, and look at wrongly dropped followers that have not fetched since."""
        self.now_us = self.term.end_us
        self._note_step()
        for replica in list(self.unheard):
            self._look_whether_early(replica, self.now_us - IN_FLIGHT_US * self.term.ends_mid_term)

    def _ask_for(self, isr: frozenset[int]) -> None:
        self.isr_writes.append(self.now_us)
        super()._ask_for(isr)

    def give_up_leadership(self) -> None:
        changes = len(self.changes)
        super().give_up_leadership()
        if len(self.changes) > changes:
            self.isr_writes.append(self.now_us)

    def _steps(self, until_us: int) -> list[Step]:
        looks: list[Step] = [
            (max(due_us, self.now_us), LOOK, self.term.replicas.index(replica), partial(self._look, replica))
            for replica, due_us in self.to_look_at.items()
            if due_us <= until_us
        ]
        return super()._steps(until_us) + looks

    def _look(self, replica: int) -> None:
        """Note a miss if a follower that has lacked a record for 1.5 lag times is still in the ISR."""
        del self.to_look_at[replica]
        leaves = self.under_way is not None and replica not in self.under_way.isr
        judged = is_judged(self, self.moments[-1], replica, self.now_us)
        if replica in self.isr and not leaves and judged and replica not in self.missed:
            causes = self._causes(replica)
            if not causes & EXCUSES:
                self.missed.add(replica)
                self.misses.append((self.now_us, replica))
                self._keep()


# -- limits


def overdue_us(leader: Leader, since_us: int) -> int:
    """First instant (us) at which a follower that lacks a record since ``since_us`` is late, in whole milliseconds."""
    return (since_us // 1000 + leader.rule.lag_time_max_ms + 1) * 1000


def look_us(leader: Leader, since_us: int) -> int:
    """When a member that lacks a record since ``since_us`` is a miss of the rule: 1.5 lag times later."""
    return (since_us // 1000 + 3 * leader.rule.lag_time_max_ms // 2 + 1) * 1000 + 1


def lag_ok(leader: Leader, moment: Moment, replica: int, us: int) -> bool:
    since_us = moment.missing_us[replica]
    return since_us is None or us < overdue_us(leader, since_us)


def is_judged(leader: Leader, moment: Moment, replica: int, us: int) -> bool:
    """Whether the log shows enough to say if a follower belongs in the ISR at ``us``.

    A follower that has not fetched yet is judged only if it began in the ISR and a lag time has passed.
    """
    if (us < leader.known_from_us and leader.term.begins_mid_term) or replica in leader.term.observers:
        return False
    if replica in moment.heard:
        return moment.heard[replica] == FETCH
    return replica in leader.term.isr and us >= overdue_us(leader, leader.term.start_us)


# -- what holds at some moment


def lacked(moment: Moment, below: int) -> int:
    """Number of records below an offset that the ISR member with the shortest log lacks."""
    known = [end for replica, end in moment.positions.items() if replica in moment.row.isr and end >= 0]
    return max([0, *(below - end for end in known)])


def at_risk(moment: Moment) -> int:
    """Number of records acknowledged to acks=all that would be lost if only that member survived."""
    return lacked(moment, moment.acked)


def belongs_in_isr(leader: Leader, moment: Moment, replica: int, us: int) -> bool:
    reaches = replica in moment.row.isr or moment.positions[replica] >= moment.row.high_watermark
    return lag_ok(leader, moment, replica, us) and reaches


def is_right_by_blame(leader: Leader, moment: Moment, replica: int, us: int) -> bool:
    """Whether the ISR is right about a follower, blaming the rule only for misses and for wrong drops."""
    if replica in moment.row.isr:
        return replica not in moment.missed
    return replica not in moment.excused and not belongs_in_isr(leader, moment, replica, us)


def clean_heir(books: Bookkeeper, moment: Moment, min_isr: int) -> int | None:
    """Log end of the first active member of an ISR that may lack acknowledged records; None without one."""
    members = [replica for replica in moment.eligible if replica in moment.row.isr]
    alone = moment.row.isr == {books.term.leader}
    may_lack = len(moment.row.isr) < min_isr or moment.acked > moment.row.high_watermark
    return moment.positions[members[0]] if members and not alone and may_lack else None


def unclean_heir(books: Bookkeeper, moment: Moment) -> int | None:
    alone = moment.row.isr == {books.term.leader}
    return moment.positions[moment.eligible[0]] if moment.eligible and alone else None


def longest_log(books: Bookkeeper, moment: Moment) -> int | None:
    ends = [moment.positions[replica] for replica in moment.eligible]
    return max(ends) if ends and min(ends) >= 0 and unclean_heir(books, moment) is not None else None


def most_lost(moments: list[Moment], log_end: Callable[[Moment], int | None], enough: int = 2) -> int:
    """Return how many acknowledged records a broker lacked at most; -1 if its log end is never known.

    With enough members in the ISR, records of producers with acks=0 and 1 do not count.
    """
    ends = [(moment, end) for moment in moments if (end := log_end(moment)) is not None and end >= 0]
    acked = [max(m.acked, m.row.acknowledged if len(m.row.isr) < enough else 0) for m, _ in ends]
    lost = [max(0, known - end) for (_, end), known in zip(ends, acked, strict=True)]
    return max(lost, default=-1)


def violations(books: Bookkeeper) -> Iterator[tuple[int, int]]:
    """Yield time (us) and kind of each state that no rule should allow, in the order of time."""
    risk = 0
    for number, moment in enumerate(books.moments):
        before = books.moments[number - 1].row if number else None
        if moment.wrote and before and moment.row.high_watermark < before.high_watermark:
            yield moment.time_us, DECREASE
        if moment.wrote or moment.arrived:
            if lacked(moment, moment.row.high_watermark) > 0 and risk == 0:
                yield moment.time_us, MEMBER_BELOW
            risk = lacked(moment, moment.row.high_watermark)
        if moment.wrote and before and moment.row.high_watermark > before.high_watermark:
            for replica, end in moment.positions.items():
                keeps_pace = lag_ok(books, moment, replica, moment.time_us)
                known = moment.time_us >= books.known_from_us and replica in books.term.voters
                if 0 <= end < moment.row.high_watermark and keeps_pace and known:
                    yield moment.time_us, PASSED
        if moment.wrote and books.term.leader not in moment.row.isr:
            yield moment.time_us, LEADER_OUTSIDE
        if moment.wrote and not moment.row.isr <= set(books.term.voters):
            yield moment.time_us, STRANGER_INSIDE


# -- a day of a term


def days(term: Term) -> range:
    """UTC days (since 1970) that a term touches, including that of its last instant."""
    return range(term.start_us // DAY_US, term.end_us // DAY_US + 1)


def pieces(books: Bookkeeper) -> Iterator[Piece]:
    """Cut the term wherever anything may change: at moments, at midnights, and where a follower becomes late."""
    midnights = [day * DAY_US for day in days(books.term)]
    ends_us = [moment.time_us for moment in books.moments[1:]] + [books.term.end_us]
    for moment, end_us in zip(books.moments, ends_us, strict=True):
        late = [overdue_us(books, since) for since in moment.missing_us.values() if since is not None]
        edges = {moment.time_us, end_us, books.known_from_us, overdue_us(books, books.term.start_us), *late, *midnights}
        for begin, end in pairwise(sorted(us for us in edges if moment.time_us <= us <= end_us)):
            yield Piece(begin, end, moment)


def acknowledged_us(books: Bookkeeper, produced: Produced) -> int | None:
    """When an append was acknowledged, usually when HW reached its end (us); None if it was not in this term."""
    later = books.moments[produced.moments_before :]
    return next((moment.time_us for moment in later if moment.acked >= produced.offset), None)


def score(books: Bookkeeper, all_pieces: list[Piece], day: int) -> Score:
    of_day = [piece for piece in all_pieces if piece.begin_us // DAY_US == day]
    counted = [piece for piece in of_day if piece.begin_us >= books.known_from_us]
    min_isr = min(books.rule.min_insync_replicas, len(books.term.voters))

    def time_us(holds: Callable[[Moment], bool]) -> int:
        return sum(piece.end_us - piece.begin_us for piece in counted if holds(piece.moment))

    def today(instants: list[int]) -> int:
        return sum(us // DAY_US == day for us in instants)

    looked_at = [moment for moment in books.moments if moment.wrote or moment.arrived]
    held = [piece.moment for piece in counted] + [moment for moment in looked_at if moment.time_us // DAY_US == day]
    accepted = [produced for produced in books.produced if produced.isr_size >= min_isr]
    waited = [(produced.time_us, acknowledged_us(books, produced)) for produced in accepted]
    latencies = sorted(done - begun for begun, done in waited if done is not None and done // DAY_US == day)
    given_up_us = [books.term.end_us for begun, done in waited if done is None and _was_due(books, begun)]
    changed = [moment for moment in books.moments if moment.wrote and moment.time_us // DAY_US == day]
    broken = [(us, which) for us, which in violations(books) if us // DAY_US == day]
    first_us, first = broken[0] if broken else (-1, -1)

    def count(kind: int) -> int:
        return sum(which == kind for _, which in broken)

    def stalled(moment: Moment) -> bool:
        return moment.row.high_watermark < moment.row.log_end_offset

    exposure_us, under_min_isr_us = time_us(lambda _: True), time_us(lambda moment: len(moment.row.isr) < min_isr)
    unknown_us, unanswered_us = books.unknown_us(day), books.unanswered_us(day)
    long_waits, equal_waits = books.long_waits(day), books.equal_waits(day)

    return Score(
        day=day,
        exposure_us=exposure_us,
        under_min_isr_us=under_min_isr_us,
        at_min_isr_us=time_us(lambda moment: len(moment.row.isr) == min_isr),
        leader_alone_us=time_us(lambda moment: len(moment.row.isr) == 1),
        under_replicated_us=time_us(lambda moment: len(moment.row.isr) < len(books.term.voters)),
        high_watermark_stalled_us=time_us(lambda moment: moment.row.high_watermark < moment.row.log_end_offset),
        stalled_under_min_isr_us=time_us(
            lambda moment: len(moment.row.isr) < min_isr and moment.row.high_watermark < moment.row.log_end_offset
        ),
        loss_exposed_us=time_us(lambda moment: at_risk(moment) > 0),
        loss_records_max=max([0, *(at_risk(moment) for moment in held)]),
        isr_writes=today(books.isr_writes),
        refused_appends=today([produced.time_us for produced in books.produced if produced.isr_size < min_isr]),
        acknowledged_appends=len(latencies),
        never_acknowledged=today(given_up_us),
        acks_all_latency_max_us=max([0, *latencies]),
        acks_all_waits_1s_us=books.waited_us(SECOND_US, day),
        acks_all_waits_30s_us=books.waited_us(30 * SECOND_US, day),
        acks_all_waits_1s_silent_us=books.silent_us(day),
        acks_all_wait_max_us=max([0, *(most for _, most in long_waits), equal_waits[0] * (equal_waits[1] > 0)]),
        acks_all_wait_unknown_us=unknown_us,
        acks_all_unanswered_us=unanswered_us,
        lost_by_heir_max=most_lost(changed, lambda moment: clean_heir(books, moment, min_isr), max(2, min_isr)),
        lost_by_first_active_max=most_lost(changed, lambda moment: unclean_heir(books, moment)),
        lost_by_longest_log_max=most_lost(changed, lambda moment: longest_log(books, moment)),
        high_watermark_decreases=count(DECREASE),
        members_below_high_watermark=count(MEMBER_BELOW),
        passed_within_lag_time=count(PASSED),
        leader_outside_isr=count(LEADER_OUTSIDE),
        isr_outside_assignment=count(STRANGER_INSIDE),
        first_violation_us=first_us,
        first_violation=first,
        latencies=tuple(latencies),
        waits=by_bucket(exposure_us - under_min_isr_us - unknown_us - unanswered_us, long_waits, equal_waits),
    )


def _was_due(books: Bookkeeper, begun_us: int) -> bool:
    """Whether an append came more than a lag time before the end of the term, so that it should be acknowledged."""
    return books.term.end_us - begun_us > books.rule.lag_time_max_ms * 1000


def follower_score(books: Bookkeeper, all_pieces: list[Piece], day: int, follower: Follower) -> FollowerScore:
    replica = follower.replica
    judged_us = agreed_us = by_blame_us = late_in_isr_us = 0
    for begin, end, moment in all_pieces:
        judged = is_judged(books, moment, replica, begin) and replica in moment.eligible
        if begin // DAY_US == day and judged:
            judged_us += end - begin
            if replica in moment.row.isr and not lag_ok(books, moment, replica, begin):
                late_in_isr_us += end - begin
            if (replica in moment.row.isr) == belongs_in_isr(books, moment, replica, begin):
                agreed_us += end - begin
            if is_right_by_blame(books, moment, replica, begin):
                by_blame_us += end - begin
    misses, early = (
        sum(us // DAY_US == day and who == replica for us, who in some) for some in (books.misses, books.early)
    )
    return FollowerScore(replica, day, judged_us, agreed_us, misses, by_blame_us, early, late_in_isr_us)


def ledger(log: Log, setting: Setting) -> Ledger:
    """Replay a log under a rule; return its scores by term and day, and those of each follower."""
    limit_ms, min_isr, phase_ms = setting[1:4]
    rule = RULES[setting.rule](limit_ms, min_isr, phase_ms, **dict(setting.flags))
    books = Bookkeeper(rule)
    kept = Ledger([], [])
    for term in log.terms:
        books.begin(term)
        books.play(term.rows, term.end_us)
        books.close()
        all_pieces = list(pieces(books))
        for day in days(term):
            kept.scores.append(score(books, all_pieces, day))
            kept.followers.extend(follower_score(books, all_pieces, day, follower) for follower in books.remote)
    return kept

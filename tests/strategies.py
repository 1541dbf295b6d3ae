"""Hypothesis strategies: logs of a partition that a broker leads for a few terms, and rules to replay them under.

A log is drawn as moves of a few bytes each, so that drawing is quick and a failing log shrinks to few moves
with small bytes; ``_Builder`` plays them out. Byte 0 always means the tamest choice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, IDLE, ISR_WRITE, REMOVED, SILENCE, THIN, Row, Term

MOVE_BYTES = 10
KINDS = (
    APPEND, FETCH, FETCH, FETCH, FETCH, APPEND, FETCH, FETCH, APPEND, FETCH, SILENCE, CHECK, REMOVED, ELIGIBLE,
    ISR_WRITE, IDLE, IDLE, THIN,
)  # fmt: skip
STRANGER = 99
"""A replica outside every assignment."""
STARTS_US = (10_000_000, 0, 1_700_000_000_000_000, 1_700_000_000_123_457)
BASE_OFFSETS = (0, 10, 2**31 - 2, 2**32 + 7, 2**53)
ACKS = ((-1, 1, 0), (-1, -1, -1), (1, 1, 0), (-1, -1, 1))
"""The acks of a log's producers; if they wait for all, nothing else is acknowledged."""
LAG_TIMES_MS = (100, 250, 500, 1000, 7, 2)


class Setting(NamedTuple):
    """A rule with its parameters."""

    rule: str
    replica_lag_time_max_ms: int = 100
    min_insync_replicas: int = 1
    check_phase_ms: int = 0
    flags: tuple[tuple[str, int], ...] = ()


class Log(NamedTuple):
    """Input of a replay of one partition: the terms of one leader, in order."""

    terms: tuple[Term, ...]
    lag_ms: int = 100
    """The lag time that its gaps are made of."""

    @property
    def rows(self) -> int:
        return sum(len(term.rows) for term in self.terms)


VARIANTS: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (
    ("kafka-0.8", (("replica_lag_max_messages", 5),)),
    ("kafka-0.8", (("replica_lag_max_messages", 5), ("recorded_before_read", 1))),
    ("kafka-0.8", (("replica_lag_max_messages", 5), ("recorded_before_read", 1), ("idle_followers_stay", 1))),
    ("kafka-0.9", ()),
    ("kafka-4485-design", (("caught_up_by", 0),)),
    ("kafka-4485-design", (("caught_up_by", 1),)),
    ("kafka-0.10.2", (("joins_from_epoch_start", 0),)),
    ("kafka-0.10.2", (("joins_from_epoch_start", 1),)),
    ("kafka-2.1", (("errors_change_nothing", 0),)),
    ("kafka-2.1", (("errors_change_nothing", 1),)),
    ("kafka-2.7", (("advances_on_commit", 0),)),
    ("kafka-2.7", (("advances_on_commit", 0), ("isr_write_latency_ms", 40))),
    ("kafka-2.7", (("advances_on_commit", 1),)),
    ("kafka-2.7", (("advances_on_commit", 1), ("isr_write_latency_ms", 40))),
    ("kafka-3.3", (("only_eligible_hold_high_watermark", 0),)),
    ("kafka-3.3", (("only_eligible_hold_high_watermark", 1),)),
    ("kafka-3.7", ()),
    ("kafka-3.7", (("isr_write_latency_ms", 40),)),
    ("kafka-10853-acked", ()),
    ("kafka-10853-hw", ()),
    ("kip-501-pending", (("pending_from", 0),)),
    ("kip-501-pending", (("pending_from", 1),)),
    ("kip-501-pending", (("pending_from", 0), ("caught_up_at", 1))),
    ("kip-501-relinquish", (("follower_fetch_process_time_max_ms", 30), ("count_long_poll", 0))),
    ("kip-501-relinquish", (("follower_fetch_process_time_max_ms", 30), ("count_long_poll", 1))),
    ("kip-501-relinquish", (("follower_fetch_process_time_max_ms", 30), ("pending_from", 1))),
    ("kip-501-relinquish", (("follower_fetch_process_time_max_ms", 30), ("isr_write_latency_ms", 40))),
    ("kip-16-catch-up-time", ()),
    ("shulou-braked", (("isr_change_brake_ms", 50), ("isr_write_brake_ms", 150))),
    ("kafka-19996-expand", ()),
    ("kafka-19996-expand", (("isr_write_latency_ms", 40),)),
    ("leader-health", (("prompt_ms", 30), ("most_lateness", 2))),
    ("majority", ()),
    ("no-shrink-under-min-isr", ()),
    ("peer-outlier", ()),
    (
        "phi-accrual",
        (("phi_threshold", 1), ("silence_is", 0), ("least_mean_gap_ms", 5), ("gaps_remembered", 3)),
    ),
    (
        "phi-accrual",
        (("phi_threshold", 1), ("silence_is", 1), ("least_mean_gap_ms", 5), ("gaps_remembered", 3)),
    ),
    ("transfer-at-min-isr", (("candidates", 0),)),
    ("transfer-at-min-isr", (("candidates", 1), ("isr_write_latency_ms", 40))),
    ("true-lag", ()),
    ("acks-min-isr", (("quorum", 0), ("counted", 0), ("isr_write_latency_ms", 40))),
    ("acks-min-isr", (("quorum", 2), ("counted", 1))),
    ("fluss-0.9", ()),
    ("any-fetch", (("outsiders", 0),)),
    ("any-fetch", (("outsiders", 1), ("isr_write_latency_ms", 40))),
)
"""Every rule under every generation of it, with parameters that make something happen within a hundred milliseconds."""
VARIANT_IDS = tuple(
    ",".join([rule, *(f"{flag.replace('_', '-')}={value}" for flag, value in flags)]) for rule, flags in VARIANTS
)


class _Builder:
    """Turns random bytes into the rows of a term."""

    def __init__(
        self, followers: Sequence[int], lag_ms: int, phase_ms: int, term: Term, acks: Sequence[int] = ACKS[0]
    ) -> None:
        self.followers = followers
        self.acks = acks
        self.lag_us = lag_ms * 1000
        self.phase_us = phase_ms * 1000
        self.term = term
        self.now_us = term.start_us
        self.leo = term.start_offset
        self.silent_until_us = self.idle_until_us = term.start_us
        self.asked: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.free_us: dict[int, int] = {}
        self.rows: list[Row] = []

    def duration_us(self, choice: int, scale: int) -> int:
        """Choose a gap (us): mostly short, sometimes a part or all of the lag time, or 1 us or 1 ms off it."""
        lag_us = self.lag_us
        durations = (
            0, 1000, scale * 1000, 1, 999, 1001, scale * 100, lag_us // 4, lag_us // 2, lag_us - 1000, lag_us,
            lag_us + 1, lag_us + 1000, scale * lag_us // 100, 2 * lag_us, scale,
        )  # fmt: skip
        return max(0, durations[choice % len(durations)])

    def play(self, move: bytes) -> None:
        kind, gap, who, what, how = move[:5]
        self.now_us += self.duration_us(gap >> 3, move[5]) if gap & 7 else 0
        add = {APPEND: self.append, FETCH: self.fetch, SILENCE: self.silence, CHECK: self.check,
               ISR_WRITE: self.isr_write, IDLE: self.idle, THIN: self.thin}  # fmt: skip
        kind = KINDS[kind % len(KINDS)]
        if kind in add:
            add[kind](who, what, how, move[5:])
        else:
            self.rows.append(Row(self.now_us, kind, self.replica(who), code=what & 1))

    def replica(self, who: int) -> int:
        if not self.followers or who > 250:
            return STRANGER
        return self.followers[who % len(self.followers)]

    def append(self, who: int, what: int, how: int, _more: bytes) -> None:
        """Add an append of 1 to 2**31 records, seldom one whose offset is below the log end."""
        self.leo += (1, 2, 1000, 2**31, 5, 1)[what % 6]
        self.rows.append(Row(self.now_us, APPEND, offset=self.leo - (how > 240) * what, code=self.acks[who % 3]))

    def fetch(self, who: int, what: int, how: int, more: bytes) -> None:
        """Add a fetch, usually after the follower's previous one, sometimes before that is answered or even handled."""
        replica = self.replica(who)
        if how < 160:
            self.now_us = max(self.now_us, self.free_us.get(replica, 0))
        behind = self.leo - what % 3
        choices = (self.seen.get(replica, self.leo), self.leo, self.asked.get(replica, self.leo), behind, behind - 5, 0)
        offset = max(0, choices[what // 3 % len(choices)]) if what < 250 else self.leo + what - 249
        error = how % 16 == 15
        if self.term.begins_mid_term and what % 16 == 9:
            offset = -1
        code = -2 if offset == -1 and what % 32 == 25 else 6 * error
        self.asked[replica], self.seen[replica] = offset, self.leo
        times = [self.now_us]
        for choice in more[1:5]:
            step_us = self.duration_us(choice >> 2, more[0]) if choice & 3 == 3 else (choice & 3) * 500
            times.append(times[-1] + step_us)
        self.free_us[replica] = times[-1]
        known = (-1, -1, -1, self.leo, self.leo, self.leo + 3, self.leo - 2, offset)[(how >> 4) % 8]
        self.rows.append(Row(self.now_us, FETCH, replica, offset, code, max(-1, known), *times[1:]))

    def silence(self, _who: int, what: int, how: int, _more: bytes) -> None:
        if self.now_us >= self.silent_until_us:
            self.silent_until_us = self.now_us + self.duration_us(what, how) + 1
            self.rows.append(Row(self.now_us, SILENCE, until_us=self.silent_until_us))

    def idle(self, _who: int, what: int, how: int, _more: bytes) -> None:
        if self.now_us >= self.idle_until_us:
            self.idle_until_us = self.now_us + self.duration_us(what, how) + 1
            self.rows.append(Row(self.now_us, IDLE, until_us=self.idle_until_us))

    def thin(self, who: int, what: int, how: int, _more: bytes) -> None:
        """Add a row saying that the log shows fetches of a follower only about every third of the lag time."""
        cadence_us = self.lag_us // 3 + what % 3 - 1
        until_us = self.now_us + self.duration_us(how, what)
        self.rows.append(Row(self.now_us, THIN, self.replica(who), cadence_us, until_us=until_us))

    def isr_write(self, _who: int, what: int, how: int, _more: bytes) -> None:
        """Add an ISR write that log lines show, from now until some time later."""
        self.rows.append(Row(self.now_us, ISR_WRITE, until_us=self.now_us + self.duration_us(what, how) + what % 3))

    def check(self, who: int, what: int, how: int, _more: bytes) -> None:
        """Add a check that a log line shows, near the schedule of some rule."""
        period_us = max(1000, self.lag_us // (1 + what % 2) // 1000 * 1000)
        due_us = self.phase_us + -((self.phase_us - self.now_us) // period_us) * period_us
        due_us = max(self.now_us, due_us + (0, 1, -1, 1999, 2000, 2001, -1999, -2000, -2001)[what // 2 % 9])
        of_others = what // 18 % 3 == 1  # known from a line about another partition, or from an absent line
        ran_us = due_us + self.duration_us(how >> 4, how & 15)
        named = -1 if of_others else (self.leo + 1, -1, self.leo, self.leo + 2)[how % 4]
        replica = -1 if of_others else self.replica(who)
        self.rows.append(Row(due_us, CHECK, replica, named, -2 - (how >> 1) % 2 if of_others else -1, until_us=ran_us))

    def finish(self, cut: int) -> Term:
        """End the term, perhaps before its last rows."""
        rows = tuple(sorted(self.rows, key=lambda row: (row.time_us, row.kind)))
        last_us = rows[-1].time_us if rows else self.now_us
        ends = (last_us + 2 * self.lag_us, last_us, (self.term.start_us + last_us) // 2, last_us + 1)
        return self.term._replace(rows=rows, end_us=ends[cut % len(ends)])


@st.composite
def logs(draw: st.DrawFn, max_rows: int = 60) -> Log:
    """Draw a log of one to three terms, with at most ``max_rows`` steps in total."""
    head = draw(st.binary(min_size=9, max_size=9))
    lag_ms = LAG_TIMES_MS[head[0] % len(LAG_TIMES_MS)]
    replicas = tuple(range(1, 5))[: (3, 2, 4, 3, 2, 4, 3, 1)[head[1] % 8]]
    leader = replicas[head[2] % len(replicas)]
    followers = [replica for replica in replicas if replica != leader]
    phase_ms = phases(lag_ms)[head[5] % 4]
    # Lists are short when left to themselves.
    at_least = draw(st.sampled_from([0, max_rows // 6, max_rows // 3, 2 * max_rows // 3]))
    moves = draw(st.lists(st.binary(min_size=MOVE_BYTES, max_size=MOVE_BYTES), min_size=at_least, max_size=max_rows))
    count = (1, 1, 2, 3)[head[6] % 4]
    start_us = STARTS_US[head[3] % len(STARTS_US)]
    leo = BASE_OFFSETS[head[4] % len(BASE_OFFSETS)]
    terms: list[Term] = []
    for number in range(count):
        if number % 2:
            draw_term = draw(st.binary(min_size=4, max_size=4))
        else:
            draw_term = head[7:8] + bytes([head[6] >> 2, head[5] >> 2, head[4] >> 3])
        who, high_watermark, new, cut = draw_term
        isr = {leader} | {f for bit, f in enumerate(followers) if not who >> bit & 1}
        last = max(replicas.index(member) for member in isr)
        observers = replicas[last + 1 :] if who >> 3 & 7 == 7 else ()
        begun = Term(
            replicas, leader, start_us, start_us, leo, max(0, leo - (0, 1, 5, leo)[high_watermark % 4]),
            tuple(sorted(isr)), leader_is_new=not new & 1, begins_mid_term=new >> 3 & 3 == 3,
            ends_mid_term=new >> 3 & 7 == 1, phase_known=new % 8 != 3, isr_known=new % 16 != 9,
            held_at_start=tuple(max(-1, leo - (leo + 1, 0, 1, 7)[new >> 5 + n & 3]) for n in range(len(replicas))),
            observers=observers,
        )  # fmt: skip
        builder = _Builder(followers, lag_ms, phase_ms, begun, ACKS[head[8] % len(ACKS)])
        for move in moves[len(moves) * number // count : len(moves) * (number + 1) // count]:
            builder.play(move)
        terms.append(builder.finish(cut >> 2 if number % 2 else cut))
        start_us = terms[-1].end_us + (0, 1000, 1, lag_ms * 500)[cut % 4]
        leo = max(0, builder.leo - (0, 0, 3, 1)[new >> 1 & 3])
    return Log(tuple(terms), lag_ms)


def phases(lag_ms: int) -> tuple[int, int, int, int]:
    """Phases of the periodic check (ms) that are most likely to show mistakes."""
    return 0, 1, lag_ms // 3, -lag_ms


@st.composite
def cases(draw: st.DrawFn, variant: int) -> tuple[Log, Setting]:
    """A log, and ``VARIANTS[variant]`` with parameters that make things happen in this log."""
    log = draw(logs())
    return log, _setting(log, VARIANTS[variant], draw(st.binary(min_size=3, max_size=3)))


@st.composite
def cases_of_all_rules(draw: st.DrawFn) -> tuple[Log, list[Setting]]:
    """A log, and every rule in one of its variants."""
    log = draw(logs())
    rules = [[variant for variant in VARIANTS if variant[0] == rule] for rule in dict(VARIANTS)]
    choices = draw(st.binary(min_size=4 * len(rules), max_size=4 * len(rules)))
    return log, [
        _setting(log, variants[choices[4 * n] % len(variants)], choices[4 * n + 1 : 4 * n + 4])
        for n, variants in enumerate(rules)
    ]


def _setting(log: Log, variant: tuple[str, tuple[tuple[str, int], ...]], choice: bytes) -> Setting:
    rule, flags = variant
    lag, min_isr, phase = choice
    lag_ms = max(2, (log.lag_ms, 2 * log.lag_ms, log.lag_ms // 2, log.lag_ms * 3 // 4 | 1)[lag % 4])
    return Setting(rule, lag_ms, 1 + min_isr % 3, phases(lag_ms)[phase % 4], flags)


MIDNIGHT_US = 19_676 * 86_400_000_000
"""2023-11-15 00:00 UTC."""


def shifted(log: Log, by_us: int) -> Log:
    """The same log at another time. Checks keep to their schedule, unless the phase is shifted as well."""

    def later(row: Row) -> Row:
        return row._replace(**{name: getattr(row, name) + by_us for name in Row._fields if name.endswith("_us")})

    return log._replace(
        terms=tuple(
            term._replace(start_us=term.start_us + by_us, end_us=term.end_us + by_us, rows=tuple(map(later, term.rows)))
            for term in log.terms
        )
    )


def slowed(log: Log, runs: Sequence[Setting], times: int) -> tuple[Log, list[Setting]]:
    """The same log and runs, in which everything takes longer by a factor, so that requests wait for seconds."""

    def slower(row: Row) -> Row:
        found = row._replace(**{name: getattr(row, name) * times for name in Row._fields if name.endswith("_us")})
        return found._replace(offset=row.offset * times) if row.kind == THIN else found

    def of_term(term: Term) -> Term:
        start_us, end_us = term.start_us * times, term.end_us * times
        return term._replace(start_us=start_us, end_us=end_us, rows=tuple(map(slower, term.rows)))

    slow_runs = [run._replace(replica_lag_time_max_ms=run.replica_lag_time_max_ms * times) for run in runs]
    return Log(tuple(map(of_term, log.terms)), log.lag_ms * times), slow_runs


def instants(log: Log) -> list[int]:
    """Times (us) at which something happens in a log, or falls due because of it."""
    found: set[int] = set()
    for term in log.terms:
        found |= {term.start_us, term.end_us, (term.start_us + term.end_us) // 2}
        for row in term.rows:
            found |= {row.time_us, row.time_us + 1, (row.time_us // 1000 + log.lag_ms + 1) * 1000}
            found |= {(row.time_us // 1000 + 3 * log.lag_ms // 2 + 1) * 1000 + more for more in (0, 1, 2)}
            if row.kind == FETCH:
                found |= {row.handled_us, row.processed_us, row.until_us}
    first_us, last_us = log.terms[0].start_us, log.terms[-1].end_us
    return sorted(us for us in found if first_us <= us <= last_us)


@st.composite
def logs_over_midnight(draw: st.DrawFn, log: Log | None = None) -> Log:
    """A log in which midnight falls on an instant that matters; ``log`` unless one is to be drawn."""
    log = log or draw(logs())
    return shifted(log, MIDNIGHT_US - draw(st.sampled_from(instants(log))))

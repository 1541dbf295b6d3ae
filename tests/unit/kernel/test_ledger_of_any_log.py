"""Laws of the ledger of any log, for the naive model's and the kernel's."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernel_ledger import LedgerOf
from tests.naive_ledger import DAY_US, Bookkeeper, days
from tests.naive_ledger_rows import Score
from tests.naive_rules import RULES
from tests.naive_truth import FETCH, Term
from tests.naive_waits import bucket
from tests.strategies import MIDNIGHT_US, Log, Setting, cases_of_all_rules, instants, logs_over_midnight, shifted
from tests.unit.kernel.test_invariants_naive import replay

LOGS = 12
TIMES = {
    name
    for name in Score._fields
    if name.endswith("_us") and not name.startswith(("acks_all_latency", "acks_all_wait_max", "first"))
}
COUNTS = {
    "isr_writes", "refused_appends", "acknowledged_appends", "never_acknowledged", "high_watermark_decreases",
    "members_below_high_watermark", "passed_within_lag_time", "leader_outside_isr", "isr_outside_assignment",
}  # fmt: skip
PROMISES = Score._fields[Score._fields.index("high_watermark_decreases") :][:5]


def test_buckets_of_latencies() -> None:
    """Each up to 31, then pairs up to 63, then fours."""
    assert [bucket(us) for us in range(32)] == list(range(32))
    assert [bucket(us) for us in (32, 33, 34, 62, 63, 64, 67, 68)] == [32, 32, 33, 47, 47, 48, 48, 49]
    assert [bucket(2**e) for e in (10, 20, 35)] == [112, 272, 512]  # 16 * (e - 3)
    assert [bucket(us) for us in (2**36 - 1, 2**36, 2**50)] == [527, 527, 527]
    edges = [*range(100_000), *range(100_000, 2**37, 999_983)]
    assert {bucket(b) - bucket(a) for a, b in pairwise(edges[:100_000])} == {0, 1}
    assert all(bucket(a) <= bucket(b) for a, b in pairwise(edges))


generated = settings(
    max_examples=LOGS, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def fetches_from_lower_offsets(log: Log) -> int:
    """Fetches that show that a follower's log is shorter than it was, or than the term's first high watermark."""
    found = 0
    for term in log.terms:
        reached = dict.fromkeys(term.replicas, term.start_high_watermark)
        for row in term.rows:
            if row.kind == FETCH and row.code == 0 and row.replica_id in reached:
                found += row.offset < reached[row.replica_id]
                reached[row.replica_id] = row.offset
    return found


def counted_from_us(term: Term, setting: Setting) -> int:
    """When a term's time begins to count: at once, or a lag time and a check after a log that began in mid-term."""
    period_ms = RULES[setting.rule](*setting[1:4], **dict(setting.flags)).period_ms or 0
    warm_up_ms = setting.replica_lag_time_max_ms + period_ms + 1
    return term.start_us + 1000 * warm_up_ms if term.begins_mid_term else term.start_us


@generated
@given(cases_of_all_rules(), st.data())
def test_no_part_exceeds_the_whole(ledger_of: LedgerOf, case: tuple[Log, list[Setting]], data: st.DataObject) -> None:
    log, runs = case
    log = data.draw(logs_over_midnight(log))
    appends = sum(row.code == -1 for term in log.terms for row in term.rows)
    for setting in runs:
        scores, followers = ledger_of(log, setting)
        touched = [(day, term) for term in log.terms for day in days(term)]
        assert [score.day for score in scores] == [day for day, _ in touched]
        # The first lag time and check of a term that begins before its log are left out.
        seen_us = (max(0, term.end_us - counted_from_us(term, setting)) for term in log.terms)
        assert sum(score.exposure_us for score in scores) == sum(seen_us)
        remote = [(f, day, s) for (day, t), s in zip(touched, scores, strict=True) for f in t.replicas if f != t.leader]
        for (replica, day, score), follower in zip(remote, followers, strict=True):
            assert (follower.replica_id, follower.day) == (replica, day)
            assert 0 <= follower.agreed_us <= follower.judged_us <= score.exposure_us
        for score in scores:
            # Requests that are unanswered at the end of the term may be of the day before.
            assert all(0 <= getattr(score, name) <= score.exposure_us for name in TIMES - {"acks_all_unanswered_us"})
            assert score.under_min_isr_us + score.at_min_isr_us <= score.exposure_us
            assert (score.loss_exposed_us > 0) <= (score.loss_records_max > 0)
            assert (score.members_below_high_watermark > 0) <= (score.loss_records_max > 0)
            assert len(score.latencies) == score.acknowledged_appends
            assert max(score.latencies, default=0) == bucket(score.acks_all_latency_max_us)
            broken = sum(getattr(score, name) for name in PROMISES)
            assert (broken > 0) == (score.first_violation >= 0) == (score.first_violation_us >= 0)
            if broken:
                assert score.first_violation_us // DAY_US == score.day
                assert getattr(score, PROMISES[score.first_violation]) > 0
        counted = [s.refused_appends + s.acknowledged_appends + s.never_acknowledged for s in scores]
        assert sum(counted) <= appends


@generated
@given(cases_of_all_rules(), st.data())
def test_no_rule_breaks_a_common_promise(
    ledger_of: LedgerOf, case: tuple[Log, list[Setting]], data: st.DataObject
) -> None:
    """Members are below HW only by their fetches.

    In a later term a rule may believe in an older position, and up to 0.8.1 one believes in that of a failed fetch.
    To a majority HW is what most have, so the others may lack it.
    """
    log, runs = case
    log = data.draw(logs_over_midnight(log._replace(terms=log.terms[:1])))
    for setting in runs:
        scores = ledger_of(log, setting).scores
        assert not any(s.high_watermark_decreases + s.leader_outside_isr + s.isr_outside_assignment for s in scores)
        failed = sum(row.kind == FETCH and row.code != 0 for row in log.terms[0].rows)
        believes_errors = "recorded_before_read" in dict(setting.flags)
        excused = fetches_from_lower_offsets(log) + failed * believes_errors
        assert sum(s.members_below_high_watermark for s in scores) <= excused or setting.rule == "majority"


@generated
@given(cases_of_all_rules(), st.data())
def test_the_clairvoyant_is_always_right(
    ledger_of: LedgerOf, case: tuple[Log, list[Setting]], data: st.DataObject
) -> None:
    """And misses nothing."""
    log, runs = case
    log = data.draw(logs_over_midnight(log))
    followers = ledger_of(log, next(setting for setting in runs if setting.rule == "true-lag")).followers
    assert [follower.agreed_us for follower in followers] == [follower.judged_us for follower in followers]
    assert not any(follower.misses for follower in followers)


@generated
@given(cases_of_all_rules(), st.data())
def test_midnight_cuts_but_changes_nothing(
    ledger_of: LedgerOf, case: tuple[Log, list[Setting]], data: st.DataObject
) -> None:
    """The same log at noon and over midnight, with its checks at the same places."""
    log, runs = case
    over_ms = (MIDNIGHT_US - data.draw(st.sampled_from(instants(log)))) // 1000
    noon_ms = over_ms + DAY_US // 2000
    for setting in runs:
        uncut, cut = (
            ledger_of(shifted(log, by_ms * 1000), setting._replace(check_phase_ms=setting.check_phase_ms + by_ms))
            for by_ms in (noon_ms, over_ms)
        )
        rest, rest_of_followers = list(cut.scores), list(cut.followers)
        for number, term in enumerate(shifted(log, over_ms * 1000).terms):
            touched = len(days(term))
            whole, parts, rest = uncut.scores[number], rest[:touched], rest[touched:]
            for name in TIMES | COUNTS:
                assert getattr(whole, name) == sum(getattr(part, name) for part in parts), f"{setting.rule}: {name}"
            for name in "loss_records_max", "acks_all_latency_max_us", "acks_all_wait_max_us":
                assert getattr(whole, name) == max(getattr(part, name) for part in parts), f"{setting.rule}: {name}"
            assert whole.waits == tuple(map(sum, zip(*(part.waits for part in parts), strict=True)))
            assert whole.latencies == tuple(sorted(us for part in parts for us in part.latencies))
            firsts = [(p.first_violation_us, p.first_violation) for p in parts if p.first_violation >= 0]
            moved_us = (noon_ms - over_ms) * 1000
            first_us, first = firsts[0] if firsts else (-1 - moved_us, -1)
            assert (whole.first_violation_us, whole.first_violation) == (first_us + moved_us, first)
            remote = len(term.replicas) - 1
            for n, follower in enumerate(uncut.followers[number * remote : (number + 1) * remote]):
                of_days = rest_of_followers[n : touched * remote : remote]
                assert follower[2:] == tuple(map(sum, zip(*(part[2:] for part in of_days), strict=True)))
            rest_of_followers = rest_of_followers[touched * remote :]


@generated
@given(cases_of_all_rules())
def test_keeping_books_changes_no_decision(case: tuple[Log, list[Setting]]) -> None:
    log, runs = case
    for setting in runs:
        limit_ms, min_isr, phase_ms = setting[1:4]
        books = Bookkeeper(RULES[setting.rule](limit_ms, min_isr, phase_ms, **dict(setting.flags)))
        for term in log.terms:
            books.begin(term)
            books.play(term.rows, term.end_us)
        expected = replay(log, setting)
        found = books.changes, books.partition_rows, books.states
        assert found == (expected.changes, expected.partition, expected.replica)

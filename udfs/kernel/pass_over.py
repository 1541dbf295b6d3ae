"""Skip a quiet stretch of the log (``udfs.kernel.quiet``) without replaying its rows.

State, ledger and timers become the same as after a replay of the rows: sums are added, and each follower's latest fetch
is applied. This is only correct if no rule run does anything in the stretch. So the state and every rule are checked
first.
"""

from udfs.jit import kernel
from udfs.kernel import ledger, ledger_page
from udfs.kernel.active_runs import active_run
from udfs.kernel.append_history import remember_append
from udfs.kernel.doubts import is_late_no_more
from udfs.kernel.fetch_instants import take_in, take_in_fetch
from udfs.kernel.quiet import BY_ARRIVAL, BY_RECORD
from udfs.kernel.rule_calls import (
    GIVE_UP,
    RULES,
    acts_in_quiet,
    on_arrival,
    on_completed,
    on_read,
    on_recorded,
    rule_bits,
)
from udfs.kernel.timers import (
    await_rule_timer,
    reset_timer,
    schedule_check,
    schedule_crossing,
    schedule_giving_up,
)
from udfs.kernel.unanswered import SECOND_US
from udfs.records import COMPLETED, NEVER_US, READ, RECORDED
from udfs.rules.base import nothing

ADVANCED_BY_ARRIVAL = rule_bits(rule.on_recorded is nothing for rule in RULES)
"""The rules (as bits) under which a fetch advances the high watermark already when it arrives, and not when the leader
records it."""


@kernel
def may_pass_over(state, quiet, latest):
    """Whether the replay may skip a quiet stretch, because no rule run acts within it.

    The arguments are those of `pass_over`. The caller has replayed up to the start of the stretch, where each
    follower's latest fetch is from the log end. So no producer waits for an acknowledgement, and no
    acknowledged record is at risk.
    """
    term = state.term[0]
    # The measures of a stretch include waits for every follower, also for those that observe.
    if term.observers != 0 or term.log_end_offset != quiet.log_end_at_first or quiet.longest_wait_us > SECOND_US:
        return False
    if not (_is_latest_within(term, quiet) or _stays_late_after_stretch(term, quiet)):
        return False
    if len(latest.time_us) != 2 * (term.replicas - 1):
        return False
    for i in range(len(latest.time_us)):
        if not _may_pass_over(state, latest.replica_id[i]):
            return False
    for k in range(term.active):
        # The high watermark must be at the log end. Some releases advance it only when a follower's offset changes.
        if state.leaders[active_run(state.active, k)].high_watermark != quiet.log_end_at_first:
            return False
    for r in range(term.runs):
        leader, params = state.leaders[r], state.params[r]
        if leader.commit_us != NEVER_US or quiet.longest_behind_us // 1000 >= params.replica_lag_time_max_ms:
            return False
        place = r if leader.along == 0 else leader.group
        if acts_in_quiet(state.codes[r], quiet, state.leaders[place], params):
            return False
    return True


@kernel
def pass_over(state, quiet, latest, latencies, out):
    """Advance the state to the end of ``quiet``, a quiet stretch (record QUIET), without replaying its rows.

    ``latest`` contains the last two fetches of each follower in the stretch, in chronological order. ``latencies`` has
    two histograms of acks=all latencies in the stretch, as rows (histogram, bucket, number of appends). Histogram
    BY_ARRIVAL is for rules under which a fetch moves the high watermark when it arrives, BY_RECORD for all others.
    """
    term = state.term[0]
    late_us, late_at_us = term.late_us, term.late_at_us
    if _is_latest_within(term, quiet):
        late_us, late_at_us = quiet.late_us, quiet.late_at_us
    for k in range(term.active):
        _pass_over_run(state, active_run(state.active, k), quiet, latencies)
    if quiet.log_end_at_end > term.log_end_offset:
        # The stretch's appends, which no follower lacks at its end, are merged into one with the time of the first.
        held_by_all = quiet.log_end_at_end
        remember_append(state.history, quiet.log_end_at_end, quiet.first_append_us, held_by_all)
    term.log_end_offset = quiet.log_end_at_end
    term.highest_acknowledged = max(term.highest_acknowledged, quiet.log_end_at_end)
    term.miss_due_us = NEVER_US
    for p in range(term.replicas):
        state.fetches[p].log_end_offset = quiet.log_end_at_end
    for p in range(term.replicas):
        if p != term.leader:
            _take_in_latest_fetches(state, p, quiet.until_us, latest, out)
    term.late_us, term.late_at_us = late_us, late_at_us
    term.rules_due_us = NEVER_US
    for r in range(term.runs):
        if state.leaders[r].check_us <= quiet.until_us:
            schedule_check(state, r, max(quiet.until_us, state.leaders[r].check_due_us))
        schedule_crossing(state, r, quiet.until_us)
        if GIVE_UP & term.rules != 0:
            schedule_giving_up(state, r, quiet.until_us)
        reset_timer(state.due_us, state.leaders, r)
        await_rule_timer(term, state.due_us, r, state.due_us[r])


@kernel
def _take_in_latest_fetches(state, p, until_us, latest, out):
    """Process the last fetch of follower ``p`` in a skipped stretch. The fetch before it is only passed to rules."""
    fetch, last = state.fetches[p], 0
    for i in range(len(latest.time_us)):
        if latest.replica_id[i] == fetch.replica_id:
            last = i
    for i in range(last):
        if latest.replica_id[i] == fetch.replica_id:
            fetch.fetch_offset, fetch.error_code = latest.offset[i], latest.code[i]
            fetch.leader_log_end_offset = latest.leader_log_end_offset[i]
            fetch.arrival_us, fetch.handled_us = latest.time_us[i], latest.handled_us[i]
            fetch.processed_us, fetch.released_us = latest.processed_us[i], latest.released_us[i]
            fetch.completed_us = min(latest.until_us[i], latest.time_us[last])
            for k in range(state.term[0].active):
                r = active_run(state.active, k)
                follower, leader, params, code = (
                    state.followers[r, p], state.leaders[r], state.params[r], state.codes[r]
                )  # fmt: skip
                on_arrival(code, follower, leader, fetch, params)
                on_read(code, follower, leader, fetch, params)
                on_recorded(code, follower, leader, fetch, params)
                on_completed(code, follower, leader, fetch, params)
    fetch.stage = COMPLETED
    fetch.settled_us = latest.time_us[last]
    take_in_fetch(state, p, latest, last, out)
    fetch.had_until_us = max(fetch.had_until_us, fetch.answer_until_us)  # no request waits for long in the stretch
    take_in(state, p, READ, fetch.handled_us, out)
    take_in(state, p, RECORDED, fetch.processed_us, out)
    if fetch.completed_us <= until_us:
        take_in(state, p, COMPLETED, fetch.completed_us, out)


@kernel
def _is_latest_within(term, quiet):
    """Whether the leader's largest recent delay at the end of the stretch is a delay from within the stretch."""
    return term.late_us <= quiet.latest_peak_us or is_late_no_more(term.late_at_us, quiet.latest_peak_at_us)


@kernel
def _stays_late_after_stretch(term, quiet):
    """Whether the leader's largest recent delay is from before the stretch, and is still recent at its end."""
    return term.late_us > quiet.latest_peak_us and not is_late_no_more(term.late_at_us, quiet.until_us)


@kernel
def _may_pass_over(state, replica_id):
    """Whether a follower's state allows skipping the stretch.

    That is so if it is in the ISR of every rule run and needs no search for misses, and if its leader was not silent or
    idle since the follower's last fetch.
    """
    term = state.term[0]
    for p in range(term.replicas):
        fetch = state.fetches[p]
        if p != term.leader and fetch.replica_id == replica_id:
            counted = fetch.outsider_in == 0 and fetch.quiet != 0 and fetch.is_back != 0
            return counted and max(term.silent_until_us, term.idle_until_us) <= fetch.arrival_us
    return False


@kernel
def _pass_over_run(state, r, quiet, latencies):
    """Add the measures of a skipped stretch to rule run ``r``'s ledger, and set its high watermark to the log end."""
    leader, page = state.leaders[r], state.ledger.pages[r]
    way = BY_ARRIVAL if ADVANCED_BY_ARRIVAL >> state.codes[r] & 1 else BY_RECORD
    ledger.settle_ledger(page, leader, state.params[r], quiet.until_us)
    stalled_us, longest_us = quiet.stalled_us, quiet.longest_ack_us
    if way == BY_ARRIVAL:
        stalled_us, longest_us = quiet.stalled_by_arrival_us, quiet.longest_ack_by_arrival_us
    page[ledger_page.HIGH_WATERMARK_STALLED_US] += stalled_us
    page[ledger_page.ACKS_ALL_LATENCY_MAX_US] = max(page[ledger_page.ACKS_ALL_LATENCY_MAX_US], longest_us)
    for i in range(len(latencies)):
        if latencies[i, 0] == way:
            page[ledger_page.LATENCIES + latencies[i, 1]] += latencies[i, 2]
            page[ledger_page.ACKNOWLEDGED_APPENDS] += latencies[i, 2]
    leader.log_end_offset = leader.high_watermark = quiet.log_end_at_end
    leader.shown_log_end_offset = leader.shown_high_watermark = quiet.log_end_at_end
    leader.acknowledged_offset = max(leader.acknowledged_offset, quiet.acknowledged_offset)
    leader.shown_acknowledged_offset = leader.acknowledged_offset
    leader.shown_acknowledged_end = leader.acknowledged_end
    if quiet.last_append_us != 0:
        leader.last_append_time_ms = quiet.last_append_us // 1000
    for p in range(leader.replicas):
        state.followers[r, p].log_end_offset = quiet.log_end_at_end

"""The replay of one partition for one term (the time of one leader epoch), under many rules at once.

``advance_replay`` takes the current state and consecutive rows (``udfs.records.Rows``) in chronological order; the time
of a fetch is its arrival. The later steps of a fetch, the periodic checks of every rule, and the responses to ISR
writes are timers, which fire between the rows. Work that does not depend on the rule (which records the follower has
and lacks, the history of appends) is done once for all rules.
"""

from udfs.jit import entry, inlined, kernel
from udfs.kernel import ledger, pass_over, shared_runs, unanswered
from udfs.kernel.partition import begin_partition_term, come_to, take_in_row


def replay_room_for_a_row(runs: int, replicas: int) -> int:
    """Return the maximum number of rows that the replay of one input row adds to an output array.

    The timers (such as ISR checks) that are due before the input row are part of its replay.

    Each follower's fetch is read, recorded and answered at most once; each follower joins, leaves, and makes the leader
    give up leadership at most once. A shrink and a fetch may each lead to a DOUBT row, and an ISR change to a row for
    every follower.
    """
    return runs * replicas * (6 * replicas + 14)


_compiled_room_for_a_row = kernel(replay_room_for_a_row)


@inlined
def _replay_has_room_in(state, out):
    """Whether ``out`` has room for the results of one more input row, of the timers before it, and of a day's end."""
    runs, replicas = state.term[0].runs, state.term[0].replicas
    return (
        max(out.filled[0], out.filled[1], out.filled[2]) + _compiled_room_for_a_row(runs, replicas) <= len(out.replica)
        and out.filled[3] + runs <= len(out.score)
        and out.filled[4] + runs * replicas <= len(out.follower_score)
    )


@entry
def replay_has_room(state, out):
    """Whether ``out`` has room for the results of one more input row. If not, the caller must empty it first."""
    return _replay_has_room_in(state, out)


@entry
def begin_replay_of_term(state, isr_at_start, high_watermark, leader_is_new, out):
    """Initialise the state for a new term, and write its first timeline rows (`partition.begin_partition_term`)."""
    begin_partition_term(state, isr_at_start, high_watermark, leader_is_new, out)


@entry
def change_min_isr_in_replay(state, min_isr, now_us):
    """Set min.insync.replicas of the ``r``-th rule run to ``min_isr[r]``. The caller has replayed up to ``now_us``."""
    shared_runs.part_shared_runs(state)
    for r in range(state.term[0].runs):
        ledger.settle_ledger(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
        unanswered.settle_waits(state, r, now_us)
        state.params[r].min_insync_replicas = min_isr[r]
    shared_runs.form_shared_runs(state)


@entry
def advance_replay(state, rows, until_us, out):
    """Replay ``rows`` from index ``state.term.row`` on, then fire the timers up to ``until_us``.

    At midnight, the counters (ledger) of the day that ends are written before any event of that instant is processed.
    Returns 1 if all is done, and 0 if ``out`` is full. In that case, the caller must empty ``out`` and call again with
    the same rows.
    """
    # One loop, into which all steps are inlined only once, because a call would pass about two hundred numbers.
    term = state.term[0]
    while _replay_has_room_in(state, out):
        i = term.row
        if i < len(rows.time_us) and rows.time_us[i] > term.end_us:
            term.ignored += len(rows.time_us) - i
            i = term.row = len(rows.time_us)
        now_us = rows.time_us[i] if i < len(rows.time_us) else min(until_us, term.end_us)
        midnight_us = term.day_ends_us
        come_to(state, min(now_us, midnight_us - 1), out)
        if midnight_us <= now_us:
            shared_runs.part_shared_runs(state)
            ledger.close_ledger(state, midnight_us, out)
        elif i == len(rows.time_us):
            return 1
        else:
            take_in_row(state, rows, i, out)
            term.row += 1
    return 0


@entry
def close_day_of_replay(state, out):
    """Write the counters (ledger) of the day that ends, and reset them. The caller has replayed up to midnight."""
    shared_runs.part_shared_runs(state)
    ledger.close_ledger(state, state.term[0].day_ends_us, out)


@entry
def end_replay_of_term(state, out):
    """Write the counters (ledger) of a term's last day. The caller has replayed up to the end of the term."""
    shared_runs.part_shared_runs(state)
    ledger.end_ledger(state, max(state.term[0].start_us, state.term[0].end_us), out)


@entry
def pass_over_in_replay(state, quiet, latest, latencies, out):
    """Skip a quiet stretch (rows in which no follower falls behind, ``udfs.kernel.quiet``) if results stay the same.

    The arguments are those of `pass_over.pass_over`.

    The caller has replayed up to the first row of the stretch, and made sure that ``out`` has room (`replay_has_room`).

    Returns
    -------
    bool
        True if the stretch was skipped; False if nothing was done, and its rows must be replayed.
    """
    if min(state.term[0].day_ends_us, state.term[0].end_us) <= quiet[0].until_us:
        return False
    if not pass_over.may_pass_over(state, quiet[0], latest):
        return False
    pass_over.pass_over(state, quiet[0], latest, latencies, out)
    return True

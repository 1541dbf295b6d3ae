"""Simulate a leader, its followers and their producers, while one rule decides on the ISR.

Producers with acks=all wait for the high watermark, followers wait for the leader's response, and the leader waits for
its I/O threads, its storage, and, in some releases, its ISR writes. The same functions call the rule as in a replay, so
a replay of the simulated log under the same rule makes the same ISR changes. No two events happen in the same
microsecond, and only checks happen at whole milliseconds. So the order never depends on ties.
"""

from udfs.jit import entry, inlined, kernel
from udfs.kernel import ledger, timers
from udfs.kernel.fetch_instants import take_in
from udfs.kernel.ledger_page import REFUSED_APPENDS
from udfs.kernel.partition import begin_partition_term, fire_timers, take_in_row_called
from udfs.records import APPEND, COMPLETED, ELIGIBLE, FETCH, NEVER_US, READ, RECORDED, REMOVED, SILENCE, UNKNOWN
from udfs.simulation import event_queue, log_rows
from udfs.simulation.leader_requests import (
    ANSWERED,
    APPENDED,
    ELECTION,
    FAULT,
    FETCHED,
    NOT_ENOUGH_REPLICAS,
    PRODUCED,
    RECORD,
    TAKEN,
    acknowledge_producers,
    followers_request_first,
    forget_void_requests,
    note_changes_of_leader,
    request_is_void,
    start_request,
    successor_of_leader,
    thread_takes_request,
)
from udfs.simulation.world import (
    CHANGE_LEADER,
    ELIGIBILITY,
    FENCED,
    IDLE,
    PARKED,
    PAUSE_LEADER,
    REMOVE,
    SILENT,
    UNDER_WAY,
    UNFENCED,
    apply_fault_to_world,
    next_instant_of_world_us,
    partition_state_of_world,
    produce_gap_of_world_us,
)


@inlined
def _settle_in_loop(world, log, p, now_us):
    """Finish an event in partition ``p``: acknowledge committed appends, label ISR changes, and set the timer."""
    leader = world.leaders[p, 0]
    if world.partitions[p].in_flight > 0:
        acknowledge_producers(world, log, p, now_us)
    note_changes_of_leader(world, log, p, now_us)
    world.out.filled[0] = 0
    world.out.filled[1] = 0
    event_queue.set_queued_timer(
        world, p, min(leader.check_us, leader.commit_us, leader.give_up_us, world.term[p].miss_due_us)
    )


@inlined
def _run_timers_in_loop(world, log, p, state, now_us):
    """Fire the timers of a partition that are due by ``now_us``, and label ISR changes."""
    if event_queue.queued_timer_us(world, p) <= now_us:
        fire_timers(state, now_us, world.out)
    note_changes_of_leader(world, log, p, now_us)


@kernel
def _begin_term_in_loop(world, p, isr, high_watermark, now_us):
    """Begin a partition's term on the group's current leader."""
    group, partition, term = world.group[0], world.partitions[p], world.term[p]
    leader = group.leader
    for f in range(len(world.peers)):
        world.followers[p, 0, f] = world.remembered[p, leader, f]
    term.leader = leader
    term.replicas = len(world.peers)
    term.start_us = now_us
    term.offsets_known = 1
    term.end_us = NEVER_US
    term.start_offset = world.held[p, leader]
    partition.term_start_us = now_us
    partition.term_high_watermark = high_watermark
    partition.term_isr = isr
    partition.in_flight = 0
    partition.blocked = 0
    begin_partition_term(partition_state_of_world(world, p), isr, high_watermark, True, world.out)
    if partition.gap_us > 0:
        event_queue.push_event(world, max(partition.next_us, now_us), PRODUCED, p, group.serial)


@kernel
def _end_of_loop(world, log, p, now_us):
    """End a partition's term. Fetches in flight get no response, but are logged, as the leader has received them."""
    group, partition = world.group[0], world.partitions[p]
    for f in range(len(world.peers)):
        fetch = world.fetches[p, f]
        if f != group.leader and world.peers[f].phase != IDLE:
            fetch.handled_us = min(fetch.handled_us, now_us + 1)
            fetch.processed_us = min(fetch.processed_us, now_us + 1)
            fetch.released_us = min(fetch.released_us, now_us + 1)
            fetch.completed_us = min(fetch.completed_us, now_us + 1)
            log_rows.write_fetch_row(world, log, p, f, world.leaders[p, 0].high_watermark)
    for i in range(partition.in_flight):
        wait = world.waiting[p, i]
        log_rows.write_append_row(world, log, p, wait[0], wait[1], wait[2], -1, UNKNOWN, 0)
    log_rows.write_term_row(world, log, p, now_us)
    log_rows.label_score_row(world, log, p)
    ledger.end_ledger(partition_state_of_world(world, p), now_us, world.out)
    for f in range(len(world.peers)):
        world.remembered[p, group.leader, f] = world.followers[p, 0, f]


@inlined
def _take_in_row_in_loop(world, log, p, kind, who, offset, code, until_us, now_us):
    """Process an event in partition ``p`` like a row of a recorded log, but without the later times of a fetch."""
    row, state = world.row, partition_state_of_world(world, p)
    row.time_us[0] = now_us
    row.kind[0] = kind
    row.replica_id[0] = who
    row.offset[0] = offset
    row.code[0] = code
    row.leader_log_end_offset[0] = UNKNOWN
    row.until_us[0] = until_us
    _run_timers_in_loop(world, log, p, state, now_us)
    take_in_row_called(state, row, 0, world.out)
    _settle_in_loop(world, log, p, now_us)


@inlined
def _fetch_step_in_loop(world, log, p, f, stage, now_us):
    """Let follower ``f``'s fetch reach ``stage`` (read, recorded, completed) in partition ``p``, and call the rule."""
    state = partition_state_of_world(world, p)
    _run_timers_in_loop(world, log, p, state, now_us)
    take_in(state, f, stage, now_us, world.out)
    timers.schedule_giving_up(state, 0, now_us)
    _settle_in_loop(world, log, p, now_us)


@kernel
def _append_in_loop(world, log, p, now_us):
    group, partition = world.group[0], world.partitions[p]
    leader = world.leaders[p, 0]
    thread_takes_request(world, now_us)
    if partition.acks == -1 and leader.isr_size < min(world.params[0].min_insync_replicas, leader.replicas):
        world.ledger.pages[p, 0, REFUSED_APPENDS] += 1
        log_rows.write_append_row(world, log, p, now_us, UNKNOWN, UNKNOWN, -1, UNKNOWN, NOT_ENOUGH_REPLICAS)
        event_queue.push_event(world, now_us + group.retry_us, PRODUCED, p, group.serial)
        return
    base_offset = world.term[p].log_end_offset
    log_end_offset = base_offset + partition.records
    world.held[p, group.leader] = log_end_offset
    if partition.acks == -1:
        wait = world.waiting[p, partition.in_flight]
        wait[0] = now_us
        wait[1] = base_offset
        wait[2] = log_end_offset
        partition.in_flight += 1
    else:
        log_rows.write_append_row(world, log, p, now_us, base_offset, log_end_offset, partition.acks, now_us, 0)
    partition.next_us += produce_gap_of_world_us(world, p)
    if partition.in_flight < group.max_in_flight:
        event_queue.push_event(world, max(now_us, partition.next_us), PRODUCED, p, group.serial)
    else:
        partition.blocked = 1
    _take_in_row_in_loop(world, log, p, APPEND, UNKNOWN, log_end_offset, partition.acks, 0, now_us)
    for f in range(len(world.peers)):
        if f != group.leader and world.peers[f].phase == PARKED:
            _answer_in_loop(world, f, now_us)


@kernel
def _fetched_in_loop(world, log, f, now_us):
    """Process the arrival of follower ``f``'s fetch at the leader."""
    world.peers[f].phase = UNDER_WAY
    for p in range(len(world.partitions)):
        _take_in_row_in_loop(world, log, p, FETCH, f, world.held[p, f], 0, NEVER_US, now_us)
    start_request(world, -1 - f, now_us)


@kernel
def _request_taken_in_loop(world, log, f, now_us):
    """Schedule the end of the read of the log for follower ``f``'s fetch, which an I/O thread has picked up."""
    group = world.group[0]
    for p in range(len(world.partitions)):
        world.fetches[p, f].handled_us = now_us
        _fetch_step_in_loop(world, log, p, f, READ, now_us)
    world.peers[f].next_partition = 0
    read_us = group.request_us + world.peers[group.leader].storage_us
    event_queue.push_event(world, now_us + read_us, RECORD, f, world.peers[f].serial)


@kernel
def _record_in_loop(world, log, f, now_us):
    """Record the fetch of follower ``f``, partition by partition. An ISR write may delay the remaining partitions."""
    group, peer = world.group[0], world.peers[f]
    for p in range(peer.next_partition, len(world.partitions)):
        isr = world.leaders[p, 0].isr
        world.fetches[p, f].processed_us = now_us
        world.fetches[p, f].released_us = now_us + group.max_wait_us  # a longer wait is the leader's delay
        _fetch_step_in_loop(world, log, p, f, RECORDED, now_us)
        if group.isr_write_us > 0 and world.leaders[p, 0].isr & ~isr != 0:
            peer.next_partition = p + 1
            event_queue.push_event(world, now_us + group.isr_write_us, RECORD, f, peer.serial)
            return
    thread_takes_request(world, now_us)
    peer.phase = PARKED
    peer.wait_until_us = now_us + group.max_wait_us
    for p in range(len(world.partitions)):
        if world.held[p, f] < world.term[p].log_end_offset:
            _answer_in_loop(world, f, now_us)
            return
    event_queue.set_queued_timer(world, len(world.partitions) + f, peer.wait_until_us)


@kernel
def _answer_in_loop(world, f, now_us):
    """Choose the records of the response to follower ``f``'s fetch, and schedule when the response is sent."""
    group, peer = world.group[0], world.peers[f]
    peer.phase = UNDER_WAY
    peer.received = 0
    event_queue.set_queued_timer(world, len(world.partitions) + f, NEVER_US)
    for p in range(len(world.partitions)):
        fetch = world.fetches[p, f]
        fetch.released_us = min(now_us, fetch.released_us)
        records = min(world.term[p].log_end_offset - world.held[p, f], peer.most_records)
        world.answered[p, f] = world.held[p, f] + records
        peer.received += records
        timers.schedule_giving_up(partition_state_of_world(world, p), 0, now_us)
    event_queue.push_event(world, now_us + group.send_us, ANSWERED, f, peer.serial)


@kernel
def _answered_in_loop(world, log, f, now_us):
    """Let follower ``f`` write the records of the response that it gets now, and then fetch again."""
    peer = world.peers[f]
    for p in range(len(world.partitions)):
        world.fetches[p, f].completed_us = now_us
        _fetch_step_in_loop(world, log, p, f, COMPLETED, now_us)
        log_rows.write_fetch_row(world, log, p, f, world.leaders[p, 0].high_watermark)
        world.held[p, f] = world.answered[p, f]
    peer.phase = IDLE
    peer.written_us = max(now_us + peer.link_us + peer.received * peer.record_us, peer.paused_until_us)
    event_queue.push_event(world, peer.written_us + peer.link_us, FETCHED, f, peer.serial)


@kernel
def _change_leader(world, log, to, now_us):
    """Make broker ``to`` the leader in a clean election. All other replicas truncate their logs to the new leader's."""
    group = world.group[0]
    for p in range(len(world.partitions)):
        fire_timers(partition_state_of_world(world, p), now_us, world.out)
        _settle_in_loop(world, log, p, now_us)
        _end_of_loop(world, log, p, now_us)
    former = group.leader
    group.leader = to
    group.leader_epoch += 1
    group.serial += 1
    group.busy = 0
    group.queued = 0
    group.electing = 0
    world.peers[former].paused_until_us = max(world.peers[former].paused_until_us, group.paused_until_us)
    group.paused_until_us = 0
    for f in range(len(world.peers)):
        world.peers[f].serial += 1
        world.peers[f].phase = IDLE
        event_queue.set_queued_timer(world, len(world.partitions) + f, NEVER_US)
    forget_void_requests(world)
    now_us = next_instant_of_world_us(group, now_us)
    for p in range(len(world.partitions)):
        high_watermark = min(world.leaders[p, 0].high_watermark, world.held[p, to])
        for f in range(len(world.peers)):
            world.held[p, f] = min(world.held[p, f], world.held[p, to])
        world.partitions[p].previous_leader = former
        _begin_term_in_loop(world, p, world.leaders[p, 0].isr | (1 << to), high_watermark, now_us)
        _settle_in_loop(world, log, p, now_us)
    followers_request_first(world, now_us)


@kernel
def _elect_in_loop(world, log, now_us):
    """Elect a successor for a leader that gave up leadership, if another broker is in every ISR."""
    to = successor_of_leader(world)
    if to >= 0:
        _change_leader(world, log, to, now_us)
    else:
        world.group[0].electing = 0


@kernel
def _fault_in_loop(world, log, i, now_us):
    group, this = world.group[0], world.faults[i]
    apply_fault_to_world(world.peers[this.who], this.kind, this.value)
    if this.kind == PAUSE_LEADER:
        group.paused_until_us = this.value
        checks_us = (this.value // 1000 + 1) * 1000  # I/O threads wake up before isr-expiration does
        log_rows.write_event_row(log, group.leader, now_us, checks_us, SILENT)
        for p in range(len(world.partitions)):
            _take_in_row_in_loop(world, log, p, SILENCE, UNKNOWN, UNKNOWN, 0, checks_us, now_us)
    elif this.kind == CHANGE_LEADER and this.who != group.leader:
        _change_leader(world, log, this.who, now_us)
    elif this.kind == REMOVE and this.who != group.leader:
        for p in range(len(world.partitions)):
            if world.leaders[p, 0].isr >> this.who & 1 != 0:
                _take_in_row_in_loop(world, log, p, REMOVED, this.who, UNKNOWN, 0, 0, now_us)
    elif this.kind == ELIGIBILITY:
        log_rows.write_event_row(log, this.who, now_us, now_us, UNFENCED if this.value != 0 else FENCED)
        for p in range(len(world.partitions)):
            for broker in range(len(world.peers)):  # the next leader is informed as well
                world.remembered[p, broker, this.who].eligible = this.value
            _take_in_row_in_loop(world, log, p, ELIGIBLE, this.who, UNKNOWN, this.value, 0, now_us)


@kernel
def _start_loop(world, log):
    group = world.group[0]
    now_us = next_instant_of_world_us(group, group.now_us)
    group.started = 1
    for i in range(len(world.faults)):
        event_queue.push_event(world, world.faults[i].time_us, FAULT, i, 0)
    for p in range(len(world.partitions)):
        partition = world.partitions[p]
        partition.next_us = now_us + (produce_gap_of_world_us(world, p) if partition.gap_us > 0 else 0)
        partition.previous_leader = UNKNOWN
        _begin_term_in_loop(world, p, partition.term_isr, world.held[p, group.leader], now_us)
        _settle_in_loop(world, log, p, now_us)
    followers_request_first(world, now_us)


@kernel
def _happen_in_loop(world, log, kind, who, now_us):
    if kind == PRODUCED:
        start_request(world, who, now_us)
    elif kind == APPENDED:
        _append_in_loop(world, log, who, now_us)
    elif kind == FETCHED:
        _fetched_in_loop(world, log, who, now_us)
    elif kind == TAKEN:
        _request_taken_in_loop(world, log, who, now_us)
    elif kind == RECORD:
        _record_in_loop(world, log, who, now_us)
    elif kind == ANSWERED:
        _answered_in_loop(world, log, who, now_us)
    elif kind == ELECTION:
        _elect_in_loop(world, log, now_us)
    else:
        _fault_in_loop(world, log, who, now_us)


@kernel
def _fire_timer_in_loop(world, log, which, due_us):
    """Fire timer ``which``: of a partition (check, ISR write, giving up leadership), or of a fetch's wait for data."""
    group, partitions = world.group[0], len(world.partitions)
    if which < partitions:
        now_us = next_instant_of_world_us(group, due_us)
        fire_timers(partition_state_of_world(world, which), now_us, world.out)
        _settle_in_loop(world, log, which, now_us)
    elif due_us < group.paused_until_us:
        event_queue.set_queued_timer(world, which, group.paused_until_us)
    else:
        _answer_in_loop(world, which - partitions, next_instant_of_world_us(group, due_us))


@entry
def simulation_loop(world, log, room):
    """Simulate to the end and return 1, or return 0 once ``log`` has over ``room`` rows, for the caller to empty it."""
    group = world.group[0]
    if group.started == 0:
        _start_loop(world, log)
    while True:
        full = world.out.filled[2] > len(log.changes) // 2 or 2 * world.out.filled[3] > len(world.out.score)
        if max(log.filled) > room or full:
            return 0
        timer_us = event_queue.next_queued_timer_us(world)
        event_us = world.event_us[0] if group.events > 0 else NEVER_US
        if min(timer_us, event_us) > group.end_us:
            break
        if timer_us <= event_us:
            _fire_timer_in_loop(world, log, event_queue.next_queued_timer(world), timer_us)
            continue
        due_us, kind, who, serial = event_queue.pop_event(world)
        if request_is_void(world, kind, who, serial):
            continue
        if kind < FAULT and due_us < group.paused_until_us:
            event_queue.push_event(world, group.paused_until_us, kind, who, serial)
            continue
        _happen_in_loop(world, log, kind, who, next_instant_of_world_us(group, due_us))
    now_us = max(group.end_us, group.now_us)
    for p in range(len(world.partitions)):
        fire_timers(partition_state_of_world(world, p), now_us, world.out)
        _settle_in_loop(world, log, p, now_us)
        _end_of_loop(world, log, p, now_us)
    return 1

"""The queue of a simulation (``World``): a heap of events, one timer per partition, and one per fetch that waits.

Events come in chronological order; events of equal times come in the order in which they were pushed. A timer is
usually reset many times before it fires. Therefore timers are kept in a tree of minima: in the heap, each reset would
leave an obsolete event behind.
"""

from udfs.jit import inlined, kernel


@inlined
def set_queued_timer(world, which, time_us):
    """Set timer ``which`` to fire at ``time_us``. NEVER_US clears the timer.

    Timers 0 to P - 1 are those of the P partitions. Timer P + f ends the wait of follower f's fetch for data.
    """
    timers = world.timers
    i = len(timers) // 2 + which
    if timers[i] == time_us:
        return
    timers[i] = time_us
    while i > 1:
        i //= 2
        least_us = min(timers[2 * i], timers[2 * i + 1])
        if timers[i] == least_us:
            return
        timers[i] = least_us


@inlined
def queued_timer_us(world, which):
    """Return the time of timer ``which``; NEVER_US if it is not set."""
    return world.timers[len(world.timers) // 2 + which]


@kernel
def next_queued_timer_us(world):
    """Return the time at which the next timer fires; NEVER_US if no timer is set."""
    return world.timers[1]


@kernel
def next_queued_timer(world):
    """Return the number of the timer that fires first. If several fire at the same time, it is the lowest number."""
    timers, i = world.timers, 1
    while i < len(timers) // 2:
        i = 2 * i if timers[2 * i] == timers[i] else 2 * i + 1
    return i - len(timers) // 2


@kernel
def _event_before(world, i, j):
    """Whether event ``i`` comes before event ``j``: by time, then in the order in which events were pushed."""
    return world.event_us[i] < world.event_us[j] or (
        world.event_us[i] == world.event_us[j] and world.event_order[i] < world.event_order[j]
    )


@kernel
def _move(world, i, j):
    """Move event ``i`` of the heap to slot ``j``."""
    world.event_us[j] = world.event_us[i]
    world.event_order[j] = world.event_order[i]
    world.event_kind[j] = world.event_kind[i]
    world.event_who[j] = world.event_who[i]
    world.event_serial[j] = world.event_serial[i]


@kernel
def push_event(world, time_us, kind, who, serial):
    """Add an event to the queue.

    ``kind`` is a kind of event of `leader_requests`, ``who`` the partition, follower or fault, and ``serial`` the
    number of the leader's term. Once that term is over, the event is ignored (`leader_requests.request_is_void`).
    """
    group = world.group[0]
    last = len(world.event_us) - 1  # a separate slot for the current event
    world.event_us[last] = time_us
    world.event_order[last] = group.pushed
    world.event_kind[last] = kind
    world.event_who[last] = who
    world.event_serial[last] = serial
    group.pushed += 1
    place = group.events
    group.events += 1
    while place > 0:
        parent = (place - 1) // 2
        if not _event_before(world, last, parent):
            break
        _move(world, parent, place)
        place = parent
    _move(world, last, place)


@kernel
def pop_event(world):
    """Remove the next event from the queue, which must not be empty, and return its time, kind, who and serial."""
    group = world.group[0]
    time_us, kind, who, serial = (
        world.event_us[0],
        world.event_kind[0],
        world.event_who[0],
        world.event_serial[0],
    )
    group.events -= 1
    last, place = group.events, 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and _event_before(world, child + 1, child):
            child += 1
        if not _event_before(world, child, last):
            break
        _move(world, child, place)
        place = child
    _move(world, last, place)
    return time_us, kind, who, serial

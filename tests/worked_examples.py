"""The examples that proposals argue from, as logs: one partition, one term, times in ms from its start.

Leader 1 (1001 in KIP-501), the others follow. Where a proposal leaves a time open, the comment says what was taken.
"""

from tests.naive_truth import APPEND, FETCH, Row, Term

START_MS = 10**9
"""Long after 1970, and a multiple of every check period used: checks fall on multiples of the period."""
LAG_MS = 10_000
HOUR_MS = 3_600_000


def append(ms: int, end: int, acks: int = -1) -> Row:
    return Row((START_MS + ms) * 1000, APPEND, offset=end, code=acks)


def fetch(ms: int, replica: int, offset: int, *, handled: int = 0, recorded: int = 0, waited: int = 0) -> Row:
    """Handled and recorded at once and answered then, or after a wait for data; or at the times given."""
    handled = handled or ms
    recorded = recorded or handled
    waited = waited or recorded
    times = [(START_MS + at) * 1000 for at in (handled, recorded, waited, waited)]
    return Row((START_MS + ms) * 1000, FETCH, replica, offset, 0, -1, *times)


def term(end_ms: int, rows: list[Row], *, replicas: tuple[int, ...], log_end: int, isr: tuple[int, ...] = ()) -> Term:
    """A new leader, with everything committed so far, and all in the ISR unless told otherwise."""
    start_us, end_us = START_MS * 1000, (START_MS + end_ms) * 1000
    return Term(
        replicas, replicas[0], start_us, end_us, log_end, log_end, isr or replicas, leader_is_new=True,
        rows=tuple(sorted(rows, key=lambda row: (row.time_us, row.kind))),
    )  # fmt: skip


def kip_501() -> Term:
    """Log end 1002 and fetch 950 at tx = 1 s, log end 1100 and fetch 1002 at ty = 1.5 s, which takes 25 s.

    Before tx each follower was at the log end once, at 0; after those 25 s each has everything.
    """
    rows = [append(900, 1002), append(1200, 1100)]
    for again_ms, follower in (26_510, 1002), (26_520, 1003):
        rows += [
            fetch(0, follower, 950, waited=500),
            fetch(1000, follower, 950),
            fetch(1500, follower, 1002, recorded=26_500),
            fetch(again_ms, follower, 1100, waited=again_ms + 500),
        ]
    return term(36_000, rows, replicas=(1001, 1002, 1003), log_end=950)


def kafka_7152(rounds: int = 3) -> Term:
    """One of the idle partitions: the answer to each fetch waits 20 s for the ISR writes of all the others."""
    held_ms = 2000 * 10
    rows = [
        fetch(at_ms, 2, 100)._replace(until_us=(START_MS + at_ms + held_ms) * 1000)
        for at_ms in range(0, rounds * held_ms, held_ms)
    ]
    return term(rounds * held_ms - 1, rows, replicas=(1, 2), log_end=100, isr=(1,))


def kafka_4485(batches: int = 300) -> Term:
    """A record every 100 ms; each fetch, 50 ms later, asks for the log end of the one before."""
    appends = [append(100 * batch, batch) for batch in range(1, batches + 1)]
    fetches = [fetch(100 * batch + 50, 2, batch - 1) for batch in range(1, batches + 1)]
    return term(100 * batches + 99, appends + fetches, replicas=(1, 2), log_end=0)


def kafka_10853() -> Term:
    """One append that nobody has yet, and then nothing moves in the leader for a minute."""
    rows = [append(200, 101)]
    for follower in 2, 3:
        rows += [fetch(0, follower, 100, waited=100), fetch(210, follower, 100, handled=60_210)]
    return term(40_000, rows, replicas=(1, 2, 3), log_end=100)


def kafka_10853_price(acks: int) -> Term:
    """A record a second; follower 2 takes each at once, follower 3 is dead after its first fetch."""
    rows = [fetch(0, 2, 100, waited=500), fetch(0, 3, 100, waited=500), fetch(510, 2, 100, waited=1000)]
    for second in range(1, 31):
        at_ms, end = 1000 * second, 100 + second
        rows += [
            append(at_ms, end, acks),
            fetch(at_ms + 10, 2, end, waited=at_ms + 510),
            fetch(at_ms + 520, 2, end, waited=at_ms + 1000),
        ]
    return term(30_900, rows, replicas=(1, 2, 3), log_end=100)


def burst() -> Term:
    """10 000 messages at once, shortly before a check; the follower has them within a second."""
    rows = [fetch(at_ms, 2, 0, waited=at_ms + 490) for at_ms in range(0, 9_500, 500)]
    rows += [append(9_500, 10_000), fetch(9_600, 2, 3_000), fetch(10_500, 2, 10_000)]
    return term(20_000, rows, replicas=(1, 2), log_end=0)


def trickle(hours: int = 48) -> Term:
    """A message an hour for two days; the follower asks every 9 s, and never gets any further."""
    appends = [append(hour * HOUR_MS, hour) for hour in range(1, hours)]
    fetches = [fetch(at_ms, 2, 0) for at_ms in range(0, hours * HOUR_MS, 9_000)]
    return term(hours * HOUR_MS, appends + fetches, replicas=(1, 2), log_end=0)

"""Sum up each storm: the suspected broker, and when the ISRs were complete again.

A storm is a group of shrinks whose checks share a broker, and whose followers stopped at the same time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from isr_batch.evidence.evidence_table import Row, rows_of_evidence_table
from isr_batch.evidence.shrinks import AT_MOST, FAILED, LEADER
from isr_batch.evidence.suspects import EITHER, NOT_KNOWN, STRONG


class Storm(NamedTuple):
    """A group of related shrinks, with the suspected broker and the reason.

    Attributes
    ----------
    first, last : datetime
        Times of the first and the last shrink.
    since, since_is_printed : datetime, bool
        The earliest time at which a dropped follower was last caught up. If no line shows such a time, ``since`` is the
        time of the first shrink, and ``since_is_printed`` is false.
    replicas, partitions : int
        Number of dropped replicas, and number of partitions to which they belong.
    broker : int or None
        The suspected broker; None if no single broker is suspected.
    leader : int
        The leader that dropped most of the replicas.
    also : list
        Other brokers that strong evidence points at, as ((broker, suspect), number of dropped replicas). The suspect is
        that of table shrink_evidence, such as "follower".
    suspect, strength, reason, lines
        As in table shrink_evidence, for the shrink with the strongest evidence against the suspected broker.
    whole_after_ms : int or None
        Time between the first shrink and the return of the last replica; None if some replica was not seen to return.
    whole_at_most : bool
        Whether ``whole_after_ms`` is only an upper bound.
    """

    first: datetime
    last: datetime
    since: datetime
    since_is_printed: bool
    replicas: int
    partitions: int
    broker: int | None
    leader: int
    also: list[tuple[tuple[int, str], int]]
    suspect: str
    strength: str
    reason: str
    lines: list[str]
    whole_after_ms: int | None
    whole_at_most: bool


def storms(evidence: pa.Table) -> list[Storm]:
    """Return the storms of one cluster in chronological order.

    A storm is a group of shrinks that share a broker, as leader or as dropped follower, and whose followers stopped
    fetching at about the same time.

    Parameters
    ----------
    evidence : pa.Table
        Rows of one cluster, from `isr_batch.evidence.evidence_table.evidence_rows`.
    """
    return storms_in_rows(rows_of_evidence_table(evidence))


def storms_in_rows(rows: Iterable[Row]) -> list[Storm]:
    """Return the storms in rows of table shrink_evidence, in chronological order. See `storms`.

    Rows whose ``storm_time`` is null belong to no storm, and are ignored.
    """
    grouped: dict[datetime, list[Row]] = defaultdict(list)
    for row in rows:
        if row["storm_time"] is not None:
            grouped[row["storm_time"]].append(row)
    return [_storm_of_rows(of_storm) for _, of_storm in sorted(grouped.items())]


def _storm_of_rows(rows: Sequence[Row]) -> Storm:
    votes = Counter((row["suspect_broker"], row["suspect"] not in {EITHER, NOT_KNOWN}) for row in rows)
    (broker, alone), _ = max(votes.items(), key=lambda vote: (vote[0][1], vote[1]))
    # If the suspect is a leader, its own rows show more than those of the leaders that dropped it.
    voters = [row for row in rows if row["suspect_broker"] == broker]
    others = Counter(
        (row["suspect_broker"], EITHER if row["suspect"] == EITHER else "") for row in rows
        if row["strength"] == STRONG and row["suspect_broker"] not in {broker, None}
    )  # fmt: skip
    best = max(voters, key=lambda row: (row["strength"] == STRONG, row["suspect"] == LEADER))
    caught_up = [row["last_caught_up_time_ms"] for row in rows if row["last_caught_up_time_ms"] is not None]
    first = min(row["change_time"] for row in rows)
    since = min(caught_up, default=None)
    back = [
        None if row["returned_ms"] is None else row["change_time"] + timedelta(milliseconds=row["returned_ms"]) - first
        for row in rows
        if row["write_outcome"] != FAILED
    ]
    leader = Counter(row["leader_id"] for row in rows).most_common(1)[0][0]
    whole = None if None in back or not back else max(each for each in back if each is not None)
    return Storm(
        first, max(row["change_time"] for row in rows),
        first if since is None else datetime(1970, 1, 1, tzinfo=first.tzinfo) + timedelta(milliseconds=since),
        since is not None,
        len(rows), len({(row["topic"], row["partition_id"]) for row in rows}),
        broker, leader, others.most_common(), best["suspect"] if alone or broker is None else EITHER,
        best["strength"], best["reason"], best["evidence_lines"],
        None if whole is None else whole // timedelta(milliseconds=1),
        any(row["returned_source"] == AT_MOST for row in rows),
    )  # fmt: skip


def storm_suspect(storm: Storm) -> str:
    """Name the broker that is suspected in a storm, as in `suspect_in_words`."""
    return suspect_in_words(storm.broker, storm.suspect)


def suspect_in_words(broker: int | None, suspect: str) -> str:
    """Return "broker 1", "broker 1 or the link to it" or, if ``broker`` is None, "no single broker".

    ``suspect`` is a value of the column of this name in table shrink_evidence.
    """
    if suspect == NOT_KNOWN:
        return "no single broker"
    return f"broker {broker} or the link to it" if suspect == EITHER else f"broker {broker}"

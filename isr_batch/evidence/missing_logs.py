"""Report missing logs that hide shrinks: a missing server.log, or a server.log without lines at INFO."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from isr_batch.evidence.shrinks import LEADER
from isr_batch.phrases import brokers_text, count_of
from isr_batch.shown_times import day_and_time, in_shown_zone, time_of_day, zone_name

if TYPE_CHECKING:
    from isr_batch.evidence.evidence_table import Row

AT_ONCE: Final = timedelta(seconds=1)
"""Two logs of a broker begin at the same time if the times of their first lines differ by at most this much."""


def missing_logs(coverage: Iterable["Row"], brokers: Collection[int], with_server_log: Collection[int]) -> list[str]:
    """Return sentences about brokers whose server.log is missing, has no lines at INFO, or begins late.

    A server.log begins late if it begins after the same broker's state-change.log.

    Parameters
    ----------
    coverage : iterable of dict
        Rows of table coverage for one cluster, with the keys broker_id, log and from_time. A server.log without lines
        at INFO has no row.
    brokers : collection of int
        Brokers with any log.
    with_server_log : collection of int
        Brokers with a server.log.
    """
    begins = {(row["broker_id"], row["log"]): row["from_time"] for row in coverage}
    said = []
    if none := sorted(set(brokers) - set(with_server_log)):
        said.append(missing_server_log(none))
    if silent := [broker for broker in sorted(with_server_log) if (broker, "server") not in begins]:
        said.append(
            f"server.log of {brokers_text(silent)} only has lines at WARN and ERROR, but leaders log "
            "which replicas they drop at INFO: set the logger kafka.cluster.Partition to INFO."
        )
    late: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(with_server_log):
        begin, other = begins.get((broker, "server")), begins.get((broker, "state-change"))
        if begin and other and begin - other > AT_ONCE:
            late[f"{in_shown_zone(begin):%H:%M:%S}"].append(broker)
    if late:
        since = ", ".join(f"at {begin} ({brokers_text(ids)})" for begin, ids in sorted(late.items()))
        said.append(f"server.log begins {since}, after state-change.log: earlier drops by leaders are not known.")
    return said


def missing_server_log(brokers: Sequence[int]) -> str:
    """Return the sentence that says that server.log of these brokers is missing, and why it is needed."""
    return f"server.log of {brokers_text(brokers)} is missing, and only it shows which replicas the leader dropped."


def absent_brokers(named: Iterable[int], brokers: Collection[int]) -> list[str]:
    """Return a list with one sentence, which names the brokers without logs.

    The result is empty if every broker has logs, or if no broker has any.

    Parameters
    ----------
    named : iterable of int
        Brokers that sent fetches, or that were in an ISR.
    brokers : collection of int
        Brokers with any log.
    """
    absent = sorted({*named} - {*brokers})
    if not absent or not brokers:
        return []
    it, its = ("it", "its") if len(absent) == 1 else ("them", "their")
    by_others = f"only others show what happened to {it} and to {its} links"
    dropped = "drops by a leader without logs are missing or not judged"
    return [f"No logs of {brokers_text(absent)} are here: {by_others}; {dropped}."]


def uninformed_leaders(brokers: Sequence[int]) -> str:
    """Return the sentence that says that the logs do not show which replicas these brokers dropped as leaders."""
    return (
        f"Nothing shows which replicas {brokers_text(brokers)} dropped: server.log is missing or has no lines at INFO."
    )


def returns_alone(changes: Iterable["Row"]) -> list[str]:
    """Return one sentence on replicas that the logs show joining an ISR, but not leaving it; an empty list without any.

    Parameters
    ----------
    changes : iterable of dict
        Rows of observed_isr_changes for one cluster: kind, change_time. Each row of kind ``expand`` is one replica.
    """
    back = sorted(row["change_time"] for row in changes if row["kind"] == "expand")
    if not back:
        return []
    said = (
        f"{count_of(len(back), 'replica')} came back into an ISR from {day_and_time(back[0])} to "
        f"{time_of_day(back[-1])} {zone_name()}, and no line here says when they left: the Shrinking ISR lines are in "
        "an earlier file, or were filtered out."
    )
    return [said]


def metadata_alone(changes: Iterable["Row"]) -> list[str]:
    """Return a list with a sentence on the replicas that left an ISR, for a cluster that only has a metadata log.

    Parameters
    ----------
    changes : iterable of dict
        Rows of observed_isr_changes for one cluster: kind, made_by, change_time.
    """
    left = [row for row in changes if row["kind"] == "shrink"]
    only = "Only the metadata log is here, and why a replica left is in its leader's server.log."
    if not left:
        return [f"No replica left an ISR. {only}"]
    first, last = (pick(row["change_time"] for row in left) for pick in (min, max))
    by_leader = sum(row["made_by"] == LEADER for row in left)
    said = (
        f"{count_of(len(left), 'replica')} left the ISR from {day_and_time(first)} to "
        f"{time_of_day(last)} {zone_name()}: {by_leader} dropped by their leader, {len(left) - by_leader} removed by "
        f"the controller. {only}"
    )
    return [said]

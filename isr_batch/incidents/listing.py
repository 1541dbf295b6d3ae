"""List incidents, and the partitions with the most drops of healthy followers, with commands that show details."""

from collections.abc import Sequence
from typing import Final

from isr_batch.errors import NoInputError
from isr_batch.incidents.incident_lines import incident_lines
from isr_batch.incidents.incident_story import incident_story, incident_time
from isr_batch.incidents.own_shrinks import OwnShrinks, Row, ask_own_shrinks, incident_key
from isr_batch.incidents.sentences import NOTHING, incidents_worst_first
from isr_batch.phrases import count_of, listed
from isr_batch.printable import shell_word
from isr_batch.window import AskedTime

MOST: Final = 10
"""Maximum number of incidents that are listed in full."""
PARTITIONS: Final = 5
"""Maximum number of partitions that are listed below the incidents."""


def chosen_incidents(own: OwnShrinks, broker: int | None = None, at: AskedTime | None = None) -> list[Row]:
    """Select incidents by broker and time, and return them with the worst first.

    Parameters
    ----------
    own : OwnShrinks
    broker : int, optional
        If given, only incidents in which this broker is at fault, dropped others, or was dropped.
    at : AskedTime, optional
        If given, only the incident that is nearest to this time.

    Raises
    ------
    NoInputError
        If the logs do not mention this broker.
    """
    if broker is not None:
        _require_known_broker(own, broker)
    found = [one for one in own.incidents if broker in (None, one["fault_id"], *one["droppers"], *one["replicas"])]
    if at is None or not found:
        return incidents_worst_first(found)
    return [min(found, key=lambda one: abs(at.after_us(one["since_us"], one["last_us"])))]


def _require_known_broker(own: OwnShrinks, broker: int) -> None:
    """Raise a NoInputError if the lake has no partition or drop that involves the broker."""
    terms = own.tables["leader_epochs"].select(["leader_id", "assigned"]).to_pylist()
    there = {row["leader_id"] for row in terms} | {replica for row in terms for replica in row["assigned"]}
    there |= {row[side] for row in own.drops.to_pylist() for side in ("leader_id", "replica_id")}
    if broker not in there:
        raise NoInputError(f"no broker {broker} in these logs", f"the brokers are {listed(sorted(there))}")


def nearest_drop_us(own: OwnShrinks, incidents: Sequence[Row], at: AskedTime) -> int:
    """Return how many microseconds after ``at`` the nearest drop of a follower in these incidents was.

    The result is negative if that drop was earlier than ``at``, and 0 if there are no drops.
    """
    keys = {incident_key(one) for one in incidents}
    after = [at.after_us(row["change_us"]) for row in own.drops.to_pylist() if incident_key(row) in keys]
    return min(after, key=abs, default=0)


def listed_incidents(
    own: OwnShrinks, incidents: Sequence[Row], lake: str, *, whole: bool = False, broker: int | None = None
) -> list[str]:
    """List the first `MOST` incidents as lines of text, then the partitions with the most drops of healthy followers.

    Parameters
    ----------
    own : OwnShrinks
    incidents : sequence of dict
        Result of `chosen_incidents`.
    lake : str
        Value of ``--lake`` in the ``isr-batch explain`` commands.
    whole : bool
        Whether to add to each statement the log lines and the query that prove it. The partitions are left out then.
    broker : int, optional
        If given, incidents in which another broker is at fault come last, each in one line.
    """
    if not own.clusters:
        return [NOTHING]
    if not incidents:
        return ["No follower was dropped, or no drop involves this broker."]
    pointing = [one for one in incidents if broker in (None, one["fault_id"])]
    others = [one for one in incidents if broker not in (None, one["fault_id"])]
    lines = _lines_of_incidents(own, pointing, lake, whole=whole)
    if others:
        lines += [*[""][: len(lines)], f"Others in which broker {broker} dropped followers, or was dropped:"]
        lines += _lines_of_incidents(own, others, lake, whole=False)
    worst = worst_partitions(own) if len(incidents) > 1 and not whole else []
    if worst:
        named = _several_clusters(own)
        lines += ["", "Partitions with most healthy followers dropped:"]
        for one in worst:
            of = f"{one['spurious']} of {count_of(one['drops'], 'drop')} spurious"
            lines.append(f"{one['cluster_id'] + ', ' if named else ''}{one['topic']}-{one['partition_id']}: {of}")
            lines.append(f"  {listed_explain_command(one, lake)}")
    return lines


def _lines_of_incidents(own: OwnShrinks, incidents: Sequence[Row], lake: str, *, whole: bool) -> list[str]:
    """List the first `MOST` incidents as lines of text, each with an ``isr-batch explain`` command for a drop.

    If ``whole`` is true, all lines about an incident are included, otherwise one sentence.
    """
    shown = incidents[:MOST]
    lines = []
    for one in shown:
        one_story = incident_lines(own, one) if whole else [f"{incident_time(one)}: {incident_story(one)}"]
        lines += [f"{one['cluster_id'] + ', ' if _several_clusters(own) else ''}{one_story[0]}", *one_story[1:]]
        if one["rule"]:
            lines.append(f"  {listed_explain_command(one, lake)}")
    if len(incidents) > len(shown):
        lines.append(f"{len(incidents) - len(shown)} more: --broker B or --at TIME chooses among them.")
    return lines


def _several_clusters(own: OwnShrinks) -> bool:
    """Whether the lake has several clusters, so that each line has to name its cluster."""
    return len({one["cluster_id"] for one in own.clusters}) > 1


def worst_partitions(own: OwnShrinks) -> list[Row]:
    """Return `PARTITIONS` or fewer rows: the partitions from whose ISRs the most healthy followers were dropped."""
    return ask_own_shrinks("partitions", {"most": str(PARTITIONS)}, drops=own.drops).to_pylist()  # type: ignore[no-any-return]


def listed_explain_command(one: Row, lake: str = "LAKE") -> str:
    """Return the ``isr-batch explain`` command that explains the example drop of an incident or a partition.

    Parameters
    ----------
    one : dict
        An incident or a row of `worst_partitions`. Its keys topic, partition_id, example_us and rule name the drop.
    lake : str
        Value of ``--lake`` in the command.
    """
    return (
        f"isr-batch explain --topic {shell_word(one['topic'])} --partition {one['partition_id']} "
        f"--at {one['example_us'] // 1000} --rule {one['rule']} --lake {shell_word(lake)}"
    )

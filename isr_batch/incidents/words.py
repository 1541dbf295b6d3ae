"""Say in sentences which drops were spurious, which broker they point at, and how sure that is."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from isr_batch.incidents.own_shrinks import VERDICTS, OwnShrinks, Row

CALLED: Final = {
    "spurious": "healthy",
    "genuine": "stopped or behind",
    "excluded": "removed by the controller",
    "unknown": "not judged",
}
"""What a dropped follower is called on the page, by its verdict."""
_TIMES: Final = ("", "once", "twice", "three times", "four times", "five times", "six times")
_HEALTHY: Final = {
    "caught_up": "they lacked nothing",
    "keeping_pace": "they kept pace with the log",
    "slow_leader": "the leader held up their fetches",
    "unacked_only": "they lacked only records that were not acknowledged yet",
}
_EVENTS: Final = {"shutting_down": "shut down", "fenced": "was fenced (no heartbeat)", "started": "started again"}


def headline(own: OwnShrinks, cluster: Row) -> list[str]:
    """Say what a cluster's brokers dropped, whose fault it was, and how sure that is; the first sentence says most.

    Parameters
    ----------
    own : OwnShrinks
    cluster : dict
        One of ``own.clusters``.
    """
    incidents = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
    counts = {verdict: sum(one[verdict] for one in incidents) for verdict in VERDICTS}
    dropped = counts["spurious"] + counts["genuine"] + counts["unknown"]
    who = "your brokers" if cluster["logged"] else f"{own.rule}, replayed,"
    nobody = f"{'Your brokers' if cluster['logged'] else who} dropped no follower."
    said = [_healthy(dropped, counts, incidents, who) if dropped else nobody]
    for kind, begin in (("genuine", "really stopped or behind"), ("excluded", "removed by the controller")):
        if counts[kind]:
            said.append(f"{counts[kind]} {_were(counts[kind])} {begin}: {_by_broker(incidents, kind)}.")
    if counts["unknown"]:
        said.append(f"{counts['unknown']} cannot be judged{_suspects(incidents)}.")
    if cluster["changes"]:
        said.append(f"The replay agrees with the brokers on {cluster['matched']:,} of {cluster['changes']:,} changes.")
    elif cluster["logged"] and dropped:
        said.append("The replay was not compared with the brokers.")
    return said


def _healthy(dropped: int, counts: Row, incidents: Sequence[Row], who: str) -> str:
    spurious = counts["spurious"]
    of = f"Of {count_of(dropped, 'follower')} that {who} dropped, {spurious or 'none'} {_were(spurious)} healthy"
    guilty = [one | {"made": one["spurious"] - one["spurious_of_stopped"]} for one in incidents if one["spurious"]]
    if not guilty:
        return f"{of}."
    silent = [one for one in guilty if one["made"] and one["silent_ms"]]
    parts = []
    for broker in _order(silent, "made"):
        times = [one["silent_ms"] for one in silent if one["fault_id"] == broker]
        number = sum(one["made"] for one in silent if one["fault_id"] == broker)
        parts.append(f"broker {broker} was silent for {seconds(times)} {often(len(times))}, then dropped {number}")
    others = [one for one in guilty if one["made"] and not one["silent_ms"]]
    for broker in _order(others, "made"):
        of_broker = [one for one in others if one["fault_id"] == broker]
        causes = dict.fromkeys(_HEALTHY[one["spurious_cause"]] for one in of_broker)
        parts.append(f"broker {broker} dropped {sum(one['made'] for one in of_broker)} ({' or '.join(causes)})")
    stopped = _order(guilty, "spurious_of_stopped")
    if stopped:
        number = sum(one["spurious_of_stopped"] for one in guilty)
        parts.append(
            f"{number} lacked nothing there, or kept pace, while really stopped elsewhere ({_brokers(stopped)})"
        )
    return f"{of}: {'; '.join(parts)}."


def _by_broker(incidents: Sequence[Row], kind: str) -> str:
    parts = []
    for broker in _order(incidents, kind):
        of_broker = [one for one in incidents if one["fault_id"] == broker and one[kind]]
        number = sum(one[kind] for one in of_broker)
        parts.append(f"broker {broker} {often(len(of_broker))} ({number}{_narrow(of_broker, kind)})")
    return ", ".join(parts)


def _narrow(incidents: Sequence[Row], kind: str) -> str:
    links = {link(one) for one in incidents}
    return f", {links.pop()}" if kind == "genuine" and len(links) == 1 and "" not in links else ""


def link(incident: Row) -> str:
    """Name the link, where one leader dropped a follower that others went on with; otherwise empty."""
    by, leaders = incident["dropped_by"] or [], set(incident["leaders"] or [])
    if not incident["genuine"] or len(by) != 1 or not leaders - set(by):
        return ""
    return f"or its link to broker {by[0]}"


def _late(incident: Row) -> str:
    """Name the leader whose ISRs had a follower back more than a lag time after all others, as under a throttle."""
    if incident["late_leader"] is None:
        return ""
    others, late = (seconds([(incident[name] - incident["first_us"]) // 1000]) for name in ("others_us", "late_us"))
    leader = f"broker {incident['late_leader']}"
    return f", which had it back after {others}, but {leader} only after {late} (suspect it, the link or a throttle)"


def _suspects(incidents: Sequence[Row]) -> str:
    brokers = sorted({one["fault_id"] for one in incidents if one["unknown"] and one["fault_id"] is not None})
    return f"; the lines of server.log point at {_brokers(brokers)}" if brokers else ""


def story(incident: Row) -> str:
    """Say what happened in one incident."""
    broker = incident["fault_id"]
    if broker is None:
        return f"{count_of(incident['unknown'], 'follower')} dropped; the logs do not say why."
    said = []
    if incident["silent_ms"]:
        said.append(f"was silent for {seconds([incident['silent_ms']])}")
    elif incident["genuine"]:
        slow = incident["genuine_cause"] == "follower_slow"
        said.append("fetched, but fell behind" if slow else "stopped fetching")
    if incident["genuine"]:
        narrow = f" ({link(incident)})" if link(incident) else ""
        drops = count_of(incident["genuine"], "ISR")
        said.append(f"{_brokers(incident['dropped_by'])} dropped it from {drops}{narrow}{_late(incident)}")
    if incident["spurious_of_stopped"]:
        said.append(
            f"it was dropped {often(incident['spurious_of_stopped'])} from where it lacked nothing or kept pace"
        )
    made = incident["spurious"] - incident["spurious_of_stopped"]
    if made:
        cause = _HEALTHY[incident["spurious_cause"]]
        one_cause = cause.replace("they ", "it ").replace("their ", "its ")
        why = "" if incident["silent_ms"] else f", although {one_cause if made == 1 else cause}"
        healthy = count_of(made, "healthy follower")
        it = "it " if said else ""
        said.append(f"{it}dropped {healthy} ({_brokers(incident['healthy'])}){why}")
    if incident["excluded"]:
        events = [_EVENTS[kind] for kind in incident["events"] or []]
        said += [*events, f"was removed from {count_of(incident['excluded'], 'ISR')} by the controller"]
    if incident["unknown"]:
        suspect = (incident["suspect"] or "broker").replace("_", " ")
        judged = f"{count_of(incident['unknown'], 'drop')} cannot be judged, and server.log points at the {suspect}"
        said.append(judged if said else f"is suspected: {judged}")
    return f"Broker {broker} {'; '.join(said)}."


def answer(own: OwnShrinks, better: Mapping[str, Sequence[str]] | None = None, most: int = 10) -> list[str]:
    """Answer in at most ``most`` lines: a line for each cluster, and of a single one its worst incidents.

    Parameters
    ----------
    own : OwnShrinks
    better : mapping of str to sequence of str, optional
        By cluster, what another rule would have done.
    most : int
    """
    clusters = clusters_worst_first(own)
    lines = [
        " ".join([f"{one['cluster_id']}:", *headline(own, one), *(better or {}).get(one["cluster_id"], ())])
        for one in clusters
    ]
    if not lines:
        return ["This lake has no terms of leaders, so there is nothing to tell."]
    if len(lines) > most:
        return [*lines[: most - 1], f"{len(lines) - most + 1} more clusters are in the report."]
    if len(lines) == 1:
        worst = worst_first(own.incidents)[: most - 2]
        lines += [f"  {when(one)}: {story(one)}" for one in sorted(worst, key=lambda one: one["first_us"])]
        if len(worst) < len(own.incidents):
            lines.append(f"  {len(own.incidents) - len(worst)} more incidents: isr-batch explain --lake LAKE")
    return lines


def when(incident: Row) -> str:
    """Write from when to when, in UTC: from the last time that a follower was caught up, to the last drop."""
    since, until = at(incident["since_us"]), at(incident["last_us"], "%H:%M:%S")
    return since if since.endswith(until) else f"{since} to {until}"


def clusters_worst_first(own: OwnShrinks) -> list[Row]:
    """Order clusters: most healthy followers dropped first, then most drops."""

    def drops(cluster: Row) -> tuple[int, int]:
        of = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
        return -sum(one["spurious"] for one in of), -sum(one[verdict] for one in of for verdict in VERDICTS)

    return sorted(own.clusters, key=lambda one: (*drops(one), one["cluster_id"]))


def worst_first(incidents: Iterable[Row]) -> list[Row]:
    """Order incidents: most healthy followers dropped first, then most drops by leaders."""
    return sorted(incidents, key=lambda one: (-one["spurious"], -one["genuine"] - one["unknown"], one["first_us"]))


def _order(incidents: Sequence[Row], kind: str) -> list[int]:
    sums: dict[int, int] = {}
    for one in incidents:
        if one[kind]:
            sums[one["fault_id"]] = sums.get(one["fault_id"], 0) + one[kind]
    return sorted(sums, key=lambda broker: (-sums[broker], broker))


def _brokers(ids: Sequence[int]) -> str:
    names = [*map(str, ids)]
    return f"broker{'' if len(ids) == 1 else 's'} {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}"


def _were(number: int) -> str:
    return "was" if number in (0, 1) else "were"


def count_of(number: int, what: str) -> str:
    """Write a number and its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def often(number: int) -> str:
    """Write how many times."""
    return _TIMES[number] if 0 < number < len(_TIMES) else f"{number:,} times"


def seconds(times_ms: Sequence[int]) -> str:
    """Write the least and the largest of times, in seconds."""
    least, most = (f"{ms / 1000:.3g}" for ms in (min(times_ms), max(times_ms)))
    return f"{least} s" if least == most else f"{least} to {most} s"


def at(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Write an instant in UTC."""
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):{form}}"

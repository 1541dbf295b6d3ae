"""Describe which drops (shrinks by the brokers) were spurious, which broker they point at, and how sure that is."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from isr_batch.incidents.incident_story import (
    STARVED,
    events_in_story,
    falls_behind_in_story,
    incident_story,
    incident_time,
    link_in_story,
    made_healthy,
    silence_in_story,
    spared_in_story,
    undelivered_in_story,
    why_healthy_in_story,
    why_unreached_in_story,
)
from isr_batch.incidents.own_shrinks import VERDICTS, OwnShrinks, Row
from isr_batch.incidents.uncovered_time import sentence_of_no_drop
from isr_batch.ingest.folder.folder_warnings import assumed_lag_time_sentence, release_not_logged_sentence
from isr_batch.lake.observers import sentences_on_observers
from isr_batch.phrases import brokers_text, count_of, largest_parts, listed, seconds_text
from isr_batch.shown_times import time_text, zone_name

CALLED: Final = {
    "spurious": "healthy",
    "genuine": "behind",
    "excluded": "removed by the controller",
    "unknown": "not judged",
}
"""Word for a dropped follower on the pages, by verdict."""
NOTHING: Final = "This lake has no terms of leaders, so there is nothing to report."
NAMED: Final = 4
"""Maximum number of times that a sentence lists. If there are more, it only names the first and the last."""


def cluster_headline(own: OwnShrinks, cluster: Row) -> list[str]:
    """Say how many dropped followers were healthy, which broker was at fault, how sure that is, and what was assumed.

    Parameters
    ----------
    own : OwnShrinks
    cluster : dict
        One of ``own.clusters``.
    """
    return _sentences_of_cluster(own, cluster) + _sentences_of_assumptions(cluster)


def brief_headline(own: OwnShrinks, cluster: Row) -> list[str]:
    """Return the first sentence of `cluster_headline` (the first two if it names no broker) and what was assumed."""
    said = _sentences_of_cluster(own, cluster)
    return said[: 1 if re.search(r"broker \d", said[0]) else 2] + _sentences_of_assumptions(cluster)


def _sentences_of_cluster(own: OwnShrinks, cluster: Row) -> list[str]:
    incidents = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
    counts = {verdict: sum(one[verdict] for one in incidents) for verdict in VERDICTS}
    counts["unknown"] -= cluster["unknown_makers"]
    dropped = counts["spurious"] + counts["genuine"] + counts["unknown"]
    who = "your brokers" if cluster["logged"] else f"{own.rule}, replayed,"
    form = clock_format(cluster)
    left = _sentences_of_unjudged_leaving(cluster)
    perhaps = "dropped or may have dropped" if left else "dropped"
    every = dropped + cluster["unknown_makers"]
    said = left or [sentence_of_no_drop(cluster, who)]
    if judged := counts["spurious"] + counts["genuine"]:
        said = [_sentence_healthy(every, counts, incidents, f"{who} {perhaps}", form)]
    elif dropped:
        none = f"None of the {dropped:,} followers that {who} dropped can"
        begin = none if dropped > 1 else f"The follower that {who} dropped cannot"
        said = [f"{begin} be judged by the replay{_sentence_unjudged(cluster, form)}."]
    if counts["genuine"]:
        said.append(_sentence_genuine(counts["genuine"], incidents, form))
    said += _sentences_of_no_fault(cluster, incidents)
    if counts["excluded"]:
        removed = f"{counts['excluded']:,} {_was_or_were(counts['excluded'])} removed by the controller"
        said.append(f"{removed}: {_moments_by_broker(incidents, 'excluded', form)}.")
    if counts["unknown"]:
        cannot = f"{counts['unknown']:,} cannot be judged{_sentence_unjudged(cluster, form)}" if judged else ""
        if unjudged := "; ".join(filter(None, [cannot, _sentences_of_suspects(incidents, form)])):
            said.append(f"{unjudged}.")
    said += left if dropped else []
    said += _sentences_of_what_happened(own, cluster)
    if cluster["changes"]:
        said.append(f"The replay agrees with the brokers on {cluster['matched']:,} of {cluster['changes']:,} changes.")
    elif cluster["logged"] and dropped:
        said.append("The replay was not compared with the brokers.")
    return said


def _sentences_of_no_fault(cluster: Row, incidents: Sequence[Row]) -> list[str]:
    """Count the drops for which the broker at fault is unknown because a server.log is missing; empty without any."""
    drops = sum(one["spurious"] + one["genuine"] for one in incidents if one["fault_id"] is None)
    whose = f"{brokers_text(cluster['unseen'])} is missing" if cluster["unseen"] else "others begins later"
    return [f"Of {drops:,} of these drops the broker at fault is not known: server.log of {whose}."] if drops else []


def _sentences_of_unjudged_leaving(cluster: Row) -> list[str]:
    """Count the replicas that either the leader or the controller removed; empty without any."""
    if not cluster["unknown_makers"]:
        return []
    replicas = count_of(cluster["unknown_makers"], "replica")
    when = "at a time for which the leader's server.log is missing or not understood"
    return [f"{replicas} left an ISR {when}: it or the controller removed them."]


def cluster_notes(own: OwnShrinks, cluster: Row) -> list[str]:
    """Return sentences on drops that the replay cannot judge, broker starts, min ISR changes, and assumed values."""
    incidents = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
    said = _sentences_of_unjudged_leaving(cluster)
    if not any(one["spurious"] + one["genuine"] for one in incidents):
        said = _sentences_of_cluster(own, cluster)[:1]
    unknown = sum(one["unknown"] for one in incidents)
    why = _sentence_unjudged(cluster, clock_format(cluster))
    if unknown and why and not said:
        said.append(f"{unknown:,} cannot be judged{why}.")
    return said + _sentences_of_what_happened(own, cluster) + _sentences_of_assumptions(cluster)


def _sentences_of_what_happened(own: OwnShrinks, cluster: Row) -> list[str]:
    """List the starts of brokers and the changes of min.insync.replicas, with their times."""
    said, form = [], clock_format(cluster)
    mine = (row for row in own.events if row["cluster_id"] == cluster["cluster_id"] and row["kind"] == "started")
    later = sorted((row["from_us"], row["broker_id"]) for row in mine if row["from_us"] > cluster["first_us"])
    if started := [f"broker {broker} at {time_text(us, form)}" for us, broker in later]:
        said.append(f"Started in this time: {', '.join(started)}.")
    if changes := cluster["min_isr_changes"]:
        named = [
            f"{one['topic'] or 'all topics'} to {one['value']} at {time_text(one['at_us'], form)}" for one in changes
        ]
        more = [f"{len(named) - NAMED} more"] if len(named) > NAMED else []
        said.append(f"min.insync.replicas was changed: {'; '.join([*named[:NAMED], *more])}.")
    return said


def _sentences_of_assumptions(cluster: Row) -> list[str]:
    """Say what is left out because it concerns observers, and which values were assumed because logs are missing."""
    said = sentences_on_observers(cluster["of_observers"])
    if cluster["of_table"]:
        return said + _assumed_sentences_of_table(cluster)
    if cluster["unlogged"]:
        theirs = brokers_text(cluster["unlogged"])
        said.append(f"server.log of {theirs} is missing: a removal that the replay makes too is attributed to them.")
    if number := cluster["attributed"]:
        made = f"the replay of {cluster['rule']} makes {'it' if number == 1 else 'them'} just before the replica left"
        unconfirmed = "without server.log of that time the brokers' own lines cannot confirm it"
        begin = f"{number:,} of these drops {_was_or_were(number)} not logged by the leader"
        said.append(f"{begin}: {made}, and {unconfirmed}.")
    if cluster["assumed_lag_time_ms"] is not None:
        said.append(assumed_lag_time_sentence(cluster["assumed_lag_time_ms"]))
    if cluster["least_release"] is not None:
        said.append(release_not_logged_sentence(cluster["least_release"]))
    return said


def assumed_of_tables(own: OwnShrinks) -> list[str]:
    """Return sentences on values that had to be assumed for clusters that were read from a user's own table."""
    named = "{}: " if len(own.clusters) > 1 else ""
    return [
        named.format(cluster["cluster_id"]) + sentence
        for cluster in own.clusters if cluster["of_table"] for sentence in _assumed_sentences_of_table(cluster)
    ]  # fmt: skip


def _assumed_sentences_of_table(cluster: Row) -> list[str]:
    """Say which values were assumed because a user's table lacks their columns, and what remains unknown."""
    assumed = {
        "replica_lag_time_max_ms": cluster["assumed_lag_time_ms"], "min_insync_replicas": cluster["assumed_min_isr"],
    }  # fmt: skip
    said = [f"{name} {value:,}" for name, value in assumed.items() if value is not None]
    lacks = [f"Assumed, as the mapping does not say: {', '.join(said)}."] if said else []
    if cluster["release_unknown"]:
        lacks.append("It is unknown which rule your brokers ran: set broker_version in the mapping.")
    if cluster["has_one_instant"]:
        lacks.append("The table has one instant of each fetch, so it is unknown how long leaders held fetches.")
    return lacks


def _sentence_healthy(dropped: int, counts: Row, incidents: Sequence[Row], whom: str, form: str) -> str:
    spurious, judged = counts["spurious"], counts["spurious"] + counts["genuine"]
    none = "none" if judged == dropped else f"none of the {judged:,} that can be judged"
    healthy = f"{spurious:,}" if spurious else none
    of = f"Of {count_of(dropped, 'follower')} that {whom}, {healthy} {_was_or_were(spurious)} healthy"
    guilty = [
        one | {"made": made_healthy(one), "spared": one["spurious_of_stopped"], "failed": falls_behind_in_story(one)}
        for one in incidents if one["spurious"] and one["fault_id"] is not None
    ]  # fmt: skip
    if not guilty:
        return f"{of}."
    parts: list[tuple[int, str]] = []
    made = [one for one in guilty if one["made"]]
    starved = [one for one in made if one["silent_ms"] and one["silences"] >= STARVED]
    silent = [one for one in made if one["silent_ms"] and one["silences"] < STARVED]
    unreached = [one for one in made if one["unreached"] and not one["silent_ms"]]
    stopped = [one for one in made if one["stopped"] and not one["silent_ms"] and not one["unreached"]]
    others = [one for one in made if not one["silent_ms"] and not one["unreached"] and not one["stopped"]]
    for broker, of_broker, number in _incidents_of_brokers(silent, "made"):
        times = seconds_text([one["silent_ms"] for one in of_broker])
        text = f"broker {broker} was silent for {times} {_moments(of_broker, form)}, then dropped {number}"
        parts.append((number, text))
    parts += [
        (one["made"], f"broker {one['fault_id']} {silence_in_story(one)}, and dropped {one['made']}") for one in starved
    ]
    for some, what in ((unreached, "could not be reached {}, and"), (stopped, "stopped fetching {}, then")):
        for broker, of_broker, number in _incidents_of_brokers(some, "made"):
            when = f"{what.format(_moments(of_broker, form))} dropped {number}"
            parts.append((number, f"broker {broker} {when} ({why_healthy_in_story(of_broker, number)})"))
    for broker, of_broker, number in _incidents_of_brokers(others, "made"):
        whom = brokers_text(sorted({replica for one in of_broker for replica in one["healthy"]}))
        why = f"{whom}: {why_healthy_in_story(of_broker, number)}"
        parts.append((number, f"broker {broker} dropped {number} {_moments(of_broker, form)} ({why})"))
    for broker, of_broker, number in _incidents_of_brokers(guilty, "undelivered"):
        how = " or ".join(dict.fromkeys(undelivered_in_story(one) for one in of_broker))
        why = "they were due while the leader served others: suspect the network, or a follower that did not read"
        parts.append((number, f"broker {broker} {how} {_moments(of_broker, form)} ({number}; {why})"))
    for broker, of_broker, number in _incidents_of_brokers([one for one in guilty if not one["failed"]], "spared"):
        parts.append((number, f"broker {broker} {spared_in_story(number)}, {_moments(of_broker, form)}"))
    if elsewhere := [one for one in guilty if one["failed"] and one["spared"]]:
        number = sum(one["spared"] for one in elsewhere)
        whose = brokers_text(_brokers_by_drops(elsewhere, "spared"))
        parts.append((number, f"{number} lacked nothing there, or kept pace, while away or behind elsewhere ({whose})"))
    return f"{of}: {largest_parts(parts)}."


def _sentence_genuine(number: int, incidents: Sequence[Row], form: str) -> str:
    """Return the sentence on the ``number`` genuine drops: leaders that were unreachable, followers that stopped."""
    begin = f"{number:,} {_was_or_were(number)} really"
    if sum(one["stopped"] for one in incidents) == number:
        return f"{begin} stopped or behind: {_moments_by_broker(incidents, 'stopped', form)}."
    parts = []
    for broker, of_broker, drops in _incidents_of_brokers(incidents, "unreached"):
        whom = brokers_text(sorted({replica for one in of_broker for replica in one["cut_off"]}))
        when, why = f"could not be reached {_moments(of_broker, form)}", why_unreached_in_story(of_broker)
        parts.append((drops, f"broker {broker} {when} ({count_of(drops, 'drop')} of {whom}{why})"))
    for broker, of_broker, drops in _incidents_of_brokers(incidents, "linked"):
        whom = brokers_text(sorted({leader for one in of_broker for leader in one["linked_to"]}))
        when = f"did not get through to {whom} {_moments(of_broker, form)}"
        why = "its other fetches continued: suspect the link or a throttle"
        parts.append((drops, f"broker {broker} {when} ({drops}; {why})"))
    stopped = _moments_by_broker(incidents, "stopped", form)
    said = "; ".join(filter(None, [largest_parts(parts), f"stopped or slow: {stopped}" if stopped else ""]))
    return f"{begin} behind{': ' if said else ''}{said}."


def _moments_by_broker(incidents: Sequence[Row], kind: str, form: str) -> str:
    parts, name = [], "removed_us" if kind == "excluded" else "since_us"
    for broker, of_broker, drops in _incidents_of_brokers(incidents, kind):
        alike: dict[str, list[Row]] = {}
        for one in of_broker:
            alike.setdefault(_narrowing_words(one, kind), []).append(one)
        said = [f"{_moments(of, form, name)} ({sum(one[kind] for one in of)}{narrow})" for narrow, of in alike.items()]
        parts.append((drops, f"broker {broker} {', '.join(said)}"))
    return largest_parts(parts)


def _narrowing_words(incident: Row, kind: str) -> str:
    """Return details on drops of a kind, to print after their number, such as reassignments or a suspected link."""
    if kind == "excluded":
        all_of_them = incident["reassigned"] == incident["excluded"]
        number = "" if all_of_them else f"{incident['reassigned']} of them "
        reassigned = f", {number}reassigned" if incident["reassigned"] else ""
        return reassigned + "".join(f", {words}" for words, _ in events_in_story(incident))
    late = ""
    if incident["late_leader"] is not None:
        after = seconds_text([(incident["late_us"] - incident["first_us"]) // 1000])
        late = f", back with broker {incident['late_leader']} only after {after}: that broker, the link or a throttle"
    return f"{', ' if link_in_story(incident) else ''}{link_in_story(incident)}{late}"


def _incidents_of_brokers(incidents: Sequence[Row], kind: str) -> Iterator[tuple[int, list[Row], int]]:
    """Yield (broker at fault, its incidents, its number of drops of one kind), sorted by this number, largest first."""
    for broker in _brokers_by_drops(incidents, kind):
        of_broker = [one for one in incidents if one["fault_id"] == broker and one[kind]]
        yield broker, of_broker, sum(one[kind] for one in of_broker)


def _moments(incidents: Sequence[Row], form: str, name: str = "since_us") -> str:
    """List the times at which incidents began (format ``form``); only the first and the last of more than `NAMED`."""
    early = sorted(incidents, key=itemgetter(name))
    begun = [f"{'by ' if one['late'] else ''}{time_text(one[name], form)}" for one in early]
    if len(begun) > NAMED:
        return f"between {begun[0]} and {begun[-1]} in {len(begun):,} incidents"
    return f"{'' if early[0]['late'] else 'at '}{listed(begun)}"


def clock_format(cluster: Row) -> str:
    """Return the strftime format for times in sentences; without the date if the cluster's logs are of one day."""
    day = "%Y-%m-%d"
    return (
        "%H:%M:%S" if time_text(cluster["first_us"], day) == time_text(cluster["last_us"], day) else f"{day} %H:%M:%S"
    )


def _sentences_of_suspects(incidents: Sequence[Row], form: str) -> str:
    """Name the brokers that server.log points at, for drops that the replay cannot judge; empty without such drops."""
    unknown = [one for one in incidents if one["unknown"] and one["fault_id"] is not None]
    if not unknown:
        return ""
    look = sum(one["look_spurious"] for one in unknown)
    spurious = f"; {look} look{'s' if look == 1 else ''} spurious" if look else ""
    return f"server.log alone points at {_moments_by_broker(unknown, 'unknown', form)}{spurious}"


def _sentence_unjudged(cluster: Row, form: str) -> str:
    """Say in brackets how many drops no request log of their leader covers, and why; empty if all are covered."""
    parts = []
    if cluster["before_requests"]:
        begins = time_text(cluster["requests_from_us"], form)
        parts.append(f"the request log begins at {begins}, after {_drops_of_them(cluster, 'before_requests')}")
    if cluster["after_requests"]:
        ends = time_text(cluster["requests_until_us"], form)
        parts.append(f"the request log ends at {ends}, before {_drops_of_them(cluster, 'after_requests')}")
    if cluster["without_requests"]:
        parts.append(f"no request log of their leader covers {_drops_of_them(cluster, 'without_requests')}")
    return f" ({'; '.join(parts)})" if parts else ""


def _drops_of_them(cluster: Row, kind: str) -> str:
    others = sum(cluster[name] for name in ("before_requests", "after_requests", "without_requests")) - cluster[kind]
    return f"{cluster[kind]:,} of them" if others else "them"


def incidents_answer(
    own: OwnShrinks,
    better: Mapping[str, Sequence[str]] | None = None,
    by_lines: Mapping[str, Sequence[str]] | None = None,
    most: int = 10,
) -> list[str]:
    """Sum up which followers the brokers dropped: one line per cluster and, for a single cluster, one per incident.

    Parameters
    ----------
    own : OwnShrinks
    better : mapping of str to sequence of str, optional
        Results of `isr_batch.incidents.better_rule.better_rule`, by cluster.
    by_lines : mapping of str to sequence of str, optional
        For each cluster that the replay cannot judge, sentences on what server.log shows. They replace the incidents.
    most : int
        Maximum number of lines. If there are more incidents, only the worst are listed.
    """
    clusters = clusters_worst_first(own)
    said = brief_headline if len(clusters) > 1 else cluster_headline
    lines = [
        " ".join(
            [f"{one['cluster_id']}, {span_of_terms(one)}:", *said(own, one), *(better or {}).get(one["cluster_id"], ())]
        )
        for one in clusters
    ]
    if not lines:
        return [NOTHING]
    if len(lines) > most:
        return [*lines[: most - 1], f"The report has {len(lines) - most + 1} more clusters."]
    if len(lines) == 1 and (said_by_lines := (by_lines or {}).get(clusters[0]["cluster_id"])):
        lines += [f"  {line}" for line in said_by_lines]
    elif len(lines) == 1:
        worst = incidents_worst_first(own.incidents)[: most - 2]
        lines += [
            f"  {incident_time(one)}: {incident_story(one)}" for one in sorted(worst, key=lambda one: one["first_us"])
        ]
        if len(worst) < len(own.incidents):
            more = count_of(len(own.incidents) - len(worst), "more incident")
            lines.append(f"  {more}: isr-batch explain --lake LAKE")
    return lines


def span_of_terms(cluster: Row) -> str:
    """Format the period from the start of the cluster's first term to the end of its last one."""
    return f"{time_text(cluster['first_us'])} to {time_text(cluster['last_us'])} {zone_name()}"


def clusters_worst_first(own: OwnShrinks) -> list[Row]:
    """Return ``own.clusters``, sorted by drops of healthy followers, most first, and then by drops of any kind."""

    def drops(cluster: Row) -> tuple[int, int]:
        of = [one for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
        return -sum(one["spurious"] for one in of), -sum(one[verdict] for one in of for verdict in VERDICTS)

    return sorted(own.clusters, key=lambda one: (*drops(one), one["cluster_id"]))


def incidents_worst_first(incidents: Iterable[Row]) -> list[Row]:
    """Sort incidents by their spurious drops, most first, then by genuine and unknown ones, then by excluded ones."""
    early = sorted(incidents, key=itemgetter("first_us"))
    return sorted(early, key=lambda one: (-one["spurious"], -one["genuine"] - one["unknown"], -one["excluded"]))


def _brokers_by_drops(incidents: Sequence[Row], kind: str) -> list[int]:
    sums: dict[int, int] = {}
    for one in incidents:
        if one[kind]:
            sums[one["fault_id"]] = sums.get(one["fault_id"], 0) + one[kind]
    return sorted(sums, key=lambda broker: (-sums[broker], broker))


def _was_or_were(number: int) -> str:
    return "was" if number in (0, 1) else "were"

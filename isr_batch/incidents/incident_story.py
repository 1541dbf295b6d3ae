"""Describe in one sentence what happened in an incident, and compute the statements that form the sentence.

An incident is a group of drops (shrinks that the brokers made) near in time that point at the same broker. In all
functions, ``incident`` is one of `isr_batch.incidents.own_shrinks.OwnShrinks.incidents`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from isr_batch.evidence.broker_troubles import pauses_in_words, trouble_in_words
from isr_batch.incidents.own_shrinks import Row
from isr_batch.phrases import brokers_text, count_of, seconds_text, times_in_words
from isr_batch.shown_times import time_text

CAUSES_IN_STORY: Final = {
    "caught_up": "it lacked nothing",
    "keeping_pace": "it kept pace with the log",
    "slow_leader": "the leader held up its fetches",
    "answer_not_delivered": "the leader's responses to it were not delivered",
    "unacked_only": "it lacked only records that were not acknowledged yet",
    "follower_stopped": "no fetch of it arrived any more",
    "follower_slow": "it fetched, but was behind",
    "controller": "the controller removed it",
    "unknown": "the logs do not show why",
}
BROKER_EVENTS: Final = {
    "shutting_down": "shut down",
    "stopping": "shut down",
    "fenced": "fenced after its heartbeats stopped",
    "started": "started again",
}
_OWN_SUBJECT: Final = re.compile(r"(?:the|a|one|heartbeats|brokers?|\d\S*) ")
"""Begin of statements that are not about what the broker at fault did."""
STARVED: Final = 3
"""A broker with at least this many silences in an incident was starved of CPU. A stopped broker has only one."""


def incident_time(incident: Row) -> str:
    """Format the period of an incident, which begins when a follower was last caught up and ends with the last drop.

    If the logs only show that the drops were made before certain lines, the text is "by" and the time of the last one.
    """
    if incident["late"]:
        return f"by {time_text(incident['last_us'])}"
    since, until = time_text(incident["since_us"]), time_text(incident["last_us"], "%H:%M:%S")
    return since if since.endswith(until) else f"{since} to {until}"


def incident_story(incident: Row) -> str:
    """Return a sentence that describes an incident. It begins with the broker at fault, if this broker is known."""
    if incident["fault_id"] is None:
        return f"{unexplained_in_story(incident)}."
    return f"Broker {incident['fault_id']} {'; '.join(said for said, _ in incident_statements(incident))}."


def unexplained_in_story(incident: Row) -> str:
    """Describe the drops of an incident that points at no broker."""
    judged = incident["spurious"] + incident["genuine"]
    left = f"{count_of(judged + incident['unknown'], 'follower')} left an ISR"
    if not judged:
        return f"{left}; the logs do not say why"
    return f"{left} ({brokers_text(incident['replicas'])}); the logs do not show which broker was at fault"


def incident_statements(incident: Row) -> list[tuple[str, str]]:
    """Return the statements about the broker at fault in an incident, as pairs (statement, kind).

    After the words "Broker 1", the statements form a sentence. Therefore a statement about what this broker did, such
    as "was silent for 20 s", has no subject or the subject "it". It only names the broker again if the statement before
    it is about something else. The kind says which rows prove a statement, see `isr_batch.incidents.incident_lines`.
    """
    broker = f"broker {incident['fault_id']}"
    said = _story_of_who_fell_behind(incident)
    if incident["spurious_of_stopped"]:
        number = incident["spurious_of_stopped"]
        drops = f"{number:,} drops of {broker} were" if number > 1 else f"one drop of {broker} was"
        spared = f"{drops} spurious: it lacked nothing there, or kept pace"
        said.append((spared if said else spared_in_story(number), "spared"))
    if incident["undelivered"]:
        by = brokers_text(incident["undelivered_by"])
        followers = count_of(incident["undelivered"], "healthy follower")
        said.append((f"{undelivered_in_story(incident)}: {by} dropped {followers} for that", "undelivered"))
    made = made_healthy(incident)
    if made:
        causes = why_healthy_in_story([incident], made).replace("it ", "the follower ")
        why = "" if incident["silent_ms"] else f", although {causes}"
        healthy = count_of(made, "healthy follower")
        said.append((f"dropped {healthy} ({brokers_text(incident['healthy'])}){why}", "spurious"))
    if incident["excluded"]:
        said += [
            (f"was {words}" if kind in {"seen", "fenced"} else words, kind)
            for words, kind in events_in_story(incident) if kind != "seen" or not said
        ]  # fmt: skip
        others = incident["excluded"] - incident["reassigned"]
        whose = (("a reassignment", incident["reassigned"]), ("the controller", others))
        removed = [f"was removed from {count_of(number, 'ISR')} by {by}" for by, number in whose if number]
        said.append((" and ".join(removed), "excluded"))
    if incident["unknown"]:
        link = " or the link to it" if incident["suspect"] == "link_or_follower" else ""
        judged = f"{count_of(incident['unknown'], 'drop')} cannot be judged, and server.log points at {broker}{link}"
        said.append((judged if said else f"is suspected: {judged}", "unknown"))
    if incident["absence"]:
        words = {"paused": pauses_in_words(incident["absence"]), "troubled": trouble_in_words(incident["absence"])}
        said[1:1] = [(text, kind) for kind, text in words.items() if text]
    return said[:1] + [
        (f"{_subject_of_statement(text, before, broker)}{text}", kind) for (before, _), (text, kind) in pairwise(said)
    ]


def _subject_of_statement(text: str, before: str, broker: str) -> str:
    """Return the subject to put before a statement that follows the statement ``before``: "broker 1 ", "it " or "".

    After a statement about anything else than the broker at fault, "it" would be ambiguous.
    """
    if _OWN_SUBJECT.match(text):
        return ""
    if _OWN_SUBJECT.match(before):
        return f"{broker} "
    return "it " if text.startswith("dropped") else ""


def made_healthy(incident: Row) -> int:
    """Return how many healthy followers the broker at fault dropped as a leader.

    Followers that it dropped because its responses did not reach them are not counted.
    """
    return int(incident["spurious"] - incident["spurious_of_stopped"] - incident["undelivered"])


def spared_in_story(number: int) -> str:
    """Return the statement that the broker at fault was dropped ``number`` times although it was healthy."""
    return f"was dropped {times_in_words(number)} although it lacked nothing, or kept pace"


def events_in_story(incident: Row) -> list[tuple[str, str]]:
    """Return what else happened to a broker that was removed from ISRs, as pairs (words, kind).

    The kinds are "seen" (when it made its last fetch, or logged its last request) and the keys of `BROKER_EVENTS`.
    """
    seen_us = incident["seen_us"]
    seen = [] if seen_us is None else [(f"last seen at {time_text(seen_us, '%H:%M:%S')}", "seen")]
    return seen + [(BROKER_EVENTS[kind], kind) for kind in incident["events"] or []]


def falls_behind_in_story(incident: Row) -> bool:
    """Whether `incident_statements` would say that the broker at fault, or the link to it, failed."""
    return bool(_story_of_who_fell_behind(incident))


def undelivered_in_story(incident: Row) -> str:
    """Return the statement that responses between the broker at fault and another broker were not delivered."""
    if incident["fault_id"] in incident["undelivered_by"]:
        return f"did not get its responses through to {brokers_text(incident['undelivered_to'])}"
    return f"did not get the responses of {brokers_text(incident['undelivered_by'])}"


def _story_of_who_fell_behind(incident: Row) -> list[tuple[str, str]]:
    """Return statements that explain why followers fell behind. Kinds: silent, unreached, linked, stopped."""
    said, broker = [], f"broker {incident['fault_id']}"
    if incident["silent_ms"]:
        said.append((silence_in_story(incident), "silent"))
    elif incident["unreached"]:
        said.append(("could not be reached", "unreached"))
    elif incident["linked"]:
        said.append((f"did not get through to {brokers_text(incident['linked_to'])}", "linked"))
    elif incident["stopped"]:
        slow = incident["genuine_cause"] == "follower_slow"
        whom = f" from {brokers_text(incident['dropped_by'])}" if link_in_story(incident) else ""
        said.append(("fetched, but fell behind" if slow else f"stopped fetching{whom}", "stopped"))
    if incident["unreached"]:
        whom = f"dropped {brokers_text(incident['cut_off'])} from {count_of(incident['unreached'], 'ISR')}"
        elsewhere = f", {_elsewhere_in_story(incident)}" if incident["cut_off_went_on"] else ""
        said.append((f"{whom}{elsewhere}", "unreached"))
    if incident["linked"]:
        drops = f"{brokers_text(incident['linked_to'])} dropped {broker} from {count_of(incident['linked'], 'ISR')}"
        elsewhere = f"the other fetches of {broker} continued: suspect the link or a throttle"
        said.append((f"{drops}, and {elsewhere}", "linked"))
    if incident["stopped"]:
        by, isrs = brokers_text(incident["dropped_by"]), count_of(incident["stopped"], "ISR")
        narrow = f" (suspect {broker}, {link_in_story(incident)})" if link_in_story(incident) else ""
        said.append((f"{by} dropped {broker} from {isrs}{narrow}{_story_of_late(incident)}", "stopped"))
    return said


def _story_of_late(incident: Row) -> str:
    """Name a leader whose ISRs the follower rejoined more than a lag time after those of all others; may be empty."""
    if incident["late_leader"] is None:
        return ""
    others, late = (
        seconds_text([(incident[name] - incident["first_us"]) // 1000]) for name in ("others_us", "late_us")
    )
    leader = f"broker {incident['late_leader']}"
    back = f"which had broker {incident['fault_id']} back after {others}, but {leader} only after {late}"
    return f", {back} (suspect {leader}, the link or a throttle)"


def link_in_story(incident: Row) -> str:
    """Return "or its link to broker 2" if the drops may be the fault of the link to the leader; otherwise empty.

    This is so if only one of several leaders dropped the follower, and the follower was running.
    """
    by, leaders = incident["dropped_by"] or [], set(incident["leaders"] or [])
    stood_still = incident["silent_ms"] or incident["stopped_everywhere"]
    if not incident["stopped"] or stood_still or len(by) != 1 or not leaders - set(by):
        return ""
    return f"or its link to broker {by[0]}"


def why_healthy_in_story(incidents: Sequence[Row], number: int) -> str:
    """Return a clause that says why the ``number`` followers dropped in these incidents are considered healthy."""
    causes = " or ".join(dict.fromkeys(CAUSES_IN_STORY[one["spurious_cause"]] for one in incidents))
    return causes if number == 1 else causes.replace("it ", "they ").replace("its ", "their ")


def why_unreached_in_story(incidents: Sequence[Row]) -> str:
    """Return a clause on the evidence that a leader could not be reached.

    It is empty if the only evidence is that the leader dropped its followers.
    """
    if all(one["cut_off_went_on"] for one in incidents):
        return f", {_elsewhere_in_story(incidents[0])}"
    return ", according to server.log" if any(one["cut_off_by_lines"] for one in incidents) else ""


def _elsewhere_in_story(incident: Row) -> str:
    """Say of the followers of a leader that they fetched from other brokers, so that its network is suspect."""
    return f"whose other fetches continued: suspect the network of broker {incident['fault_id']}"


def silence_in_story(incident: Row) -> str:
    """Return the statement that says for how long the broker at fault handled no requests (was silent).

    If it was silent at least `STARVED` times in the incident, the statement is that it was starved.
    """
    longest = seconds_text([incident["silent_ms"]])
    if incident["silences"] < STARVED:
        return f"was silent for {longest}"
    since, until = (time_text(incident[f"silent_{name}_us"], "%H:%M:%S") for name in ("from", "until"))
    return f"was starved from {since} to {until} ({incident['silences']} silences of up to {longest})"

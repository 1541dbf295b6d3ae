"""Describe an incident on a card: what happened, when, why, how sure that is, its cost, and what to check next."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from isr_batch.evidence.broker_troubles import is_of_jvm, lines_of_absence
from isr_batch.incidents.incident_story import CAUSES_IN_STORY, incident_statements, incident_time, unexplained_in_story
from isr_batch.incidents.listing import listed_explain_command
from isr_batch.incidents.own_shrinks import VERDICTS, Row
from isr_batch.incidents.sentences import CALLED
from isr_batch.phrases import brokers_text, count_of, listed, seconds_text
from isr_batch.printable import printable
from isr_batch.shown_times import time_text, zone_name

LINES: Final = 3
"""Maximum number of lines of each log file that a card names."""
_MARKUP: Final = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


class IncidentCard(NamedTuple):
    """The description of an incident, for the report page and as text.

    Attributes
    ----------
    title : str
        The broker that the incident points at, and what happened to it.
    when : str
        Period of the incident, in the time zone that the user chose.
    counts : list of (str, int)
        Each verdict with the number of followers dropped with it. Verdicts without any are left out.
    rows : list of (str, str)
        Heading and text of each row. The headings are What, Why, How sure, Cost and Check next.
    evidence : list of str
        Log lines. Each item names the lines of one file, such as "server.log:7, 9, 12 and 5 more".
    command : str
        ``isr-batch explain`` command for one of this incident's drops; empty if the replay made none of these drops.
    """

    title: str
    when: str
    counts: list[tuple[str, int]]
    rows: list[tuple[str, str]]
    evidence: list[str]
    command: str


def incident_card(incident: Row, drops: Sequence[Row], lake: str = "LAKE") -> IncidentCard:
    """Describe an incident on a card.

    Parameters
    ----------
    incident : dict
        One of ``OwnShrinks.incidents``.
    drops : sequence of dict
        The rows of ``OwnShrinks.drops`` that belong to this incident.
    lake : str
        Value of ``--lake`` in the card's ``isr-batch explain`` command.
    """
    rows = {
        "What": _card_sentence("; ".join(_card_statements(incident)[1:]), f"broker {incident['fault_id']}"),
        "Why": _card_why(drops),
        "How sure": _card_how_sure(drops),
        "Cost": _card_cost(incident, drops),
        "Check next": what_to_check(incident),
    }
    return IncidentCard(
        incident_title(incident), incident_time(incident),
        [(verdict, incident[verdict]) for verdict in VERDICTS if incident[verdict]],
        [(heading, text) for heading, text in rows.items() if text], _card_evidence(incident, drops),
        listed_explain_command(incident, lake) if incident["rule"] else "",
    )  # fmt: skip


def incident_title(incident: Row) -> str:
    """Return a title that names the broker at fault in ``incident``, and what happened to it.

    ``incident`` is one of ``OwnShrinks.incidents``.
    """
    if incident["fault_id"] is None:
        return unexplained_in_story(incident)
    return f"Broker {incident['fault_id']} {_card_statements(incident)[0]}"


def _card_statements(incident: Row) -> list[str]:
    """Return the statements about an incident: first the one for its title, then those for the row "What"."""
    if incident["fault_id"] is None:
        return []
    # Statements that come from the broker's own log explain the other statements, so they come last.
    return [said for said, _ in sorted(incident_statements(incident), key=lambda one: one[1] in {"paused", "troubled"})]


def incident_markdown(card: IncidentCard, cluster_id: str, picture: str = "") -> str:
    """Return a card as about ten lines of Markdown, to paste into a chat, an issue or a postmortem.

    Parameters
    ----------
    card : IncidentCard
    cluster_id : str
    picture : str, optional
        Path of a picture of the incident, which is embedded.
    """
    lines = [f"**{_markdown_text(cluster_id)}: {_markdown_text(card.title)}**", ""]
    lines += [f"- {heading}: {_markdown_text(text)}" for heading, text in _card_rows(card)]
    if card.evidence:
        lines.append(f"- Evidence: {', '.join(_markdown_code(line) for line in card.evidence)}")
    if card.command:
        lines.append(f"- In full: {_markdown_code(card.command)}")
    if picture:
        lines += ["", f"![{_markdown_text(card.title)}](<{printable(picture).replace('>', '%3E')}>)"]
    return "\n".join(lines) + "\n"


def incident_text(card: IncidentCard, cluster_id: str, picture: str = "") -> str:
    """Return a card as plain text with a line per row. The parameters are those of `incident_markdown`."""
    rows = [*_card_rows(card), ("Evidence", ", ".join(card.evidence)), ("Picture", picture), ("In full", card.command)]
    lines = [f"{cluster_id}: {card.title}", *(f"  {heading}: {text}" for heading, text in rows if text)]
    return "".join(f"{printable(line)}\n" for line in lines)


def _card_rows(card: IncidentCard) -> list[tuple[str, str]]:
    """Return heading and text of all rows of a card, including the time and the number of dropped followers."""
    counts = ", ".join(f"{number:,} {CALLED[verdict]}" for verdict, number in card.counts)
    return [("When", f"{card.when} {zone_name()}"), ("Dropped followers", counts), *card.rows]


def _card_sentence(statements: str, subject: str = "it") -> str:
    """Turn statements into a sentence: add the subject if they need one, a capital letter and a full stop."""
    if not statements:
        return ""
    said = re.sub("^(?:it )?(was|dropped) ", rf"{subject} \1 ", statements)
    return f"{said[0].upper()}{said[1:]}."


def _markdown_text(text: str) -> str:
    """Escape the characters that Markdown would interpret."""
    return printable(text).translate(_MARKUP)


def _markdown_code(text: str) -> str:
    """Format a text as inline code in Markdown."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{printable(text)}{fence}"


def _card_why(drops: Sequence[Row]) -> str:
    """Return the row "Why": each cause with its number of drops. Drops that the replay cannot judge are left out."""
    causes = Counter(row["cause"] for row in drops if row["verdict"] in {"spurious", "genuine"})
    said = [f"{CAUSES_IN_STORY[cause]} ({number:,})" for cause, number in causes.most_common()]
    said = [re.sub(r"(^|of |to )it\b", r"\1the follower", text) for text in said]
    return _card_sentence(listed(said)) if said else ""


def _card_how_sure(drops: Sequence[Row]) -> str:
    """Return the row "How sure": how many verdicts are certain, and how near in time replay and brokers dropped."""
    judged = [row for row in drops if row["certainty"]]
    if not judged:
        return ""
    possible = sum(row["certainty"] == "possible" for row in judged)
    every = "It is" if len(judged) == 1 else f"All {len(judged):,} are"
    sure = f"{possible:,} of {len(judged):,} possible: errors of timestamps may change them" if possible else (
        f"{every} certain"
    )  # fmt: skip
    apart = max(
        (abs(row["replayed_us"] - row["change_us"]) // 1000 for row in judged if row["source_file"]), default=None
    )
    if apart is None:
        return f"{sure}."
    near = "to the millisecond" if apart < 1 else f"{apart:,} ms apart at most"
    every = sum(row["verdict"] != "excluded" for row in drops)
    same = "the same followers" if len(judged) == every else f"{len(judged):,} of the {every:,} followers"
    return f"{sure}. The replay of {judged[0]['rule']} drops {same}, {near}."


def _card_cost(incident: Row, drops: Sequence[Row]) -> str:
    """Return the row "Cost": in how many partitions followers were out of the ISR, and for how long."""
    where = count_of(incident["partitions"], "partition")
    made = [row for row in drops if row["verdict"] in {"spurious", "genuine"}]
    away = [(row["restored_us"] - row["change_us"]) // 1000 for row in made if row["restored_us"] is not None]
    if not made:
        return f"{where}."
    if not away:
        return f"{where}; no follower was back in the ISR when the log or the term ended."
    still = f", {len(made) - len(away):,} not before the log or the term ended" if len(made) > len(away) else ""
    return f"{where}; followers back in the ISR after {seconds_text(away)}{still}."


def what_to_check(incident: Row) -> str:
    """Advise an operator what to check next after an incident, on which host, and in which period.

    ``incident`` is one of ``OwnShrinks.incidents``.
    """
    broker = incident["fault_id"]
    since, until = (time_text(incident[name], "%H:%M:%S") for name in ("since_us", "last_us"))
    when = since if since == until else f"{since} to {until}"
    host = f"On the host of broker {broker}, {when}"
    if broker is None:
        return _card_next_of_nobody(incident, when)
    if incident["linked"] and not incident["silent_ms"]:
        link = f"Between broker {broker} and {brokers_text(incident['linked_to'])}, {when}"
        return f"{link}: replication throttles, packet loss; ReplicaFetcher errors in server.log of broker {broker}."
    if incident["spurious"] + incident["genuine"] == 0:
        return (
            _card_next_of_controller(incident, host)
            if incident["excluded"]
            else f"{host}: server.log, and why it is suspected."
        )
    if incident["undelivered"] and not incident["silent_ms"]:
        others = {*incident["undelivered_by"], *incident["undelivered_to"]} - {broker}
        link = f"Between broker {broker} and {brokers_text(sorted(others))}, {when}"
        return f"{link}: the network, and whether the follower read its socket (its CPU, ReplicaFetcher lines)."
    if not (incident["silent_ms"] or incident["unreached"] or incident["stopped"]):
        return "Nothing on this host: the rule dropped followers that were well."
    return f"{host}: {_card_next_on_host(incident)}."


def _card_next_of_nobody(incident: Row, when: str) -> str:
    """Return what to check if no broker is at fault. ``when`` is the time of the incident as text."""
    if incident["spurious"] + incident["genuine"]:
        return f"The missing server.log of other brokers, {when}: whether they dropped the same followers."
    if incident["droppers"]:
        return f"The request logs of the leaders, {when}: without them no drop can be judged."
    return f"server.log of the leaders, {when}: it shows whether they or the controller removed the replicas."


def _card_next_on_host(incident: Row) -> str:
    """Return what to check on the host of the broker at fault."""
    if incident["unreached"] and not incident["silent_ms"]:
        return "its network interface and listener; ReplicaFetcher errors in server.log of the others"
    if incident["genuine_cause"] == "follower_slow" and not incident["silent_ms"]:
        return "disk and CPU, replication throttles and quotas, num.replica.fetchers"
    of_jvm = is_of_jvm(incident["absence"]) if incident["absence"] else None
    if of_jvm:
        return "gc.log, and the heap and collector of its JVM"
    gc = "" if of_jvm is False else "gc.log and safepoints; "
    network = "" if incident["silent_ms"] else ", or its network (ReplicaFetcher errors in its server.log)"
    return f"{gc}stalls of the disk, CPU steal and limits, swap, a migrated machine (sar, dmesg){network}"


def _card_next_of_controller(incident: Row, host: str) -> str:
    """Return what to check if the controller removed the replicas. ``host`` says on which broker's host, and when."""
    if incident["reassigned"] == incident["excluded"]:
        return "Nothing, if this reassignment was planned."
    if incident["silent_ms"]:
        return f"{host}: {_card_next_on_host(incident)}."
    if incident["seen_us"] is not None or "fenced" in (incident["events"] or ()):
        return f"{host}: whether the process died (dmesg, its last lines in server.log) or lost the controllers."
    return f"Whether the stop of broker {incident['fault_id']} was planned."


def _card_evidence(incident: Row, drops: Sequence[Row]) -> list[str]:
    """Return the log lines that prove an incident: first those about drops, then those about JVM pauses and errors."""
    printed: dict[str, list[int]] = defaultdict(list)
    for row in sorted(drops, key=lambda row: (VERDICTS.index(row["verdict"]), row["source_line"] or 0)):
        if row["source_file"] and row["source_line"] not in printed[row["source_file"]]:
            printed[row["source_file"]].append(row["source_line"])
    lines = []
    for file, numbers in printed.items():
        more = f" and {len(numbers) - LINES:,} more" if len(numbers) > LINES else ""
        lines.append(f"{file}:{', '.join(map(str, numbers[:LINES]))}{more}")
    absence = incident["absence"]
    if absence:
        lines += [*lines_of_absence(absence, pauses=True), *lines_of_absence(absence, pauses=False)]
    return lines

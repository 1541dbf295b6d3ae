"""Describe an incident statement by statement, and name the log lines and the SQL query that prove each statement."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from isr_batch.evidence.broker_troubles import lines_of_absence
from isr_batch.incidents.incident_story import incident_statements, incident_story, incident_time
from isr_batch.incidents.own_shrinks import OwnShrinks, Row
from isr_batch.phrases import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable

LISTED: Final = 4
"""Maximum number of lines of each log file that are named for a statement."""
SECOND_US: Final = 1_000_000
TROUBLES: Final = ("paused", "troubled")


def incident_lines(own: OwnShrinks, incident: Row) -> list[str]:
    """Return the description of an incident as lines of text.

    Below each statement, indented lines name the log lines that prove it, and an SQL query for the rows that do.

    Parameters
    ----------
    own : OwnShrinks
    incident : dict
        One of ``own.incidents``.
    """
    key = ("cluster_id", "fault_id", "incident")
    drops = [row for row in own.drops.to_pylist() if all(row[name] == incident[name] for name in key)]
    if incident["fault_id"] is None:
        return [f"{incident_time(incident)}: {incident_story(incident)}", *_proof_of_drops(incident, "unknown", drops)]
    sentences: dict[str, list[str]] = defaultdict(list)
    for said, kind in incident_statements(incident):
        sentences[kind].append(said)
    lines = [f"{incident_time(incident)}: broker {incident['fault_id']}"]
    for kind, of_kind in sentences.items():
        lines += [f"  {'; '.join(of_kind)}", *_proof_of_drops(incident, kind, drops)]
    return lines


def _proof_of_drops(incident: Row, kind: str, drops: list[Row]) -> list[str]:
    """Return the lines that prove one kind of statement: positions of log lines, and SQL queries.

    The kinds are those of `isr_batch.incidents.incident_story.incident_statements`.
    """
    fault = incident["fault_id"]
    if kind in TROUBLES:
        lines = [f"    {line}" for line in lines_of_absence(incident["absence"], pauses=kind == "paused")]
        return [*lines, f"    SELECT * FROM {_incident_query(incident, kind)}"]
    if kind == "seen":
        return [f"    {_query_of_last_fetches(incident)}"]
    of_kind: dict[str, Callable[[Row], bool]] = {
        "unreached": lambda row: row["verdict"] == "genuine" and row["leader_id"] == fault,
        "linked": lambda row: row["verdict"] == "genuine" and row["who"] == "link",
        "stopped": lambda row: row["verdict"] == "genuine" and row["replica_id"] == fault and row["who"] != "link",
        "spared": lambda row: row["verdict"] == "spurious" and row["replica_id"] == fault,
        "spurious": lambda row: row["verdict"] == "spurious" and row["leader_id"] == fault,
        "undelivered": lambda row: row["cause"] == "answer_not_delivered",
        "excluded": lambda row: row["verdict"] == "excluded",
        "unknown": lambda row: row["verdict"] == "unknown",
    }
    printed: dict[str, set[int]] = defaultdict(set)
    for row in drops:
        if row["source_file"] and kind in of_kind and of_kind[kind](row):
            printed[row["source_file"]].add(row["source_line"])
    lines = [f"    {file} {_incident_line_numbers_text(numbers)}" for file, numbers in sorted(printed.items())]
    lines.append(f"    SELECT * FROM {_incident_query(incident, kind)}")
    more = {"silent": _gap, "unreached": _query_of_fetches_elsewhere, "linked": _query_of_fetches_elsewhere}.get(kind)
    return [*lines, f"    {more(incident)}"] if more else lines


def _query_of_fetches_elsewhere(incident: Row) -> str:
    """Return a query that counts the fetches by leader and follower in the period of an incident."""
    return (
        f"SELECT leader_id, replica_id, count(DISTINCT arrival_time) AS fetches FROM fetches "
        f"WHERE cluster_id = '{_incident_cluster(incident)}' "
        f"AND {_time_of_incident_as_sql(incident, 'arrival_time', 0)} "
        "GROUP BY ALL ORDER BY ALL"
    )


def _gap(incident: Row) -> str:
    """Return a query for the fetches around a silence, in which the silence shows as a gap in the times of fetches."""
    silent = incident | {"since_us": incident["silent_from_us"], "last_us": incident["silent_until_us"]}
    return (
        "SELECT DISTINCT completed_time, source_file, source_line FROM fetches "
        f"WHERE cluster_id = '{_incident_cluster(incident)}' AND leader_id = {incident['fault_id']} "
        f"AND {_time_of_incident_as_sql(silent, 'completed_time', SECOND_US)} ORDER BY completed_time"
    )


def _query_of_last_fetches(incident: Row) -> str:
    """Return a query for the fetches of the broker at fault, which shows when they stopped."""
    return (
        "SELECT DISTINCT leader_id, arrival_time, source_file, source_line FROM fetches "
        f"WHERE cluster_id = '{_incident_cluster(incident)}' AND replica_id = {incident['fault_id']} "
        f"AND {_time_of_incident_as_sql(incident, 'arrival_time', SECOND_US)} ORDER BY arrival_time"
    )


def _time_of_incident_as_sql(incident: Row, time: str, before_us: int) -> str:
    """Return the SQL condition that the column ``time`` lies in the period of an incident.

    The period is extended by ``before_us`` microseconds at its start, and by twice that at its end.
    """
    within = (incident["since_us"] - before_us, incident["last_us"] + 2 * before_us)
    days, times = (
        " AND ".join(f"{kind} '{utc_text(us, form)}'" for us in within)
        for kind, form in (("DATE", "%Y-%m-%d"), ("TIMESTAMP", "%Y-%m-%d %H:%M:%S"))
    )
    return f"event_date BETWEEN {days} AND {time} BETWEEN {times}"


def _incident_cluster(incident: Row) -> str:
    """Return the incident's cluster id, with quotes escaped for a string in SQL."""
    return str(incident["cluster_id"]).replace("'", "''")


def _incident_line_numbers_text(lines: set[int]) -> str:
    """Format line numbers, such as "lines 1, 2, 3, 4 and 5 more"."""
    more = len(lines) - LISTED
    named = ", ".join(map(str, sorted(lines)[:LISTED]))
    return f"line{'' if len(lines) == 1 else 's'} {named}{f' and {more} more' if more > 0 else ''}"


def _incident_query(incident: Row, kind: str) -> str:
    """Return table and condition of the query for the rows that prove one kind of statement."""
    fault, rule = incident["fault_id"], f"rule = '{incident['rule']}'"
    table, which = {
        "unreached": ("shrink_verdicts", f"{rule} AND verdict = 'genuine' AND leader_id = {fault}"),
        "linked": ("shrink_verdicts", f"{rule} AND verdict = 'genuine' AND replica_id = {fault}"),
        "stopped": ("shrink_verdicts", f"{rule} AND verdict = 'genuine' AND replica_id = {fault}"),
        "spared": ("shrink_verdicts", f"{rule} AND verdict = 'spurious' AND replica_id = {fault}"),
        "spurious": ("shrink_verdicts", f"{rule} AND verdict = 'spurious' AND leader_id = {fault}"),
        "undelivered": (
            "shrink_verdicts",
            f"{rule} AND primary_cause = 'slow_leader' AND {fault} IN (leader_id, replica_id)",
        ),
        "excluded": ("observed_isr_changes", f"made_by <> 'leader' AND kind = 'shrink' AND replica_id = {fault}"),
        # Without droppers, it is unknown who removed the replicas, and the table may name the controller.
        "unknown": (
            "observed_isr_changes",
            f"made_by {'=' if incident['droppers'] else '<>'} 'leader' AND kind = 'shrink'",
        ),
        "paused": ("broker_troubles", f"kind = 'pause' AND broker_id = {fault}"),
        "troubled": ("broker_troubles", f"kind <> 'pause' AND broker_id = {fault}"),
    }.get(kind, ("broker_events", f"kind = '{kind}' AND broker_id = {fault}"))
    name = {"broker_events": "event_time", "broker_troubles": "from_time"}.get(table, "change_time")
    since = incident["first_us"] if name == "change_time" else min(incident["since_us"], incident["first_us"])
    within = [f"TIMESTAMP '{utc_text(us)}'" for us in (since - SECOND_US, incident["last_us"] + 2 * SECOND_US)]
    cluster = f"cluster_id = '{_incident_cluster(incident)}'"
    return f"{table} WHERE {cluster} AND {which} AND {name} BETWEEN {' AND '.join(within)}"

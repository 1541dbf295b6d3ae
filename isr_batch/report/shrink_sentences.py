"""Describe a shrink in sentences, from its rows in the replay's results and the broker's log line."""

from collections.abc import Mapping, Sequence
from typing import Final

from isr_batch.incidents.incident_story import CAUSES_IN_STORY
from isr_batch.incidents.own_shrinks import Row
from isr_batch.lake.tables.outputs import DEPENDS_ON, SHOWN_ERROR_MS
from isr_batch.phrases import count_of, seconds_text
from isr_batch.shown_times import time_text, zone_name

STANDS: Final = {
    "made": "Dropped as well by",
    "kept": "Kept in the ISR by",
    "out": "Dropped before by",
    "apart": "Some dropped, some kept by",
}
"""Possible decisions of other rules on a shrink, each with the words before the names of these rules."""


def shrink_sentences(
    facts: Sequence[Row], partition: str, rule: str, lag_time_ms: int, stands: Mapping[str, Sequence[str]]
) -> tuple[str, list[str]]:
    """Return a headline and sentences about a shrink: its followers, then the decisions of other rules.

    Parameters
    ----------
    facts : sequence of dict
        Result of ``report/sql/facts.sql`` for the shrink, a row per follower.
    partition : str
        Partition as text.
    rule : str
        The rule that made the shrink, which the brokers ran.
    lag_time_ms : int
    stands : mapping of str to sequence of str
        By decision (key of STANDS), the rules that made it.
    """
    first = facts[0]
    lines = dict.fromkeys(f"{row['source_file']}:{row['source_line']}" for row in facts if row["source_file"])
    who = " and ".join(f"broker {row['replica_id']}" for row in facts)
    when = f"{time_text(first['change_us'])}.{first['change_us'] // 1000 % 1000:03} {zone_name()}"
    headline = f"Broker {first['leader_id']} drops {who} from the ISR of {partition} at {when}"
    sentences = [_follower_sentence(row, lag_time_ms) for row in facts]
    sentences += [f"{said} {', '.join(stands[stand])}." for stand, said in STANDS.items() if stands.get(stand)]
    sentences.append(
        f"The brokers ran {rule}; the line: {', '.join(lines)}."
        if lines
        else f"By a replay of {rule}; the logs have no line about it."
    )
    return headline, sentences


def _follower_sentence(row: Row, lag_time_ms: int) -> str:
    """Return sentences about a dropped follower: verdict, lag, and the records that it lacked."""
    verdict = f"{row['verdict']}, because {CAUSES_IN_STORY[row['primary_cause']]}"
    if row["depends_on"]:
        verdict += f" (possible, not certain: it depends on {DEPENDS_ON[row['depends_on']]})"
    said = [f"Broker {row['replica_id']}: {verdict}."]
    if (row["time_error_ms"] or 0) >= SHOWN_ERROR_MS:
        said.append(f"The check may have run up to {row['time_error_ms']:,} ms earlier or later.")
    lag = f"Last caught up {row['lag_ms']:,} ms before" if row["lag_ms"] is not None else "Not caught up in this term"
    truth = "its true lag is unknown" if row["true_lag_ms"] is None else f"its true lag was {row['true_lag_ms']:,} ms"
    said.append(f"{lag}, with a lag time of {lag_time_ms:,} ms; {truth}{_lacked(row)}.")
    spans = [
        f"{what} for {row[name]:,} ms"
        for name, what in (("leader_silent_ms", "was silent"), ("leader_held_ms", "held its fetches"))
        if row[name]
    ]
    if spans:
        said.append(f"Of that time the leader {' and '.join(spans)}.")
    back = row["restored_us"]
    after = seconds_text([max(0, back - row["change_us"]) // 1000]) if back is not None else ""
    said.append(f"Back in the ISR after {after}." if after else "The log ends, or the term does, before it is back.")
    return " ".join(said)


def _lacked(row: Row) -> str:
    """Return words about the records that the follower lacked according to its leader; empty if none or unknown."""
    ends = row["leader_log_end_offset"], row["follower_log_end_offset"]
    if None in ends or ends[1] < 0:
        return ""
    lacked = ends[0] - ends[1]
    return f", and the leader knew of {count_of(lacked, 'record')} that it lacked" if lacked else ""

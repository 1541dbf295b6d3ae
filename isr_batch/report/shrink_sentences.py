"""Describe a shrink in sentences, using the replay's results and the position of the broker's log line."""

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
"""Possible decisions of other rules at a shrink. The values are the words before the names of the rules."""


def shrink_sentences(
    facts: Sequence[Row], partition: str, rule: str, lag_time_ms: int, stands: Mapping[str, Sequence[str]]
) -> tuple[str, list[str]]:
    """Describe a shrink. Return its headline, and sentences on each dropped follower and on what other rules decided.

    Parameters
    ----------
    facts : sequence of dict
        Result of ``report/sql/facts.sql`` for the shrink, with a row for each dropped follower.
    partition : str
        Topic and partition, such as ``orders-3``.
    rule : str
        The rule that made the shrink in the replay. It is the one that the brokers ran.
    lag_time_ms : int
    stands : mapping of str to sequence of str
        The replayed rules by what they decided on the dropped followers. The keys are those of `STANDS`: made (dropped
        them too), kept (kept them in the ISR), out (had dropped them before), apart (not the same for all of them).
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
    """Describe a dropped follower: verdict, lag, the records that it lacked, and when it was back."""
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
    """Say how many records the follower lacked according to its leader; empty if none, or if that is unknown."""
    ends = row["leader_log_end_offset"], row["follower_log_end_offset"]
    if None in ends or ends[1] < 0:
        return ""
    lacked = ends[0] - ends[1]
    return f", and the leader knew of {count_of(lacked, 'record')} that it lacked" if lacked else ""

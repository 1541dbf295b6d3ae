"""Count the acknowledged records that the next leader, elected cleanly or uncleanly, would lack if the leader died.

Spark's workers import this module, so it may not import packages that are only installed on the driver.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

SPAN: Final = (
    "cluster_id", "topic", "partition_id", "leader_epoch", "leader_id", "rule", "params_json", "from_us",
)  # fmt: skip
"""Columns that identify a row of `isr_batch.scoring.isr_path.spans_outside_isr`: a period under a rule run."""
_TEXT: Final = frozenset({"cluster_id", "topic", "rule", "params_json"})
FOUND: Final = pa.schema(
    [(name, pa.string() if name in _TEXT else pa.int64() if name == "from_us" else pa.int32()) for name in SPAN]
    + [("lost_records_max", pa.int64()), ("lost_us", pa.int64()), ("elr_below_high_watermark", pa.int32())]
    + [("lost_by_first_active_max", pa.int64()), ("lost_by_longest_log_max", pa.int64())]
)
"""Schema of the result of `heir_lacks`."""


def heir_lacks(rows: pa.Table) -> pa.Table:
    """Return how many acknowledged records the next leader would at most lack if the leader died in a period.

    The next leader is the heir, which is elected cleanly. Without an heir, a replica of an active broker (one that is
    neither fenced nor shutting down) is elected uncleanly: the first such replica, or the one with the longest log. The
    result has separate columns for the heir and for these two replicas.

    Parameters
    ----------
    rows : pa.Table
        Rows about one period: `SPAN`, ``kind``, ``at_us``, ``replica_id``, ``value``, ``elr``, ``active``. There is
        one row of kind span, with the heir (``replica_id``), the ELR, and, without an heir, the active replicas.
        Rows of kind log_end, high_watermark and acked have in ``value`` the offset that is valid from ``at_us`` on.

    Returns
    -------
    pa.Table
        One row with the columns of `FOUND`. The numbers are null if the log does not show the term's offsets.
    """
    listed: list[dict[str, Any]] = rows.sort_by([("at_us", "ascending"), ("value", "ascending")]).to_pylist()
    (span,) = (row for row in listed if row["kind"] == "span")
    heir, elr, active = span["replica_id"], span["elr"] or [], span["active"] or []
    log_ends: dict[int, int] = {}
    high_watermark = acked = -1
    most, most_us, below = None, None, set[int]()
    unclean: list[tuple[int | None, int | None]] = []
    if any(row["value"] is None for row in listed if row["kind"] != "span"):
        return pa.Table.from_pylist([{name: span[name] for name in SPAN}], FOUND)
    for place, row in enumerate(listed):
        if row["kind"] == "log_end":
            log_ends[row["replica_id"]] = row["value"]
        elif row["kind"] == "high_watermark":
            high_watermark = max(high_watermark, row["value"])
        elif row["kind"] == "acked":
            acked = max(acked, row["value"])
        # The state is only examined once all rows with the same time are applied.
        if place + 1 < len(listed) and listed[place + 1]["at_us"] == row["at_us"]:
            continue
        below |= {one for one in elr if 0 <= log_ends.get(one, -1) < high_watermark}
        if log_ends.get(heir, -1) >= 0:
            lacks = max(0, high_watermark - log_ends[heir], acked - log_ends[heir])
            if most is None or lacks > most:
                most, most_us = lacks, row["at_us"]
        unclean.append(_lost_uncleanly(active, log_ends, max(high_watermark, acked)))
    known = any(log_ends.get(one, -1) >= 0 for one in elr)
    found = {name: span[name] for name in SPAN} | {
        "lost_records_max": most, "lost_us": most_us if most else None,
        "elr_below_high_watermark": len(below) if known else None,
        "lost_by_first_active_max": max((first for first, _ in unclean if first is not None), default=None),
        "lost_by_longest_log_max": max((longest for _, longest in unclean if longest is not None), default=None),
    }  # fmt: skip
    return pa.Table.from_pylist([found], FOUND)


def _lost_uncleanly(
    active: Sequence[int], log_ends: Mapping[int, int], acknowledged: int
) -> tuple[int | None, int | None]:
    """Return how many acknowledged records the first active replica lacks, and how many the one with the longest log.

    Each is None if it is unknown.
    """
    ends = [log_ends.get(one, -1) for one in active]
    if not ends or ends[0] < 0:
        return None, None
    first = max(0, acknowledged - ends[0])
    return first, max(0, acknowledged - max(ends)) if min(ends) >= 0 else None

"""Records that an heir to the leader would lack, microsecond by microsecond: checks `scoring.heir_offsets`."""

import random
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def last(rows: Sequence[Row], at_us: int, value: str, **of: Any) -> int:
    """The value of the last row at or before an instant; -1 before the first row."""
    found = -1
    for row in rows:
        if row["at_us"] <= at_us and all(row[name] == wanted for name, wanted in of.items()):
            found = row[value]
    return found


def hidden(span: Row, partition: Sequence[Row]) -> Row:
    """Sums over the time of a span in which a frozen high watermark hides records; None where no row shows a state."""
    shown = [at_us for at_us in range(span["from_us"], span["until_us"]) if partition[0]["at_us"] <= at_us]
    if partition[0]["high_watermark"] is None or not shown:
        return dict.fromkeys(("frozen_us", "visibility_age_max_us", "visibility_age_area", "hidden_record_us"))
    ages, records = [], 0
    for at_us in shown:
        high_watermark = last(partition, at_us, "high_watermark")
        lacking = last(partition, at_us, "leader_log_end_offset") - high_watermark
        if lacking > 0:
            ages.append(at_us - next(r["at_us"] for r in partition if r["leader_log_end_offset"] > high_watermark))
            records += lacking
    return {
        "frozen_us": len(ages), "visibility_age_max_us": max(ages) + 1 if ages else None,
        "visibility_age_area": sum(age + 0.5 for age in ages) / 1e12, "hidden_record_us": records,
    }  # fmt: skip


def lacking(span: Row, partition: Sequence[Row], replica: Sequence[Row], appends: Sequence[Row]) -> Row:
    """What `heir_offsets` should give for a span; the rows are of one term and sorted by time."""
    most, most_us, below, known = None, None, set(), False
    by_policy: dict[str, int | None] = {"lost_by_first_active_max": None, "lost_by_longest_log_max": None}
    if any(row["high_watermark"] is None for row in partition):
        return {"lost_records_max": None, "lost_us": None, "elr_below_high_watermark": None, **by_policy}
    for at_us in range(span["from_us"], span["until_us"]):
        high_watermark = last(partition, at_us, "high_watermark")
        acked = max(
            (row["log_end_offset"] for row in appends
             if row["at_us"] <= at_us and row["acks"] in {0, 1} and row["log_end_offset"] is not None),
            default=-1,
        )  # fmt: skip
        for member in span["elr"]:
            ends = last(replica, at_us, "follower_log_end_offset", replica_id=member)
            known = known or ends >= 0
            if 0 <= ends < high_watermark:
                below.add(member)
        active = span["active"] if span["offline_if_leader_dies"] else []
        logs = [last(replica, at_us, "follower_log_end_offset", replica_id=one) for one in active]
        for policy, log in zip(by_policy, [logs[0], max(logs)] if logs else [], strict=False):
            if log >= 0 and (policy == "lost_by_first_active_max" or -1 not in logs):
                by_policy[policy] = max(by_policy[policy] or 0, max(acked, high_watermark) - log)
        ends = last(replica, at_us, "follower_log_end_offset", replica_id=span["heir_id"])
        if span["heir_id"] is not None and ends >= 0:
            lacks = max(0, max(acked, high_watermark) - ends)
            if most is None or lacks > most:
                most, most_us = lacks, at_us
    return {
        "lost_records_max": most, "lost_us": most_us if most else None,
        "elr_below_high_watermark": len(below) if known else None, **by_policy,
    }  # fmt: skip


def term(seed: int) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """Draw spans, and the states and appends of one term."""
    draw = random.Random(seed)
    partition: list[Row] = []
    replica: list[Row] = []
    appends: list[Row] = []
    spans: list[Row] = []
    end, high_watermark, ends = 5, 0, {2: -1, 3: -1}
    at_us = 1000
    for _ in range(draw.randint(5, 60)):
        at_us += draw.choice([0, 0, 1, 2, 9])
        what = draw.choice(["append", "append", "fetch", "fetch", "mark", "back"])
        if what == "append":
            end += draw.randint(1, 5)
            refused = draw.random() < 0.1
            appends.append(
                {"at_us": at_us, "log_end_offset": None if refused else end, "acks": draw.choice([-1, 0, 1, None])}
            )
        elif what == "mark":
            high_watermark = min(end, high_watermark + draw.randint(1, 4))
        else:
            one = draw.choice([2, 3])
            ends[one] = draw.randint(max(ends[one], 0), end) if what == "fetch" else ends[one]
            replica.append({"at_us": at_us, "replica_id": one, "follower_log_end_offset": ends[one]})
        partition.append({"at_us": at_us, "leader_log_end_offset": end, "high_watermark": high_watermark})
    if draw.random() < 0.1:  # no line names an offset
        partition = [row | {"leader_log_end_offset": None, "high_watermark": None} for row in partition]
        replica = [row | {"follower_log_end_offset": None} for row in replica]
    from_us = 1000
    while from_us < at_us:
        until_us = from_us + draw.randint(1, 30)
        elr = draw.sample([2, 3], draw.randint(0, 2))
        isr = [1, *draw.sample(sorted({2, 3} - {*elr}), draw.randint(0, 1 if len(elr) < 2 else 0))]
        others = [*isr[1:], *elr]
        spans.append({
            "from_us": from_us, "until_us": until_us, "isr": isr, "min_insync_replicas": draw.choice([1, 2, 2, 3]),
            "elr": elr, "heir_id": draw.choice([*others, None]), "active": draw.sample([2, 3], draw.randint(0, 2)),
            "offline_if_leader_dies": draw.choice([True, False, None]),
        })  # fmt: skip
        from_us = until_us + draw.choice([0, 0, 7])
    return spans, partition, replica, appends

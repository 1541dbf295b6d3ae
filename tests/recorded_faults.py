"""The broker at fault in a recorded cluster, by its `timeline.jsonl`, to compare answers with.

``python -m tests.recorded_faults RECORDINGS LAKE [LAKE ...]`` counts, cluster by cluster, for how many dropped
followers each lake points at the broker at fault, at another one, or at none. RECORDINGS is the folder of the
recordings, and the clusters of a lake have their names. For a lake of server.log alone, suspects are counted.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

SLACK_MS: Final = 10_000
"""A drop comes a lag time and a check after its fault began, and a slow follower's up to that after it ended."""


class RecordedFault(NamedTuple):
    """One fault: start and end (epoch ms), affected pairs (follower, leader; 0 for all), broker at fault, and kind."""

    from_ms: int
    until_ms: int
    pairs: tuple[tuple[int, int], ...]
    brokers: frozenset[int]
    kind: str = ""

    def explains(self, leader: int, follower: int, since_ms: int, drop_ms: int) -> bool:
        """Whether it may have kept the follower from the leader since it was last caught up."""
        hit = any(f in (0, follower) and b in (0, leader) for f, b in self.pairs)
        return hit and self.from_ms <= drop_ms and since_ms <= self.until_ms + SLACK_MS


def recorded_faults(timeline: Path) -> list[RecordedFault]:
    """Read the faults of a recording; one that does not end goes on until the recording does."""
    events = [json.loads(line) for line in timeline.read_text().splitlines()]
    found, under_way = [], {}
    for event in events:
        if event["event"] == "fault_start":
            under_way[_target(event)] = event
        elif event["event"] == "fault_end" and (start := under_way.pop(_target(event), None)):
            found.append(_fault(start, event["t"]))
    return [*found, *(_fault(start, events[-1]["t"]) for start in under_way.values())]


def _target(event: dict[str, Any]) -> tuple[object, ...]:
    """Name what a fault hits; a broker that was stopped is started again under another kind."""
    target = event["target"]
    return (target["f"], target["l"]) if isinstance(target, dict) else (target, event["kind"].startswith("throttle"))


def _fault(start: dict[str, Any], until_ms: int) -> RecordedFault:
    target, kind = start["target"], start["kind"]
    if isinstance(target, dict):
        pair = target["f"], target["l"]
        ends = frozenset({pair[0] or pair[1], pair[1] or pair[0]})
        return RecordedFault(start["t"], until_ms, (pair,), ends, _kind_of_network(target))
    broker = target if isinstance(target, int) else int(target.removeprefix("broker-"))
    pairs = {"throttle_follower": ((broker, 0),), "throttle_leader": ((0, broker),)}
    stopped = "a broker stopped" if kind == "sigstop" else "a broker restarted"
    named = "a throttle" if kind in pairs else stopped
    return RecordedFault(start["t"], until_ms, pairs.get(kind, ((broker, 0), (0, broker))), frozenset({broker}), named)


def _kind_of_network(target: dict[str, Any]) -> str:
    whose = "a link" if target["f"] and target["l"] else "a follower" if target["f"] else "a leader"
    how = "out of reach" if target.get("hold") else "with losses" if target.get("loss") else "with a slow network"
    return f"{whose} {how}"


def faults_of_drop(faults: Iterable[RecordedFault], drop: dict[str, Any]) -> list[RecordedFault]:
    """Faults that a drop may be blamed on."""
    at_ms = drop["change_us"] // 1000
    since_ms = at_ms - (drop["lag_ms"] or 0)
    mine = [one for one in faults if one.explains(drop["leader_id"], drop["replica_id"], since_ms, at_ms)]
    # A fault in progress when it stopped being caught up outweighs one that had ended, or that came later.
    near = [one for one in mine if one.from_ms - 1000 <= since_ms <= one.until_ms]
    return near or mine


def broker_at_fault(faults: Iterable[RecordedFault], drop: dict[str, Any]) -> frozenset[int]:
    """Brokers that a drop may be blamed on (of one link both its ends); empty where no fault explains it."""
    return frozenset().union(*(one.brokers for one in faults_of_drop(faults, drop)))


def count_answers(faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count right, wrong and missing answers; ``unexplained`` are drops outside the timeline."""
    counts: Counter[str] = Counter()
    for drop in drops:
        guilty = broker_at_fault(faults, drop)
        if not guilty:
            counts["unexplained"] += 1
        elif drop["fault_id"] is None:
            counts["untold"] += 1
        else:
            counts["right" if drop["fault_id"] in guilty else "wrong"] += 1
    return counts


def count_by_kind(faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Count as `count_answers` does, by the kind of the fault."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for drop in drops:
        kinds = {one.kind for one in faults_of_drop(faults, drop)} or {"no fault"}
        counts[min(kinds)] += count_answers(faults, [drop])
    return counts


def drops_of_lake(lake_root: str) -> dict[str, list[dict[str, Any]]]:
    """Drops of leaders by cluster, as the answers have them: with request logs, or with server.log alone."""
    from isr_batch.incidents.own_shrinks import own_shrinks
    from isr_batch.lake.arrow_read import read_columns
    from isr_batch.lake.lake import Lake

    def no_spark() -> Any:
        raise RuntimeError("tables of this machine are read without Spark")

    lake = Lake(no_spark, lake_root)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    own = own_shrinks(lake)
    for row in own.drops.to_pylist():
        if row["made_by"] != "controller":
            found[row["cluster_id"]].append(row)
    if found:
        return found
    columns = (
        "cluster_id",
        "topic",
        "partition_id",
        "leader_id",
        "replica_id",
        "change_time",
        "made_by",
        "lag_ms",
        "retry",
    )
    for row in read_columns(lake, "shrink_evidence", (*columns, "suspect_broker")).to_pylist():
        if row["made_by"] == "leader" and not row["retry"]:
            us = int(row["change_time"].timestamp() * 1_000_000)
            found[row["cluster_id"]].append({**row, "change_us": us, "fault_id": row["suspect_broker"]})
    return found


def main(recordings: Path, lakes: Sequence[str]) -> None:
    """Print the counts."""
    for lake in lakes:
        total: Counter[str] = Counter()
        for cluster, drops in sorted(drops_of_lake(lake).items()):
            timeline = recordings / cluster / "timeline.jsonl"
            if timeline.exists():
                counts = count_answers(recorded_faults(timeline), drops)
                total += counts
                sys.stdout.write(f"{cluster:20} {dict(sorted(counts.items()))}\n")
        sys.stdout.write(f"{lake}: {dict(sorted(total.items()))}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

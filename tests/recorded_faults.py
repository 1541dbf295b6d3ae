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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from isr_batch.lake.lake import Lake

SLACK_MS: Final = 10_000
"""A drop comes a lag time and a check after its fault began, and a slow follower's up to that after it ended."""
SECOND_MS: Final = 1_000


class RecordedFault(NamedTuple):
    """One fault: start and end (epoch ms), affected pairs (follower, leader; 0 for all), broker at fault, and kind.

    ``silent`` if the process itself stood still or was gone.
    """

    from_ms: int
    until_ms: int
    pairs: tuple[tuple[int, int], ...]
    brokers: frozenset[int]
    kind: str = ""
    silent: bool = False

    def explains(self, leader: int, follower: int, since_ms: int, drop_ms: int) -> bool:
        """Whether this fault may have kept the follower from the leader between ``since_ms`` and its drop."""
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
    """Key by which the end of a fault is matched to its start: broker or link, and whether it is a throttle.

    A broker that was stopped is started again by an entry of another kind.
    """
    target = event["target"]
    return (target["f"], target["l"]) if isinstance(target, dict) else (target, event["kind"].startswith("throttle"))


def _fault(start: dict[str, Any], until_ms: int) -> RecordedFault:
    target, kind = start["target"], start["kind"]
    if isinstance(target, dict):
        pair = target["f"], target["l"]
        ends = frozenset({pair[0] or pair[1], pair[1] or pair[0]})
        return RecordedFault(start["t"], until_ms, (pair,), ends, _kind_of_network(target))
    if target == "controller":
        return RecordedFault(start["t"], until_ms, (), frozenset(), "the controller stopped", silent=True)
    broker = target if isinstance(target, int) else int(target.removeprefix("broker-"))
    pairs = {"throttle_follower": ((broker, 0),), "throttle_leader": ((0, broker),)}
    stopped = {"sigstop": "a broker stopped", "starve": "a broker starved of CPU"}
    named = "a throttle" if kind in pairs else stopped.get(kind, "a broker restarted")
    hit = pairs.get(kind, ((broker, 0), (0, broker)))
    return RecordedFault(start["t"], until_ms, hit, frozenset({broker}), named, silent=kind not in pairs)


def _kind_of_network(target: dict[str, Any]) -> str:
    whose = "a link" if target["f"] and target["l"] else "a follower" if target["f"] else "a leader"
    how = "out of reach" if target.get("hold") else "with losses" if target.get("loss") else "with a slow network"
    return f"{whose} {how}"


def faults_of_drop(faults: Iterable[RecordedFault], drop: dict[str, Any]) -> list[RecordedFault]:
    """Faults of the recording that can explain a logged drop."""
    at_ms = drop["change_us"] // 1000
    since_ms = at_ms - (drop["lag_ms"] or 0)
    mine = [one for one in faults if one.explains(drop["leader_id"], drop["replica_id"], since_ms, at_ms)]
    # A fault in progress when it stopped being caught up outweighs one that had ended, or that came later.
    near = [one for one in mine if one.from_ms - 1000 <= since_ms <= one.until_ms]
    return near or mine


def broker_at_fault(faults: Iterable[RecordedFault], drop: dict[str, Any]) -> frozenset[int]:
    """Brokers at fault for a logged drop: both ends for a broken link, none where no fault explains the drop."""
    return frozenset().union(*(one.brokers for one in faults_of_drop(faults, drop)))


def count_answers(faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count right, wrong and missing answers; ``unexplained`` are drops outside the timeline."""
    return Counter(result_of_answer(faults_of_drop(faults, drop), drop) for drop in drops)


def result_of_answer(mine: Sequence[RecordedFault], drop: dict[str, Any]) -> str:
    """Whether an answer about a drop fits its faults: the broker; the time, if it is said; and no other kind of fault.

    The time is right if it is that of a fault within a second. A broker that stood still was not out of reach, and one
    that was out of reach was not silent.
    """
    if not mine:
        return "unexplained"
    if drop["fault_id"] is None:
        return "untold"
    begun, kind = drop.get("since_us"), drop.get("said")
    fits = any(
        drop["fault_id"] in one.brokers
        and (begun is None or one.from_ms - SECOND_MS <= begun // 1000 <= one.until_ms + SECOND_MS)
        and kind not in (("unreached", "linked") if one.silent else ("silent",))
        for one in mine
    )
    return "right" if fits else "wrong"


def count_by_kind(faults: Sequence[RecordedFault], drops: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Count as `count_answers` does, by the kind of the fault."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for drop in drops:
        kinds = {one.kind for one in faults_of_drop(faults, drop)} or {"no fault"}
        counts[min(kinds)] += count_answers(faults, [drop])
    return counts


def _said_of(incident: dict[str, Any], drop: dict[str, Any]) -> str | None:
    """Kind of fault that the answer names for a drop; None if it names none."""
    if drop["points_at"] == "link":
        return "linked"
    if incident["silent_ms"]:
        return "silent"
    return "unreached" if drop["points_at"] == "leader" and incident["unreached"] else None


def drops_of_lake(lake_root: str) -> dict[str, list[dict[str, Any]]]:
    """Drops by cluster of a local lake, read without Spark; as `drops_of_leaders`."""
    from isr_batch.lake.lake import Lake

    def no_spark() -> Any:
        raise RuntimeError("tables of this machine are read without Spark")

    return drops_of_leaders(Lake(no_spark, lake_root))


def drops_of_leaders(lake: "Lake") -> dict[str, list[dict[str, Any]]]:
    """Drops by cluster, as the answers list them: from request logs, or from server.log alone."""
    from isr_batch.evidence.evidence_table import read_evidence_table
    from isr_batch.incidents.own_shrinks import incident_key, own_shrinks
    from isr_batch.lake.arrow_read import read_columns

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    own = own_shrinks(lake)
    incidents = {incident_key(one): one for one in own.incidents}
    for row in own.drops.to_pylist():
        if row["made_by"] not in ("controller", "unknown"):
            one = incidents[incident_key(row)]
            found[row["cluster_id"]].append(row | {"since_us": one["since_us"], "said": _said_of(one, row)})
    if found:
        return found
    for name in sorted(set(read_columns(lake, "shrink_evidence", ["cluster_id"])["cluster_id"].to_pylist())):
        for row in read_evidence_table(lake, name).to_pylist():
            if row["made_by"] == "leader" and not row["retry"]:
                us = int(row["change_time"].timestamp() * 1_000_000)
                begun = None if row["lag_ms"] is None else us - 1000 * row["lag_ms"]
                found[name].append(row | {"change_us": us, "fault_id": row["suspect_broker"], "since_us": begun})
    return found


def main(recordings: Path, lakes: Sequence[str]) -> None:
    """Print how many answers name the broker that was at fault."""
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

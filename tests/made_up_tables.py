"""Made-up tables of fetches as a data engineer has them, and ways to split them into files."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MAPPING = """
cluster_id: c
fetches:
  columns:
    topic: topic
    partition_id: partition
    leader_id: leader
    replica_id: follower
    fetch_offset: offset
    handled_time: {column: ts_ms, unit: ms}
    leader_log_end_offset: leo
"""
NOON_MS = 1_773_144_000_000  # 2026-03-10T12:00:00Z
MIDNIGHT_MS = 1_773_187_200_000

Cut = Callable[[pa.Table, np.random.Generator], list[pa.Table]]


def made_up_table(
    seed: int = 1,
    *,
    partitions: int = 6,
    brokers: int = 4,
    seconds: int = 240,
    begins_ms: int = NOON_MS,
    faults: bool = True,
) -> pa.Table:
    """Make a table of fetches by two followers per partition.

    With faults, one follower stops, a leader pauses, and partitions move to another leader and back.

    Columns topic, partition, leader, follower, offset, ts_ms, leo, epoch; in order of time.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    stopped, paused = rng.integers(1, brokers + 1, 2).tolist()
    stops = sorted(rng.uniform(20, seconds - 20, 2).tolist())
    pause = float(rng.uniform(20, seconds - 70))
    for partition in range(partitions):
        replicas = [(partition + step) % brokers + 1 for step in range(3)]
        # Away and back again, or not at all.
        moves = sorted(rng.uniform(30, seconds - 30, 2).tolist()) if faults and rng.random() < 0.4 else []
        for epoch, (from_s, until_s) in enumerate(zip([0.0, *moves], [*moves, float(seconds)], strict=True)):
            leader = replicas[epoch % 2]
            for follower in replicas:
                if follower == leader:
                    continue
                at = np.arange(from_s, until_s, 0.5) + rng.uniform(0, 0.4, len(np.arange(from_s, until_s, 0.5)))
                if faults and follower == stopped:
                    at = at[(at < stops[0]) | (at > stops[1])]
                if faults and leader == paused:
                    at = at[(at < pause) | (at > pause + 42)]
                for second in at.tolist():
                    ms, end = begins_ms + int(second * 1000), 100 + int(second * 20)
                    rows.append((partition, leader, follower, end - int(rng.integers(0, 3)), ms, end, epoch))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table = pa.table({
        "topic": [f"orders-{partition % 2}" for partition in columns[0].tolist()],
        **dict(zip(("partition", "leader", "follower", "offset", "ts_ms", "leo", "epoch"), columns, strict=True)),
    })  # fmt: skip
    return table.sort_by([("ts_ms", "ascending"), ("partition", "ascending"), ("follower", "ascending")])


def cut_by_time(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    places = np.sort(rng.integers(0, table.num_rows, 2)).tolist()
    return [table.slice(a, b - a) for a, b in zip([0, *places], [*places, table.num_rows], strict=True)]


def cut_by_leader(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:  # noqa: ARG001
    leaders = table["leader"].to_numpy()
    return [table.filter(pa.array(leaders == leader)) for leader in np.unique(leaders)]


def cut_at_random(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    part = rng.integers(0, 3, table.num_rows)
    return [table.filter(pa.array(part == number)) for number in range(3)]


def cut_with_overlaps(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    """Split a table into parts that overlap, one of them twice, with rows in random order."""
    parts = cut_by_time(table, rng)
    parts.append(table.slice(int(rng.integers(0, table.num_rows // 2)), table.num_rows // 3))
    parts.append(parts[0])
    return [part.take(pa.array(rng.permutation(part.num_rows))) for part in parts]


CUTS: Sequence[Cut] = (cut_by_time, cut_by_leader, cut_at_random, cut_with_overlaps)


def pieces(table: pa.Table, seed: int, folder: Path) -> Iterator[Path]:
    """Write the parts of a split table to files, in random order."""
    rng = np.random.default_rng(seed)
    parts = CUTS[seed % len(CUTS)](table, rng)
    for number, place in enumerate(rng.permutation(len(parts)).tolist()):
        file = folder / f"piece-{seed}-{number}.parquet"
        pq.write_table(parts[place], file)
        yield file

"""A made-up log of what brokers dropped, for tests of incidents: rows of the tables, by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from isr_batch.incidents.own_shrinks import COLUMNS, OwnShrinks, own_shrinks_of_tables
from isr_batch.lake.arrow_read import contract_schema

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KEY = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 1}
RUN = {"rule": "kafka-3.7", "params_json": '{"min_insync_replicas": 2, "replica_lag_time_max_ms": 4000}'}
Row = dict[str, Any]


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


class Log:
    """Tables of a made-up cluster with brokers 1 to 3; 1 and 2 are leaders; the lag time is 4 s."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        for leader, epoch in ((1, 1), (2, 2)):
            self.rows["leader_epochs"].append(
                KEY | {
                    "leader_id": leader, "leader_epoch": epoch, "start_time": at(0), "end_time": at(100),
                    "previous_leader_id": 3 if leader == 2 else None, "assigned": [1, 2, 3],
                    "replica_lag_time_max_ms": 4000, "begins_mid_term": False,
                }
            )  # fmt: skip
        self.add("coverage", cluster_id="c", broker_id=1, log="server", from_time=at(0), until_time=at(100))

    def add(self, table: str, **row: object) -> None:
        self.rows[table].append(dict(row))

    def shrink(
        self, seconds: float, leader: int, follower: int, verdict: str | None, cause: str = "", *,
        partition: int = 0, lag_ms: int = 5000, held_ms: int = 0, back_s: float = 2,
    ) -> None:  # fmt: skip
        """Add a drop that a broker logged; with a verdict also the replay's, 1 ms later and undone after ``back_s``."""
        key = KEY | {"leader_id": leader, "replica_id": follower, "partition_id": partition}
        self.add("observed_isr_changes", **key, change_time=at(seconds), kind="shrink", made_by="leader",
                 last_caught_up_time_ms=None, source_file=f"broker-{leader}/server.log",
                 source_line=100 + len(self.rows["observed_isr_changes"]))  # fmt: skip
        replayed = at(seconds) + timedelta(milliseconds=1) if verdict else None
        status = "matched" if verdict else "missing"
        run = RUN if verdict else RUN | {"params_json": "{}"}
        self.add("replay_check", **key, **run, kind="shrink", status=status, observed_time=at(seconds),
                 replayed_time=replayed)  # fmt: skip
        if verdict:
            self.add("shrink_verdicts", **key, **RUN, change_time=replayed, made_by="rule", verdict=verdict,
                     primary_cause=cause, restored_time=at(seconds + back_s), lag_ms=lag_ms,
                     leader_held_ms=held_ms, leader_silent_ms=0)  # fmt: skip

    def found(self) -> OwnShrinks:
        return own_shrinks_of_tables(
            {name: pa.Table.from_pylist(rows, contract_schema(name, COLUMNS[name])) for name, rows in self.rows.items()}
        )


def leader_was_silent(log: Log) -> None:
    """Broker 1 stands still from 10 to 16 s; broker 2 drops it, then it drops 2 and 3 from two ISRs each."""
    log.add("broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(10), end_time=at(16))
    log.shrink(14.5, 2, 1, "genuine", "follower_stopped", lag_ms=4500)
    for follower in (2, 3):
        for partition in (0, 1):
            log.shrink(16, 1, follower, "spurious", "slow_leader", partition=partition, lag_ms=6000)

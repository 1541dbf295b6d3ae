"""Rows and lines in the lake from logs that an earlier ingest read and that are no longer in the folder ("gone")."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from isr_batch.ingest.folder.settings_files import Broker
from isr_batch.ingest.requests.coverage import GAP_US, NEAR_US, NUMBERED, Stretch
from isr_batch.ingest.requests.last_rows import LastRows
from isr_batch.ingest.terms.mid_term import Begun, is_unlogged
from udfs.arrow_types import arrow_columns

KEPT_LINES = arrow_columns(
    "kind STRING, broker_id INT, source_file STRING, source_line BIGINT, stamp_us BIGINT, message STRING, "
    "line_hash BIGINT"
)
"""Schema of the lines that a lake stores, because logs that are ingested later may need them."""
SILENCES = arrow_columns("broker_id INT, process INT, from_us BIGINT, until_us BIGINT")
FILES = arrow_columns("kind STRING, broker_id INT, first_us BIGINT, last_us BIGINT, informs BOOLEAN")
AS_IT_BEGAN_LOGGED = ("start_offset", "start_high_watermark", "start_offset_source", "held_at_start")
AS_IT_BEGAN = (
    *AS_IT_BEGAN_LOGGED, "begins_mid_term", "term_source", "assigned", "assigned_source", "isr_at_start", "isr_source",
    "previous_leader_id",
)  # fmt: skip
"""Columns of a term that only the log with its start shows. If no log shows the start, all columns."""
AS_IT_ENDED = ("end_us", "ends_mid_term")
_TERM = ("leader_id", "topic", "partition_id", "leader_epoch", "start_us")


@dataclass(frozen=True)
class EarlierLogs:
    """Rows and lines in the lake from logs that are gone from the folder, and that the new logs continue.

    Attributes
    ----------
    lines : pa.Table
        Lines of interest from these logs (`KEPT_LINES`).
    files : pa.Table
        The files other than request logs (`FILES`).
    requests : sequence of (int, int)
        For each request log, the broker, and the time at which its last request was completed.
    stretches : sequence of Stretch
        Stretches of time that the request logs cover.
    numbers : pa.Table
        The last request of each fetch session in each file (`isr_batch.ingest.requests.coverage.NUMBERED`).
    silences : pa.Table
        Silences of brokers (`SILENCES`).
    terms : sequence of dict
        Terms that the lines mention, and terms without a logged end: leader_id, topic, partition_id,
        leader_epoch, start_us, and the columns of `AS_IT_BEGAN` and `AS_IT_ENDED`.
    last_rows : callable
        Returns the rows shortly before the times at which the request logs of leaders continue.
    kept_requests : pa.Table
        The last requests of each broker (`isr_batch.ingest.kafka_logs.last_requests`).
    brokers : mapping of int to Broker
        Settings of all brokers that the cluster has had, from the folder, or, if it lacks them, from earlier logs.
    """

    lines: pa.Table = field(default_factory=KEPT_LINES.empty_table)
    files: pa.Table = field(default_factory=FILES.empty_table)
    requests: Sequence[tuple[int, int]] = ()
    stretches: Sequence[Stretch] = ()
    numbers: pa.Table = field(default_factory=NUMBERED.empty_table)
    silences: pa.Table = field(default_factory=SILENCES.empty_table)
    terms: Sequence[Mapping[str, Any]] = ()
    last_rows: Callable[[Mapping[int, int]], LastRows] = lambda _: LastRows()
    kept_requests: pa.Table = field(default_factory=KEPT_LINES.empty_table)
    brokers: Mapping[int, Broker] = field(default_factory=dict)

    def begin_us(self) -> dict[int, int]:
        """Return, for each broker, the time of its first stored line; everything from then on is derived again.

        A broker that is not in the folder is left out if its settings are unknown, as in a lake of an earlier version.
        """
        first = self.lines.group_by("broker_id").aggregate([("stamp_us", "min")]).to_pylist()
        return {row["broker_id"]: row["stamp_us_min"] for row in first
                if row["stamp_us_min"] is not None and row["broker_id"] in self.brokers}  # fmt: skip

    def with_stretches(self, read: Sequence[Stretch], signs: pa.Table) -> list[Stretch]:
        """Join the periods that the new request logs cover to those of the earlier logs that they continue.

        Parameters
        ----------
        read : sequence of Stretch
        signs : pa.Table
            Signs of gaps from the numbers of requests, including those between the earlier logs and these.
        """
        of_broker: dict[int, list[Stretch]] = defaultdict(list)
        by_time = [*((each, False) for each in self.stretches), *((each, True) for each in read)]
        new: dict[int, bool] = {}
        for stretch, is_read in sorted(by_time, key=lambda each: (each[0].first_us, each[0].until_us)):
            joined = of_broker[stretch.broker_id]
            is_new = is_read or new.get(stretch.broker_id, False)
            if joined and self._goes_on(joined[-1], stretch, signs if is_new else None):
                joined[-1] = replace(joined[-1], until_us=max(joined[-1].until_us, stretch.until_us))
            else:
                joined.append(replace(stretch, from_start=stretch.from_start and not joined))
            new[stretch.broker_id] = is_read
        return [stretch for broker_id in sorted(of_broker) for stretch in of_broker[broker_id]]

    def _goes_on(self, before: Stretch, after: Stretch, signs: pa.Table | None) -> bool:
        """Whether no request is missing between two covered periods of one log.

        They follow each other without a gap, or the followers' request numbers are consecutive.
        """
        if after.first_us <= before.until_us + GAP_US:
            return True
        return signs is not None and not any(
            sign["until_us"] >= after.first_us - NEAR_US
            and (sign["until_us"] <= after.until_us if sign["from_us"] is None
                 else sign["from_us"] <= before.until_us + NEAR_US)
            for sign in signs.to_pylist() if sign["sign"] == "break" and sign["broker_id"] == after.broker_id
        )  # fmt: skip

    def requests_before(self, begins_us: Mapping[int, int]) -> dict[int, int]:
        """Return, for each broker, when its last request in an earlier log was completed."""
        last: dict[int, int] = {}
        for broker_id, last_us in self.requests:
            if last_us <= begins_us.get(broker_id, 0):
                last[broker_id] = max(last_us, last.get(broker_id, last_us))
        return last

    def numbers_before(self, begins_us: Mapping[int, int]) -> pa.Table:
        """Return the last request of each fetch session in earlier logs, before the new request logs begin."""
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in self.numbers.sort_by([("completed_us", "ascending"), ("number", "ascending")]).to_pylist():
            if row["completed_us"] <= begins_us.get(row["broker_id"], 0):
                last[tuple(row[name] for name in ("broker_id", "replica_id", "client_id", "session"))] = row
        return pa.Table.from_pylist(list(last.values()), NUMBERED)

    def with_followers(self, seen: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Add to terms the followers that only earlier logs show, which fetched or were in the ISR there."""
        keys = ("topic", "partition_id", "leader_epoch")
        return [
            *seen,
            *({"broker_id": term["leader_id"], "replica_id": replica, "fetches": 0} | {key: term[key] for key in keys}
              for term in self.terms for replica in term["assigned"] if replica != term["leader_id"]),
        ]  # fmt: skip

    def fill_in_what_was_logged(self, rows: Sequence[dict[str, Any]]) -> None:
        """Fill in those values of terms, in place, that only the log with the term's start or end has."""
        began = {tuple(term[name] for name in _TERM): term for term in self.terms}
        for row in rows:
            if term := began.get(tuple(row[name] for name in _TERM)):
                began_as = AS_IT_BEGAN if term["begins_mid_term"] else AS_IT_BEGAN_LOGGED
                ended_as = AS_IT_ENDED if self._had_ended(term) else ()
                row.update({name: term[name] for name in (*began_as, *ended_as)})

    def _had_ended(self, term: Mapping[str, Any]) -> bool:
        """Whether a term ended before the end of its leader's earlier logs."""
        return not any(
            stretch.broker_id == term["leader_id"] and abs(stretch.until_us - term["end_us"]) <= GAP_US
            for stretch in self.stretches
        )

    def terms_that_go_on(self, found: Sequence[Begun], starts: pa.Table, settings: pa.Table) -> list[Begun]:
        """Replace terms that start before the new logs by the same terms from the earlier log that has their start.

        If the new logs have the start after all, because its line came later than the first requests, that start is
        used.
        """
        restarts = {row["broker_id"]: row["starts_us"] for row in settings.to_pylist()}
        logged: dict[tuple[Any, ...], int] = {}
        for row in starts.filter(starts["leads"]).sort_by("stamp_us").to_pylist():
            logged.setdefault(tuple(row[name] for name in ("broker_id", *_TERM[1:4])), row["stamp_us"])
        known = {}
        for term in self.terms:
            key = term["leader_id"], term["topic"], term["partition_id"], term["leader_epoch"]
            goes_on = term["begins_mid_term"] and term["ends_mid_term"]
            if goes_on and is_unlogged(term["start_us"], logged.get(key), restarts.get(key[0], ())):
                known[key] = term
        return [
            *(begun for begun in found if begun[:4] not in known),
            *(Begun(*key, term["start_us"], term["term_source"]) for key, term in known.items()),
        ]

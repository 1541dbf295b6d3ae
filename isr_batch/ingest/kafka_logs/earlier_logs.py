"""Earlier logs, read before and no longer in the folder, which later logs continue."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from isr_batch.ingest.kafka_logs.coverage import GAP_US, NEAR_US, NUMBERED, Stretch
from isr_batch.ingest.kafka_logs.mid_term import Begun
from isr_batch.ingest.kafka_logs.settings_files import Broker
from udfs.arrow_types import arrow_columns

KEPT_LINES = arrow_columns(
    "kind STRING, broker_id INT, source_file STRING, source_line BIGINT, stamp_us BIGINT, message STRING, "
    "line_hash BIGINT"
)
"""Columns of lines that are kept for later logs."""
SILENCES = arrow_columns("broker_id INT, process INT, from_us BIGINT, until_us BIGINT")
FILES = arrow_columns("kind STRING, broker_id INT, first_us BIGINT, last_us BIGINT, informs BOOLEAN")
AS_IT_BEGAN_LOGGED = ("start_offset", "start_high_watermark", "start_offset_source", "held_at_start")
AS_IT_BEGAN = (
    *AS_IT_BEGAN_LOGGED, "begins_mid_term", "term_source", "assigned", "assigned_source", "isr_at_start", "isr_source",
    "previous_leader_id",
)  # fmt: skip
"""Columns of a term that only the logs of its start have; for a term from before the logs, all columns."""
AS_IT_ENDED = ("end_us", "ends_mid_term")
_TERM = ("leader_id", "topic", "partition_id", "leader_epoch", "start_us")
APPENDS = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, append_us BIGINT, base_offset BIGINT, "
    "log_end_offset BIGINT, log_end_source STRING, acks INT, client_id STRING, acknowledged_us BIGINT, error_code INT, "
    "source_file STRING, source_line BIGINT, handled_us BIGINT"
)
NAMED = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, offset BIGINT, named_in STRING, named_us BIGINT, "
    "reached BIGINT"
)
_OF_TERM = ("leader_id", "topic", "partition_id", "leader_epoch")


@dataclass(frozen=True)
class LastRows:
    """The last rows of request logs that are gone, shortly before those that are read.

    Attributes
    ----------
    begins_us : mapping of int to int
        When the request log of each leader goes on.
    fetches : sequence of dict
        The last of each follower and term: leader_id, replica_id, topic, partition_id, leader_epoch, fetch_offset,
        last_handled_us; ``read_us``, when the log was read for it, is null where it is not known any more.
    appends : pa.Table
        Those of the last seconds that have a base offset (`APPENDS`); ``handled_us``, when an io thread took the
        request, is null where it is not known any more.
    read_again : pa.Table
        Appends of that time whose requests are in the logs that are read: the lake has the latest time for each that
        the logs before these allow.
    """

    begins_us: Mapping[int, int] = field(default_factory=dict)
    fetches: Sequence[Mapping[str, Any]] = ()
    appends: pa.Table = field(default_factory=APPENDS.empty_table)
    read_again: pa.Table = field(default_factory=APPENDS.empty_table)

    @cached_property
    def reached(self) -> dict[tuple[Any, ...], int]:
        """By term, the highest offset that a follower had asked for."""
        highest: dict[tuple[Any, ...], int] = {}
        for fetch in self.fetches:
            key = tuple(fetch[name] for name in _OF_TERM)
            if fetch["fetch_offset"] is not None:
                highest[key] = max(highest.get(key, 0), fetch["fetch_offset"])
        return highest

    def open_appends(self) -> list[dict[str, Any]]:
        """List the appends without a fetch beyond them: later logs may name their end, also by the next append."""
        found = []
        for row in self.appends.to_pylist():
            reached = self.reached.get(tuple(row[name] for name in _OF_TERM), 0)
            by_fetches = (row["log_end_offset"], row["log_end_source"]) == (reached, "fetches")
            if row["acks"] is not None and (row["base_offset"] >= reached or by_fetches):
                found.append(row)
        return found

    def last_reads(self) -> list[dict[str, Any]]:
        """List the last fetches as rows of `isr_batch.ingest.kafka_logs.append_log.ASKED`."""
        return [
            {name: fetch[name] for name in (*_OF_TERM, "replica_id", "fetch_offset", "last_handled_us")}
            | {"arrival_us": fetch["last_handled_us"], "last_read_us": fetch["read_us"]}
            for fetch in self.fetches if fetch["fetch_offset"] is not None and fetch["read_us"] is not None
        ]  # fmt: skip

    def named_offsets(self) -> pa.Table:
        """List the named offsets: term, offset, named_in, named_us, and the highest of the term."""
        named = [(*key, offset, "fetches", self.begins_us[key[0]]) for key, offset in self.reached.items()]
        for row in self.appends.to_pylist():
            key = tuple(row[name] for name in _OF_TERM)
            named.append((*key, row["base_offset"], "appends", row["append_us"]))
            if row["log_end_source"] == "shrinks":
                named.append((*key, row["log_end_offset"], "shrinks", self.begins_us[key[0]]))
        named += [
            (*(row[name] for name in _OF_TERM), row["base_offset"], "appends", row["append_us"])
            for row in self.read_again.to_pylist()
        ]
        rows = [dict(zip(NAMED.names, (*each, self.reached.get(each[:4], 0)), strict=True)) for each in named]
        return pa.Table.from_pylist(rows, NAMED)

    def goes_on(self, leader_id: int, start_us: int) -> bool:
        """Whether a term had begun before."""
        return start_us < self.begins_us.get(leader_id, start_us)

    def answered_late(self, produced: pa.Table) -> list[dict[str, Any]]:
        """List the appends of earlier logs without a known request, for which these logs have one.

        Parameters
        ----------
        produced : pa.Table
            Requests of the logs that go on, from before that.
        """
        names = ("leader_id", "topic", "partition_id", "base_offset")
        made = set(zip(*(produced[name].to_pylist() for name in names), strict=True))
        return [row for row in self.appends.to_pylist()
                if row["acks"] is None and tuple(row[name] for name in names) in made]  # fmt: skip


@dataclass(frozen=True)
class EarlierLogs:
    """The content of a lake from logs that are gone.

    Attributes
    ----------
    lines : pa.Table
        Their lines of interest (`KEPT_LINES`).
    files : pa.Table
        The files other than request logs (`FILES`).
    requests : sequence of (int, int)
        Their request logs: broker, and the last completion of a request.
    stretches : sequence of Stretch
        That their request logs cover.
    numbers : pa.Table
        The last request of each fetch session in each file (`isr_batch.ingest.kafka_logs.coverage.NUMBERED`).
    silences : pa.Table
        Of brokers (`SILENCES`).
    terms : sequence of dict
        The terms that these lines are about, and those without a logged end: leader_id, topic, partition_id,
        leader_epoch, start_us, and the columns of `AS_IT_BEGAN` and `AS_IT_ENDED`.
    last_rows : callable
        Returns the rows shortly before the times at which the request logs of leaders continue.
    kept_requests : pa.Table
        The last requests of each broker, as `isr_batch.ingest.kafka_logs.last_requests` gives them.
    brokers : mapping of int to Broker
        Settings of all brokers that the cluster has had: of the folder, and from earlier ones where it has none.
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
        """Find the first timestamp of each broker's lines; everything after it is derived again.

        Nothing of a broker that is not in the folder and whose settings are not known, as in a lake of an earlier
        version.
        """
        first = self.lines.group_by("broker_id").aggregate([("stamp_us", "min")]).to_pylist()
        return {row["broker_id"]: row["stamp_us_min"] for row in first
                if row["stamp_us_min"] is not None and row["broker_id"] in self.brokers}  # fmt: skip

    def with_stretches(self, read: Sequence[Stretch], signs: pa.Table) -> list[Stretch]:
        """Join the stretches of the logs that are read to those that they continue.

        Parameters
        ----------
        read : sequence of Stretch
        signs : pa.Table
            Of the numbers of requests, also from those of the earlier logs to these.
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
        """Whether nothing is missing between two stretches: no gap, or consecutive request numbers."""
        if after.first_us <= before.until_us + GAP_US:
            return True
        return signs is not None and not any(
            sign["until_us"] >= after.first_us - NEAR_US
            and (sign["until_us"] <= after.until_us if sign["from_us"] is None
                 else sign["from_us"] <= before.until_us + NEAR_US)
            for sign in signs.to_pylist() if sign["sign"] == "break" and sign["broker_id"] == after.broker_id
        )  # fmt: skip

    def requests_before(self, begins_us: Mapping[int, int]) -> dict[int, int]:
        """Find the last completion of a request of each broker before its request logs go on."""
        last: dict[int, int] = {}
        for broker_id, last_us in self.requests:
            if last_us <= begins_us.get(broker_id, 0):
                last[broker_id] = max(last_us, last.get(broker_id, last_us))
        return last

    def numbers_before(self, begins_us: Mapping[int, int]) -> pa.Table:
        """Return the last request of each session before the request logs continue."""
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in self.numbers.sort_by([("completed_us", "ascending"), ("number", "ascending")]).to_pylist():
            if row["completed_us"] <= begins_us.get(row["broker_id"], 0):
                last[tuple(row[name] for name in ("broker_id", "replica_id", "client_id", "session"))] = row
        return pa.Table.from_pylist(list(last.values()), NUMBERED)

    def with_followers(self, seen: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Add the followers that earlier logs show in terms; they fetched, or were in the ISR."""
        keys = ("topic", "partition_id", "leader_epoch")
        return [
            *seen,
            *({"broker_id": term["leader_id"], "replica_id": replica, "fetches": 0} | {key: term[key] for key in keys}
              for term in self.terms for replica in term["assigned"] if replica != term["leader_id"]),
        ]  # fmt: skip

    def fill_in_what_was_logged(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add to terms the values that only the logs of their start or end have; changes the rows in place."""
        began = {tuple(term[name] for name in _TERM): term for term in self.terms}
        for row in rows:
            if term := began.get(tuple(row[name] for name in _TERM)):
                began_as = AS_IT_BEGAN if term["begins_mid_term"] else AS_IT_BEGAN_LOGGED
                ended_as = AS_IT_ENDED if self._had_ended(term) else ()
                row.update({name: term[name] for name in (*began_as, *ended_as)})

    def _had_ended(self, term: Mapping[str, Any]) -> bool:
        return not any(
            stretch.broker_id == term["leader_id"] and abs(stretch.until_us - term["end_us"]) <= GAP_US
            for stretch in self.stretches
        )

    def terms_that_go_on(self, found: Sequence[Begun]) -> list[Begun]:
        """Replace later logs' view of terms in progress by the terms of the log in which they began."""
        known = {
            (term["leader_id"], term["topic"], term["partition_id"], term["leader_epoch"]): term
            for term in self.terms if term["begins_mid_term"] and term["ends_mid_term"]
        }  # fmt: skip
        return [
            *(begun for begun in found if begun[:4] not in known),
            *(Begun(*key, term["start_us"], term["term_source"]) for key, term in known.items()),
        ]

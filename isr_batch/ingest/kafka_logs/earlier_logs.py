"""Continue from earlier logs: what the lake stores about logs that are no longer in the folder."""

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
"""Schema of the log lines that the lake stores because an ingest of later logs may need them."""
SILENCES = arrow_columns("broker_id INT, process INT, from_us BIGINT, until_us BIGINT")
FILES = arrow_columns("kind STRING, broker_id INT, first_us BIGINT, last_us BIGINT, informs BOOLEAN")
AS_IT_BEGAN_LOGGED = ("start_offset", "start_high_watermark", "start_offset_source", "held_at_start")
AS_IT_BEGAN = (
    *AS_IT_BEGAN_LOGGED, "begins_mid_term", "term_source", "assigned", "assigned_source", "isr_at_start", "isr_source",
    "previous_leader_id",
)  # fmt: skip
"""Columns of a term that keep their values in the lake when a later ingest derives the term again: all of these if no
log shows the term's start, otherwise only `AS_IT_BEGAN_LOGGED`."""
AS_IT_ENDED = ("end_us", "ends_mid_term")
_TERM = ("leader_id", "topic", "partition_id", "leader_epoch", "start_us")


@dataclass(frozen=True)
class EarlierLogs:
    """Rows and lines in the lake that come from earlier logs: logs that have been ingested and have left the folder.

    Attributes
    ----------
    lines : pa.Table
        The stored lines of earlier logs (`KEPT_LINES`).
    files : pa.Table
        The earlier logs, except request logs (`FILES`).
    requests : sequence of (int, int)
        For each earlier request log: its broker, and the time at which its last request was completed, in microseconds
        since 1970.
    stretches : sequence of Stretch
        Periods that earlier request logs cover.
    numbers : pa.Table
        The last request of each fetch session in each earlier request log
        (`isr_batch.ingest.requests.coverage.NUMBERED`).
    silences : pa.Table
        Silences of brokers that earlier ingests found (`SILENCES`).
    terms : sequence of dict
        Terms that have no logged end, or that began when ``lines`` begin or later: leader_id, topic, partition_id,
        leader_epoch, start_us, and the columns of `AS_IT_BEGAN` and `AS_IT_ENDED`.
    last_rows : callable
        Function that loads the last fetches and appends before the new request logs. Its argument maps each leader to
        the time at which its new request logs begin, in microseconds since 1970.
    kept_requests : pa.Table
        The stored last requests of earlier request logs (`isr_batch.ingest.kafka_logs.last_requests`).
    brokers : mapping of int to Broker
        Settings of all brokers in the folder and in earlier ingests. Settings in the folder take precedence.
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
        """Return, by broker, the time of the first stored line, in microseconds since 1970.

        From this time on, the ingest derives terms and events again.

        Brokers whose settings are unknown are left out: earlier versions of isr-batch did not store settings in the
        lake.
        """
        first = self.lines.group_by("broker_id").aggregate([("stamp_us", "min")]).to_pylist()
        return {row["broker_id"]: row["stamp_us_min"] for row in first
                if row["stamp_us_min"] is not None and row["broker_id"] in self.brokers}  # fmt: skip

    def with_stretches(self, read: Sequence[Stretch], signs: pa.Table) -> list[Stretch]:
        """Return the periods that earlier and new request logs cover, joined where no request is missing between them.

        ``read`` are the periods that the new request logs cover. For ``signs``, see `_goes_on`.
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
        """Return whether no request is missing between two covered periods of a broker.

        This is so if the second period begins where the first one ends, or if the followers' correlation ids show no
        gap. ``signs`` lists the gaps in these ids; if it is None, they have not been compared.
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
        """Return, by broker, the time of the last completed request in an earlier log before the new logs begin."""
        last: dict[int, int] = {}
        for broker_id, last_us in self.requests:
            if last_us <= begins_us.get(broker_id, 0):
                last[broker_id] = max(last_us, last.get(broker_id, last_us))
        return last

    def numbers_before(self, begins_us: Mapping[int, int]) -> pa.Table:
        """Return the last request of each fetch session in earlier logs before the broker's new request logs begin."""
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in self.numbers.sort_by([("completed_us", "ascending"), ("number", "ascending")]).to_pylist():
            if row["completed_us"] <= begins_us.get(row["broker_id"], 0):
                last[tuple(row[name] for name in ("broker_id", "replica_id", "client_id", "session"))] = row
        return pa.Table.from_pylist(list(last.values()), NUMBERED)

    def with_followers(self, seen: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return ``seen``, the followers found in the new logs, together with all followers of earlier terms.

        For the followers of earlier terms, ``fetches`` is 0.
        """
        keys = ("topic", "partition_id", "leader_epoch")
        return [
            *seen,
            *({"broker_id": term["leader_id"], "replica_id": replica, "fetches": 0} | {key: term[key] for key in keys}
              for term in self.terms for replica in term["assigned"] if replica != term["leader_id"]),
        ]  # fmt: skip

    def fill_in_what_was_logged(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replace values in rows of leader_epochs, in place, by those that the lake has for the same term.

        The values that are replaced describe the term's start and, if the term ended in earlier logs, its end. The
        lake's values were derived from earlier logs, which are no longer in the folder.
        """
        began = {tuple(term[name] for name in _TERM): term for term in self.terms}
        for row in rows:
            if term := began.get(tuple(row[name] for name in _TERM)):
                began_as = AS_IT_BEGAN if term["begins_mid_term"] else AS_IT_BEGAN_LOGGED
                ended_as = AS_IT_ENDED if self._had_ended(term) else ()
                row.update({name: term[name] for name in (*began_as, *ended_as)})

    def _had_ended(self, term: Mapping[str, Any]) -> bool:
        """Return whether a term had ended before the end of its leader's earlier logs."""
        return not any(
            stretch.broker_id == term["leader_id"] and abs(stretch.until_us - term["end_us"]) <= GAP_US
            for stretch in self.stretches
        )

    def terms_that_go_on(self, found: Sequence[Begun], starts: pa.Table, settings: pa.Table) -> list[Begun]:
        """Return the terms that began before the new logs. For a term in the lake, the start is taken from the lake.

        The lake's start is not used if the new logs contain the start after all: its line can come after the first
        requests.

        Parameters
        ----------
        found : sequence of Begun
            Terms that began before the new logs, as the new logs show them.
        starts : pa.Table
            Starts of terms that the new logs contain.
        settings : pa.Table
            For each broker (broker_id), the times at which it started (starts_us).

        Returns
        -------
        list of Begun
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

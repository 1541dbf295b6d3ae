"""The last fetches and appends in request logs that are no longer in the folder, from which new logs continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from udfs.arrow_types import arrow_columns

APPENDS = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, append_us BIGINT, base_offset BIGINT, "
    "log_end_offset BIGINT, log_end_source STRING, acks INT, client_id STRING, acknowledged_us BIGINT, error_code INT, "
    "source_file STRING, source_line BIGINT, handled_us BIGINT"
)
NAMED = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, offset BIGINT, named_in STRING, named_us BIGINT, "
    "grown_us BIGINT, reached BIGINT, later BOOLEAN"
)
_OF_TERM = ("leader_id", "topic", "partition_id", "leader_epoch")


@dataclass(frozen=True)
class LastRows:
    """Rows of earlier request logs, which are no longer in the folder, from shortly before the new logs begin.

    Attributes
    ----------
    begins_us : mapping of int to int
        By leader, the time at which its new request log begins, in microseconds since 1970.
    fetches : sequence of dict
        The last fetch of each follower in each term: leader_id, replica_id, topic, partition_id, leader_epoch,
        fetch_offset, last_handled_us, and ``read_us``, the time at which the leader read its log for the fetch (null if
        it was not stored).
    appends : pa.Table
        Appends of the last seconds that have a base offset (`APPENDS`). ``handled_us`` is the time at which an I/O
        thread picked up the request; it is null if it was not stored.
    read_again : pa.Table
        Appends of the last seconds whose requests are in the new logs too. Their time in the lake is the latest one
        that the earlier logs allow.
    later : sequence of dict
        If logs that begin later than the new ones have been ingested already, the first append of each term in them:
        leader_id, topic, partition_id, leader_epoch, base_offset, append_us, answered (whether its request is known).
    """

    begins_us: Mapping[int, int] = field(default_factory=dict)
    fetches: Sequence[Mapping[str, Any]] = ()
    appends: pa.Table = field(default_factory=APPENDS.empty_table)
    read_again: pa.Table = field(default_factory=APPENDS.empty_table)
    later: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def reached(self) -> dict[tuple[Any, ...], int]:
        """By term, the highest fetch offset of any follower in the earlier logs."""
        highest: dict[tuple[Any, ...], int] = {}
        for fetch in self.fetches:
            key = tuple(fetch[name] for name in _OF_TERM)
            if fetch["fetch_offset"] is not None:
                highest[key] = max(highest.get(key, 0), fetch["fetch_offset"])
        return highest

    def open_appends(self) -> list[dict[str, Any]]:
        """Return the appends in earlier logs whose end offset the new logs may show more exactly.

        An append ends where the next append begins, at the base offset in the response to the next produce request. So
        its end offset is not final if that request is not in the earlier logs, or if no fetch in them is from beyond
        the append.
        """
        rows = [(tuple(row[name] for name in _OF_TERM), row) for row in self.appends.to_pylist()]
        unanswered = {(key, row["base_offset"]) for key, row in rows if row["acks"] is None}
        found = []
        for key, row in rows:
            reached = self.reached.get(key, 0)
            by_fetches = (row["log_end_offset"], row["log_end_source"]) == (reached, "fetches")
            is_open = row["base_offset"] >= reached or by_fetches or (key, row["log_end_offset"]) in unanswered
            if row["acks"] is not None and is_open:
                found.append(row)
        return found

    def last_reads(self) -> list[dict[str, Any]]:
        """Return the last fetches of the earlier logs as rows of `isr_batch.ingest.requests.append_log.ASKED`."""
        return [
            {name: fetch[name] for name in (*_OF_TERM, "replica_id", "fetch_offset", "last_handled_us")}
            | {"arrival_us": fetch["last_handled_us"], "last_read_us": fetch["read_us"]}
            for fetch in self.fetches if fetch["fetch_offset"] is not None and fetch["read_us"] is not None
        ]  # fmt: skip

    def named_offsets(self) -> pa.Table:
        """Return the log end offsets that earlier and later logs show, with the columns of `NAMED`.

        ``named_in`` is the kind of line that shows the offset. For the base offset of an append whose produce request
        is unknown, it is the kind of line that shows the end of the append before, or null if that is unknown too. It
        is also null if the produce request is in the new logs. These then show the offset, and the row only bounds the
        time at which the log reached it. ``reached`` is the highest fetch offset in the term.
        """
        named = [(*key, offset, "fetches", self.begins_us[key[0]], None) for key, offset in self.reached.items()]
        rows = [(tuple(row[name] for name in _OF_TERM), row) for row in self.appends.to_pylist()]
        ends = {(key, row["log_end_offset"]): row["log_end_source"] for key, row in rows}
        for key, row in rows:
            named_in = ends.get((key, row["base_offset"])) if row["acks"] is None else "appends"
            named.append((*key, row["base_offset"], named_in, row["append_us"], row["append_us"]))
            if row["log_end_source"] == "shrinks":
                named.append((*key, row["log_end_offset"], "shrinks", self.begins_us[key[0]], None))
        named += [
            (*(row[name] for name in _OF_TERM), row["base_offset"], None, row["append_us"], row["append_us"])
            for row in self.read_again.to_pylist()
        ]
        # If the new logs are older than logs in the lake, their last appends end where the first appends in the lake
        # begin.
        later = [
            (*(row[name] for name in _OF_TERM), row["base_offset"], "appends" if row["answered"] else "fetches",
             row["append_us"], row["append_us"])
            for row in self.later
        ]  # fmt: skip
        return pa.Table.from_pylist(
            [
                dict(zip(NAMED.names, (*each, self.reached.get(each[:4], 0), is_later), strict=True))
                for of_logs, is_later in ((named, False), (later, True)) for each in of_logs
            ],
            NAMED,
        )  # fmt: skip

    def goes_on(self, leader_id: int, start_us: int) -> bool:
        """Return whether a term began before the leader's new request log."""
        return start_us < self.begins_us.get(leader_id, start_us)

    def answered_late(self, produced: pa.Table) -> list[dict[str, Any]]:
        """Return the appends in earlier logs whose produce requests were unknown, but are in the new logs.

        Parameters
        ----------
        produced : pa.Table
            Requests in the new logs whose append happened before these logs begin: leader_id, topic, partition_id,
            base_offset.
        """
        names = ("leader_id", "topic", "partition_id", "base_offset")
        made = set(zip(*(produced[name].to_pylist() for name in names), strict=True))
        return [row for row in self.appends.to_pylist()
                if row["acks"] is None and tuple(row[name] for name in names) in made]  # fmt: skip

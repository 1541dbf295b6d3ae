"""Keep the last fetches and appends of request logs that are no longer in the folder; later logs continue them."""

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
    """The last rows of request logs that are gone, from shortly before the logs that are read.

    Attributes
    ----------
    begins_us : mapping of int to int
        When the request log of each leader continues.
    fetches : sequence of dict
        The last fetch of each follower and term: leader_id, replica_id, topic, partition_id, leader_epoch,
        fetch_offset, last_handled_us, and ``read_us``, when the leader read its log (null if no longer known).
    appends : pa.Table
        Appends of the last seconds with a base offset (`APPENDS`); ``handled_us``, when an io thread took the request,
        is null if no longer known.
    read_again : pa.Table
        Appends of the last seconds; the logs that are read have their requests. The lake has, for each, the latest
        time that the earlier logs allow.
    later : sequence of dict
        The first append of each term in each log that is gone and begins later than those that are read: leader_id,
        topic, partition_id, leader_epoch, base_offset, append_us, answered.
    """

    begins_us: Mapping[int, int] = field(default_factory=dict)
    fetches: Sequence[Mapping[str, Any]] = ()
    appends: pa.Table = field(default_factory=APPENDS.empty_table)
    read_again: pa.Table = field(default_factory=APPENDS.empty_table)
    later: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def reached(self) -> dict[tuple[Any, ...], int]:
        """Return the highest offset that any follower had requested in the earlier logs, by term."""
        highest: dict[tuple[Any, ...], int] = {}
        for fetch in self.fetches:
            key = tuple(fetch[name] for name in _OF_TERM)
            if fetch["fetch_offset"] is not None:
                highest[key] = max(highest.get(key, 0), fetch["fetch_offset"])
        return highest

    def open_appends(self) -> list[dict[str, Any]]:
        """Return the appends of earlier logs with an unknown end offset, because no follower fetched from beyond them.

        Later logs may name it.

        An append is also listed if the request of the next append is still unknown: its response may name the offset
        later.
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
        """Return log end offsets in earlier logs: term, offset, named_in, named_us, grown_us, and the term's highest.

        If the request of an append is unknown, its first offset was named by the source that named the end of the
        previous append. If the request is among those that are read now, it names the offset itself, and only the time
        is used from here.
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
        # Logs that come late end where an append that is already in the lake begins.
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
        """Whether a term began before the logs that are read now."""
        return start_us < self.begins_us.get(leader_id, start_us)

    def answered_late(self, produced: pa.Table) -> list[dict[str, Any]]:
        """Return the appends of earlier logs that were ingested without their requests, which the logs read now have.

        Parameters
        ----------
        produced : pa.Table
            Requests in the logs that are read now which were handled before these logs begin.
        """
        names = ("leader_id", "topic", "partition_id", "base_offset")
        made = set(zip(*(produced[name].to_pylist() for name in names), strict=True))
        return [row for row in self.appends.to_pylist()
                if row["acks"] is None and tuple(row[name] for name in names) in made]  # fmt: skip

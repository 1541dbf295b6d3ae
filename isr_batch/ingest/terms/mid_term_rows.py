"""Collect evidence about terms that began before the logs, let `mid_term` infer their state, and add it to rows.

Only few rows are collected in the driver: terms, lines about ISRs, and one row per follower of a partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from isr_batch.broker_lines.server_log import brokers_without_processes
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.folder.log_folder import METADATA, SERVER, STATE_CHANGE
from isr_batch.ingest.requests.coverage import GAP_US, Stretch, with_stretch_number
from isr_batch.ingest.requests.log_end_offsets import PARTITION
from isr_batch.ingest.terms import mid_term
from isr_batch.ingest.terms.mid_term import INFERRED, LOGGED, Begun, partition_of
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.ingest.terms.partition_lines import PartitionEvidence
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns
from udfs.batches.listed_partitions import FETCHED, SEEN, seen_in_fetches
from udfs.records import AT_LOG_END, BEHIND, SENT_FROM_UNKNOWN

BEGUN = pa.schema([
    ("broker_id", pa.int32()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_epoch", pa.int32()),
    ("stamp_us", pa.int64()), ("term_source", pa.string()), ("source_line", pa.int64()),
])  # fmt: skip
_COUNTED = arrow_columns(
    "broker_id INT, stretch INT, topic STRING, partition_id INT, leader_epoch INT, replica_id INT, first_us BIGINT, "
    "last_us BIGINT, fetches BIGINT"
)
_UNSETTLED = arrow_columns("number INT, leader_id INT, topic STRING, partition_id INT, start_us BIGINT, end_us BIGINT")
_OF_FETCHES = (
    *PARTITION, "replica_id", "handled_us", "last_handled_us", "completed_us", "source_line", "fetch_offset",
    "error_code", "high_watermark",
)  # fmt: skip
_FIRST_FETCHES = arrow_columns(
    "number INT, replica_id INT, first_us BIGINT, answered_us BIGINT, first_asked BIGINT, first_code INT, "
    "first_answered BIGINT, asked BIGINT, first_high_watermark BIGINT, last_us BIGINT, highest BIGINT"
)
_FIRST_APPENDS = arrow_columns("number INT, append_us BIGINT, base_offset BIGINT, last_us BIGINT")
AT_ONE_MOMENT_US = 2_000_000
"""Followers stopped together if their last fetches are at most this many microseconds apart. A running follower fetches
at least once per second (replica.fetch.wait.max.ms, replica.fetch.backoff.ms)."""
FOLLOWERS = pa.schema([
    ("broker_id", pa.int32()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_epoch", pa.int32()),
    ("fetched", pa.list_(pa.int32())),
])  # fmt: skip


def followers_seen_mid_term(sources: ParsedLogs, stretches: Sequence[Stretch]) -> list[dict[str, Any]]:
    """Count each follower's fetches by leader, partition, leader epoch and covered period (`Stretch`).

    Returns
    -------
    list of dict
        broker_id, stretch, topic, partition_id, leader_epoch, replica_id; ``fetches``, the number of fetches without an
        error; first_us and last_us, the times of the first and the last of these.
    """
    counted = sources.engine.map(sources.fetches, partial(_fetches_seen_mid_term, stretches=stretches), SEEN)
    seen = sources.engine.by_key(
        ["broker_id", "partition_id"],
        partial(_fetches_counted_mid_term, topics=sources.topics),
        _COUNTED,
        parts=counted,
    )
    found: list[dict[str, Any]] = sources.engine.collect(seen).to_pylist()
    return found


def _fetches_seen_mid_term(batches: Iterator[pa.RecordBatch], stretches: Sequence[Stretch]) -> Iterator[pa.RecordBatch]:
    names = [*FETCHED, "error_code", "partitions"]
    for batch in batches:
        rows = with_stretch_number(pa.table(batch.select(names)), stretches, "broker_id", "completed_us", "stretch")
        yield from seen_in_fetches(iter(rows.to_batches()))


def _fetches_counted_mid_term(sql: ArrowSql, parts: pa.Table, topics: pa.Table) -> pa.Table:
    return sql(
        """
        SELECT broker_id, stretch, coalesce(t.topic, topic_id) AS topic, partition_id, leader_epoch, replica_id,
            min(first_us) AS first_us, max(last_us) AS last_us, CAST(sum(fetches) AS BIGINT) AS fetches
        FROM parts LEFT JOIN topics t USING (topic_id) GROUP BY ALL
        """,
        parts=parts,
        topics=topics,
    )


def as_followers(seen: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Convert the result of `followers_seen_mid_term` to parameter ``followers`` of `leader_epochs.leader_epochs`."""
    sets: dict[tuple[int, str, int, int], set[int]] = defaultdict(set)
    for row in seen:
        sets[row["broker_id"], row["topic"], row["partition_id"], row["leader_epoch"]].add(row["replica_id"])
    rows = [(*key, sorted(replicas)) for key, replicas in sets.items()]
    return pa.Table.from_pylist([dict(zip(FOLLOWERS.names, row, strict=True)) for row in rows], FOLLOWERS)


def as_begun(begun: Iterable[Begun]) -> pa.Table:
    """Convert terms that began before the log to parameter ``begun`` of `leader_epochs.leader_epochs`."""
    return pa.Table.from_pylist([each._asdict() | {"source_line": 0} for each in begun], BEGUN)


def vouched_for(
    led: Iterable[dict[str, Any]], stretches: Sequence[Stretch], evidence: PartitionEvidence
) -> list[dict[str, Any]]:
    """Return the terms in ``led``, cut to the time that the leader's request log covers. Terms outside it are left out.

    Returns
    -------
    list of dict
        Copies of the terms, with new values of ``end_us`` and ``assigned``, and with ``ends_mid_term``,
        ``log_stretch``, ``isr_source`` and ``assigned_source``.
    """
    of_broker: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        of_broker[stretch.broker_id].append(stretch)
    kept = []
    for row in led:
        found = _stretch_of_mid_term(row, of_broker[row["leader_id"]]) if stretches else (0, None)
        if found is None:
            continue
        number, until_us = found
        end_us = row["end_us"] if until_us is None else min(row["end_us"], until_us)
        log_stretch = number + row["made_again"]
        settled = {"end_us": end_us, "ends_mid_term": end_us != row["next_us"], "log_stretch": log_stretch}
        kept.append({**row, **settled, "isr_source": LOGGED, **_assigned_mid_term(row, evidence)})
    return kept


def _stretch_of_mid_term(row: Mapping[str, Any], stretches: Sequence[Stretch]) -> tuple[int, int | None] | None:
    """Return the number of the covered period in which a term begins, and the time at which a gap ends the term.

    The time is None if no gap ends it. The result is None if the term is outside all periods. The last period may end
    long before the broker's other logs, because the request log was switched off or is incomplete.
    """
    for number, stretch in enumerate(stretches):
        last = number == len(stretches) - 1
        begun = stretch.from_start or row["start_us"] >= stretch.first_us
        to_the_end = last and (row["end_us"] or 0) <= stretch.until_us + GAP_US
        if begun and (to_the_end or row["start_us"] <= stretch.until_us):
            return number, None if to_the_end else stretch.until_us
    return None


def _assigned_mid_term(row: Mapping[str, Any], evidence: PartitionEvidence) -> dict[str, Any]:
    """Return ``assigned``, in the order of the assignment if this is known, and ``assigned_source`` of a term."""
    replicas, source = evidence.replicas.get(partition_of(row), ([], INFERRED))
    if not row["begins_mid_term"]:
        return {"assigned": row["assigned"], "assigned_source": LOGGED}
    in_lines = [replica for each in evidence.isr[partition_of(row)] for replica in (each.before or each.after)]
    named = replicas or [*row["assigned"], *in_lines]
    return {"assigned": list(dict.fromkeys([*named, *row["assigned"]])), "assigned_source": source}


def end_in_pauses(led: Iterable[dict[str, Any]], pauses: pa.Table, sources: ParsedLogs) -> None:
    """If a term was superseded during a long pause of its leader, end the term, in place, at the pause's start.

    The leader may have been killed then. Its terms are not changed if it has a server.log with lines at INFO, because
    that log shows restarts. A pause is long if it exceeds the lag time.

    Parameters
    ----------
    led : iterable of dict
        Rows of leader_epochs.
    pauses : pa.Table
        Result of `isr_batch.ingest.requests.request_summary.request_pauses`.
    sources : ParsedLogs
    """
    unseen = {*brokers_without_processes(sources.sql, sources.server, sources.settings)["broker_id"].to_pylist()}
    of_broker = defaultdict(list)
    for pause in pauses.to_pylist():
        of_broker[pause["broker_id"]].append((pause["before_us"], pause["first_us"]))
    for row in led:
        for before_us, first_us in of_broker[row["leader_id"]] if row["leader_id"] in unseen else ():
            long = first_us - (before_us or first_us) > 1000 * row["replica_lag_time_max_ms"]
            if long and before_us < row["end_us"] < first_us:
                row["end_us"] = max(row["start_us"], before_us)


def settle_mid_term(  # noqa: PLR0913, PLR0917 all evidence of a term's start
    engine: Engine,
    led: list[dict[str, Any]],
    stretches: Sequence[Stretch],
    evidence: PartitionEvidence,
    fetched: Rows,
    produced: Rows,
    files: pa.Table,
) -> None:
    """Fill in, in place, the ISR and the offsets at the start of each term that began before the log.

    ``files`` lists all logs except request logs. If a leader has neither server.log nor state-change.log, and the
    metadata log is missing, no line shows that a partition was deleted or moved. `end_abandoned` then infers it.
    """
    unsettled = {number: row for number, row in enumerate(led) if row["begins_mid_term"]}
    if not unsettled:
        return
    term = pa.Table.from_pylist(
        [{name: row[name] for name in _UNSETTLED.names[1:]} | {"number": n} for n, row in unsettled.items()], _UNSETTLED
    )
    asked: dict[int, list[dict[str, Any]]] = defaultdict(list)
    narrow = engine.select(fetched, _OF_FETCHES)
    first = engine.by_key(PARTITION, partial(_first_fetches, term=term), _FIRST_FETCHES, fetched=narrow)
    for row in engine.collect(first).to_pylist():
        asked[row["number"]].append(row)
    appends = engine.by_key(PARTITION, partial(_first_appends, term=term), _FIRST_APPENDS, produced=produced)
    appended = {row["number"]: row for row in engine.collect(appends).to_pylist()}
    holes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for before, after in pairwise(stretches):
        if before.broker_id == after.broker_id:
            holes[before.broker_id].append((before.until_us, after.first_us))
    for number, row in unsettled.items():
        _settle_mid_term(row, evidence, holes[row["leader_id"]], asked[number], appended.get(number))
    logged = {(row["kind"], row["broker_id"]) for row in files.select(["kind", "broker_id"]).to_pylist()}
    if METADATA not in {kind for kind, _ in logged}:
        explained = {broker for kind, broker in logged if kind in (SERVER, STATE_CHANGE)}
        alone = [n for n, row in unsettled.items() if row["leader_id"] not in explained]
        end_abandoned([(unsettled[n], asked[n], appended.get(n)) for n in alone])


def end_abandoned(
    terms: Sequence[tuple[dict[str, Any], Sequence[Mapping[str, Any]], Mapping[str, Any] | None]],
) -> None:
    """End terms, in place, whose followers all stopped together but went on fetching other partitions of the leader.

    This shows that the topic was deleted or the partition moved, unless there are later appends: such terms are not
    ended. An ended term is marked as ``abandoned``. Without this, the replay would drop its followers.

    Parameters
    ----------
    terms : sequence of (dict, sequence of dict, dict or None)
        A row of leader_epochs; for each follower, replica_id and last_us (its last fetch); last_us of the last append,
        if any.
    """
    of_pair: dict[tuple[int, int], int] = defaultdict(int)
    for row, fetches, _ in terms:
        for fetch in fetches:
            pair = row["leader_id"], fetch["replica_id"]
            of_pair[pair] = max(of_pair[pair], fetch["last_us"])
    for row, fetches, appends in terms:
        lasts = [fetch["last_us"] for fetch in fetches]
        if not lasts or max(lasts) - min(lasts) > AT_ONE_MOMENT_US:
            continue
        later_us = max(lasts) + 1000 * row["replica_lag_time_max_ms"]
        go_on = all(of_pair[row["leader_id"], fetch["replica_id"]] >= later_us for fetch in fetches)
        if go_on and later_us < row["end_us"] and (appends is None or appends["last_us"] <= max(lasts)):
            row |= {"end_us": max(lasts) + 1, "ends_mid_term": True, "abandoned": True}


def _settle_mid_term(
    row: dict[str, Any],
    evidence: PartitionEvidence,
    holes: list[tuple[int, int]],
    asked: list[dict[str, Any]],
    appended: Mapping[str, int] | None,
) -> None:
    """Fill in, in place, the ISR and the offsets at the start of a term, ``row``, from its first fetches, ``asked``."""
    key, start_us = partition_of(row), row["start_us"]
    shrinks = [s for s in evidence.shrinks[row["leader_id"], key] if start_us <= s["stamp_us"] <= row["end_us"]][:1]
    offsets = {fetch["replica_id"]: fetch["asked"] for fetch in asked if fetch["asked"] is not None}
    watermarks = [fetch["first_high_watermark"] for fetch in asked if fetch["first_high_watermark"] is not None]
    watermarks += [s["high_watermark"] for s in shrinks if s["high_watermark"] is not None]
    ends = [s["leader_log_end_offset"] for s in shrinks if s["leader_log_end_offset"] is not None]
    end = mid_term.mid_term_log_end(offsets.values(), appended["base_offset"] if appended else None, ends, watermarks)
    record = evidence.by_records(key, start_us)
    if record:
        isr, source = sorted({*record.after, row["leader_id"]}), record.source
    else:
        lines = evidence.lines_and_snapshot(key, start_us)
        first_change = min((each.at_us for each in lines if each.at_us > start_us), default=row["end_us"])
        appended_us = appended["append_us"] if appended else None
        first = {
            fetch["replica_id"]: _first_fetch_mid_term(fetch) for fetch in asked if fetch["first_us"] < first_change
        }
        seems_in = {f: not mid_term.is_passed(first[f], end, appended_us) for f in first.keys() - {*row["observers"]}}
        span = mid_term.Led(start_us, row["end_us"], row["leader_id"], tuple(row["assigned"]))
        isr, source = mid_term.mid_term_isr(span, lines, holes, seems_in)
    held = [offset for follower, offset in offsets.items() if follower in isr]
    # The leader prints replicas in the order of the assignment.
    row["assigned"] = list(dict.fromkeys([*row["assigned"], *isr]))
    row["isr_at_start"] = [replica for replica in row["assigned"] if replica in isr]
    row["isr_source"] = source
    row["held_at_start"] = _held_mid_term(row, evidence, asked, shrinks, end)
    row["start_offset"], row["start_high_watermark"] = end, mid_term.mid_term_high_watermark(end, held, watermarks)
    row["start_offset_source"] = INFERRED


def _first_fetch_mid_term(fetch: Mapping[str, Any]) -> mid_term.FirstFetch:
    sent = fetch["first_code"] == SENT_FROM_UNKNOWN
    offset = None if sent else fetch["first_asked"]
    return mid_term.FirstFetch(fetch["answered_us"], offset, sent, fetch["first_answered"], fetch["highest"])


def _held_mid_term(
    row: Mapping[str, Any],
    evidence: PartitionEvidence,
    asked: list[dict[str, Any]],
    shrinks: list[dict[str, Any]],
    log_end_offset: int | None,
) -> list[int | None]:
    """Return the log end offset of each assigned replica at the start of the covered period; None if unknown."""
    key, start_us, end_us = partition_of(row), row["start_us"], row["end_us"]
    at_log_end = log_end_offset if log_end_offset is not None else int(AT_LOG_END)
    later_us = start_us + 2_000 * row["replica_lag_time_max_ms"]
    kept = evidence.members_at(key, later_us) - {row["leader_id"]} if later_us < end_us else set()
    held: list[int | None] = []
    for replica in row["assigned"]:
        own = [fetch for fetch in asked if fetch["replica_id"] == replica]
        if replica in kept and not any(fetch["first_us"] <= later_us for fetch in own):
            # Since 2.1, a follower that does not fetch stays in the ISR for this long only if it lacks no records.
            held.append(at_log_end)
            continue
        # A response contains no records if the follower is at the log end, or throttled. If a follower joins the ISR
        # and none of its offsets is logged, it was at the log end, and had only been fenced before.
        outside = row["isr_source"] != INFERRED and replica not in row["isr_at_start"]
        joins = all(fetch["asked"] is None for fetch in own) and evidence.joins(key, replica, start_us, end_us)
        held.append(_held_by_follower(own, replica, shrinks, int(BEHIND) if outside and not joins else at_log_end))
    return held


def _held_by_follower(
    asked: list[dict[str, Any]], replica: int, shrinks: list[dict[str, Any]], unless_named: int
) -> int | None:
    """Return a follower's log end offset when the covered period starts: the offset of its first fetch in ``asked``.

    ``unless_named`` is returned if this offset is not logged and the response contained no records.
    """
    if asked:
        first = asked[0]
        if first["first_code"] != 0:
            return None
        return first["first_asked"] if first["first_asked"] is not None else unless_named
    printed = [d["follower_log_end_offset"] for s in shrinks for d in s["dropped"] if d["replica_id"] == replica]
    return next((offset for offset in printed if offset is not None and offset >= 0), None)


def _first_fetches(sql: ArrowSql, fetched: pa.Table, term: pa.Table) -> pa.Table:
    """Summarise the first fetches of each follower in each term. ``fetched`` are all fetches of some partitions.

    Returns
    -------
    pa.Table
        number, replica_id; of the first fetch, first_us (pick-up), answered_us, first_asked (its offset), first_code
        (error) and first_answered (high watermark in the response); ``highest``, the highest high watermark in earlier
        responses; ``asked``, the first logged fetch offset; ``first_high_watermark``, the first one that was sent to
        the follower; last_us, the pick-up of its last fetch.
    """
    first = "first({} ORDER BY handled_us, source_line)"
    return sql(
        f"""
        WITH rows AS (
            SELECT number, replica_id, handled_us, last_handled_us, completed_us, source_line, fetch_offset,
                error_code, high_watermark
            FROM fetched JOIN term USING ({", ".join(PARTITION)})
            WHERE error_code IN (0, {int(SENT_FROM_UNKNOWN)}) AND handled_us BETWEEN start_us AND end_us
        ), of_follower AS (
            SELECT number, replica_id, min(handled_us) AS first_us, {first.format("completed_us")} AS answered_us,
                {first.format("fetch_offset")} AS first_asked, {first.format("error_code")} AS first_code,
                {first.format("high_watermark")} AS first_answered,
                {first.format("fetch_offset")} FILTER (fetch_offset IS NOT NULL AND error_code = 0) AS asked,
                {first.format("high_watermark")} FILTER (high_watermark IS NOT NULL) AS first_high_watermark,
                max(last_handled_us) AS last_us
            FROM rows GROUP BY number, replica_id
        ), answers AS (
            SELECT f.number, f.replica_id, max(high_watermark) AS highest FROM of_follower f JOIN rows r
                ON f.number = r.number AND completed_us < first_us
            GROUP BY f.number, f.replica_id
        )
        SELECT of_follower.*, highest FROM of_follower LEFT JOIN answers USING (number, replica_id)
        """,
        fetched=fetched,
        term=term,
    )


def _first_appends(sql: ArrowSql, produced: pa.Table, term: pa.Table) -> pa.Table:
    """Return the time and base offset of the first append in each term, and the time of the last append."""
    return sql(
        f"""
        SELECT number, first(append_us ORDER BY append_us, base_offset) AS append_us,
            first(base_offset ORDER BY append_us, base_offset) AS base_offset, max(append_us) AS last_us
        FROM produced JOIN term USING ({", ".join(PARTITION)})
        WHERE NOT repeated AND base_offset IS NOT NULL AND append_us BETWEEN start_us AND end_us
        GROUP BY number
        """,
        produced=produced,
        term=term,
    )


def settled_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of terms with the columns that this module adds."""
    more = [("ends_mid_term", pa.bool_()), ("log_stretch", pa.int32()), ("assigned_source", pa.string()),
            ("isr_source", pa.string()), ("broker_version_source", pa.string()),
            ("held_at_start", pa.list_(pa.int64())), ("observers", pa.list_(pa.int32()))]  # fmt: skip
    return pa.schema([*schema, *(pa.field(*each) for each in more)])

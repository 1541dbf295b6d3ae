"""Track which days are replayed, which of them are stale, and from which day a replay can continue.

The results of a day depend on the log of that day and of all days before it. Therefore each day gets a fingerprint: a
hash of the day's input and of the previous day's fingerprint. The stored state at the end of a day is valid as long as
the day's fingerprint stays the same. A day whose fingerprint has changed since its replay is stale. Thus input for a
past day that is ingested late makes this day and all later days stale.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final

import pyarrow as pa

from isr_batch.errors import NoInputError
from isr_batch.kernel_sources import digest_of
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.outputs import REPLAY_STATE, REPLAYED_DAYS
from isr_batch.replay.event_stream import PAIR_COLUMNS
from isr_batch.replay.terms import JOINED
from isr_batch.window import Window
from udfs.batches.results import STATE
from udfs.batches.rule_runs import RuleRun
from udfs.kernel.ledger import DAY_US

HOLE_DAYS: Final = 7
"""Up to this number of consecutive days without input are part of a replay, because a term may continue across them.
Longer gaps are skipped."""
_LOOK = '`isr-batch sql --lake LAKE "SELECT event_date, count(*) FROM fetch_log GROUP BY 1"` shows what there is'
DONE, STALE, MISSING = "done", "stale", "not replayed"


@dataclass(frozen=True)
class InputFingerprints:
    """The fingerprint of each day with input: a hash of the input of that day and of all days before it."""

    by_day: dict[date, str]

    def at(self, day: date) -> str:
        """Return the fingerprint of a day, or of the last day with input before it; "" if no such day exists."""
        return self.by_day.get(max((given for given in self.by_day if given <= day), default=day), "")

    def days(self, window: Window = Window()) -> list[date]:  # noqa: B008 frozen
        """Return the days of ``window`` from the first to the last day with input.

        Gaps of more than `HOLE_DAYS` days are left out.
        """
        given = sorted(self.by_day)
        every = given[:1]
        for before, day in pairwise(given):
            between = (day - before).days
            every += [before + timedelta(days=n) for n in range(1, between)] if between <= HOLE_DAYS else []
            every.append(day)
        return [day for day in every if window.has(day)]


def fingerprints(lake: Lake) -> InputFingerprints:
    """Compute the fingerprint of each day of a lake, from packed segments and the small input tables."""
    with engine_for(lake, _SMALL) as engine:
        return fingerprints_by(engine)


def fingerprints_by(engine: LakeEngine) -> InputFingerprints:
    """Compute the fingerprint of each day as `fingerprints` does, by queries of the given engine."""
    tables = {name: engine.table(name) for name in _SMALL}
    tables["fetch_segments"] = engine.table("fetch_segments", _OF_SEGMENTS)
    tables["terms"] = engine(JOINED, **tables)
    parts = (
        f"SELECT {time} AS time_us, {_hash_of(kind, *columns)} AS hash FROM {{{table}}} WHERE {where}"
        for kind, table, time, columns, where in _PARTS
    )
    text = f"""
        SELECT CAST(floor(time_us / {DAY_US}.0) AS INT) AS day, bit_xor(hash) AS hash, count(*) AS input_rows
        FROM ({" UNION ALL ".join(parts)}) AS parts GROUP BY day ORDER BY day
    """
    fingerprint, by_day = "", {}
    for row in engine.listed(engine(text, **tables)):
        day = date(1970, 1, 1) + timedelta(days=row["day"])
        fingerprint = _hash_of_days(fingerprint, str(day), row["hash"], row["input_rows"])
        by_day[day] = fingerprint
    return InputFingerprints(by_day)


_SMALL: Final = (
    "leader_epochs", "observed_isr_changes", "broker_events", "controller_records", "late_checks", "broker_days",
)  # fmt: skip
_OF_SEGMENTS: Final = (*SET_KEY, "first_time", "last_time", "events", "checksum")
_PARTS: Final = (
    ("segment", "fetch_segments", "unix_micros(first_time)",
     (*SET_KEY, "unix_micros(first_time)", "unix_micros(last_time)", "events", "checksum"), "true"),
    ("term", "terms", "unix_micros(start_time)",
     (*SET_KEY, "unix_micros(start_time)", "begins_mid_term", "start_offset", "start_high_watermark", "assigned",
      "held_at_start", "isr_at_start", "observers", "previous_leader_id", "replica_lag_time_max_ms",
      "min_insync_replicas", "check_origin_ms", "check_origin_source", "isr_write_ms", "metadata_delay_ms"), "true"),
    # A term's end belongs to the day on which the term ends, not to the day on which it starts: as the log grows, the
    # end of the last term moves.
    ("end", "terms", "unix_micros(end_time)", (*SET_KEY, "unix_micros(end_time)", "ends_mid_term"), "true"),
    ("shrink", "observed_isr_changes", "unix_micros(change_time)",
     (*SET_KEY, "unix_micros(change_time)", "replica_id", "made_by", "unix_micros(answered_time)"), "kind = 'shrink'"),
    ("event", "broker_events", "unix_micros(event_time)",
     ("cluster_id", "broker_id", "kind", "unix_micros(event_time)", "unix_micros(end_time)"), "kind <> 'started'"),
    ("min_isr", "controller_records", "unix_micros(record_time)",
     ("cluster_id", "broker_id", "topic", "value", "unix_micros(record_time)"), "kind = 'min_isr_in_force'"),
    ("pair", "broker_days", "unix_micros(CAST(event_date AS TIMESTAMP))", PAIR_COLUMNS, "true"),
    ("late", "late_checks", "unix_micros(due_time)", (*SET_KEY, "unix_micros(due_time)", "unix_micros(ran_time)"),
     "true"),
)  # fmt: skip
"""The parts of a replay's input that fingerprints hash: (name, table, SQL of the row's time in microseconds, columns,
SQL condition on the rows)."""


def _hash_of(kind: str, *columns: str) -> str:
    """Return a SQL expression for a 60-bit hash of ``kind`` and columns. DuckDB and Spark compute the same value."""
    values = ", ".join(f"coalesce(lower(CAST({column} AS STRING)), '')" for column in columns)
    return f"CAST(conv(substr(md5(concat_ws('|', '{kind}', {values})), 1, 15), 16, 10) AS BIGINT)"


def states_key(runs: Sequence[RuleRun]) -> str:
    """Return the key (column ``runs``) of stored states: a hash of the rule runs, in order, and of the code.

    A rule run is one rule with one set of parameters.
    """
    return _hash_of_days(digest_of(), *([run.rule, sorted(run.params.items())] for run in runs))


@dataclass(frozen=True)
class DaysOfReplay:
    """The days that a replay covers, and the stored states from which it continues.

    The days are not marked as replayed until `mark` is called.
    """

    lake: Lake
    window: Window
    runs: Sequence[RuleRun]
    known: InputFingerprints
    """Fingerprints of the input when the replay began."""
    to_replay: Window
    """The days whose log the replay reads: from the day after `states_of`, or from the first day if that is None."""
    states_of: date | None
    """The day at whose end the stored states were taken; None if the replay starts at the beginning of the log."""

    @property
    def days(self) -> list[date]:
        """The days of the window from the first to the last one with input."""
        return self.known.days(self.window)

    def kept_states(self, engine: LakeEngine) -> Rows | None:
        """Return the rows of ``replay_state`` from which the replay continues; None if `states_of` is None."""
        if self.states_of is None:
            return None
        where = f"runs = '{states_key(self.runs)}' AND event_date = DATE'{self.states_of}'"
        return engine(f"SELECT * FROM {{states}} AS states WHERE {where}", states=engine.table(REPLAY_STATE.name))

    def keep_states(self, engine: LakeEngine, results: Rows) -> dict[str, int]:
        """Copy the states in a replay's results to table ``replay_state``. Return the number of rows by table.

        Without a last day of the window, a replay returns no states, and nothing is stored.
        """
        last = self.window.last_day
        if last is None:
            return {}
        key = states_key(self.runs)
        named = {"runs": f"'{key}'", "line": f"'{self.known.at(last)}'", "event_date": f"DATE'{last}'"}
        columns = ", ".join(f"{named[name]} AS {name}" if name in named else name for name in REPLAY_STATE.column_names)
        states = engine(f"SELECT {columns} FROM {{results}} AS results WHERE result = '{STATE}'", results=results)
        where = f"runs = '{key}' AND event_date = DATE'{last}'"
        return {REPLAY_STATE.name: engine.replace(REPLAY_STATE, states, where, (str(last), str(last)))}

    def mark(self) -> None:
        """Mark the window's days as replayed under each rule. Call this only after all results are written."""
        now, key = datetime.now(UTC), states_key(self.runs)
        rows = [
            {"event_date": day, "rule": rule, "runs": key, "line": self.known.at(day), "run_id": self.lake.run_id,
             "replayed_time": now}
            for day in self.days
            for rule in sorted({run.rule for run in self.runs})
        ]  # fmt: skip
        _mark_days(self.lake, rows, self.window, self.runs)


def days_to_replay(lake: Lake, window: Window, runs: Sequence[RuleRun]) -> DaysOfReplay:
    """Prepare the replay of a window: unmark its days, and find the stored states from which it can continue.

    The days stay unmarked until `DaysOfReplay.mark` is called.

    Raises
    ------
    NoInputError
        If the lake has no input within the window.
    """
    known = fingerprints(lake)
    if not known.days(window):
        raise NoInputError(f"{lake.root} has no data for {window}", _LOOK)
    lake.ensure_all((REPLAYED_DAYS, REPLAY_STATE))
    _mark_days(lake, [], window, runs)
    return DaysOfReplay(lake, window, runs, known, *_latest_states(lake, window, runs, known))


def _latest_states(
    lake: Lake, window: Window, runs: Sequence[RuleRun], known: InputFingerprints
) -> tuple[Window, date | None]:
    """Find the latest valid states before a window. Return `DaysOfReplay.to_replay` and `DaysOfReplay.states_of`."""
    if not window.start:
        return window, None
    rows = read_columns(lake, REPLAY_STATE.name, ["event_date", "line"], {"runs": states_key(runs)})
    kept = {(row["event_date"], row["line"]) for row in rows.to_pylist()}
    good = [day for day, line in kept if str(day) < window.start and line == known.at(day)]
    if not good:
        return window.from_day(None), None
    return window.from_day(str(max(good) + timedelta(days=1))), max(good)


def _mark_days(lake: Lake, rows: list[dict[str, object]], window: Window, runs: Sequence[RuleRun]) -> None:
    """Replace the rows of ``replayed_days`` for the rules of these rule runs and the days of a window."""
    where = f"{of_rules(runs)} AND {window.condition}"
    marks = pa.Table.from_pylist(rows, arrow_schema(REPLAYED_DAYS))
    with ArrowSql() as sql:
        small = SmallTables(lake, sql)
        if small.takes(REPLAYED_DAYS, window.days):
            small.replace(REPLAYED_DAYS, marks, where, window.days)
        else:
            lake.replace(REPLAYED_DAYS, lake.spark.createDataFrame(marks), where)


def of_rules(runs: Sequence[RuleRun]) -> str:
    """Return the SQL condition for rows whose column ``rule`` is the rule of one of these rule runs."""
    names = ", ".join(f"'{name}'" for name in sorted({run.rule for run in runs}))
    return f"rule IN ({names})"


def undone_days(lake: Lake, window: Window, runs: Sequence[RuleRun], known: InputFingerprints) -> list[date]:
    """Return the days of a window that were not replayed with all of these rule runs, or that are stale by now."""
    marks = read_columns(lake, REPLAYED_DAYS.name, ("event_date", "rule", "line"), {"runs": states_key(runs)})
    done = {(row["event_date"], row["rule"], row["line"]) for row in marks.to_pylist()}
    return [day for day in known.days(window) if any((day, run.rule, known.at(day)) not in done for run in runs)]


def run_of_days(lake: Lake, window: Window, runs: Sequence[RuleRun], known: InputFingerprints) -> str | None:
    """Return the ``run_id`` of the one command that replayed all days of a window with these rule runs.

    None if it took several commands, or if a day is stale or was not replayed.
    """
    marks = read_columns(lake, REPLAYED_DAYS.name, ("event_date", "run_id"), {"runs": states_key(runs)})
    run_ids = {row["run_id"] for row in marks.to_pylist() if window.has(row["event_date"])}
    return run_ids.pop() if len(run_ids) == 1 and not undone_days(lake, window, runs, known) else None


def days_status(lake: Lake, window: Window, known: InputFingerprints) -> list[dict[str, object]]:
    """Return, for each day of a window, whether it is done, stale or not replayed: the table of the command `status`.

    Returns
    -------
    list of dict
        One row per day, status and run: ``event_date``, ``status`` (`DONE`, `STALE`, or `MISSING`), ``rules``
        (separated by commas), ``replayed_time``, ``run_id``.
    """
    marks = read_columns(lake, REPLAYED_DAYS.name, REPLAYED_DAYS.column_names)
    days: dict[tuple[date, str, str], dict[str, object]] = {}
    for row in marks.sort_by([("event_date", "ascending"), ("rule", "ascending")]).to_pylist():
        if not window.has(row["event_date"]):
            continue
        which = DONE if row["line"] == known.at(row["event_date"]) else STALE
        entry = days.setdefault(
            (row["event_date"], which, row["run_id"]),
            {"event_date": row["event_date"], "status": which, "rules": "",
             "replayed_time": f"{row['replayed_time']:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip("."),
             "run_id": row["run_id"]},
        )  # fmt: skip
        entry["rules"] = ", ".join(filter(None, (entry["rules"], row["rule"])))  # type: ignore[arg-type]
    nothing = {"status": MISSING, "rules": "", "replayed_time": None, "run_id": None}
    for day in known.days(window):
        if not any(key[0] == day for key in days):
            days[day, MISSING, ""] = {"event_date": day, **nothing}
    return [days[key] for key in sorted(days)]


def _hash_of_days(*parts: object) -> str:
    """Return a hash of values, as 16 hex digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

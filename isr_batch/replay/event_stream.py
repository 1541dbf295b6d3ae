"""Build the kernel's input from the input tables: all events of a replay as rows with the same columns.

Every row belongs to a replica set: one partition on one leader. Some events concern a whole broker, such as a silence,
a logged check, or an unfencing after which a follower may join ISRs again. Such an event becomes one row in each
replica set that it concerns. Fetches and appends, which are nearly all of the log, come as packed segments.
"""

from typing import Final

from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.outputs import LATE_CHECKS
from isr_batch.replay.terms import JOINED
from isr_batch.window import Window
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import SEGMENT
from udfs.batches.stream_columns import KEPT_FIELDS
from udfs.kernel.ledger import DAY_US
from udfs.records import (
    ABSENT_LINE,
    CHECK,
    ELIGIBLE,
    FETCH,
    GOES_ON,
    IDLE,
    ISR_WRITE,
    MIN_ISR,
    OTHERS_LINE,
    REMOVED,
    SILENCE,
    TERM_STARTS,
    THIN,
    UNKNOWN,
)
from udfs.records import Rows as KernelRows

LATE_MS: Final = 10
"""A check was late if its first log line came more than this many ms after the check was due."""

CHECK_LEAD_US: Final = 1_000
"""The row of a logged check has a time this many microseconds before the check was due, so that the kernel reads the
row before it runs the check, and can move the check to the logged time."""

THIN_US: Final = 1_000_000
"""If a follower's logged fetches are further apart than this many microseconds, they may be too few to show that it had
stopped for a lag time."""
PAIR_COLUMNS: Final = ("cluster_id", "leader_id", "replica_id", "cadence_us", "instants", "event_date")
"""The columns that a replay reads from ``broker_days``, which contains how often a follower fetched from a leader on a
day."""

_ONE_INSTANT: Final = """
    SELECT DISTINCT cluster_id, leader_id, true AS has_one_instant FROM {broker_days} AS days
    WHERE instants NOT LIKE '%,%'
"""
"""SQL for the leaders whose log has only one time per fetch, so that it is unknown how long they held a fetch."""

_SET: Final = ", ".join(SET_COLUMNS)
_KEY: Final = ", ".join(SET_KEY)


def event_stream(
    engine: LakeEngine,
    facts: Rows,
    window: Window = Window(),  # noqa: B008 frozen
    kept: Rows | None = None,
    where: str = "true",
) -> Rows:
    """Return the input of a replay: rows with all events in a window, unsorted.

    The kernel (the compiled replay loop) reads these rows, after packed fetches and appends are unpacked.

    Parameters
    ----------
    engine : LakeEngine
        Engine for a lake with the input tables.
    facts : Rows
        Result of `stream_facts`.
    window : Window
        The UTC days whose events are returned.
    kept : Rows, optional
        Rows of ``replay_state`` from which the replay continues.
    where : str
        SQL condition on `SET_COLUMNS` that selects replica sets (each a partition on one leader).

    Returns
    -------
    Rows
        `SET_COLUMNS`, the columns of ``udfs.records.Rows`` (BIGINT), and three structs: ``term`` (in rows that begin a
        term), ``kept`` (a stored state), ``segment`` (packed fetches and appends).
    """
    within = f"SELECT * FROM {{facts}} AS facts WHERE {window.within('time_us')} AND {where}"
    parts = [engine(within, facts=facts), _segments_in_window(engine, window, where)]
    if kept is not None:
        parts.append(_states_at_begin(engine, kept, window))
    return engine.union(*parts)


def stream_facts(engine: LakeEngine, *, pinned: bool = True, late: Rows | None = None) -> Rows:
    """Return the rows of a replay's input that are neither fetches nor appends. They are few, and not packed.

    Brokers log a line "Shrinking ISR ..." when they drop a follower. If ``pinned`` is true, some rows say when a check
    ran, which log end it saw, and how long its ISR write took, as these lines show. A check that would have logged a
    line at the time it was due, but did not, must have run later. Such checks are the rows of table ``late_checks``.
    They are taken from ``late``, or by default from the lake.
    """
    tables = {
        "terms": joined_terms(engine),
        "broker_events": engine.table("broker_events"),
        "broker_days": engine.table("broker_days", PAIR_COLUMNS),
        "changes": engine.table("observed_isr_changes"),
        "records": engine.table("controller_records"),
        "late": engine.table(LATE_CHECKS.name) if late is None else late,
    }
    texts = [_REMOVALS, _SILENCES, _IDLE, _ELIGIBILITY, _THIN, _MIN_ISR]
    if pinned:
        texts += [_VISITS, _CHECKS_LATER, _LATE_CHECKS, _ISR_WRITES]
    rest = engine(" UNION ALL ".join(texts), **tables)
    return engine.union(stream_terms(engine, tables["terms"]), rest)


def joined_terms(engine: LakeEngine) -> Rows:
    """Return table ``leader_epochs`` with one row per term, even if the term's log was ingested in several parts."""
    return engine(JOINED, leader_epochs=engine.table("leader_epochs"))


def _event_rows_as_sql(kind: object, source: str, *more: str, **columns: str) -> str:
    """Return a SELECT for the kernel's rows of one kind of event.

    ``source`` is the SQL after FROM, ``more`` are further columns, and ``columns`` are expressions for columns of
    ``Rows`` by name. All other columns of ``Rows`` are UNKNOWN.
    """
    given = {"kind": str(kind), **columns}
    values = [f"CAST({given.get(name, UNKNOWN)} AS BIGINT) AS {name}" for name in KernelRows._fields]
    return f"SELECT {', '.join((_SET, *values, *more))} FROM {source}"


def stream_terms(engine: LakeEngine, terms: Rows) -> Rows:
    """Return one row of kind TERM_STARTS per term (one leader epoch), with its settings, replicas, and first ISR."""
    term = engine.struct({
        "leader_epoch": "leader_epoch",
        "end_us": "unix_micros(end_time)",
        "high_watermark": "coalesce(start_high_watermark, 0)",
        "assigned": "assigned",
        "isr_at_start": "isr_at_start",
        "observers": "observers",
        "leader_is_new": "coalesce(previous_leader_id, -1) <> leader_id",
        "process_is_new": "previous_leader_id IS NULL",
        "replica_lag_time_max_ms": "replica_lag_time_max_ms",
        "min_insync_replicas": "CAST(min_insync_replicas AS BIGINT)",
        "check_origin_ms": "check_origin_ms",
        "isr_write_ms": "coalesce(isr_write_ms, 0)",
        "begins_mid_term": "coalesce(begins_mid_term, false)",
        "ends_mid_term": "coalesce(ends_mid_term, false)",
        "offsets_known": "start_offset IS NOT NULL",
        "phase_known": "check_origin_source <> 'unknown'",
        "isr_known": "coalesce(isr_source, 'logged') <> 'inferred'",
        "held_known": "has_one_instant IS NULL",
        "held_at_start": "held_at_start",
    })  # fmt: skip
    start = {"time_us": "unix_micros(start_time)", "offset": "coalesce(start_offset, 0)"}
    source = f"{{terms}} AS terms LEFT JOIN ({_ONE_INSTANT}) AS one_instant USING (cluster_id, leader_id)"
    days = engine.table("broker_days", PAIR_COLUMNS)
    return engine(_event_rows_as_sql(TERM_STARTS, source, f"{term} AS term", **start), terms=terms, broker_days=days)


def _segments_in_window(engine: LakeEngine, window: Window, where: str) -> Rows:
    """Return the packed segments in a window that meet the condition ``where``, as rows of the kernel's input."""
    columns = (*SET_COLUMNS, "first_time", "event_date")
    segments = engine.with_struct("fetch_segments", columns, "segment", SEGMENT.names, window.handled_days)
    of_days = f"(SELECT * FROM {{segments}} AS segments WHERE {window.handled_in} AND {where}) AS of_days"
    # A segment's row is sorted after all other rows with the time of its first event. Its events are put into their
    # order among other rows when the segment is unpacked.
    rows = engine(_event_rows_as_sql(FETCH, of_days, "segment", time_us="unix_micros(first_time)"), segments=segments)
    return engine(f"SELECT * FROM {{rows}} AS in_window WHERE {window.within('time_us')}", rows=rows)


def _states_at_begin(engine: LakeEngine, kept: Rows, window: Window) -> Rows:
    """Return the stored states from which a window's replay continues, as rows of the kernel's input.

    Each row contains the end of the term of its state, by the terms that are in the lake now. A restarted leader may
    begin another term with the same epoch; a state belongs to the last term that began before the window.
    """
    ends = f"""
        SELECT {_KEY}, max_by(unix_micros(end_time), start_time) AS end_us,
          max_by(coalesce(ends_mid_term, false), start_time) AS ends_mid_term
        FROM {{terms}} AS terms WHERE unix_micros(start_time) < {window.start_us} GROUP BY {_KEY}
    """
    known = engine(
        f"SELECT kept.*, ends.end_us, ends.ends_mid_term FROM {{kept}} AS kept JOIN {{ends}} AS ends USING ({_KEY})",
        kept=kept, ends=engine(ends, terms=joined_terms(engine)),
    )  # fmt: skip
    state = engine.struct({name: name for name, _ in KEPT_FIELDS})
    return engine(
        _event_rows_as_sql(GOES_ON, "{known} AS known", f"{state} AS kept", time_us=str(window.start_us)), known=known
    )


_REMOVALS: Final = _event_rows_as_sql(
    REMOVED,
    f"""(
      SELECT {_KEY}, replica_id, unix_micros(change_time) AS change_us, start_us
      FROM {{changes}} AS changes LEFT JOIN (
        SELECT {_KEY}, min(unix_micros(start_time)) AS start_us FROM {{terms}} AS terms GROUP BY {_KEY}
      ) AS begins USING ({_KEY})
      WHERE kind = 'shrink' AND made_by <> 'leader'
    ) AS removals""",
    time_us="greatest(change_us, coalesce(start_us - 1, change_us))",
    replica_id="replica_id",
)
"""SQL for rows of kind REMOVED: removals from the ISR by the controller, at the time when the leader learned of them.

The leader learns of a removal that begins a new term (up to 3.6, all do) some time after the controller's record. Until
then, the old term continues. Therefore such a removal takes effect just before the new term. If it took effect earlier,
the follower's next fetch in the old term would undo it."""

_OF_BROKER: Final = (
    "cluster_id, broker_id AS leader_id, unix_micros(event_time) AS event_us, unix_micros(end_time) AS end_us"
)
_LED: Final = f"""
    SELECT {_SET}, unix_micros(start_time) AS start_us, unix_micros(end_time) AS term_end_us FROM {{terms}} AS terms
"""

_SILENCES, _IDLE = (
    _event_rows_as_sql(
        kind,
        f"""(
          SELECT * FROM ({_LED}) AS led
          JOIN (SELECT {_OF_BROKER} FROM {{broker_events}} AS events WHERE kind = '{event}') AS events
          USING (cluster_id, leader_id)
          WHERE event_us > start_us AND event_us < term_end_us
        ) AS within""",
        time_us="event_us",
        until_us="end_us",
    )
    for kind, event in ((SILENCE, "silent"), (IDLE, "quiet"))
)
"""SQL for rows of kind SILENCE (a leader's silences) and IDLE (times in which no follower fetched from the leader).
There is one row per term during which a silence or such a time begins."""

_MIN_ISR: Final = _event_rows_as_sql(
    MIN_ISR,
    f"""(
      SELECT * FROM ({_LED}) AS led JOIN (
        SELECT cluster_id, broker_id AS leader_id, topic, unix_micros(record_time) AS record_us, value
        FROM {{records}} AS records WHERE kind = 'min_isr_in_force'
      ) AS settings USING (cluster_id, leader_id, topic)
      WHERE record_us > start_us AND record_us <= term_end_us
    ) AS within""",
    time_us="record_us",
    offset="value",
)
"""SQL for rows of kind MIN_ISR: changes of min.insync.replicas. There is one row per term during which a change is
made."""

_THIN: Final = _event_rows_as_sql(
    THIN,
    f"""(
      SELECT *, greatest(start_us, day_us) AS from_us, day_us + {DAY_US} AS until_us
      FROM (
        SELECT {_SET}, unix_micros(start_time) AS start_us, unix_micros(end_time) AS term_end_us, assigned
        FROM {{terms}} AS terms
      ) AS led JOIN (
        SELECT cluster_id, leader_id, replica_id, coalesce(cadence_us, {DAY_US}) AS cadence_us,
          unix_micros(CAST(event_date AS TIMESTAMP)) AS day_us
        FROM {{broker_days}} AS days WHERE coalesce(cadence_us, {DAY_US}) > {THIN_US}
      ) AS thin USING (cluster_id, leader_id)
      WHERE array_contains(assigned, replica_id) AND start_us < day_us + {DAY_US} AND term_end_us > day_us
    ) AS within""",
    time_us="from_us",
    until_us="until_us",
    offset="cadence_us",
    replica_id="replica_id",
)
"""SQL for rows of kind THIN: followers with few fetches on a day (see `THIN_US`). There is one row per term of that
day."""

_SEEN: Final = f"SELECT {_OF_BROKER} FROM {{broker_events}} AS events WHERE kind = 'check'"
_DUE_US: Final = f"event_us - {CHECK_LEAD_US}"

_VISITS: Final = _event_rows_as_sql(
    CHECK,
    f"""(
      SELECT * FROM (
        SELECT {_SET}, unix_micros(change_time) AS change_us, leader_log_end_offset, replica_id
        FROM {{changes}} AS changes WHERE kind = 'shrink' AND made_by = 'leader'
      ) AS lines JOIN ({_SEEN}) AS checks USING (cluster_id, leader_id)
      WHERE change_us >= end_us AND change_us < end_us + 1000000
    ) AS visited""",
    time_us=_DUE_US,
    until_us="change_us",
    offset=f"coalesce(leader_log_end_offset, {UNKNOWN})",
    replica_id="replica_id",
)
"""SQL for rows of kind CHECK of partitions with a Shrinking line: the check ran at the time of the line.

The task isr-expiration checks partitions one after the other, and a leader that has just been resumed needs tens of
milliseconds for all of them. A line about two replicas results in two rows with the same effect."""

_CHECKS_LATER: Final = _event_rows_as_sql(
    CHECK,
    f"""(
      SELECT * FROM ({_LED}) AS led JOIN ({_SEEN}) AS checks USING (cluster_id, leader_id)
      WHERE end_us > event_us + {LATE_MS * 1000} AND event_us >= start_us AND end_us < term_end_us
    ) AS others""",
    time_us=_DUE_US,
    until_us="end_us",
    code=str(OTHERS_LINE),
)
"""SQL for rows of kind CHECK of partitions without a Shrinking line from that check. If the first line of a check was
late (see `LATE_MS`), the check of these partitions ran at the time of this first line."""

_LATE_CHECKS: Final = _event_rows_as_sql(
    CHECK,
    "{late} AS late",
    time_us=f"unix_micros(due_time) - {CHECK_LEAD_US}",
    until_us="unix_micros(ran_time)",
    code=str(ABSENT_LINE),
)
"""SQL for rows of kind CHECK from ``late_checks``: checks that must have run late, because no line shows a shrink that
they would have made when they were due."""

_ISR_WRITES: Final = _event_rows_as_sql(
    ISR_WRITE,
    """(
      SELECT * FROM {changes} AS changes
      WHERE kind = 'shrink' AND made_by = 'leader' AND answered_time IS NOT NULL
    ) AS written""",
    time_us="unix_micros(change_time) - 1",
    until_us="unix_micros(answered_time)",
)
"""SQL for rows of kind ISR_WRITE: leaders' ISR writes, from the Shrinking line to the response. Such a row is sorted
before the row of the check that logged the line."""

_ELIGIBILITY: Final = _event_rows_as_sql(
    ELIGIBLE,
    f"""(
      SELECT *, CASE WHEN kind = 'unfenced' THEN coalesce(metadata_delay_ms, 0) * 1000 ELSE 0 END AS delay_us
      FROM (
        SELECT {_SET}, unix_micros(start_time) AS start_us, unix_micros(end_time) AS term_end_us, metadata_delay_ms,
          explode(assigned) AS replica_id
        FROM {{terms}} AS terms
      ) AS followers JOIN (
        SELECT cluster_id, broker_id AS replica_id, unix_micros(event_time) AS event_us, kind
        FROM {{broker_events}} AS events WHERE kind IN ('fenced', 'unfenced', 'shutting_down')
      ) AS states USING (cluster_id, replica_id)
      WHERE replica_id <> leader_id AND event_us < term_end_us
    ) AS eligibility""",
    time_us="greatest(event_us + delay_us, start_us)",
    handled_us="event_us",
    replica_id="replica_id",
    code="CASE WHEN kind = 'unfenced' THEN 1 ELSE 0 END",
)
"""SQL for rows of kind ELIGIBLE: the time from which a follower may not join the ISR, or may join it again.

A broker that is fenced or shutting down may not join. A state that began before the term applies from the start of the
term; ``handled_us`` keeps the order of the metadata records. A leader learns of a new state some time after the
controller wrote the record. This delay is only added at the end of a fencing, because a follower must not rejoin before
the leader knows that it may. It is not added at the start, because the controller then removes the follower at once."""

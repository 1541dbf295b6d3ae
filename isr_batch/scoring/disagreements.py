"""Find the shrinks that some rules make and others do not.

Rules may drop the same follower for the same reason at different times, because some check twice per lag time, some
once, and some all the time. Therefore shrinks of the same follower by several rule runs form one event if each comes at
most the lag time of its rule run after the first one. A second shrink by the same rule run begins a new event.

The name of a rule run is that of its rule. If a term was replayed with several parameter sets of the rule, the name
also contains the parameters.
"""

from datetime import date, timedelta
from typing import Final

import pyarrow as pa

from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.lake_engine import Rows as EngineRows
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.outputs import RULE_DISAGREEMENTS
from isr_batch.rule_names import require_rule_names
from isr_batch.scoring.event_of_shrinks import with_event_of_shrinks
from isr_batch.scoring.scores import Rows
from isr_batch.window import Window
from udfs.kernel.causes import CAUSES

FOLLOWER = (*SET_KEY, "replica_id")
RUN = ("rule", "params_json")
TABLES: Final = ("shrink_verdicts", "partition_scores", "leader_epochs", "isr_changes")

MADE, KEPT, OUT = "made", "kept", "out"
"""Decisions of a rule run on an event: it made the shrink, kept the follower in its ISR, or had already dropped it."""

_FOLLOWER: Final = ", ".join(FOLLOWER)
_SET: Final = ", ".join(SET_KEY)


def write_disagreements(lake: Lake, window: Window) -> int:
    """Compute ``rule_disagreements`` for the days of a window from all rule runs in the lake, and write the rows.

    Returns
    -------
    int
        Number of rows written.
    """
    # An event belongs to the day of its first shrink. New shrinks near midnight may change events of adjacent days.
    around = Window(_moved_disagreements(window.start, -1), _moved_disagreements(window.end, 1))
    with engine_for(lake, TABLES) as engine:
        return engine.replace(RULE_DISAGREEMENTS, rule_disagreements(engine, around), around.condition, around.days)


def rule_disagreements(engine: LakeEngine, window: Window = Window()) -> EngineRows:  # noqa: B008 frozen
    """Return the rows of ``rule_disagreements`` for events whose first shrink is in the window.

    An event is a group of shrinks of one follower by several rule runs, see `shrink_events`.
    """
    tables = {name: engine.table(name) for name in TABLES}
    shrinks = engine(
        f"SELECT * FROM {{shrinks}} WHERE {window.condition}", shrinks=shrink_events(engine, tables["shrink_verdicts"])
    )
    scores = engine(f"SELECT * FROM {{partition_scores}} WHERE {window.condition}", **tables)
    decided = disagreements_at_events(
        engine, shrinks, runs_that_may_disagree(engine, scores, tables["leader_epochs"]), tables["isr_changes"]
    )

    def runs(stand: str) -> str:
        """Return the SQL for the list of rule runs that decided ``stand`` at a shrink."""
        return f"array_sort(collect_list(CASE WHEN stand = '{stand}' THEN run END))"

    def by_run(name: str) -> str:
        """Return the SQL for a map from each rule run that made the shrink to the shrink's value of column ``name``."""
        entries = f"collect_list(CASE WHEN stand = '{MADE}' THEN struct(run, {name}) END)"
        return f"map_from_entries(array_sort({entries}))"

    return engine(
        f"""
        SELECT * FROM (
          SELECT {_FOLLOWER}, timestamp_micros(event_us) AS change_time, event_date,
            {runs(MADE)} AS rules_for, {runs(KEPT)} AS rules_against,
            {by_run("primary_cause")} AS causes, {by_run("verdict")} AS verdicts
          FROM {{decided}} GROUP BY {_FOLLOWER}, event_us, event_date
        ) AS events
        WHERE size(rules_for) > 0 AND size(rules_against) > 0
        """,
        decided=decided,
    )


def runs_that_may_disagree(engine: LakeEngine, scores: EngineRows, terms: EngineRows) -> EngineRows:
    """Return the rule runs that were replayed: one row per term, day and rule run.

    Parameters
    ----------
    engine : LakeEngine
    scores : EngineRows
        Rows of ``partition_scores``, which exist for each replayed day and rule run, even if nothing happened.
    terms : EngineRows
        Rows of ``leader_epochs``.

    Returns
    -------
    EngineRows
        `SET_KEY`, `RUN`, ``event_date``, ``run`` (name of the rule run), and ``isr``, the ISR at the start of the term.
    """
    # If a leader restarts without a new epoch, there are two terms and two scores with the same key on that day.
    return engine(
        f"""
        SELECT DISTINCT {_SET}, rule, params_json, event_date,
          CASE WHEN least_params = greatest_params THEN rule ELSE rule || ' ' || params_json END AS run, isr
        FROM (
          SELECT {_SET}, rule, params_json, event_date, min(params_json) OVER of_rule AS least_params,
            max(params_json) OVER of_rule AS greatest_params
          FROM {{scores}} WINDOW of_rule AS (PARTITION BY {_SET}, rule)
        ) AS named
        JOIN (
          SELECT {_SET}, array_intersect(assigned, isr_at_start) AS isr FROM (
            SELECT *, row_number() OVER (PARTITION BY {_SET} ORDER BY start_time) AS place FROM {{terms}}
          ) AS placed WHERE place = 1
        ) AS begun USING ({_SET})
        """,
        scores=scores, terms=terms,
    )  # fmt: skip


def shrink_events(engine: LakeEngine, verdicts: EngineRows) -> EngineRows:
    """Group the shrinks of each follower into events, and return the shrinks with the times of their events.

    An event has one shrink of each rule run that dropped the follower at about that time, see the module's docstring.

    Parameters
    ----------
    engine : LakeEngine
    verdicts : EngineRows
        Rows of ``shrink_verdicts``. Removals by the controller are ignored.

    Returns
    -------
    EngineRows
        One row per shrink: `FOLLOWER`, `RUN`, ``at_us``, ``primary_cause``, ``verdict``, and ``event_us`` and
        ``event_date``, the time and day of the first shrink of its event.
    """
    shrinks = engine(
        f"""
        SELECT {_FOLLOWER}, rule, params_json, unix_micros(change_time) AS at_us, primary_cause, verdict
        FROM {{verdicts}} WHERE made_by = 'rule'
        """,
        verdicts=verdicts,
    )
    found = engine.by_key(shrinks, FOLLOWER, with_event_of_shrinks, _EVENTS)
    return engine("SELECT *, CAST(timestamp_micros(event_us) AS DATE) AS event_date FROM {found}", found=found)


_EVENTS: Final = pa.schema(
    [(name, pa.string() if name in {"cluster_id", "topic"} else pa.int32()) for name in FOLLOWER]
    + [("rule", pa.string()), ("params_json", pa.string()), ("at_us", pa.int64()), ("primary_cause", pa.string()),
       ("verdict", pa.string()), ("event_us", pa.int64())]
)  # fmt: skip


def disagreements_at_events(
    engine: LakeEngine, shrinks: EngineRows, replayed: EngineRows, changes: EngineRows
) -> EngineRows:
    """Return whether each rule run dropped the follower at each event, kept it, or had already dropped it before.

    An event is a group of shrinks of one follower by several rule runs, see `shrink_events`. Only rule runs that were
    replayed for the event's day are included.

    Parameters
    ----------
    engine : LakeEngine
    shrinks : EngineRows
        Result of `shrink_events`.
    replayed : EngineRows
        Result of `runs_that_may_disagree`.
    changes : EngineRows
        Rows of ``isr_changes``.

    Returns
    -------
    EngineRows
        One row per event and rule run: `FOLLOWER`, ``event_us``, ``event_date``, ``run`` (name), `RUN`, ``stand``
        (`MADE`, `KEPT` or `OUT`), and the ``at_us``, ``primary_cause`` and ``verdict`` of the shrink if it is `MADE`.
    """
    key = f"{_FOLLOWER}, rule, params_json"
    # ``code`` is twice the time of a change, plus one for an expand. The last change before the event shows whether the
    # follower was in the ISR. Without one, the first change after the event does, and else the ISR that began the term.
    order = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return engine(
        f"""
        WITH asked AS (
          SELECT {", ".join(f"events.{name}" for name in FOLLOWER)}, replayed.rule, replayed.params_json, event_us,
            events.event_date, run, isr
          FROM (SELECT DISTINCT {_FOLLOWER}, event_us, event_date FROM {{shrinks}}) AS events
          JOIN {{replayed}} AS replayed
          ON {" AND ".join(f"events.{name} = replayed.{name}" for name in (*SET_KEY, "event_date"))}
        ), moves AS (
          SELECT {key}, unix_micros(change_time) AS time_us,
            2 * unix_micros(change_time) + CASE WHEN kind = 'expand' THEN 1 ELSE 0 END AS code
          FROM {{changes}} WHERE kind IN ('shrink', 'expand')
        ), merged AS (
          SELECT {key}, event_us AS time_us, 0 AS is_change, CAST(NULL AS BIGINT) AS code, event_date, run, isr
          FROM asked
          UNION ALL
          SELECT {key}, time_us, 1, code, NULL, NULL, NULL FROM moves
        ), beside AS (
          SELECT *,
            max(code) OVER (PARTITION BY {key} ORDER BY time_us, is_change {order}) % 2 AS before,
            min(code) OVER (PARTITION BY {key} ORDER BY time_us DESC, is_change DESC {order}) % 2 AS since
          FROM merged
        ), own AS (
          SELECT {key}, event_us, at_us, primary_cause, verdict FROM {{shrinks}}
        )
        SELECT {key}, event_us, event_date, run, at_us, primary_cause, verdict,
          CASE
            WHEN at_us IS NOT NULL THEN '{MADE}'
            WHEN coalesce(before = 1, since = 0, array_contains(isr, replica_id)) THEN '{KEPT}'
            ELSE '{OUT}'
          END AS stand
        FROM (SELECT *, time_us AS event_us FROM beside WHERE is_change = 0) AS events
        LEFT JOIN own USING ({key}, event_us)
        """,
        shrinks=shrinks, replayed=replayed, changes=changes,
    )  # fmt: skip


def compare_rules(lake: Lake, first: str, second: str) -> Rows:
    """Count, by primary cause, the shrinks that only one of two rules makes, and those that both make.

    Only days for which both rules were replayed are counted. A rule that does not make a shrink may have dropped the
    follower in an earlier event.

    Returns
    -------
    list of dict
        One row per cause, in the order in which causes are examined, and a last row with totals: ``cause``; ``only_a``
        and ``only_b``, shrinks that only the first or only the second rule makes; ``both_by_a`` and ``both_by_b``,
        shrinks that both rules make, counted by the cause under the first or under the second rule.

    Raises
    ------
    UsageError
        If a rule is unknown, or if both are the same.
    NoInputError
        If one of the rules was not replayed.
    """
    require_rule_names(first, second)
    if first == second:
        raise UsageError(f"{first} would be compared with itself", "name two different rules")
    require_rules_to_disagree(lake, first, second)
    with engine_for(lake, ("shrink_verdicts", "partition_scores")) as engine:
        counts = engine.listed(_counts(engine, engine.literal(first), engine.literal(second)))
    by_cause = {cause: {"cause": cause} | dict.fromkeys(COMPARED, 0) for cause in (*CAUSES, "total")}
    for row in counts:
        side = "a" if row["rule"] == first else "b"
        for cause in (row["primary_cause"], "total"):
            by_cause[cause][f"both_by_{side}" if row["rules"] > 1 else f"only_{side}"] += row["shrinks"]
    return [row for cause, row in by_cause.items() if cause == "total" or any(row[name] for name in COMPARED)]


def _counts(engine: LakeEngine, first: str, second: str) -> EngineRows:
    """Return numbers of shrinks by two rules on days for which both were replayed.

    ``first`` and ``second`` are the rules' names as SQL literals.

    Returns
    -------
    EngineRows
        ``rules`` (1 or 2: how many of the rules made a shrink in the event), ``rule``, ``primary_cause``, ``shrinks``.
    """
    shared = f"""
        SELECT verdicts.* FROM {{shrink_verdicts}} AS verdicts JOIN (
          SELECT cluster_id, event_date FROM {{partition_scores}} WHERE rule IN ({first}, {second})
          GROUP BY cluster_id, event_date HAVING count(DISTINCT rule) = 2
        ) AS shared USING (cluster_id, event_date)
        WHERE rule IN ({first}, {second})
    """
    tables = {name: engine.table(name) for name in ("shrink_verdicts", "partition_scores")}
    return engine(
        f"""
        SELECT rules, rule, primary_cause, count(*) AS shrinks FROM (
          SELECT rule, primary_cause,
            CASE WHEN min(rule) OVER event = max(rule) OVER event THEN 1 ELSE 2 END AS rules
          FROM {{shrinks}} WINDOW event AS (PARTITION BY {", ".join(FOLLOWER)}, event_us)
        ) AS shrinks GROUP BY rules, rule, primary_cause
        """,
        shrinks=shrink_events(engine, engine(shared, **tables)),
    )


COMPARED = ("only_a", "only_b", "both_by_a", "both_by_b")


def require_rules_to_disagree(lake: Lake, *rules: str) -> None:
    """Raise if one of the rules was not replayed in the lake.

    Raises
    ------
    NoInputError
        If a rule was not replayed. The message names the command that replays it.
    """
    replayed = set(read_columns(lake, "partition_scores", ("rule",), {"rule": rules})["rule"].to_pylist())
    missing = [rule for rule in rules if rule not in replayed]
    if missing:
        raise NoInputError(
            f"{lake.root} has no replay of {' and '.join(missing)}",
            f"run `isr-batch replay --lake LAKE --rules {','.join(missing)}` first; other rules' results stay",
        )


def _moved_disagreements(day: str | None, days: int) -> str | None:
    """Return the date that is this number of days later, as text; None for None."""
    return str(date.fromisoformat(day) + timedelta(days=days)) if day else None

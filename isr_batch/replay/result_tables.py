"""Convert the results of a replay or a simulation (``udfs.batches.results.RESULT_SCHEMA``) to rows of result tables."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.tables.contract import SET_KEY, Table
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES, REPLICA_SCORES
from isr_batch.window import Window
from udfs.batches.results import RESULT_SCHEMA
from udfs.records import FOLLOWER_MEASURES, MEASURES, VIOLATIONS

Asks = Callable[..., Rows]
"""A function that runs an SQL query on tables and returns its rows, as `LakeEngine.__call__` does."""
SCORED_TABLES: Final = (ISR_CHANGES, SHRINK_VERDICTS, PARTITION_SCORES, REPLICA_SCORES)
_FOLLOWER: Final = ", ".join((*SET_KEY, "rule", "params_json", "replica_id"))
_SHRINK: Final = (*SET_KEY, "rule", "params_json", "replica_id", "change_time")
"""Columns that together identify a shrink of one follower."""
_DATED: Final = {"change_time": "timestamp_micros(time_us)", "event_date": "CAST(timestamp_micros(time_us) AS DATE)"}
_IN_ORDER: Final = "ORDER BY time_us, CASE kind WHEN 'shrink' THEN 0 ELSE 1 END"
"""SQL that sorts ISR changes by time. Of changes with equal times, shrinks come before expands."""
_RESTORED: Final = f"""
    CASE WHEN lead(kind) OVER (PARTITION BY {_FOLLOWER} {_IN_ORDER}) = 'expand'
      THEN timestamp_micros(lead(time_us) OVER (PARTITION BY {_FOLLOWER} {_IN_ORDER})) END
"""
"""SQL for the time at which a dropped follower returned to the ISR under the same rule and in the same term."""


def scored_result_tables(engine: Asks, results: Rows, tables: Sequence[Table] = SCORED_TABLES) -> dict[Table, Rows]:
    """Return {table: rows} for the given tables, converted from the results of a replay."""
    if len(tables) == 1:  # one query is faster to plan than two
        (table,) = tables
        return {table: engine(_sql_of_result_table(table).replace("{changes}", f"({_CHANGES})"), results=results)}
    changes = engine(_CHANGES, results=results)
    return {table: engine(_sql_of_result_table(table), changes=changes, results=results) for table in tables}


def shrinks_of_results(results: pa.Table) -> pa.Table:
    """Return the rows of ``shrink_verdicts``, converted from the results of a replay without SQL.

    The rows are the same as those of `scored_result_tables`. For few rows, this is faster than planning a query.
    """
    changes = results.filter(pc.equal(results["result"], "change"))
    kinds, times, reasons = (changes[name].to_pylist() for name in ("kind", "time_us", "depends_on"))
    followers = [*zip(*(changes[name].to_pylist() for name in _FOLLOWER.split(", ")), strict=True)]
    doubts: dict[object, str] = {}
    history = defaultdict[object, list[tuple[int, bool, int]]](list)
    for place, (kind, time, follower) in enumerate(zip(kinds, times, followers, strict=True)):
        if kind == "doubt":
            doubts[follower, time] = max(reasons[place] or "", doubts.get((follower, time), ""))
        else:
            history[follower].append((time, kind != "shrink", place))
    found: list[tuple[int, str | None, int | None]] = []
    for of_follower in history.values():
        in_order = sorted(of_follower)
        for (time, _, place), (next_time, _, after) in zip_longest(in_order, in_order[1:], fillvalue=(0, False, -1)):
            if kinds[place] == "shrink":
                restored = next_time if after >= 0 and kinds[after] == "expand" else None
                found.append((place, doubts.get((followers[place], time)) or None, restored))
    rows = changes.take(pa.array([place for place, _, _ in found], pa.int64()))
    instants = pa.timestamp("us", "UTC")
    computed = {
        "change_time": rows["time_us"].cast(instants),
        "event_date": rows["time_us"].cast(pa.timestamp("us")).cast(pa.date32()),
        "certainty": pa.array(["possible" if doubt else "certain" for _, doubt, _ in found], pa.string()),
        "depends_on": pa.array([doubt for _, doubt, _ in found], pa.string()),
        "restored_time": pa.array([restored for _, _, restored in found], instants),
    }
    names = SHRINK_VERDICTS.column_names
    return pa.table({name: computed[name] if name in computed else rows[name] for name in names})


def _sql_of_result_table(table: Table) -> str:
    """Return the SELECT that computes a table's rows from ``{changes}`` (see `_CHANGES`) or ``{results}``."""
    if table is ISR_CHANGES:
        return _select_of_result_table(ISR_CHANGES, "{changes} AS changes", _DATED)
    if table is SHRINK_VERDICTS:
        verdicts = {"restored_time": _RESTORED, **_DATED}
        # The filter comes after the window functions, because they need the expands that follow shrinks.
        judged = _select_of_result_table(SHRINK_VERDICTS, "{changes} AS changes", verdicts)
        return f"SELECT * FROM ({judged}) AS judged WHERE kind = 'shrink'"
    if table is PARTITION_SCORES:
        measures = {**_measures_by_name(MEASURES), **_FIRST_VIOLATION, **_DATED}
        is_known = f"{measures['acks_all_wait_max_us']} <> -1"
        for name in MEASURES:
            if name.startswith(("acks_all_wait", "acks_all_unanswered")):
                measures[name] = f"CASE WHEN {is_known} THEN {measures[name]} END"
        measures["acks_all_waits"] = f"CASE WHEN {is_known} THEN acks_all_waits END"
        return _select_of_result_table(PARTITION_SCORES, "{results} AS results WHERE result = 'score'", measures)
    measures = {**_measures_by_name(FOLLOWER_MEASURES), **_DATED}
    return _select_of_result_table(REPLICA_SCORES, "{results} AS results WHERE result = 'follower_score'", measures)


def replace_together(
    engine: LakeEngine,
    rows: Mapping[Table, Rows],
    where: str,
    days: tuple[str, str],
    files: Mapping[str, Sequence[FileOfWorker]],
) -> dict[str, int]:
    """Replace the rows of several tables concurrently, and return the number of rows written by table.

    Concurrency helps, because most of the time is spent on planning by Spark or waiting for a remote store. ``where``
    and ``days`` select the rows to replace, as in `LakeEngine.replace`. ``files`` contain further new rows, by name of
    their table.
    """
    with ThreadPoolExecutor(len(rows)) as pool:
        written = pool.map(lambda of: engine.replace(of, rows[of], where, days, files.get(of.name, ())), rows)
        return dict(zip((table.name for table in rows), written, strict=True))


RESTORED_BY: Final = (ISR_CHANGES.name, SHRINK_VERDICTS.name)
"""Tables that `restore_in_results` reads or changes."""


def restore_in_results(engine: LakeEngine, of_runs: str, window: Window) -> None:
    """Fill in ``restored_time`` of shrinks whose follower was dropped in one replayed window and returned in another.

    ``of_runs`` is the SQL condition for rows of the rules that were replayed.
    """
    if window == Window():
        return
    names = (*_SHRINK, "restored_time")
    changes = f"""
        SELECT *, unix_micros(change_time) AS time_us FROM {{changes}} AS changes WHERE {of_runs}
    """
    text = f"""
        SELECT {", ".join(names)} FROM (
          SELECT {", ".join(_SHRINK)}, kind, {_RESTORED} AS restored_time FROM ({changes}) AS changes
        ) AS judged WHERE kind = 'shrink'
    """
    engine.amend(SHRINK_VERDICTS, engine(text, changes=engine.table(ISR_CHANGES.name)), _SHRINK, "restored_time")


def _select_of_result_table(table: Table, source: str, computed: Mapping[str, str]) -> str:
    """Return a SELECT of a table's columns from ``source``. ``computed`` maps some of them to SQL expressions."""
    columns = (f"{computed[name]} AS {name}" if name in computed else name for name in table.column_names)
    return f"SELECT {', '.join(columns)} FROM {source}"


def _measures_by_name(names: Sequence[str]) -> dict[str, str]:
    """Return {name: SQL expression} for the elements of the kernel's list ``measures``, whose names are ``names``."""
    return {name: f"element_at(measures, {number})" for number, name in enumerate(names, 1)}


_FIRST_VIOLATION: Final = {
    "first_violation": "CASE {first} {names} END".format(
        first=_measures_by_name(MEASURES)["first_violation"],
        names=" ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(VIOLATIONS)),
    ),
    "first_violation_time": "CASE WHEN {us} >= 0 THEN timestamp_micros({us}) END".format(
        us=_measures_by_name(MEASURES)["first_violation_us"]
    ),
}

_UNDOUBTED: Final = ", ".join(name for name in RESULT_SCHEMA.names if name != "depends_on")
_CHANGES: Final = f"""
    SELECT *, CASE WHEN depends_on IS NULL THEN 'certain' ELSE 'possible' END AS certainty FROM (
      SELECT {_UNDOUBTED}, CASE kind WHEN 'shrink' THEN depends_on WHEN 'expand' THEN lag(
          CASE WHEN kind = 'shrink' THEN depends_on END
        ) OVER (PARTITION BY {_FOLLOWER} {_IN_ORDER}) END AS depends_on
      FROM (
        SELECT {_UNDOUBTED}, max(CASE WHEN kind = 'doubt' THEN depends_on END) OVER (
          PARTITION BY {_FOLLOWER} ORDER BY time_us RANGE BETWEEN CURRENT ROW AND CURRENT ROW
        ) AS depends_on
        FROM {{results}} AS results WHERE result = 'change'
      ) AS at_this_time WHERE kind <> 'doubt'
    ) AS changes
"""
"""SQL that returns the ISR changes in results, with two more columns: ``depends_on``, the reason why a change is not
certain, and ``certainty``. The reasons are in separate result rows of kind ``doubt``. An expand that undoes a possible
shrink gets the shrink's reason."""

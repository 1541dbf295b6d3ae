"""Add the timeline files that workers have written to the lake's tables.

First, the files are added to ``replica_states`` and ``partition_states``. Then one commit of ``rule_runs`` makes the
replay's days and rules refer to the new rows. Before this commit, the views of both timelines return the old rows;
after it, they return the new ones. Finally, files of earlier replays are removed if ``rule_runs`` no longer refers to
them. A replay that is killed, or that runs at the same time as another, can only leave unreferenced rows behind, which
the command `maintain` deletes.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.commit import Actions, added, commit, removed
from isr_batch.lake.delta_files.open import Days, data_files
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.timelines import RULE_RUNS, TIMELINES
from isr_batch.replay.timeline_files import replay_of
from udfs.rules import REGISTRY

File = Mapping[str, Any]
_LAG_TIME: Final = "replica_lag_time_max_ms"


def stores_of_timelines(lake: Lake) -> dict[str, Store]:
    """Return the stores of both timelines' tables, by kind of result. Missing tables are created.

    Raises
    ------
    UsageError
        If workers cannot write to the lake's store.
    SchemaError
        If a table is partitioned differently, because another version of isr-batch created it.
    """
    lake.ensure_all(TIMELINES.values())
    stores = {}
    for kind, table in TIMELINES.items():
        lake.require_layout(table)
        stores[kind] = lake.by_delta_rs(table.name).store
        stores[kind].table()
    return stores


def commit_timelines(  # noqa: PLR0913 the last has a default
    lake: Lake,
    stores: Mapping[str, Store],
    reports: Iterable[File],
    where: str,
    days: Days,
    *,
    replayed: Sequence[date] = (),
) -> dict[str, int]:
    """Replace the timelines of the replayed rules and days with those in the files that workers have written.

    Parameters
    ----------
    lake : Lake
    stores : dict of Store
        Stores of the tables that were written, by kind of result. If it is empty, the timelines are only removed.
    reports : iterable of dict
        The workers' reports of files and of sets of rule runs (``timeline_files``).
    where : str
        SQL condition that selects the rules and days of the replay.
    days : (str, str)
        First and last of the days that ``where`` selects.
    replayed : sequence of date
        All days of the replay. ``rule_runs`` gets rows for all of them, even if no state changed on a day.

    Returns
    -------
    dict of str to int
        Number of rows written, by table.
    """
    files, rows = defaultdict(list), []
    for each in reports:
        if "file" in each:
            files[each["table"]].append(FileOfWorker(**each["file"]))
        else:
            rows += _timeline_runs(each, {*map(date.fromisoformat, each["days"]), *replayed})
    tables = [TIMELINES[kind] for kind in stores]
    with ThreadPoolExecutor(len(TIMELINES)) as pool:
        list(pool.map(lambda table: _add_timeline_files(lake, table, files[table.name]), tables))
    written = {table.name: sum(file.rows for file in files[table.name]) for table in tables}
    lake.ensure(RULE_RUNS)
    before = _days_of_rule_runs(lake)
    distinct = {tuple(row.items()): row for row in rows}
    named = pa.Table.from_pylist(list(distinct.values()), arrow_schema(RULE_RUNS))
    with ArrowSql() as sql:
        written[RULE_RUNS.name] = replace_arrow(lake, sql, RULE_RUNS, named, where, days=days)
    replaced = before - _days_of_rule_runs(lake)
    if replaced:
        for table in TIMELINES.values():
            _remove_files(lake, table, replaced)
    return written


def take_out_unnamed(lake: Lake) -> None:
    """Delete timeline rows whose ``run_set`` is not in table ``rule_runs``, such as rows of killed replays.

    The caller makes sure that no replay is running.
    """
    if not lake.has(RULE_RUNS.name):
        return
    for table in TIMELINES.values():
        if lake.has(table.name):
            by_day = defaultdict(list)
            for row in _unreferenced(lake, table):
                by_day[row["event_date"]].append(f"'{row['run_set']}'")
            rows = [f"event_date = DATE'{day}' AND run_set IN ({', '.join(sets)})" for day, sets in by_day.items()]
            if rows:
                lake.spark.sql(f"DELETE FROM {lake.identifier(table.name)} WHERE {' OR '.join(rows)}")
                lake.was_written(table.name)


def _unreferenced(lake: Lake, table: Table) -> list[dict[str, Any]]:
    """Return each ``event_date`` and ``run_set`` in a timeline's table that ``rule_runs`` does not contain."""
    columns = ("event_date", "run_set")
    with engine_for(lake, (table.name,)) as engine:
        found = engine(
            """
            SELECT DISTINCT event_date, run_set FROM {states} AS states WHERE NOT EXISTS (
              SELECT * FROM {runs} AS runs WHERE runs.event_date = states.event_date AND runs.run_set = states.run_set
            )
            """,
            states=engine.table(table.name, columns), runs=engine.table(RULE_RUNS.name, columns),
        )  # fmt: skip
        return engine.listed(found)


def _timeline_runs(each: File, days: Collection[date]) -> list[dict[str, Any]]:
    """Return the rows of ``rule_runs`` for one report of a worker on a set of rule runs: one per rule run and day."""
    return [
        {
            "run_set": each["run_set"], "run": run, "rule": rule, "params_json": params_json,
            "lag_time_ms": json.loads(params_json)[_LAG_TIME], "caught_up_by": REGISTRY[rule].caught_up_by,
            "no_lag_while": REGISTRY[rule].no_lag_while, "event_date": day,
        }
        for run, (rule, params_json) in enumerate(each["runs"])
        for day in sorted(days)
    ]  # fmt: skip


def _days_of_rule_runs(lake: Lake) -> set[tuple[str, str]]:
    """Return each (day, id of the replay) to which ``rule_runs`` refers."""
    rows = read_columns(lake, RULE_RUNS.name, ("event_date", "run_set"))
    pairs = zip(rows["event_date"].to_pylist(), rows["run_set"].to_pylist(), strict=True)
    return {(str(day), replay_of(run_set)) for day, run_set in pairs}


def _add_timeline_files(lake: Lake, table: Table, files: Sequence[FileOfWorker]) -> None:
    """Commit files to a table of timelines."""
    commit(lake.by_delta_rs(table.name), table, lambda _: [added(file, table) for file in files])


def _remove_files(lake: Lake, table: Table, replaced: set[tuple[str, str]]) -> None:
    """Remove those files of a table whose rows all belong to one of these pairs (day, id of the replay)."""

    def gone(there: DeltaTable) -> Actions:
        """Return the actions that remove the files of replaced replays."""
        return [
            removed(file)
            for file in data_files(there, None, "min.run_set", "max.run_set")
            # If minimum and maximum differ, a merged file may contain rows of further replays, so it is kept.
            for replays in [{replay_of(file.get(f"{edge}.run_set") or "") for edge in ("min", "max")}]
            if len(replays) == 1 and (file["partition.event_date"], *replays) in replaced
        ]

    commit(lake.by_delta_rs(table.name), table, gone)

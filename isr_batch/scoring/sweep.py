"""Run a sweep: replay all rule runs of a grid in one pass over a lake, score them, and recommend lag times.

A sweep only writes ``sweep_scores`` and ``sweep_advice``. The lake's timelines and results stay unchanged.
"""

import json
from dataclasses import dataclass

import pyarrow as pa

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.scores import SWEEP_ADVICE, SWEEP_SCORES
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.replay import engine_of_replay, events_to_replay, ready_to_replay, replayed_stream
from isr_batch.scoring.eligible_leaders import Elr, eligible_leaders
from isr_batch.scoring.lag_time_advice import Row, curve_of_advice, lag_time_advice, with_mistake_rates
from isr_batch.scoring.scores import Results, results_in, score_inputs, scores
from isr_batch.scoring.sweep_grid import LAG_TIME, NamedGrid, SweepGrid
from udfs.batches.results import SCORED


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep: number of events read, and rows of ``sweep_scores`` and ``sweep_advice``."""

    rows_in: int
    scores: list[Row]
    advice: list[Row]


def sweep(lake: Lake, named: NamedGrid, elr: Elr = "auto") -> Sweep:
    """Replay the rule runs of a grid, and replace the grid's rows in ``sweep_scores`` and ``sweep_advice``.

    Parameters
    ----------
    lake : Lake
    named : NamedGrid
    elr : {"auto", "off", "on"}
        Whether the clusters use eligible leader replicas: as their logs show (auto), never (off), or all the time (on).

    Raises
    ------
    NoInputError
        If the lake contains no term of a leader, or no fetch.
    """
    ready_to_replay(lake)
    with engine_of_replay(lake) as engine:
        results = replayed_stream(engine, event_stream(engine, stream_facts(engine)), named.runs, SCORED)
        tables = {name: rows for name, rows in vars(results_in(engine, results)).items() if rows is not None}
        tables["eligible_leaders"] = eligible_leaders(engine, elr, tables)
        if "min_insync_replicas" not in named.grid.grid:
            tables = {name: _without_min_isr(engine, rows) for name, rows in tables.items()}
        classes = _classes_of_sweep(engine, named.grid)
        by_class = {
            source: _with_class(engine, rows, classes)
            for source, rows in score_inputs(
                engine, Results(**tables, leader_epochs=engine.table("leader_epochs"))
            ).items()
        }
        scored = engine.listed(scores(engine, by_class, [("cluster_id", "topic")]))
        hours = _log_hours(engine)
    rows = [
        {"sweep": named.name, "topic_class": row.pop("topic"), "log_hours": hours[row["cluster_id"]]}
        | with_mistake_rates(row)
        for row in scored
    ]
    rows.sort(key=lambda row: (curve_of_advice(row), row[LAG_TIME]))
    answers = [{"sweep": named.name, **row} for row in lag_time_advice(rows, named.grid.budgets)]
    _write_sweep(lake, SWEEP_SCORES, rows, named.name)
    _write_sweep(lake, SWEEP_ADVICE, answers, named.name)
    return Sweep(events_to_replay(lake), rows, answers)


def swept_params(params_json: str, grid: SweepGrid) -> str:
    """Return as text, such as "check_period_ms=100", those parameters of a rule run that the grid varies.

    The lag time is left out.
    """
    values = json.loads(params_json)
    varied = [name for name, of_grid in grid.grid.items() if len(of_grid) > 1 and name != LAG_TIME]
    return " ".join(f"{name}={values[name]}" for name in varied if name in values)


def _without_min_isr(engine: LakeEngine, rows: Rows) -> Rows:
    """Remove min.insync.replicas from ``params_json``, so that topics with different values share a rule run.

    Parameters are sorted by name, so the lag time always follows it, and a comma can be removed as well.
    """
    names = engine.columns(rows)
    without = """regexp_replace(params_json, '"min_insync_replicas": [0-9]+, ', '') AS params_json"""
    columns = ", ".join(without if name == "params_json" else name for name in names)
    return engine(f"SELECT {columns} FROM {{rows}} AS given", rows=rows)


def _log_hours(engine: LakeEngine) -> dict[str, float]:
    """Return the length of each cluster's log in hours, from the first start to the last end of a term."""
    text = """
        SELECT cluster_id, (max(unix_micros(end_time)) - min(unix_micros(start_time))) / 3.6e9 AS hours
        FROM {terms} AS terms GROUP BY cluster_id
    """
    terms = engine.table("leader_epochs", ["cluster_id", "start_time", "end_time"])
    return {row["cluster_id"]: row["hours"] for row in engine.listed(engine(text, terms=terms))}


def _classes_of_sweep(engine: LakeEngine, grid: SweepGrid) -> Rows:
    """Return one row per topic of the lake: ``topic``, and ``topic_class``, its class in the grid."""
    found = engine("SELECT DISTINCT topic FROM {terms} AS terms", terms=engine.table("leader_epochs", ["topic"]))
    topics = [row["topic"] for row in engine.listed(found)]
    text = pa.string()
    return engine.rows(
        pa.table({"topic": pa.array(topics, text), "topic_class": pa.array(map(grid.class_of, topics), text)})
    )


def _with_class(engine: LakeEngine, rows: Rows, classes: Rows) -> Rows:
    """Replace the topic in each row with the topic's class."""
    columns = ", ".join("topic_class AS topic" if name == "topic" else f"given.{name}" for name in engine.columns(rows))
    return engine(
        f"SELECT {columns} FROM {{rows}} AS given JOIN {{classes}} AS classes ON given.topic = classes.topic",
        rows=rows, classes=classes,
    )  # fmt: skip


def _write_sweep(lake: Lake, table: Table, rows: list[Row], name: str) -> None:
    """Replace the rows of the sweep ``name`` in a table."""
    with ArrowSql() as sql:
        values = pa.Table.from_pylist(rows, arrow_schema(table))
        replace_arrow(lake, sql, table, values, f"sweep = {sql_literal(name)}")

"""Simulate a scenario, and write its log to the input tables of a lake, as a separate cluster.

A scenario is one of three kinds: a story (a short log from a Kafka proposal, written by hand), a simulation of a single
group of brokers (`proposal_scenarios`), or a fleet of many groups, which are simulated one by one. A large fleet is
simulated by Spark's workers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import InProcess, replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.run_log import RunCounts
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import (
    APPEND_LOG,
    BROKER_EVENTS,
    FETCH_LOG,
    INGESTED_FILES,
    OBSERVED_ISR_CHANGES,
    PLANTED_FAULTS,
)
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from isr_batch.phrases import did_you_mean
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.simulation.group_plans import ISR_WRITE_MS, FleetOfGroups, plan_groups
from isr_batch.simulation.planted_faults import FLEETS
from isr_batch.simulation.proposal_examples import START_MS, STORIES, ExampleTerm
from isr_batch.simulation.proposal_scenarios import LOOPED
from udfs.records import BY_RULE, CHANGE_KINDS, EXPAND, SHRINK
from udfs.rules import BASELINE, RELEASED_RULES
from udfs.simulation.groups import CHANGES, SCHEMA, broker_of_group, simulate_group, topic_of_group
from udfs.simulation.world import APPEND_COLUMNS, EVENT_COLUMNS, EVENT_KINDS, FETCH_COLUMNS, TERM_COLUMNS

SHRINK_PRINTS = ("high_watermark", "leader_log_end_offset", "follower_log_end_offset", "last_caught_up_time_ms")
"""Columns for the figures in a leader's Shrinking line. They are null for other ISR changes."""
FEW_PARTITION_HOURS = 3
"""Up to this number of partition-hours, this process simulates a fleet itself. A partition-hour is about 300,000 rows,
which need 300 MB of memory."""
SCENARIOS = tuple(dict.fromkeys((*STORIES, *LOOPED, *FLEETS)))

_DATED_BY = (
    (FETCH_LOG, "handled_time"),
    (APPEND_LOG, "append_time"),
    (LEADER_EPOCHS, "start_time"),
    (OBSERVED_ISR_CHANGES, "change_time"),
    (BROKER_EVENTS, "event_time"),
    (COVERAGE, "from_time"),
    (PLANTED_FAULTS, "from_time"),
)


def generate_scenario(lake: Lake, fleet: FleetOfGroups, cluster_id: str | None = None) -> RunCounts:
    """Simulate a scenario, and replace all rows of its cluster in the lake.

    Parameters
    ----------
    lake : Lake
        The lake to which the rows are written.
    fleet : FleetOfGroups
        The scenario's name and settings. A story is a scenario whose few fetches are written by hand (`STORIES`). It is
        not simulated, and ignores the settings, unless a rule is set.
    cluster_id : str, optional
        Name of the cluster; by default, the scenario's name.

    Returns
    -------
    RunCounts
        With the number of rows written.

    Raises
    ------
    UsageError
        If the scenario does not exist.
    """
    name = fleet.scenario
    cluster_id = cluster_id or name
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name}", did_you_mean(name, SCENARIOS))
    if name in STORIES and fleet.rule is None:
        return write_generated_input(lake, cluster_id, _story_rows(cluster_id, STORIES[name]()))
    with engine_of_fleet(lake, fleet) as engine:
        rows = _groups_simulated(engine, fleet)
        return write_generated_input(lake, cluster_id, _fleet_rows(engine, fleet, cluster_id, rows))


def engine_of_fleet(lake: Lake, fleet: FleetOfGroups) -> LakeEngine:
    """Return the engine for a fleet: this process for at most `FEW_PARTITION_HOURS`, else Spark."""
    return InProcess(lake) if fleet.partitions * fleet.hours <= FEW_PARTITION_HOURS else BySpark(lake)


def write_generated_input(lake: Lake, cluster_id: str, tables: Mapping[str, DataFrame | pa.Table]) -> RunCounts:
    """Replace all input rows of a cluster with the rows in ``tables``.

    Parameters
    ----------
    lake : Lake
    cluster_id : str
    tables : mapping of str to DataFrame or pyarrow.Table
        Rows by name of the input table. Missing columns become null. If a table is missing, the cluster has no rows in
        it afterwards.

    Returns
    -------
    RunCounts
        With the number of rows written.
    """
    rows_out = 0
    where = f"cluster_id = {sql_literal(cluster_id)}"
    with ArrowSql() as sql:
        if lake.has(INGESTED_FILES.name):  # logs ingested under this name are replaced
            replace_arrow(lake, sql, INGESTED_FILES, arrow_schema(INGESTED_FILES).empty_table(), where)
        for table, time in _DATED_BY:
            rows = tables.get(table.name, arrow_schema(table).empty_table())
            if isinstance(rows, pa.Table):
                rows_out += replace_arrow(lake, sql, table, _whole_rows(table, rows, time), where)
            else:
                dated = rows.withColumn("event_date", F.col(time).cast("date"))
                rows_out += lake.replace(table, _with_null_columns(table, dated), where)
    return RunCounts(rows_out=rows_out)


def _whole_rows(table: Table, rows: pa.Table, time: str) -> pa.Table:
    """Add a table's missing columns to rows. ``event_date`` is the day of column ``time``; all others are null."""
    # The zone is dropped before the cast to days. Otherwise Arrow would look up the zone's rules for each value.
    given = {name: rows[name] for name in rows.column_names} | {
        "event_date": rows[time].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.date32())
    }
    schema = arrow_schema(table)
    columns = [given[each.name] if each.name in given else pa.nulls(len(rows), each.type) for each in schema]
    return pa.table(columns, names=schema.names).cast(schema)


def _with_null_columns(table: Table, rows: DataFrame) -> DataFrame:
    """Return rows with all columns of a table. Missing columns are added as nulls."""
    return rows.withColumns(
        {column.name: F.lit(None).cast(column.type) for column in table.columns if column.name not in rows.columns}
    )


def _groups_simulated(engine: LakeEngine, fleet: FleetOfGroups) -> Rows:
    """Simulate all groups of a fleet, and return rows of ``udfs.simulation.groups.SCHEMA``."""

    def simulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Simulate the groups whose numbers are in column ``number``."""
        keep_compiled()
        numbers = {number for batch in batches for number in batch.column("number").to_pylist()}
        for plan, _ in plan_groups(fleet):
            if plan.number in numbers:
                yield from simulate_group(plan)

    groups = pa.table({"number": pa.array([plan.number for plan, _ in plan_groups(fleet)], pa.int64())})
    return engine.stream(engine.rows(groups), ["number"], ["number"], simulate, SCHEMA)


def _fleet_rows(
    engine: LakeEngine, fleet: FleetOfGroups, cluster_id: str, rows: Rows
) -> dict[str, DataFrame | pa.Table]:
    """Convert the simulated rows of a fleet to rows of input tables, by name of the table."""

    def of_table(table: Table, name: str, given: Sequence[str], where: str = "true", **columns: str) -> Rows:
        """Return the rows for a table: those simulated rows whose column ``table`` is ``name`` and that meet ``where``.

        ``given`` are the simulated columns to keep, and ``columns`` are SQL expressions of further columns.
        """
        known = [column for column in given if column in table.column_names]
        times = {column: f"timestamp_micros({column})" for column in known if column.endswith("_time")}
        columns = {"cluster_id": engine.literal(cluster_id), **{each: each for each in known}, **times, **columns}
        expressions = ", ".join(f"{text} AS {column}" for column, text in columns.items())
        text = f"SELECT {expressions} FROM {{rows}} AS simulated WHERE simulated.table = '{name}' AND {where}"
        return engine(text, rows=rows)

    by_leader = f"made_by = {BY_RULE}"
    printed = {name: f"CASE WHEN {by_leader} AND kind = {SHRINK} THEN {name} END" for name in SHRINK_PRINTS}
    release = _release_of_scenario(fleet)
    return {
        FETCH_LOG.name: of_table(
            FETCH_LOG, "fetches", ("topic", "leader_id", "replica_id", *FETCH_COLUMNS),
            error_code="0", run_length="1", last_handled_time="timestamp_micros(handled_time)",
        ),
        APPEND_LOG.name: of_table(
            APPEND_LOG, "appends", ("topic", "leader_id", *APPEND_COLUMNS),
            base_offset=_sql_if_known("base_offset"), log_end_offset=_sql_if_known("log_end_offset"),
            acknowledged_time=_sql_if_known("acknowledged_time", "timestamp_micros(acknowledged_time)"),
        ),
        LEADER_EPOCHS.name: of_table(
            LEADER_EPOCHS, "terms", ("topic", "leader_id", "previous_leader_id", "assigned", *TERM_COLUMNS),
            replica_lag_time_max_ms=str(fleet.replica_lag_time_max_ms),
            min_insync_replicas=str(fleet.min_insync_replicas), check_origin_ms=str(START_MS),
            check_origin_source="'startup'", isr_write_ms=str(ISR_WRITE_MS),
            **({"broker_version": f"'{release}'"} if release else {}),
            begins_mid_term="false", ends_mid_term="false", term_source="'logged'",
        ),
        OBSERVED_ISR_CHANGES.name: of_table(
            OBSERVED_ISR_CHANGES, "changes", ("topic", "leader_id", "replica_id", *CHANGES),
            f"kind IN ({SHRINK}, {EXPAND})",
            kind=_sql_name_of_code("kind", CHANGE_KINDS),
            made_by=f"CASE WHEN {by_leader} THEN 'leader' ELSE 'controller' END",
            **printed,
        ),
        BROKER_EVENTS.name: of_table(
            BROKER_EVENTS, "events", ("broker_id", *EVENT_COLUMNS), kind=_sql_name_of_code("kind", EVENT_KINDS)
        ),
        PLANTED_FAULTS.name: _planted_rows(fleet, cluster_id),
    }  # fmt: skip


def _planted_rows(fleet: FleetOfGroups, cluster_id: str) -> pa.Table:
    """Return the rows of table ``planted_faults`` for a fleet."""
    instants = pa.timestamp("us", "UTC")
    planted = [
        {
            "cluster_id": cluster_id, "topic": topic_of_group(plan.number), "what": fault.what,
            "broker_id": broker_of_group(plan.number, fault.who), "from_time": fault.from_us,
            "until_time": fault.until_us, "expected_cause": fault.expected_cause,
        }
        for plan, faults in plan_groups(fleet)
        for fault in faults
    ]  # fmt: skip
    names = ("cluster_id", "topic", "what", "broker_id", "from_time", "until_time", "expected_cause")
    kinds = {"broker_id": pa.int32(), "from_time": instants, "until_time": instants}
    return pa.Table.from_pylist(planted, pa.schema([(name, kinds.get(name, pa.string())) for name in names]))


def _release_of_scenario(fleet: FleetOfGroups) -> str | None:
    """Return the first Kafka release with the simulated rule.

    Returns None if no release uses the rule, or if the scenario overrides the rule's default parameters.
    """
    first = {rule.id: numbers for numbers, rule in RELEASED_RULES}.get(fleet.rule or BASELINE)
    return ".".join(map(str, first)) if first and not fleet.params else None


def _sql_if_known(name: str, text: str = "") -> str:
    """Return the SQL for ``text`` (by default the column ``name``), or for null where ``name`` is negative."""
    return f"CASE WHEN {name} >= 0 THEN {text or name} END"


def _sql_name_of_code(code: str, names: Sequence[str]) -> str:
    """Return the SQL that converts column ``code``, an index of ``names``, to the name."""
    return "CASE {} {} END".format(code, " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(names)))


def _story_rows(name: str, story: ExampleTerm) -> dict[str, pa.Table]:
    """Convert a story to rows of input tables, by name of the table. ``name`` is the cluster's."""
    fetches: dict[str, list[Any]] = {
        "replica_id": [fetch.replica_id for fetch in story.fetches],
        "fetch_offset": [fetch.fetch_offset for fetch in story.fetches],
        "arrival_time": [_us_after_start(fetch.arrival_ms) for fetch in story.fetches],
        "handled_time": [_us_after_start(fetch.handled_ms) for fetch in story.fetches],
        "last_handled_time": [_us_after_start(fetch.handled_ms) for fetch in story.fetches],
        "processed_time": [_us_after_start(fetch.recorded_ms) for fetch in story.fetches],
        "released_time": [_us_after_start(fetch.released_ms) for fetch in story.fetches],
        "completed_time": [_us_after_start(fetch.completed_ms) for fetch in story.fetches],
        "error_code": [0] * len(story.fetches),
        "run_length": [1] * len(story.fetches),
    }
    before = [story.log_end_offset, *(append.log_end_offset for append in story.appends)]
    appends: dict[str, list[Any]] = {
        "append_time": [_us_after_start(append.time_ms) for append in story.appends],
        "base_offset": before[:-1],
        "log_end_offset": before[1:],
        "acks": [append.acks for append in story.appends],
        "error_code": [0] * len(story.appends),
    }
    terms: dict[str, list[Any]] = {
        "start_time": [_us_after_start(0)],
        "end_time": [_us_after_start(story.end_ms)],
        "start_offset": [story.log_end_offset],
        "start_high_watermark": [story.log_end_offset],
        "assigned": [list(story.replicas)],
        "isr_at_start": [list(story.isr or story.replicas)],
        "replica_lag_time_max_ms": [story.lag_time_max_ms],
        "min_insync_replicas": [story.min_insync_replicas],
        "check_origin_ms": [START_MS],
        "check_origin_source": ["startup"],
        "begins_mid_term": [False],
        "ends_mid_term": [False],
        "term_source": ["logged"],
    }
    tables = {FETCH_LOG.name: fetches, LEADER_EPOCHS.name: terms}
    if story.appends:
        tables[APPEND_LOG.name] = appends
    return {table: _generated_rows_of_story(name, story.replicas[0], columns) for table, columns in tables.items()}


def _generated_rows_of_story(cluster_id: str, leader: int, columns: dict[str, list[Any]]) -> pa.Table:
    """Return the columns of a story as rows of an input table, with the story's only replica set added."""
    instants = pa.timestamp("us", "UTC")
    arrays = {name: pa.array(values, instants if name.endswith("_time") else None) for name, values in columns.items()}
    rows = len(next(iter(columns.values())))
    of_set = {"cluster_id": cluster_id, "topic": "story", "partition_id": 0, "leader_epoch": 0, "leader_id": leader}
    return pa.table({**{name: pa.repeat(value, rows) for name, value in of_set.items()}, **arrays})


def _us_after_start(ms: int) -> int:
    """Convert milliseconds after the start of a story to epoch microseconds."""
    return (START_MS + ms) * 1000

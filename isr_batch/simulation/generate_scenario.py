"""Write a scenario into a lake: the same input tables as an ingest writes, for a cluster of its own.

A story is a few rows. A fleet is simulated, a group of brokers a task, and streams through Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from isr_batch.errors import UsageError
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.engines import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import RunCounts
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
from udfs.records import BY_RULE, CHANGE_KINDS, SHRINK
from udfs.rules import BASELINE, RELEASED_RULES
from udfs.simulation.groups import BROKERS_A_GROUP_ID, SCHEMA, simulate_group
from udfs.simulation.world import EVENT_KINDS

SHRINK_PRINTS = ("high_watermark", "leader_log_end_offset", "follower_log_end_offset", "last_caught_up_time_ms")
"""Columns that a leader's Shrinking line has."""
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
    """Write a scenario, and replace all rows that the lake has of its cluster.

    Parameters
    ----------
    lake : Lake
        Where to.
    fleet : FleetOfGroups
        Without a rule, a story is the proposal's own example, and nothing but its name matters.
    cluster_id : str, optional
        By default the scenario's name.

    Raises
    ------
    UsageError
        When there is no such scenario.
    """
    name = fleet.scenario
    cluster_id = cluster_id or name
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name}", did_you_mean(name, SCENARIOS))
    if name in STORIES and fleet.rule is None:
        return write_generated_input(lake, cluster_id, _story_rows(cluster_id, STORIES[name]()))
    rows = _simulated(lake, fleet).persist(StorageLevel.DISK_ONLY)
    try:
        return write_generated_input(lake, cluster_id, _fleet_rows(lake, fleet, cluster_id, rows))
    finally:
        rows.unpersist()


def write_generated_input(lake: Lake, cluster_id: str, tables: Mapping[str, DataFrame | pa.Table]) -> RunCounts:
    """Replace all input rows of a cluster; missing columns become null, missing tables empty."""
    rows_out = 0
    where = f"cluster_id = {sql_literal(cluster_id)}"
    with ArrowSql() as sql:
        if lake.has(INGESTED_FILES.name):  # logs of that name are no longer what the lake holds
            replace_arrow(lake, sql, INGESTED_FILES, arrow_schema(INGESTED_FILES).empty_table(), where)
        for table, time in _DATED_BY:
            rows = tables.get(table.name, arrow_schema(table).empty_table())
            if isinstance(rows, pa.Table):
                rows_out += replace_arrow(lake, sql, table, _whole_rows(table, rows, time), where)
            else:
                dated = rows.withColumn("event_date", F.col(time).cast("date"))
                rows_out += lake.replace(table, _with_nulls(table, dated), where)
    return RunCounts(rows_out=rows_out)


def _whole_rows(table: Table, rows: pa.Table, time: str) -> pa.Table:
    """Rows with their day, and with null in the columns that they lack."""
    # Arrow would look up the time zone's rules for a day.
    given = {name: rows[name] for name in rows.column_names} | {
        "event_date": rows[time].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.date32())
    }
    schema = arrow_schema(table)
    columns = [given[each.name] if each.name in given else pa.nulls(len(rows), each.type) for each in schema]
    return pa.table(columns, names=schema.names).cast(schema)


def _with_nulls(table: Table, rows: DataFrame) -> DataFrame:
    return rows.withColumns(
        {column.name: F.lit(None).cast(column.type) for column in table.columns if column.name not in rows.columns}
    )


def _simulated(lake: Lake, fleet: FleetOfGroups) -> DataFrame:
    """Simulate the groups, one task each, to rows of ``udfs.simulation.groups.SCHEMA``."""
    groups = sum(1 for _ in plan_groups(fleet))

    def simulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_compiled()
        numbers = {number for batch in batches for number in batch.column("id").to_pylist()}
        for plan, _ in plan_groups(fleet):
            if plan.number in numbers:
                yield from simulate_group(plan)

    numbers = lake.spark.range(0, groups, 1, groups)
    return numbers.mapInArrow(simulate, from_arrow_schema(SCHEMA))


def _fleet_rows(lake: Lake, fleet: FleetOfGroups, cluster_id: str, rows: DataFrame) -> dict[str, DataFrame]:
    """Build a frame per table: positions become broker ids, bit masks lists, microseconds timestamps."""
    cluster = F.lit(cluster_id).alias("cluster_id")
    topic = F.format_string("group-%d", "group_number").alias("topic")
    brokers = max(plan.brokers for plan, _ in plan_groups(fleet))
    assigned = F.array(*(F.lit(position) for position in range(brokers)))

    def broker_of(position: Column) -> Column:
        return (F.col("group_number") * BROKERS_A_GROUP_ID + position + 1).cast("int")

    def broker(position: str) -> Column:
        return broker_of(F.col(position))

    def members(bits: str) -> Column:
        held = F.filter(assigned, lambda p: F.call_function("getbit", F.col(bits), p) == 1)
        return F.transform(held, broker_of)

    def table(name: str, **columns: Column) -> DataFrame:
        found = rows.where(F.col("table") == name)
        times = {time: F.timestamp_micros(time) for time in rows.columns if time.endswith("_time")}
        return found.withColumns({**columns, "cluster_id": cluster, "topic": topic}).withColumns(times)

    leader = {"leader_id": broker("leader")}
    by_leader = F.col("made_by") == int(BY_RULE)

    def printed(name: str) -> Column:
        return F.when(by_leader & (F.col("kind") == int(SHRINK)), F.col(name))

    planted = [
        (plan.number, fault.what, fault.who, fault.from_us, fault.until_us, fault.expected_cause)
        for plan, faults in plan_groups(fleet)
        for fault in faults
    ]
    faults = lake.spark.createDataFrame(
        planted, "group_number BIGINT, what STRING, who INT, from_us BIGINT, until_us BIGINT, expected_cause STRING"
    )
    return {
        FETCH_LOG.name: table(
            "fetches", **leader, replica_id=broker("replica"), error_code=F.lit(0), run_length=F.lit(1),
        ).withColumn("last_handled_time", F.col("handled_time")),
        APPEND_LOG.name: table(
            "appends", **leader, base_offset=_known("base_offset"), log_end_offset=_known("log_end_offset"),
            acknowledged_time=_known("acknowledged_time"),
        ),
        LEADER_EPOCHS.name: table(
            "terms", **leader, assigned=F.array(*(broker_of(F.lit(position)) for position in range(brokers))),
            isr_at_start=members("isr_at_start"),
            previous_leader_id=F.when(F.col("previous_leader") >= 0, broker("previous_leader")),
            replica_lag_time_max_ms=F.lit(fleet.replica_lag_time_max_ms),
            min_insync_replicas=F.lit(fleet.min_insync_replicas), check_origin_ms=F.lit(START_MS),
            check_origin_source=F.lit("startup"), isr_write_ms=F.lit(ISR_WRITE_MS),
            broker_version=F.lit(_release(fleet)).cast("string"), begins_mid_term=F.lit(False),
            ends_mid_term=F.lit(False), term_source=F.lit("logged"),
        ),
        OBSERVED_ISR_CHANGES.name: table(
            "changes", **leader, replica_id=broker("replica"), isr_before=members("isr_before"),
            isr_after=members("isr_after"), kind=_named("kind", CHANGE_KINDS),
            made_by=F.when(by_leader, "leader").otherwise("controller"), answered_time=F.lit(None).cast("timestamp"),
            **{name: printed(name) for name in SHRINK_PRINTS},
        ).where("kind IN ('shrink', 'expand')"),
        BROKER_EVENTS.name: table("events", broker_id=broker("broker"), kind=_named("kind", EVENT_KINDS)),
        PLANTED_FAULTS.name: faults.withColumns(
            {
                "cluster_id": cluster, "topic": topic, "broker_id": broker("who"),
                "from_time": F.timestamp_micros("from_us"), "until_time": F.timestamp_micros("until_us"),
            }
        ),
    }  # fmt: skip


def _release(fleet: FleetOfGroups) -> str | None:
    """Find the first release with the rule that was in the loop; None if no release has it."""
    first = {rule.id: numbers for numbers, rule in RELEASED_RULES}.get(fleet.rule or BASELINE)
    return ".".join(map(str, first)) if first and not fleet.params else None


def _known(name: str) -> Column:
    return F.when(F.col(name) >= 0, F.col(name))


def _named(code: str, names: Sequence[str]) -> Column:
    return F.element_at(F.array(*(F.lit(name) for name in names)), F.col(code).cast("int") + 1)


def _story_rows(name: str, story: ExampleTerm) -> dict[str, pa.Table]:
    """Build the rows of each table; microseconds become timestamps."""
    fetches: dict[str, list[Any]] = {
        "replica_id": [fetch.replica_id for fetch in story.fetches],
        "fetch_offset": [fetch.fetch_offset for fetch in story.fetches],
        "arrival_time": [_us(fetch.arrival_ms) for fetch in story.fetches],
        "handled_time": [_us(fetch.handled_ms) for fetch in story.fetches],
        "last_handled_time": [_us(fetch.handled_ms) for fetch in story.fetches],
        "processed_time": [_us(fetch.recorded_ms) for fetch in story.fetches],
        "released_time": [_us(fetch.released_ms) for fetch in story.fetches],
        "completed_time": [_us(fetch.completed_ms) for fetch in story.fetches],
        "error_code": [0] * len(story.fetches),
        "run_length": [1] * len(story.fetches),
    }
    before = [story.log_end_offset, *(append.log_end_offset for append in story.appends)]
    appends: dict[str, list[Any]] = {
        "append_time": [_us(append.time_ms) for append in story.appends],
        "base_offset": before[:-1],
        "log_end_offset": before[1:],
        "acks": [append.acks for append in story.appends],
        "error_code": [0] * len(story.appends),
    }
    terms: dict[str, list[Any]] = {
        "start_time": [_us(0)],
        "end_time": [_us(story.end_ms)],
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
    return {table: _rows_of_set(name, story.replicas[0], columns) for table, columns in tables.items()}


def _rows_of_set(cluster_id: str, leader: int, columns: dict[str, list[Any]]) -> pa.Table:
    instants = pa.timestamp("us", "UTC")
    arrays = {name: pa.array(values, instants if name.endswith("_time") else None) for name, values in columns.items()}
    rows = len(next(iter(columns.values())))
    of_set = {"cluster_id": cluster_id, "topic": "story", "partition_id": 0, "leader_epoch": 0, "leader_id": leader}
    return pa.table({**{name: pa.repeat(value, rows) for name, value in of_set.items()}, **arrays})


def _us(ms: int) -> int:
    return (START_MS + ms) * 1000

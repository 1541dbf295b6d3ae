"""Make a function for ``applyInArrow`` in a user's own Spark job. It replays one partition and returns its shrinks."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from isr_batch.api.frames import as_arrow, kind_of, one_kind, require_rows, schema_of, shown_type
from isr_batch.api.given import GivenMapping, given_mapping, given_rules, mapping_tree
from isr_batch.api.replayed import BrokerFacts, facts_of, frames_read, results_of
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.in_memory import RowsHere, input_tables
from isr_batch.ingest.own_table.mapping import FetchColumns, InstantSource, TableMapping, mapped_columns
from isr_batch.ingest.own_table.read_source import Input, inputs_of_sources
from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.tables.outputs import SHRINK_VERDICTS
from isr_batch.shown_times import ZONES_OF_UTC
from udfs.batches.rule_runs import RuleRun

if TYPE_CHECKING:
    import pandas as pd

    from isr_batch.api.frames import Frame

SHRINKS: Final[pa.Schema] = contract_schema(SHRINK_VERDICTS.name, SHRINK_VERDICTS.column_names)
"""Arrow schema of the rows that the function of `shrink_udf` returns: the columns of ``shrink_verdicts``."""
SHRINKS_DDL: Final[str] = SHRINK_VERDICTS.schema_ddl
"""The schema `SHRINKS` as Spark DDL, for ``applyInArrow`` and ``applyInPandas``."""
MOST_ROWS: Final = 2_000_000
"""Maximum number of fetches in one group. A group is a table in the memory of one worker, and needs about 0.5 kB per
row."""
_ANY_FETCHES: Final = pa.schema([(name, pa.null()) for name in FetchColumns.model_fields])


def shrink_udf(  # noqa: PLR0913 all but one have a default
    rules: Sequence[str] | str = "kafka-3.7",
    *,
    mapping: GivenMapping = None,
    lag_time_ms: int | None = None,
    min_insync_replicas: int | None = None,
    cluster_id: str | None = None,
    brokers: BrokerFacts | None = None,
) -> Callable[[pa.Table], pa.Table]:
    """Return a function for ``applyInArrow`` that replays one partition of a topic.

    Parameters
    ----------
    rules : str, sequence of str or "all"
        As for `isr_batch.analyze`. Each result row names its rule.
    mapping, lag_time_ms, min_insync_replicas, cluster_id
        As for `isr_batch.analyze`.
    brokers : BrokerFacts, optional
        Result of `broker_facts`. Without it, a partition is replayed as if it were the only one: shrinks after its last
        fetch are not found, and shrinks made by a silent leader may be blamed on the follower.

    Returns
    -------
    callable
        A function that takes all fetches of a partition from all its leaders, up to `MOST_ROWS`, and returns rows of
        `SHRINKS`.

    Raises
    ------
    UsageError
        If an argument is wrong. Mistakes in the columns are found when the returned function is called.

    Examples
    --------
    >>> shrinks = isr_batch.shrink_udf("kafka-3.7", brokers=isr_batch.broker_facts(fetches))  # doctest: +SKIP
    >>> fetches.groupBy("topic", "partition_id").applyInArrow(shrinks, isr_batch.SHRINKS_DDL)  # doctest: +SKIP
    """
    given_runs = given_rules(rules)
    settings = {"replica_lag_time_max_ms": lag_time_ms, "min_insync_replicas": min_insync_replicas}
    sections, _ = mapping_tree(mapping)
    # Check all that can be checked without rows here, so that the error is raised here and not in a worker.
    given_mapping(sections, {"fetches": _ANY_FETCHES}, cluster_id, **settings)
    if not isinstance(brokers, BrokerFacts | None):
        raise UsageError(f"brokers is {shown_type(brokers)}, and a result of isr_batch.broker_facts is expected")
    known: dict[pa.Schema, tuple[TableMapping, Input]] = {}

    def shrinks_of_group(fetches: pa.Table) -> pa.Table:
        """Replay the fetches of one partition, and return its shrinks."""
        if kind_of("fetches", fetches) != "arrow":
            raise UsageError("shrink_udf is for applyInArrow, and takes a pyarrow.Table",
                             "use shrink_udf_pandas for applyInPandas")  # fmt: skip
        if fetches.num_rows > MOST_ROWS:
            raise UsageError(
                f"a group has {fetches.num_rows:,} fetches, and a worker can hold {MOST_ROWS:,}",
                "group by a day as well, or ingest the table into a lake",
            )
        rows = RowsHere("fetches", fetches)
        if rows.schema not in known:
            mapped = given_mapping(sections, {"fetches": rows.schema}, cluster_id, **settings)
            none = RowsHere("fetches", rows.schema.empty_table())  # workers get a copy of it, so without rows
            (read,) = inputs_of_sources([("fetches", none)], mapped)
            known[rows.schema] = mapped, read
        mapped, read = known[rows.schema]
        return _shrinks_of_group(replace(read, source=rows), mapped, given_runs, brokers)

    return shrinks_of_group


def shrink_udf_pandas(
    rules: Sequence[str] | str = "kafka-3.7", **settings: Any
) -> "Callable[[pd.DataFrame], pd.DataFrame]":
    """Return a function for ``applyInPandas``. Parameters and results are those of `shrink_udf`.

    Spark passes all times to pandas in the session's time zone, without naming it. If this zone is not UTC, a column of
    times needs a ``time_zone`` in the mapping. Otherwise the column is refused when the function is called.
    """
    of_arrow, zone = shrink_udf(rules, **settings), _zone_of_session()

    def shrinks_of_group(fetches: Any) -> Any:
        """Replay the fetches of one partition, and return its shrinks."""
        rows = as_arrow("fetches", fetches)
        if zone not in ZONES_OF_UTC:
            sections, _ = mapping_tree(settings.get("mapping"))
            _require_zones(rows.schema, given_mapping(sections, {"fetches": rows.schema}), zone)
        return of_arrow(rows).to_pandas()

    return shrinks_of_group


def _zone_of_session() -> str:
    """Return the time zone of the active Spark session; UTC without a session."""
    if "pyspark.sql" not in sys.modules:
        return "UTC"
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return (session.conf.get("spark.sql.session.timeZone") if session else None) or "UTC"


def _require_zones(schema: pa.Schema, mapping: TableMapping, zone: str) -> None:
    """Refuse columns of times without a zone, unless the mapping names their zone."""
    for name, source in mapped_columns(mapping.fetches.columns).items():
        if isinstance(source, InstantSource) and source.time_zone is None and source.column in schema.names:
            kind = schema.field(source.column).type
            if pa.types.is_timestamp(kind) and kind.tz is None:
                raise UsageError(
                    f"fetches.columns.{name}: {source.column} has no time zone, and Spark gives pandas a TIMESTAMP in "
                    f"the session's zone, {zone}, but a TIMESTAMP_NTZ as it is",
                    "use shrink_udf with applyInArrow, or name the zone in the mapping: {column: "
                    f"{source.column}, time_zone: {zone}}}",
                )


def broker_facts(  # noqa: PLR0913 all but one have a default
    fetches: "Frame",
    *,
    appends: "Frame | None" = None,
    epochs: "Frame | None" = None,
    changes: "Frame | None" = None,
    mapping: GivenMapping = None,
    lag_time_ms: int | None = None,
    min_insync_replicas: int | None = None,
    cluster_id: str | None = None,
) -> BrokerFacts:
    """Collect facts about brokers that `shrink_udf` needs and one partition's fetches do not show.

    Parameters are those of `isr_batch.analyze`.

    Returns
    -------
    BrokerFacts
        A small object: one row per term of a leader, and one per day and pair of brokers. Spark sends it to the workers
        together with the function.
    """
    given = {"fetches": fetches, "appends": appends, "epochs": epochs, "changes": changes}
    frames: dict[str, Any] = {name: frame for name, frame in given.items() if frame is not None or name == "fetches"}
    kind = one_kind(frames)
    settings = {"replica_lag_time_max_ms": lag_time_ms, "min_insync_replicas": min_insync_replicas}
    schemas = {name: schema_of(name, frame) for name, frame in frames.items()}
    mapped = given_mapping(mapping, schemas, cluster_id, **settings)
    if kind == "spark":
        from isr_batch.api.spark import SparkTables

        return SparkTables(frames, mapped, (), kind, "", fetches.sparkSession).facts
    arrow = {name: as_arrow(name, frame) for name, frame in frames.items()}
    require_rows("fetches", arrow["fetches"].num_rows)
    with log_sql() as sql:
        return facts_of(sql, frames_read(sql, arrow, mapped))


def _shrinks_of_group(
    fetches: Input, mapping: TableMapping, runs: Sequence[RuleRun], brokers: BrokerFacts | None
) -> pa.Table:
    """Replay the fetches of one partition in memory, and return its shrinks under each rule."""
    sql = log_sql(repeated=True)  # to open a connection or plan a query takes longer than to query one group
    lake = input_tables(sql, [fetches], mapping)
    return results_of(sql, lake, brokers or facts_of(sql, lake), runs, [SHRINK_VERDICTS])[SHRINK_VERDICTS]

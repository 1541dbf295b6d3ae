"""Make a function for ``applyInArrow`` in a user's own Spark job, which replays a partition and returns the shrinks."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from isr_batch.api.frames import as_arrow, kind_of, one_kind, require_rows, schema_of, shown_type
from isr_batch.api.given import GivenMapping, given_mapping, given_rules, mapping_tree
from isr_batch.api.replayed import BrokerFacts, facts_of, frames_read, shrinks_of_fetches
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.in_memory import RowsHere, input_tables
from isr_batch.ingest.own_table.mapping import FetchColumns, InstantSource, TableMapping, mapped_columns
from isr_batch.ingest.own_table.read_source import Input, inputs_of_sources, read_input
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
"""Maximum number of fetches that the function accepts in one call. It needs about 0.5 kB of a worker's memory per
fetch."""
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
        As for `isr_batch.analyze`. Each returned row names the rule that made the shrink.
    mapping, lag_time_ms, min_insync_replicas, cluster_id
        As for `isr_batch.analyze`.
    brokers : BrokerFacts, optional
        Result of `broker_facts`. Without it, a partition is replayed as if it were the only one. Shrinks after the
        partition's last fetch are then not found, and a follower may be blamed for shrinks that a paused leader caused.

    Returns
    -------
    callable
        A function that takes all fetches of one partition (at most `MOST_ROWS`, from all brokers that led it), and
        returns one row per shrink, with the schema `SHRINKS`.

    Raises
    ------
    UsageError
        If an argument is wrong. Columns that are missing or have a wrong type are only found when the returned function
        is called.

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
    """Return a function like that of `shrink_udf`, with the same parameters, for ``applyInPandas``.

    Spark passes times to pandas as local times of the session's time zone, without naming the zone. If it is not UTC,
    the mapping must give a ``time_zone`` for each column of times. Otherwise the returned function raises a UsageError.
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
    """Raise a UsageError if a mapped column of times has a zone neither in its type nor in the mapping."""
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
    """Collect what `shrink_udf` must know about brokers and cannot see in one partition's fetches.

    Examples are the periods that a leader's log covers, and those in which a leader was stopped or paused and handled
    no request. All parameters have the same meaning as in `isr_batch.analyze`.

    Returns
    -------
    BrokerFacts
        The argument ``brokers`` of `shrink_udf`. Spark sends it to the workers together with the function. It is small:
        one row per leader's term, and one per day and pair of brokers.
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
    facts = brokers or facts_of(sql, input_tables(sql, [fetches], mapping))
    return shrinks_of_fetches(sql, read_input(sql, fetches, fetches.source.items), facts, runs)

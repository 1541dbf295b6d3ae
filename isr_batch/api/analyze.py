"""Public functions ``analyze``, which replays frames of fetches, and ``open``, which reads a replayed lake."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, get_args

from isr_batch.api.analysis import Analysis
from isr_batch.api.frames import Kind, as_arrow, one_kind, require_rows, schema_of
from isr_batch.api.given import GivenMapping, given_mapping, given_rules
from isr_batch.api.local import LocalTables
from isr_batch.api.stored import StoredTables, opened
from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake import sizes
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.phrases import listed

if TYPE_CHECKING:
    from isr_batch.api.frames import Frame

Engine = Literal["auto", "spark", "local"]


def analyze(  # noqa: PLR0913 all but one have a default
    fetches: "Frame",
    *,
    appends: "Frame | None" = None,
    epochs: "Frame | None" = None,
    changes: "Frame | None" = None,
    mapping: GivenMapping = None,
    rules: Sequence[str] | str = "all",
    lag_time_ms: int | None = None,
    min_insync_replicas: int | None = None,
    cluster_id: str | None = None,
    engine: Engine = "auto",
) -> Analysis[Any]:
    """Replay a frame of follower fetches through rules, and judge the shrinks that they make.

    Parameters
    ----------
    fetches : DataFrame of Spark or pandas, or pyarrow.Table
        One row per fetch: ``topic``, ``partition_id`` (or ``partition``), ``leader_id``, ``replica_id``,
        ``fetch_offset``, and ``handled_time`` or ``arrival_time``. docs/own-tables.md lists optional columns.
    appends, epochs, changes : frame, optional
        The leaders' appends, the leaders' terms (one row per leader epoch), and the ISR changes that the brokers made,
        with columns as in docs/own-tables.md. The frames must be of the same kind as ``fetches``.
    mapping : mapping or path, optional
        Needed if the frames' columns have other names, or if times are numbers. It is one of: a dict of columns of
        ``fetches`` such as ``{"replica_id": "follower", "handled_time": {"column": "ts", "unit": "ms"}}``; a dict with
        all sections of docs/own-tables.md; the path of a YAML file with these sections.
    rules : sequence of str or "all"
        Ids of rules, as ``isr-batch rules list`` prints them.
    lag_time_ms : int, optional
        ``replica.lag.time.max.ms`` for terms whose rows in ``epochs`` do not contain it; 30000 by default.
    min_insync_replicas : int, optional
        ``min.insync.replicas`` for terms whose rows in ``epochs`` do not contain it; 1 by default.
    cluster_id : str, optional
        Name of the cluster. Needed only if no column contains it; ``cluster`` by default.
    engine : {"auto", "spark", "local"}
        Whether to replay in Spark's workers or in this process. By default, Spark frames are replayed by Spark, and
        others in this process.

    Returns
    -------
    Analysis
        The results, as frames of the same kind as ``fetches``. Spark frames are only read when a result is requested.

    Raises
    ------
    UsageError
        If an argument is not a frame, a column is missing, a time has no unit, a rule is unknown, or the engine cannot
        replay these frames.
    SchemaError
        If a column's type cannot be converted to the type of the column to which it is mapped.
    NoInputError
        If there are no rows.
    QualityGateError
        If all rows are refused. If only some are refused, they are in `Analysis.quarantine`.

    Examples
    --------
    >>> result = isr_batch.analyze(fetches, mapping={"replica_id": "follower"}, rules=["kafka-3.7"])  # doctest: +SKIP
    >>> result.spurious  # doctest: +SKIP
    """
    given = {"fetches": fetches, "appends": appends, "epochs": epochs, "changes": changes}
    frames: dict[str, Any] = {name: frame for name, frame in given.items() if frame is not None or name == "fetches"}
    kind = one_kind(frames)
    runs = given_rules(rules)
    settings = {"replica_lag_time_max_ms": lag_time_ms, "min_insync_replicas": min_insync_replicas}
    if engine not in ("auto", "spark", "local"):
        raise UsageError(f"engine={engine!r} is not auto, spark or local")
    if kind != "spark":
        frames = {name: as_arrow(name, frame) for name, frame in frames.items()}
        require_rows("fetches", frames["fetches"].num_rows)
    mapped = given_mapping(mapping, {name: schema_of(name, frame) for name, frame in frames.items()},
                           cluster_id, **settings)  # fmt: skip
    spark = frames["fetches"].sparkSession if kind == "spark" else None
    if engine == "spark" and spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is None:
            raise UsageError("engine='spark' needs a Spark session", "start one, or omit engine")
        frames = {name: spark.createDataFrame(frame) for name, frame in frames.items()}
    if spark is None or engine == "local":
        events = sum(
            frames[name].count() if spark else frames[name].num_rows for name in frames.keys() & {"fetches", "appends"}
        )
        if events > sizes.REPLAYED_EVENTS:
            raise UsageError(
                f"{events:,} fetches and appends exceed the {sizes.REPLAYED_EVENTS:,} that this process can hold",
                "pass a Spark DataFrame and omit engine, or ingest them into a lake: `isr-batch ingest table`",
            )
        why = "engine='local' was requested" if spark else f"the frames are of {kind}"
        arrow = {name: as_arrow(name, frame) for name, frame in frames.items()}
        require_rows("fetches", arrow["fetches"].num_rows)
        return Analysis(LocalTables(arrow, mapped, runs, kind, why, spark))
    from isr_batch.api.spark import SparkTables

    why = "the frames are Spark's" if kind == "spark" else "engine='spark' was asked for"
    return Analysis(SparkTables(frames, mapped, runs, kind, why, spark))


def open_lake(
    lake: str | PathLike[str] | None = None, *, catalog: str | None = None, frames: Kind | None = None
) -> Analysis[Any]:
    """Return the results of a replayed lake as an `Analysis`. Nothing is replayed.

    Parameters
    ----------
    lake : path or address, optional
        Folder or address of the lake, which contains the Delta tables of isr-batch.
    catalog : str, optional
        ``CAT.SCHEMA``, if the lake's tables are in a schema of a catalog instead of a folder.
    frames : {"pandas", "arrow", "spark"}, optional
        Kind of the frames; by default Spark frames if there is a session, else pandas frames.

    Returns
    -------
    Analysis

    Raises
    ------
    UsageError
        If neither or both of ``lake`` and ``catalog`` are given.
    NoInputError
        If the lake does not exist or was not replayed.
    """
    if (lake is None) == (catalog is None):
        raise UsageError("the tables are either in a folder or in a catalog", "give a folder, or catalog='CAT.SCHEMA'")
    if frames not in (None, *get_args(Kind)):
        raise UsageError(f"frames={frames!r} is not {listed(get_args(Kind), 'or')}")
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    kind = frames or ("spark" if spark else "pandas")
    there = opened(str(lake if catalog is None else catalog), catalog=catalog is not None)
    if not any(there.has(name) for name in ("isr_changes", "shrink_verdicts")):
        what = "was not replayed" if any(map(there.has, TABLES)) else "has no tables"
        raise NoInputError(f"{there.root} {what}", "`isr-batch run` makes a lake, and so does `analyze(...).save(...)`")
    return Analysis(StoredTables(there, kind, spark or (there.spark if kind == "spark" else None)))

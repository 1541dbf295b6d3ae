"""Broker logs into a lake."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, QualityGateError, UsageError
from isr_batch.kafka_logs import read_kafka_logs
from isr_batch.kafka_logs.files import find_logs
from isr_batch.runs import Counts
from isr_batch.store import Lake
from isr_batch.tables import (
    APPEND_LOG,
    BROKER_EVENTS,
    FETCH_LOG,
    LEADER_EPOCHS,
    OBSERVED_ISR_CHANGES,
    QUARANTINE,
    Table,
)

TABLES_AT_ONCE = 3
"""Planning a query and committing a table keep one core busy at most, and Spark none meanwhile."""

# The time by which a table is cut: the one that event_date is the day of.
_CUT_BY = (
    (FETCH_LOG, "handled_time"),
    (APPEND_LOG, "append_time"),
    (LEADER_EPOCHS, "start_time"),
    (OBSERVED_ISR_CHANGES, "change_time"),
    (BROKER_EVENTS, "event_time"),
)


def find_clusters(folder: Path, cluster_id: str | None = None) -> dict[str, Path]:
    """Find the clusters in a folder: the folder itself, or each folder in it that has folders of brokers.

    Parameters
    ----------
    folder : Path
        With a folder per broker, or a folder per cluster.
    cluster_id : str, optional
        Name of the one cluster; by default a cluster is named like its folder.

    Returns
    -------
    dict of str to Path
        Folders by the name of their cluster.

    Raises
    ------
    NoInputError
        When there is no broker log.
    UsageError
        When one name is given for several clusters.
    """
    try:
        find_logs(folder)
    except NoInputError:
        inside = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        clusters = {path.name: path for path in inside if _has_logs(path)}
        if not clusters:
            raise
    else:
        clusters = {folder.resolve().name: folder}
    if cluster_id is None:
        return clusters
    if len(clusters) > 1:
        raise UsageError(
            f"{folder} holds the clusters {', '.join(clusters)}, which cannot all be {cluster_id}",
            "leave --cluster out, or give the folder of one of them",
        )
    (only,) = clusters.values()
    return {cluster_id: only}


def _has_logs(folder: Path) -> bool:
    try:
        find_logs(folder)
    except NoInputError:
        return False
    return True


def ingest_kafka_logs(lake: Lake, folder: Path, cluster_id: str) -> Counts:
    """Put what a folder of broker logs says into the lake.

    The rows replace what the lake has of this cluster for the time that the logs cover, so that the same folder
    can be ingested again, and the next day's beside it. Quarantine holds what the last ingest of a cluster refused.

    Parameters
    ----------
    lake : Lake
        Where to.
    folder : Path
        One folder per broker.
    cluster_id : str
        The cluster's name.

    Raises
    ------
    NoInputError
        When the folder holds no broker log.
    """
    logs = read_kafka_logs(lake.spark, folder, cluster_id, lake.run_id)
    cluster = f"cluster_id = '{_escape(cluster_id)}'"
    try:
        frames = [(table, time, logs.tables[table.name].persist()) for table, time in _CUT_BY]
        with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
            spans = dict(zip(_CUT_BY, pool.map(lambda cut: _span(cut[2], cut[1]), frames), strict=True))
            # A table with few rows says little about what its log covers; requests come all the time.
            served = [span for (table, _), span in spans.items() if span and table in (FETCH_LOG, APPEND_LOG)]

            def write(cut: tuple[Table, str, DataFrame]) -> int:
                table, time, frame = cut
                own = spans[table, time]
                return lake.replace(table, frame, f"{cluster} AND {_between(time, [*served, *([own] if own else [])])}")

            quarantined = pool.submit(lake.replace, QUARANTINE, logs.tables[QUARANTINE.name], cluster)
            rows_out = sum(pool.map(write, frames))
            refused = quarantined.result()
        for _, _, frame in frames:
            frame.unpersist()
        return Counts(logs.account()["lines read"], rows_out, refused)
    finally:
        logs.release()


def require_clean(counts: Counts, max_quarantine_ratio: float) -> None:
    """Fail when an ingest refused too much of what it read.

    Raises
    ------
    QualityGateError
        When the share of quarantined lines is above the limit.
    """
    ratio = counts.rows_quarantined / max(counts.rows_in, 1)
    if ratio > max_quarantine_ratio:
        raise QualityGateError(
            f"{counts.rows_quarantined} of {counts.rows_in} log lines are in quarantine ({ratio:.2%}, "
            f"the limit is {max_quarantine_ratio:.2%})",
            '`isr-batch sql --lake LAKE "SELECT reason, count(*), min(raw) FROM quarantine GROUP BY reason"` tells '
            "why; ingest.max_quarantine_ratio is the limit",
        )


def _span(frame: DataFrame, time: str) -> tuple[str, str] | None:
    # As text: Python would turn an instant into its own time zone.
    first, last = frame.select(F.min(time).cast("string"), F.max(time).cast("string")).collect()[0]
    return (first, last) if first else None


def _between(time: str, spans: list[tuple[str, str]]) -> str:
    if not spans:
        return "true"
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    # The days say nothing new, but spare Delta the files of all other days.
    return (
        f"event_date BETWEEN DATE'{first[:10]}' AND DATE'{last[:10]}' "
        f"AND {time} BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{last}'"
    )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")

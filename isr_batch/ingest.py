"""Broker logs into a lake."""

from pathlib import Path

from isr_batch.covered import replace_covered
from isr_batch.errors import NoInputError, QualityGateError, UsageError
from isr_batch.kafka_logs import read_kafka_logs
from isr_batch.kafka_logs.files import find_logs
from isr_batch.runs import Counts
from isr_batch.store import Lake


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
    try:
        written, refused = replace_covered(lake, logs.tables, cluster_id)
        return Counts(logs.account()["lines read"], sum(written.values()), refused)
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
            f"{counts.rows_quarantined} of {counts.rows_in} lines or rows are in quarantine ({ratio:.2%}, "
            f"the limit is {max_quarantine_ratio:.2%})",
            '`isr-batch sql --lake LAKE "SELECT reason, count(*), min(raw) FROM quarantine GROUP BY reason"` tells '
            "why; ingest.max_quarantine_ratio is the limit",
        )

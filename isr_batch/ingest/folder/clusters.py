"""Find the clusters in a folder of logs, before Spark is started, so that a wrong folder is reported at once."""

import re
from collections import defaultdict
from pathlib import Path

from isr_batch.errors import UsageError
from isr_batch.ingest.folder.broker_ids import DATE, Refused
from isr_batch.ingest.folder.log_folder import PROPERTIES, LogFile, LogFolder, find_logs
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.log_files.archives import member_name

BROKER_DEPTH = 2
"""Number of parts in a path ``broker/file``. In a longer path, the first folder may be that of a cluster."""


def find_clusters(
    folder: Path, cluster_id: str | None = None, options: LogOptions = LogOptions()  # noqa: B008 frozen
) -> dict[str, tuple[Path, LogFolder]]:  # fmt: skip
    """Find the clusters in a folder: the folder belongs to one cluster, or each subfolder to a different one.

    Subfolders belong to different clusters if two of them contain logs of brokers with the same id. This is not
    concluded if a subfolder is named after a day or an hour.

    Parameters
    ----------
    folder : Path
        Folder with the logs of one cluster's brokers, or with one subfolder per cluster.
    cluster_id : str, optional
        Name of the cluster, if there is only one. By default, a cluster is named after its folder.
    options : LogOptions, optional
        The operator's options about timestamps.

    Returns
    -------
    dict of str to (Path, LogFolder)
        Folder of each cluster and its listing, by cluster name.

    Raises
    ------
    NoInputError
        When the folder has no broker log.
    UsageError
        When ``cluster_id`` is given but there are several clusters.
    """
    whole = find_logs(folder, options)
    clusters = {folder.resolve().name: (folder, whole)}
    places = [(_folders_on_disk(file), file.broker_id)
              for file in whole.files if file.broker_id is not None and file.kind != PROPERTIES]  # fmt: skip
    depth = min(map(len, (parts for parts, _ in places)), default=0)
    of_folder: dict[str, set[int]] = defaultdict(set)
    for parts, broker_id in places:
        if len(parts) == depth:
            of_folder[parts[0]].add(broker_id)
    shared = sum(map(len, of_folder.values())) > len(set().union(*of_folder.values()))
    lone = len(of_folder) == 1 and (
        len(next(iter(of_folder.values()))) > 1
        # CLUSTER/broker-1/server.log, but not broker-1/logs/server.log
        or all(
            not _folder_ends_in_number(parts[0]) and _folder_ends_in_number(parts[1])
            for parts, _ in places
            if len(parts) > 1
        )
    )
    if depth > BROKER_DEPTH and (shared or lone) and not any(map(_is_folder_of_date, of_folder)):
        clusters = {name: (folder / name, find_logs(folder / name, options)) for name in sorted(of_folder)}
        deeper = sorted({parts[0] for parts, _ in places} - set(clusters))
        next(iter(clusters.values()))[1].left_out.extend(
            Refused(name, "deeper than the other clusters", "read it by giving its own folder") for name in deeper
        )
    if cluster_id is None:
        return clusters
    if len(clusters) > 1:
        raise UsageError(
            f"{folder} has the clusters {', '.join(clusters)}, which cannot all be {cluster_id}",
            "omit --cluster, or give the folder of one of them",
        )
    (only,) = clusters.values()
    return {cluster_id: only}


def _folders_on_disk(file: LogFile) -> tuple[str, ...]:
    """Return the parts of a file's path relative to the folder. For a file in an archive, use the archive's path."""
    member = member_name(file.path)
    return Path(file.name.partition(f"!/{member}")[0] if member else file.name).parts


def _folder_ends_in_number(folder: str) -> bool:
    return folder[-1:].isdigit()


def _is_folder_of_date(folder: str) -> bool:
    """Return whether a folder is named after a year, a month, a day or an hour."""
    return bool(re.search(DATE, folder) or re.fullmatch(r"(\w+=)?(20)?\d\d(-\d\d)?", folder))

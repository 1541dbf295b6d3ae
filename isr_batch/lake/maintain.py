"""Maintain the tables: compact small files, remove files that nothing needs any more, drop old states."""

from datetime import timedelta

from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import REPLAY_STATE, TABLES

Row = dict[str, object]


def maintain_tables(lake: Lake, retain_hours: int, state_days: int) -> list[Row]:
    """Compact and clean each table that the lake has.

    Parameters
    ----------
    lake : Lake
    retain_hours : int
        Files that were replaced so long ago are removed; readers of older versions find nothing.
    state_days : int
        So many of the latest days keep the states that a replay can go on from. A replay of an older day begins with
        the log.

    Returns
    -------
    list of dict
        ``table``, ``files_before``, ``files_after``, ``bytes``.
    """
    if lake.has(REPLAY_STATE.name):
        _drop_states(lake, state_days)
    return [_tended(lake, name, retain_hours) for name in TABLES if lake.has(name)]


def _drop_states(lake: Lake, days: int) -> None:
    latest = lake.read(REPLAY_STATE.name).agg(F.max("event_date")).collect()[0][0]
    if latest is not None:
        nothing = lake.read(REPLAY_STATE.name).where("false")
        lake.replace(REPLAY_STATE, nothing, f"event_date <= DATE'{latest - timedelta(days=days)}'")


def _tended(lake: Lake, name: str, retain_hours: int) -> Row:
    identifier = lake.identifier(name)
    before = _detail(lake, identifier)
    lake.spark.sql(f"OPTIMIZE {identifier}")
    lake.spark.sql(f"VACUUM {identifier} RETAIN {retain_hours} HOURS")
    lake.was_written(name)
    after = _detail(lake, identifier)
    return {"table": name, "files_before": before["numFiles"], "files_after": after["numFiles"],
            "bytes": after["sizeInBytes"]}  # fmt: skip


def _detail(lake: Lake, identifier: str) -> dict[str, int]:
    return lake.spark.sql(f"DESCRIBE DETAIL {identifier}").select("numFiles", "sizeInBytes").collect()[0].asDict()

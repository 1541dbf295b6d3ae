"""Replay a log for the ISR changes alone, and write nothing."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import ISR_CHANGES
from isr_batch.replay.event_stream import event_stream
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, rows_at_a_time
from isr_batch.replay.replay import ready_to_replay, replayed
from isr_batch.replay.result_tables import scored_of
from udfs.batches.replay import RuleRun
from udfs.batches.results import SET_COLUMNS


def changes_of(lake: Lake, runs: Sequence[RuleRun], facts: DataFrame, sets: DataFrame | None = None) -> pa.Table:
    """Replay the whole log with these facts (`isr_batch.replay.event_stream.facts`).

    Parameters
    ----------
    lake : Lake
    runs : sequence of RuleRun
    facts : DataFrame
        What the log has beside fetches and appends.
    sets : DataFrame, optional
        Which partitions on which leaders, by SET_COLUMNS; by default all.

    Returns
    -------
    pa.Table
        Rows of ``isr_changes``.
    """
    ready_to_replay(lake)
    stream = event_stream(lake, facts)
    if sets is not None:
        stream = stream.join(F.broadcast(sets), list(SET_COLUMNS), "leftsemi")
    with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
        changes = scored_of(replayed(stream, runs, ["change"]))[ISR_CHANGES]
        return changes.select(*ISR_CHANGES.column_names).toArrow().cast(arrow_schema(ISR_CHANGES))

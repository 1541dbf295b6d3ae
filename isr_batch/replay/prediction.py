"""A replay that no line of an ISR change gives a time: what a rule says of a log by itself."""

from collections.abc import Sequence

import pyarrow as pa

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import ISR_CHANGES
from isr_batch.replay.event_stream import event_stream, facts
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, rows_at_a_time
from isr_batch.replay.replay import ready_to_replay, replayed
from isr_batch.replay.result_tables import scored_of
from udfs.batches.replay import RuleRun


def changes_without_pins(lake: Lake, runs: Sequence[RuleRun]) -> pa.Table:
    """Replay the whole log without pins (`isr_batch.replay.event_stream.facts`), and write nothing.

    Returns
    -------
    pa.Table
        Rows of ``isr_changes``.
    """
    ready_to_replay(lake)
    with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
        changes = scored_of(replayed(event_stream(lake, facts(lake, pinned=False)), runs, ["change"]))[ISR_CHANGES]
        return changes.select(*ISR_CHANGES.column_names).toArrow().cast(arrow_schema(ISR_CHANGES))

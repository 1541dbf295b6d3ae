"""Replay a lake's log without writing results, and return only the ISR changes."""

from collections.abc import Sequence

import pyarrow as pa

from isr_batch.lake.arrow_rows import arrow_schema, cast_rows
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import ISR_CHANGES, LATE_CHECKS
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.replay import engine_of_replay, ready_to_replay, replayed_stream
from isr_batch.replay.result_tables import scored_result_tables
from udfs.batches.results import SET_COLUMNS
from udfs.batches.rule_runs import RuleRun


def own_changes(
    lake: Lake,
    runs: Sequence[RuleRun],
    *,
    pinned: bool = True,
    late: pa.Table | None = None,
    sets: pa.Table | None = None,
) -> pa.Table:
    """Replay all days of some replica sets (each a partition on one leader), and return the resulting ISR changes.

    Parameters
    ----------
    lake : Lake
    runs : sequence of RuleRun
    pinned : bool
        Whether checks run at the times that the brokers' log lines about shrinks show (see
        `isr_batch.replay.event_stream.stream_facts`).
    late : pa.Table, optional
        Rows of ``late_checks`` to use; by default, those of the lake.
    sets : pa.Table, optional
        The replica sets to replay, with the columns `SET_COLUMNS`; by default all.

    Returns
    -------
    pa.Table
        Rows of ``isr_changes``.
    """
    ready_to_replay(lake)
    with engine_of_replay(lake) as engine:
        checks = None if late is None else engine.rows(cast_rows(late, arrow_schema(LATE_CHECKS)))
        stream = event_stream(engine, stream_facts(engine, pinned=pinned, late=checks))
        if sets is not None:
            same = " AND ".join(f"stream.{name} = sets.{name}" for name in SET_COLUMNS)
            text = f"SELECT * FROM {{stream}} AS stream WHERE EXISTS (SELECT 1 FROM {{sets}} AS sets WHERE {same})"
            stream = engine(text, stream=stream, sets=engine.rows(sets))
        changes = scored_result_tables(engine, replayed_stream(engine, stream, runs, ["change"]))[ISR_CHANGES]
        return cast_rows(engine.arrow(changes), arrow_schema(ISR_CHANGES))

"""Find checks that ran late: on schedule, they would have dropped a follower, but no Shrinking line shows this.

A leader that is starved of CPU runs its ISR checks seconds late, whereas a replay runs them on schedule. Brokers log
every check that drops a follower. If the replay drops a follower at a check without such a line, the leader had not run
the check by then. So the check is moved to the leader's next logged check, or to the time at which the leader resumed,
and the brokers' own rule is replayed again. If the moved check also drops a follower without a line, the check is moved
again, but never beyond the period in which the leader was late. A shrink that is still unmatched keeps the status
``extra``. Later replays of all rules use the moved checks.
"""

from typing import Final

import pyarrow as pa

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.lease import leased
from isr_batch.lake.tables.outputs import LATE_CHECKS
from isr_batch.replay.own_changes import own_changes
from isr_batch.scoring.broker_check import HELD, ask_broker_check, compared, own_rules
from udfs.batches.results import SET_COLUMNS

ROUNDS: Final = 12
"""Maximum number of times that checks are moved."""


def find_late_checks(lake: Lake) -> int:
    """Find late runs of isr-expiration (checks), add them to table ``late_checks``, and return the number of new ones.

    Raises
    ------
    NoInputError
        If the release of the brokers is unknown, or if the rule of their release was not replayed.
    """
    with engine_for(lake, (*HELD, LATE_CHECKS.name)) as engine:
        known, changes, found = engine.table(LATE_CHECKS.name), None, 0
        for _ in range(ROUNDS):
            tables = compared(engine, lake, changes) | {LATE_CHECKS.name: known}
            new = engine.keep(ask_broker_check(engine, "late_checks", tables))
            moved = engine.listed(engine("SELECT count(*) AS n FROM {new}", new=new))[0]["n"]
            if not moved:
                break
            found += moved
            both = "SELECT * FROM {known} UNION ALL SELECT * FROM {new}"
            known = engine.keep(engine(both, known=known, new=new))
            changes = engine.rows(_changes_with(engine, lake, known, new))
        if found:
            with leased(lake):
                engine.replace(LATE_CHECKS, known)
        return found


def _changes_with(engine: LakeEngine, lake: Lake, known: Rows, new: Rows) -> pa.Table:
    """Replay the replica sets of the ``new`` late checks with all ``known`` ones, and return their ISR changes."""
    sets = engine(f"SELECT DISTINCT {', '.join(SET_COLUMNS)} FROM {{new}} AS new", new=new)
    return own_changes(lake, own_rules(engine), late=engine.arrow(known), sets=engine.arrow(sets))

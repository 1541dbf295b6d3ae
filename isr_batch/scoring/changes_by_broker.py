"""Assign each ISR change under each rule run to the notification or ISR write request in which the broker sends it."""

from typing import Final

import pyarrow as pa

from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.scoring.isr_write_requests import with_requests
from isr_batch.scoring.notified_changes import with_notified

BY_BROKER: Final = {
    "notification": (with_notified, "notified_us", ("notified_us",)),
    "request": (with_requests, "request", ("request", "writes", "in_second")),
}
"""How ISR changes are grouped by the notification or by the ISR write request that sends them: the function that adds
columns to a broker's changes, the added column that identifies the group, and all added columns."""
_KEYS: Final = ("cluster_id", "rule", "params_json", "leader_id")


def changes_by_broker(engine: LakeEngine, changes: Rows, what: str) -> Rows:
    """Return one row per ISR change that a rule made, with the id of the notification or request that sends it.

    ``what`` is also the name of the column with the id.

    Parameters
    ----------
    engine : LakeEngine
    changes : Rows
        Rows of ``isr_changes``.
    what : str
        Kind of group, a key of `BY_BROKER`: notification or request.
    """
    work, number, added = BY_BROKER[what]
    rows = engine(
        f"""
        SELECT {", ".join(_KEYS)}, event_date, topic, partition_id, unix_micros(change_time) AS change_us
        FROM {{isr_changes}} WHERE made_by = 'rule'
        """,
        isr_changes=changes,
    )
    types = {"leader_id": pa.int32(), "event_date": pa.date32(), **dict.fromkeys(added, pa.int64())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in (*_KEYS, "event_date", "topic", *added)])
    others = ", ".join(name for name in schema.names if name != number)
    name = f"cluster_id || ' ' || CAST(leader_id AS STRING) || ' ' || CAST({number} AS STRING)"
    return engine(f"SELECT {others}, {name} AS {what} FROM {{rows}}", rows=engine.by_key(rows, _KEYS, work, schema))

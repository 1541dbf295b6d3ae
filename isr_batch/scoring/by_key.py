"""Functions of the rows of one follower or broker. Also run in Spark's workers, which lack most packages."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def with_event(shrinks: pa.Table) -> pa.Table:
    """Add ``event_us``, the time of its event, to each shrink of one follower: ``at_us, rule, params_json``."""
    order = ["at_us", "rule", "params_json"]
    shrinks = shrinks.sort_by([(name, "ascending") for name in order])
    return shrinks.append_column("event_us", pa.array(_events(shrinks.select(order).to_pylist()), pa.int64()))


def _events(shrinks: list[dict[str, Any]]) -> Iterator[int]:
    """Give the time of the event that each shrink belongs to; they come in order."""
    event_us, made = 0, set[tuple[str, str]]()
    for shrink in shrinks:
        run = (shrink["rule"], shrink["params_json"])
        lag_us = 1000 * json.loads(shrink["params_json"])["replica_lag_time_max_ms"]
        if not made or run in made or shrink["at_us"] - event_us > lag_us:
            event_us, made = shrink["at_us"], set()
        made.add(run)
        yield event_us


def notified(changes: pa.Table) -> pa.Table:
    """Add ``notified_us``, when it is told, to each change of one broker under one rule: ``change_us``."""
    # The kernels take a second to import, which commands that show results need not wait for.
    from isr_batch.replay.kernel_cache import keep_compiled
    from udfs.kernel.notifications import notified_at_us

    keep_compiled()
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_numpy())))

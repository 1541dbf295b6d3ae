"""Group the shrinks of a follower by several rule runs into events.

This is also used in Spark's workers, where most packages are not installed.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa


def with_event_of_shrinks(shrinks: pa.Table) -> pa.Table:
    """Add ``event_us``, the time of the event that each shrink of a follower belongs to.

    Parameters
    ----------
    shrinks : pa.Table
        Shrinks of one follower, with ``at_us``, ``rule`` and ``params_json``.
    """
    order = ["at_us", "rule", "params_json"]
    shrinks = shrinks.sort_by([(name, "ascending") for name in order])
    return shrinks.append_column("event_us", pa.array(_events(shrinks.select(order).to_pylist()), pa.int64()))


def _events(shrinks: list[dict[str, Any]]) -> Iterator[int]:
    """Yield the time of the event that each shrink belongs to. ``shrinks`` are in chronological order."""
    event_us, made = 0, set[tuple[str, str]]()
    for shrink in shrinks:
        run = (shrink["rule"], shrink["params_json"])
        lag_us = _lag_time_us(shrink["params_json"])
        if not made or run in made or shrink["at_us"] - event_us > lag_us:
            event_us, made = shrink["at_us"], set()
        made.add(run)
        yield event_us


@lru_cache
def _lag_time_us(params_json: str) -> int:
    """Return a rule run's lag time in microseconds; there are few runs, and many shrinks."""
    return 1000 * int(json.loads(params_json)["replica_lag_time_max_ms"])

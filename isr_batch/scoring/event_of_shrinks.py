"""Group the shrinks of a follower by several rule runs into events, as `isr_batch.scoring.disagreements` defines them.

Spark's workers import this module, so it may not import packages that are only installed on the driver.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa


def with_event_of_shrinks(shrinks: pa.Table) -> pa.Table:
    """Sort the shrinks of a follower by time, group them into events, and add the column ``event_us``.

    An event has one shrink of each rule run that dropped the follower at about that time. ``event_us`` is the time of
    the first shrink in the same event.

    Parameters
    ----------
    shrinks : pa.Table
        Shrinks of one follower, with ``at_us``, ``rule`` and ``params_json``.
    """
    order = ["at_us", "rule", "params_json"]
    shrinks = shrinks.sort_by([(name, "ascending") for name in order])
    return shrinks.append_column("event_us", pa.array(_events(shrinks.select(order).to_pylist()), pa.int64()))


def _events(shrinks: list[dict[str, Any]]) -> Iterator[int]:
    """Yield for each of the shrinks, which are in chronological order, the time of the first shrink of its event."""
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
    """Return a rule run's lag time in microseconds. Results are cached, as there are many shrinks and few rule runs."""
    return 1000 * int(json.loads(params_json)["replica_lag_time_max_ms"])

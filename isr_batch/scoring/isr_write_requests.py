"""Group ISR writes into requests, as brokers do.

This is also used in Spark's workers, where most packages are not installed.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from udfs.rules import REGISTRY

ANSWER_US: Final = 5_000
"""Time between an AlterPartition request and its response, in microseconds, if the rule run does not set it."""
STEP_US: Final = 10
"""Assumed time between the ISR writes of two partitions in the same check, in microseconds."""
SECOND_US: Final = 1_000_000


def with_requests(changes: pa.Table) -> pa.Table:
    """Add to each ISR change of a broker under one rule run the number of the request that carries it.

    Parameters
    ----------
    changes : pa.Table
        ``rule``, ``params_json``, ``topic``, ``partition_id`` and ``change_us``. Equal rows are one write.

    Returns
    -------
    pa.Table
        The changes, sorted, with ``request`` (number of the request), ``writes`` (number of partitions in it), and
        ``in_second`` (number of requests that the broker sends within a second, this one included).
    """
    changes = changes.sort_by([(name, "ascending") for name in ("change_us", "topic", "partition_id")])
    writes = list(zip(*(changes[name].to_pylist() for name in ("change_us", "topic", "partition_id")), strict=True))
    place = np.cumsum([n > 0 and write != writes[n - 1] for n, write in enumerate(writes)])
    submits_us = _asked_us([write[0] for write in dict.fromkeys(writes)])
    rule = REGISTRY[changes["rule"][0].as_py()]
    answer_us = 1000 * json.loads(changes["params_json"][0].as_py()).get("isr_write_latency_ms", 0) or ANSWER_US
    sent_us, last = requests_of_writes(submits_us, answer_us, batched=rule.isr_write_in_background)
    request = np.searchsorted(last, np.arange(len(submits_us)))
    size = np.diff(last, prepend=-1)
    in_second = np.searchsorted(sent_us, np.array(sent_us) + SECOND_US) - np.arange(len(sent_us))
    for name, values in (("request", request), ("writes", size[request]), ("in_second", in_second[request])):
        changes = changes.append_column(name, pa.array(values[place], pa.int64()))
    return changes


def _asked_us(instants_us: Sequence[int]) -> list[int]:
    """Return when each ISR write is requested. Writes at the same instant are put `STEP_US` apart."""
    asked: list[int] = []
    for us in instants_us:
        asked.append(max(us, asked[-1] + STEP_US) if asked else us)
    return asked


def requests_of_writes(submits_us: Sequence[int], answer_us: int, *, batched: bool) -> tuple[list[int], list[int]]:
    """Group ISR writes into requests. A broker has at most one request in flight.

    Parameters
    ----------
    submits_us : sequence of int
        Times at which writes are requested, in chronological order.
    answer_us : int
        Time between a request and its response.
    batched : bool
        Whether a request carries all waiting writes, as since 2.7, or only one, as with ZooKeeper before.

    Returns
    -------
    sent_us, last : list of int
        For each request, when it is sent, and the index of the last write in it.
    """
    sent_us: list[int] = []
    last: list[int] = []
    n, free_us = 0, submits_us[0]
    while n < len(submits_us):
        now_us = max(free_us, submits_us[n])
        n = bisect_right(submits_us, now_us, n) if batched else n + 1
        sent_us.append(now_us)
        last.append(n - 1)
        free_us = now_us + answer_us
    return sent_us, last

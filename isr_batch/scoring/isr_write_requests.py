"""Group ISR writes into requests, in the same way as brokers.

Spark's workers import this module, so it may not import packages that are only installed on the driver.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from udfs.rules import REGISTRY

ANSWER_US: Final = 5_000
"""Assumed time between an AlterPartition request and its response, in microseconds. The rule run's parameter
``isr_write_latency_ms`` overrides it."""
STEP_US: Final = 10
"""Assumed time between two ISR writes that the same check causes, in microseconds."""
SECOND_US: Final = 1_000_000


def with_requests(changes: pa.Table) -> pa.Table:
    """Assign each ISR change of a broker under one rule run to the request in which the broker sends it.

    Parameters
    ----------
    changes : pa.Table
        ``rule``, ``params_json``, ``topic``, ``partition_id`` and ``change_us`` (epoch microseconds). Equal rows count
        as one ISR write.

    Returns
    -------
    pa.Table
        The changes, sorted by time, with ``request`` (number of the request, from 0), ``writes`` (number of ISR writes
        in it), and ``in_second`` (number of requests that the broker sends within a second from this one on).
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
    """Return when the ISR write of each change is requested. Writes at the same time are put `STEP_US` apart."""
    asked: list[int] = []
    for us in instants_us:
        asked.append(max(us, asked[-1] + STEP_US) if asked else us)
    return asked


def requests_of_writes(submits_us: Sequence[int], answer_us: int, *, batched: bool) -> tuple[list[int], list[int]]:
    """Group ISR writes into requests. A broker has at most one request in flight.

    Parameters
    ----------
    submits_us : sequence of int
        Times at which ISR writes are requested, in microseconds and in order. There is at least one.
    answer_us : int
        Time between a request and its response, in microseconds.
    batched : bool
        Whether a request carries all waiting writes, as since 2.7, or only one, as with ZooKeeper before.

    Returns
    -------
    sent_us, last : list of int
        The time at which each request is sent, and the index of the last write in each request.
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

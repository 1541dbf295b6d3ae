"""The part of docs/study.md on how long acks=all requests would wait, whether they are sent or not."""

from collections.abc import Iterator
from functools import cache
from statistics import fmean
from typing import Any, Final

import numpy as np

from docs.generate.study_figures import KINDS, MIXED, PARTITIONS, QUIET, RATES, Row, rule_of_run, rules, runs
from isr_batch.phrases import count_of
from isr_batch.report.markdown_table import markdown_table
from isr_batch.scoring.broker_pairs import DRAWS, Figure, drawn_sums, figure_of_draws, share_of_sums
from udfs.rules import BASELINE

_COSTS: Final = ("faults", "under_min_isr_seconds", "acks_all_waits_1s_seconds", "acks_all_waits_30s_seconds")
_WAITS: Final = """
## How long acks=all would wait

*Unavailable* depends on appends. The next table does not: it has the seconds per week and partition in which an
acks=all request would be refused, or would wait for more than 1 s (30 s), [whether one is sent or
not](verdicts-reasoning.md#the-ledger), by {seeds} of each kind of fault. The last two columns compare the 99th
percentile of how long requests wait over the requests that were sent and over time, in {mixed} with faults of all
kinds (mean of the runs; over time, waits of up to 1 s are included as 0).

{says}

"""


def _measured(rule: str, kind: str) -> list[Row]:
    """List the runs in which waits were measured."""
    return [row for row in runs(rule, kind) if row.get("acks_all_wait_ms_p99") is not None]


@cache
def _week_s(rule: str, cluster: str, wait: str) -> Figure:
    """Return how long per week and partition acks=all requests would be refused, or wait longer than ``wait``."""
    total = np.zeros(DRAWS + 1)
    for kind, rate in RATES[cluster].items():
        rows = _measured(rule, kind)
        sums = drawn_sums(rows, _COSTS, 1 + KINDS.index(kind))
        seconds = sums["under_min_isr_seconds"] + sums[f"acks_all_waits_{wait}_seconds"]
        total += rate * share_of_sums(seconds, sums["faults"] * PARTITIONS)
    return figure_of_draws(total)


def _p99_s(rule: str) -> tuple[float, float]:
    """Return the 99th percentile of waits over requests and over time."""
    mixed = _measured(rule, MIXED)
    of_requests, of_time = (
        fmean(row[name] or 0 for row in mixed) / 1e3 for name in ("acks_all_latency_ms_p99", "acks_all_wait_ms_p99")
    )
    return of_requests, of_time


def study_of_waits() -> Iterator[str]:
    """Yield the lines of this part of the page; none if no simulation has measured waits."""
    if not _measured(BASELINE, MIXED):
        return
    waits = {rule: _week_s(rule, "sick", "1s").value for rule in rules()}
    best = min((rule for rule in rules() if rule_of_run(rule).kind != "reference"), key=waits.__getitem__)
    of_requests, of_time = _p99_s(BASELINE)
    says = (
        f"Under `{BASELINE}`, 99 % of the requests are answered within {1e3 * of_requests:,.0f} ms, but for 1 % of the "
        f"time a request would wait for more than {of_time:,.0f} s. In a sick cluster, requests would be refused or "
        f"wait for more than 1 s for {waits[BASELINE]:,.0f} s a week; under `{best}`, the best of the rules, for "
        f"{waits[best]:,.0f} s."
    )
    seeds = count_of(min(len(_measured(BASELINE, kind)) for kind in KINDS if kind != QUIET), "simulation")
    yield _WAITS.format(says=says, seeds=seeds, mixed=count_of(len(_measured(BASELINE, MIXED)), "run"))
    yield from markdown_table(("#", "rule", *_COLUMNS), map(_row, rules()))


_COLUMNS: Final = (
    *(f"{cluster}: refused or over {wait}, s" for cluster in RATES for wait in ("1 s", "30 s")),
    "99 % of requests, ms", "99 % of time, s",
)  # fmt: skip


def _row(rule: str) -> dict[str, Any]:
    figures = [_week_s(rule, cluster, wait) for cluster in RATES for wait in ("1s", "30s")]
    of_requests, of_time = _p99_s(rule)
    cells = [f"{found.value:,.1f} [{found.low:,.1f}, {found.high:,.1f}]" for found in figures]
    cells += [f"{1e3 * of_requests:.1f}", f"{of_time:.1f}"]
    return {"#": 1 + rules().index(rule), "rule": f"`{rule}`"} | dict(zip(_COLUMNS, cells, strict=True))

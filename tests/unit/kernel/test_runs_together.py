"""Figures of all rule runs together, which spare a look at each, are at any instant what the runs say."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.strategies import Log, Setting
from tests.unit.kernel.test_snapshot import cut_logs, replay
from udfs.kernel.ledger import AT_RISK
from udfs.kernel.state import State
from udfs.records import NEVER_US
from udfs.rules import REGISTRY


def assert_together(state: State) -> None:
    term: Any = state.term[0]
    runs = slice(term["runs"])
    active = state.active[: term["active"]]
    timers = np.min([state.leaders[name][runs] for name in ("check_us", "commit_us", "give_up_us")], axis=0)
    assert (state.due_us[runs] <= timers).all()
    assert term["rules_due_us"] <= timers.min()
    assert term["rules"] == sum(1 << code for code in range(len(REGISTRY)) if code in state.codes[runs])
    assert term["least_lag_time_ms"] == state.params["replica_lag_time_max_ms"][runs].min()
    assert term["highest_high_watermark"] == state.leaders["high_watermark"][active].max()
    assert term["runs_at_risk"] == (state.ledger.pages[active, AT_RISK] > 0).sum()
    assert state.fetches["outsider_in"].tolist() == (state.followers["in_isr"][active] == 0).sum(axis=0).tolist()
    for p in range(len(state.fetches)):
        if state.fetches[p]["quiet"]:
            pages = state.ledger.followers[active, p]
            assert pages["judged"].all()
            assert not pages["missed"].any()
            assert (pages["looked_at_us"] == NEVER_US).all()


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cut_logs())
def test_what_is_kept_for_all_runs_is_what_each_says(case: tuple[Log, list[Setting], list[int]]) -> None:
    log, runs, cuts = case

    def look(state: State) -> State:
        assert_together(state)
        return state

    replay(log, runs, cuts, look)

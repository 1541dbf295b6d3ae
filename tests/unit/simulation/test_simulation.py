"""A log that the simulation wrote under a rule, replayed under that rule, gives the same changes to the microsecond."""

from typing import Any

import numpy as np
import pytest

from tests.loop import Tables, simulate
from tests.unit.kernel.test_kernel_against_naive import columns
from udfs.kernel.replay import advance_replay, begin_replay_of_term
from udfs.kernel.state import new_state
from udfs.records import (
    APPEND,
    BY_CONTROLLER,
    CHANGE_COLUMNS,
    ELIGIBLE,
    EXPAND,
    FETCH,
    REMOVED,
    SILENCE,
    Rows,
    new_kernel_output,
)
from udfs.rules import REGISTRY
from udfs.simulation.world import (
    CHANGE_LEADER,
    ELIGIBILITY,
    FAULT,
    LINK,
    PACE,
    PAUSE_FOLLOWER,
    PAUSE_LEADER,
    QUEUE,
    QUOTA,
    REMOVE,
    STORAGE,
    UNFENCED,
    World,
    new_world,
)

START_US = 1_700_000_000_000_000
SECONDS = 30
SEEDS = 10
LAG_MS = 1000
PARTITIONS, BROKERS = 4, 3
EPOCH, LEADER = 1, 2
MADE_BY = 2 + CHANGE_COLUMNS.index("made_by")


def world_of(rule: str, seed: int) -> World:
    """Three brokers in trouble: pauses, slow requests and storage, elections and removals, at times of the seed's."""
    random = np.random.default_rng(seed)
    faults: list[tuple[int, ...]] = []
    for kind in random.choice(10, 15).tolist():
        at_us = START_US + int(random.integers(1, SECONDS) * 1_000_000)
        end_us = at_us + int(random.choice([300_000, 900_000, 1_200_000, 1_700_000, 3_000_000]))
        who = int(random.integers(0, BROKERS))
        if kind in {PAUSE_FOLLOWER, PAUSE_LEADER}:
            faults.append((at_us, kind, who, end_us))
        elif kind in {QUEUE, STORAGE, LINK, PACE, QUOTA}:
            usual = {LINK: 300, QUOTA: 50}.get(kind, 1)
            worse = {QUEUE: 700_000, STORAGE: 1_200_000, LINK: 200_000, PACE: 50_000, QUOTA: 2}[kind]
            faults += [(at_us, kind, who, worse), (end_us, kind, who, usual)]
        elif kind == CHANGE_LEADER:
            faults.append((at_us, kind, who, 0))
        else:
            faults.append((at_us, int(REMOVE), who, 0))
            faults += [(at_us, int(ELIGIBILITY), who, 0), (end_us, int(ELIGIBILITY), who, 1)]
    world = new_world(PARTITIONS, BROKERS, np.array(faults, FAULT), max_in_flight=3, seed=seed)
    group = world.group
    group["now_us"], group["end_us"] = START_US, START_US + SECONDS * 1_000_000
    group["io_threads"], group["request_us"], group["send_us"] = 2, 200, 100
    group["max_wait_us"], group["retry_us"], group["election_us"] = 500_000, 100_000, 20_000
    world.peers["link_us"], world.peers["record_us"], world.peers["most_records"] = 300, 1, 50
    world.partitions["gap_us"] = [0, 5_000, 300_000, 50_000]
    world.partitions["records"], world.partitions["acks"] = 10, [1, -1, -1, 1]
    world.partitions["term_isr"] = 7
    params = world.params[0]
    params["replica_lag_time_max_ms"], params["min_insync_replicas"] = LAG_MS, 1 + seed % 2
    checks = REGISTRY[rule].checks_per_lag_time
    params["check_period_ms"] = LAG_MS // checks if checks else 0
    if REGISTRY[rule].isr_write_in_background:
        params["isr_write_latency_ms"] = seed % 3 * 20
    else:
        group["isr_write_us"] = seed % 3 * 10_000
    for name, param in REGISTRY[rule].params.items():
        params[name] = param.default or 0
    params["replica_lag_max_messages"] = 100
    params["isr_write_brake_ms"] = 3000
    world.codes[0] = list(REGISTRY).index(rule)
    return world


def replayed(world: World, tables: Tables, p: int, leader: int) -> np.ndarray[Any, Any]:
    """Changes of one partition in the terms of one leader, with their leader epoch in front."""
    state = new_state(list(world.codes), BROKERS)
    state.fetches["replica_id"] = range(BROKERS)
    state.params[:] = world.params
    out = new_kernel_output(100_000)
    found = []
    mine = {
        name: table[(table[:, 0] == p) & (table[:, LEADER] == leader)]
        for name, table in tables.items()
        if name in {"fetches", "appends", "terms"}
    }
    mine["removals"] = tables["changes"][
        (tables["changes"][:, 0] == p) & (tables["changes"][:, MADE_BY] == BY_CONTROLLER)
    ]
    for term in mine["terms"]:
        _, epoch, _, start_us, end_us, start_offset, high_watermark, isr, _ = term
        state.term["leader"], state.term["replicas"] = leader, BROKERS
        state.term["start_us"], state.term["end_us"], state.term["start_offset"] = start_us, end_us, start_offset
        begin_replay_of_term(state, isr, high_watermark, True, out)
        state.term["row"] = 0
        rows = rows_of(mine, tables["events"], epoch, start_us, end_us, leader)
        assert advance_replay(state, rows, end_us, out)
        changes = out.change[: out.filled[2]].copy()
        found.append(np.hstack([np.full((len(changes), 1), epoch), changes]))
        out.filled[:] = 0
    return np.concatenate(found) if found else np.zeros((0, 1 + len(CHANGE_COLUMNS)), np.int64)


def rows_of(mine: Tables, events: Any, epoch: int, start_us: int, end_us: int, leader: int) -> Rows:
    """The term's rows as the replay takes them, in order of time."""
    rows = [
        (arrival, FETCH, f, offset, 0, -1, handled, processed, released, completed)
        for _, _, _, f, arrival, handled, processed, released, completed, offset, _ in of(mine["fetches"], epoch)
    ]
    rows += [
        (at, APPEND, -1, end, acks, -1, 0, 0, 0, 0)
        for _, _, _, at, _, end, acks, _, error in of(mine["appends"], epoch)
        if error == 0
    ]
    rows += [(at, REMOVED, f, -1, 0, -1, 0, 0, 0, 0) for _, _, _, at, _, f, *_ in of(mine["removals"], epoch)]
    for broker, from_us, until_us, kind in events:
        if from_us <= start_us and kind != 0:  # state announced before the term began is in effect from its beginning
            rows.append((start_us, ELIGIBLE, broker, -1, kind == UNFENCED, -1, 0, 0, 0, 0))
        if start_us < from_us <= end_us:
            if kind == 0 and broker == leader:
                rows.append((from_us, SILENCE, -1, -1, 0, -1, 0, 0, 0, until_us))
            elif kind != 0:
                rows.append((from_us, ELIGIBLE, broker, -1, kind == UNFENCED, -1, 0, 0, 0, 0))
    rows.sort(key=lambda row: row[:2])
    return columns(rows)


def of(table: Any, epoch: int) -> Any:
    return table[table[:, EPOCH] == epoch]


DROP_FEW = {"any-fetch", "majority", "phi-accrual"}
"""Rules that leave it to the controller to take out who does not follow."""


def settled(changes: np.ndarray[Any, Any]) -> list[list[int]]:
    """Without the true lag of who joins: of one far behind, which a majority takes in, it is known roughly."""
    changes = changes.copy()
    changes[changes[:, 1 + CHANGE_COLUMNS.index("kind")] == EXPAND, 1 + CHANGE_COLUMNS.index("true_lag_ms")] = 0
    found: list[list[int]] = changes.tolist()
    return found


@pytest.mark.parametrize("rule", REGISTRY)
def test_a_replay_decides_as_the_loop_did(rule: str, record_property: Any) -> None:
    shrinks = changes = 0
    for seed in range(SEEDS):
        world = world_of(rule, seed)
        tables = simulate(world)
        assert len(tables["fetches"]) > 1000
        for p in range(PARTITIONS):
            for leader in range(BROKERS):
                in_terms = np.isin(tables["changes"][:, 1], of_leader(tables, p, leader))
                loop = tables["changes"][in_terms & (tables["changes"][:, 0] == p)][:, 1:]
                replay = replayed(world, tables, p, leader)
                assert settled(loop) == settled(replay), (rule, seed, p, leader)
                changes += len(loop)
                shrinks += int((loop[:, 3] == 0).sum())
    assert shrinks > (20 if rule in DROP_FEW else 100)
    record_property("rule", rule)
    record_property("witness", "loop")
    record_property("count", changes)


def of_leader(tables: Tables, p: int, leader: int) -> Any:
    """Its leader epochs."""
    terms = tables["terms"]
    return terms[(terms[:, 0] == p) & (terms[:, LEADER] == leader)][:, EPOCH]


def test_the_same_seed_gives_the_same_log_however_it_is_cut() -> None:
    whole, cut = (simulate(world_of("kafka-3.7", 3), room) for room in (100_000, 500))
    assert all((whole[name] == cut[name]).all() for name in whole)
    other = simulate(world_of("kafka-3.7", 4))
    assert other["appends"].shape != whole["appends"].shape

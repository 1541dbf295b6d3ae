"""Silences of leaders in tables with one instant of each fetch."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.ingest.own_table.broker_days import DAY_SECONDS, SECOND_US, FetchDay
from isr_batch.ingest.own_table.silences import leader_silences, quiet_where_logs_grew
from isr_batch.lake.arrow_sql import ArrowSql
from tests.fetch_instants import (
    DAY,
    NOON,
    Instants,
    columns,
    days_of,
    follower_stops,
    instants,
    leader_pauses,
    led,
    silences,
    terms_of,
    without,
)

LAG_TIME_MS = 30_000
PAUSE = leader_pauses(1, 330, 372)


def no_rows(_leader: int, _follower: int, at: np.ndarray) -> np.ndarray:
    return (at >= 200) & (at < 260)


def of_leader(fetches: Instants, *leaders: int) -> Instants:
    return {(leader, follower): at for (leader, follower), at in fetches.items() if leader in leaders}


def at_random(fetches: Instants, share: float) -> Instants:
    rng = np.random.default_rng(3)
    return {pair: at[rng.random(len(at)) < share] for pair, at in fetches.items()}


def test_a_leader_without_fetches_is_silent_if_its_followers_fetch_from_others() -> None:
    table = without(instants(6, 500), PAUSE, follower_stops(3, 200, 290))
    assert silences(table) == [("silent", 1, 330, 372)]


def test_followers_that_stop_everywhere_are_no_silence_of_their_leader() -> None:
    for back_s in (260, 267):
        table = without(instants(6, 500), follower_stops(2, 200, 260), follower_stops(3, 200, back_s))
        assert silences(table) == []


def test_one_follower_that_no_longer_fetches_from_one_leader_is_nothing() -> None:
    assert silences(without(instants(6, 500), lambda who, by, at: (who == 1) & (by == 2) & (at > 200))) == []


def test_without_any_row_the_reason_is_unknown() -> None:
    assert silences(without(instants(6, 500), no_rows)) == [("quiet", broker, 200, 260) for broker in range(1, 7)]


def test_a_leader_that_is_alone_in_the_table_may_as_well_be_a_hole_of_it() -> None:
    assert silences(of_leader(without(instants(6, 500), PAUSE), 1)) == [("quiet", 1, 330, 372)]


def test_one_follower_is_no_witness() -> None:
    assert silences(without(instants(6, 500, followers=1), PAUSE)) == [("quiet", 1, 330, 372)]
    second_is_down = without(instants(6, 500), PAUSE, follower_stops(3, 100, 500))
    assert silences(second_is_down) == [("quiet", 1, 330, 372)]


def test_a_leader_that_does_not_lead_is_not_silent() -> None:
    table = without(instants(6, 500), leader_pauses(1, 330, 372))
    others = [(broker, 0.0, 500.0) for broker in range(2, 7)]
    assert silences(table, led((1, 0, 330), (1, 372, 500), *others)) == []
    # Another broker took over one of its partitions at that time, as if it had died.
    assert silences(table, led((1, 0, 500), (1, 0, 329.8), *others)) == [("quiet", 1, 330, 372)]
    assert silences(table, led((1, 0, 500), (1, 0, 200), *others)) == [("silent", 1, 330, 372)]


def test_a_follower_that_fetches_now_and_then_does_not_hide_a_silence() -> None:
    rarely = without(instants(6, 500), lambda who, by, at: (who == 1) & (by == 3) & (np.floor(at) % 4 != 1), PAUSE)
    assert silences(rarely) == [("silent", 1, 330, 372)]
    fetched = {**rarely, (1, 3): np.sort(np.append(rarely[1, 3], 350))}
    assert silences(fetched) == [("silent", 1, 330, 350), ("quiet", 1, 350, 372)]


def test_a_thin_table_still_shows_a_silence() -> None:
    table = without(instants(6, 2000), PAUSE)
    fifth = at_random(table, 0.2)
    assert [row[:2] for row in silences(fifth)] == [("silent", 1)]
    once = days_of({(1, 2): np.array([3.0, 3.5])})
    assert once["cadence_us"].to_pylist() == [None]


def test_a_leader_whose_log_grew_was_not_silent(sql: ArrowSql) -> None:
    table = without(instants(6, 500), PAUSE)
    found = leader_silences(days_of(table), terms_of(table))
    leader, _, at_us = columns(table)
    second = (at_us // SECOND_US).astype(np.int64) - NOON
    paused = np.clip(second, 330, 372) - 330
    rows = {"leader_id": leader, "topic": ["t"] * len(leader), "partition_id": leader, "handled_us": at_us}

    def kinds(fetch_offset: np.ndarray, log_end: np.ndarray | None) -> list[str]:
        known = pa.nulls(len(leader), pa.int64()) if log_end is None else pa.array(log_end)
        fetches = pa.table({**rows, "fetch_offset": fetch_offset, "leader_log_end_offset": known})
        judged = quiet_where_logs_grew(sql, found, fetches)
        assert judged.drop_columns("kind") == found.drop_columns("kind")
        return list(judged["kind"].to_pylist())

    stood = 10 * (second - paused)
    assert kinds(stood, None) == kinds(stood, stood + 5) == ["silent"]
    # Its followers have what it got meanwhile: the rows are missing.
    assert kinds(10 * second, None) == ["quiet"]
    # They do not have it: they could not reach it.
    assert kinds(stood, 10 * second) == ["quiet"]
    assert kinds(np.zeros(len(leader), np.int64), None) == ["silent"]


def test_a_day_of_a_pair() -> None:
    at = np.concatenate([np.arange(0, 40, 0.4), [45.25, 47, 47.5]])
    (row,) = days_of({(1, 2): at}, DAY).to_pylist()
    begin = DAY * SECOND_US
    assert (row["rows"], row["first_us"], row["last_us"]) == (103, begin, begin + 47_500_000)
    assert row["cadence_us"] == 400_000
    assert [(gap["from_us"] - begin, gap["until_us"] - begin) for gap in row["pauses"]] == [
        (39_600_000, 45_250_000), (45_250_000, 47_000_000),
    ]  # fmt: skip


def test_a_fetch_of_another_day_is_refused() -> None:
    fetched = columns({(1, 2): np.array([0.0])}, DAY + DAY_SECONDS)
    with pytest.raises(ValueError, match="not handled on 2024-10-04"):
        FetchDay(days_of({(1, 2): np.array([0.0])}, DAY)["event_date"][0].as_py()).add(*fetched)


def test_a_silence_over_midnight_is_one() -> None:
    table = without(instants(6, 500), PAUSE, follower_stops(5, 100, 180))
    for begin_s in (DAY - 350, DAY - 330, DAY - 372, DAY - 150, DAY - 2, DAY - 498):
        assert silences(table, begin_s=begin_s) == [("silent", 1, 330, 372)]
    # A day without any row lies between them.
    later = {pair: np.where(at > 350, at + 2 * DAY_SECONDS, at) for pair, at in instants(6, 500).items()}
    assert {row[0] for row in silences(later)} == {"quiet"}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Instants, tuple[int, float, float] | None]:
    """A cluster, some of whose followers stop, and whose broker 1 may pause, as a leader or as a whole."""
    brokers = draw(st.integers(3, 6))
    table = instants(brokers, 300, draw(st.sampled_from([0.1, 0.5, 0.9])), seed=draw(st.integers(0, 99)))
    table = at_random(table, draw(st.sampled_from([1.0, 0.5])))
    for follower in draw(st.sets(st.integers(2, brokers), max_size=2)):
        from_s = draw(st.integers(5, 250))
        table = without(table, follower_stops(follower, from_s, from_s + draw(st.integers(1, 45))))
    if not draw(st.booleans()):
        return table, None
    from_s = draw(st.integers(60, 200))
    until_s = from_s + draw(st.integers(8, 60))
    table = without(table, leader_pauses(1, from_s, until_s))
    if draw(st.booleans()):
        table = without(table, follower_stops(1, from_s, until_s))
    return table, (1, from_s, until_s)


@settings(max_examples=100, deadline=None)
@given(tables())
def test_silences_were_planted_and_are_never_the_followers_fault(
    table: tuple[Instants, tuple[int, float, float] | None],
) -> None:
    fetches, planted = table
    found = silences(fetches)
    silent = [row for row in found if row[0] == "silent"]
    if planted:
        leader, begin_s, end_s = planted
        at = np.concatenate(list(of_leader(fetches, leader).values()))
        assert silent in ([], [("silent", leader, round(at[at < begin_s].max()), round(at[at >= end_s].min()))])
    else:
        assert silent == []
    if planted and not found:
        # Then followers had stopped as well, or fetched too rarely.
        cadences = pc.min(days_of(of_leader(fetches, 1))["cadence_us"]).as_py()
        holes = [longest_hole_s(fetches, follower, begin_s, end_s) for follower in (2, 3)]
        assert max(holes) > (end_s - begin_s) / 2 - 2 or 3 * cadences > (end_s - begin_s) * SECOND_US


def longest_hole_s(fetches: Instants, follower: int, from_s: float, until_s: float) -> float:
    """Without a fetch of this follower from others than broker 1."""
    elsewhere = [at for (leader, by), at in fetches.items() if by == follower and leader != 1]
    at = np.concatenate([[from_s, until_s], *elsewhere])
    return float(np.diff(np.sort(at[(at >= from_s) & (at <= until_s)])).max())


@settings(max_examples=25, deadline=None)
@given(tables(), st.integers(-320, 100), st.integers(50, 2000), st.randoms(use_true_random=False))
def test_chunks_and_orders_make_no_difference(
    table: tuple[Instants, tuple[int, float, float] | None], begin_s: int, size: int, random: object
) -> None:
    fetches, _ = table
    whole, terms = days_of(fetches, DAY + begin_s), terms_of(fetches, DAY + begin_s)
    shuffled = list(fetches.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    mixed = {pair: np.random.default_rng(1).permutation(at) for pair, at in shuffled}
    rows = sum(map(len, mixed.values()))
    chunks = [slice(first, first + size) for first in range(0, rows, size)]
    assert days_of(mixed, DAY + begin_s, chunks) == whole
    order = list(range(whole.num_rows))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed_terms = pa.concat_tables([terms, terms]).sort_by("end_us")
    assert leader_silences(whole.take(order), mixed_terms) == leader_silences(whole, terms)

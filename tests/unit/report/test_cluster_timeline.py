"""The labels of shading: there where the narrowest page has room for them."""

import re

from isr_batch.incidents.sentences import incidents_answer, incidents_worst_first
from isr_batch.report.cluster_timeline import LANE, MOST_LANES, TimelineTarget, cluster_timeline
from isr_batch.report.first_screen import drop_matrix_on_screen
from tests.own_shrinks_log import Log, at, leader_was_silent


def test_a_silence_has_a_label_unless_the_next_one_is_in_its_way() -> None:
    log = Log()
    leader_was_silent(log)
    for seconds in (50, 52, 98):
        log.add("broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(seconds),
                end_time=at(seconds + 1))  # fmt: skip
    own = log.found()
    drawn = cluster_timeline(own, own.clusters[0], {})
    labels = {one["x"]: one["label"] for one in drawn.silences}
    assert labels == {10.0: "silent 6 s", 50.0: "", 52.0: "silent 1 s", 98.0: ""}
    assert all(one["label"] == "no request log" for one in drawn.unlogged)


def test_a_timeline_without_silences() -> None:
    log = Log()
    log.shrink(20, 1, 3, "genuine", "follower_slow")
    own = log.found()
    drawn = cluster_timeline(own, own.clusters[0], {})
    assert drawn.silences == []
    assert drawn.verdicts == ["genuine"]
    assert drawn.meanings == [("◆", "becomes")]


def _large_cluster() -> Log:
    """Broker ``n`` of 60 drops the next one ``n`` times, a minute apart."""
    log = Log()
    for broker in range(1, 60):
        for again in range(broker):
            log.shrink(60 * broker + 0.1 * again, broker, broker + 1, "spurious", "slow_leader", partition=again)
    return log


def test_a_large_cluster_has_lanes_for_the_brokers_with_most_drops_and_one_for_the_others() -> None:
    own = _large_cluster().found()
    cluster = own.clusters[0] | {"last_us": own.clusters[0]["first_us"] + 3_600_000_000}
    drawn = cluster_timeline(own, cluster, {(5, 1): TimelineTarget("i0-5-1", "")})
    names = [lane["name"] for lane in drawn.lanes]
    assert names == [*(f"broker {broker}" for broker in range(60 - MOST_LANES, 60)), "48 others"]
    assert drawn.height < LANE * (MOST_LANES + 2)
    shared = [bar for bar in drawn.bars if abs(bar["y"] - drawn.lanes[-1]["y"]) < LANE / 2]
    told = [
        int(found[1]) for bar in shared if (found := re.search(r"others drop others; healthy: (\d+) drop", bar["says"]))
    ]
    assert sum(told) == sum(range(1, 60 - MOST_LANES))
    assert any(bar["place"] == "i0-5-1" for bar in shared)
    matrix = drop_matrix_on_screen(own.pairs, "c")
    assert len(matrix["brokers"]) == len(matrix["rows"]) == MOST_LANES + 1
    assert sum(drops for row in matrix["rows"] for cell in row["cells"] for _, drops in cell) == sum(range(1, 60))


def test_the_answer_of_a_large_cluster_names_the_brokers_with_most_drops_and_counts_the_rest() -> None:
    own = _large_cluster().found()
    said = incidents_answer(own)[0]
    assert "Of 1,770 followers that your brokers dropped, 1,770 were healthy: broker 59 dropped 59" in said
    assert f"; 51 more ({sum(range(1, 52)):,} drops)." in said
    assert len(said) < 1500


def test_of_what_the_controller_did_most_removals_come_first() -> None:
    common = {"spurious": 0, "genuine": 0, "unknown": 0}
    few, many = common | {"excluded": 2, "first_us": 1}, common | {"excluded": 29, "first_us": 2}
    assert incidents_worst_first([few, many]) == [many, few]

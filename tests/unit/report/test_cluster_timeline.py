"""The labels of shading: there where the narrowest page has room for them."""

from isr_batch.report.cluster_timeline import cluster_timeline
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

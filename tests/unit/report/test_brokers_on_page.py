"""A broker as leader and as follower: shares of drops next to shares of fetches, its silences and its troubles."""

from isr_batch.report.brokers_on_page import brokers_on_page
from tests.own_shrinks_log import Log, at, leader_was_silent

FETCHES = [
    {"cluster_id": "c", "leader_id": leader, "replica_id": follower, "fetches": fetches}
    for leader, follower, fetches in ((1, 2, 30), (1, 3, 30), (2, 1, 20), (2, 3, 20))
]


def test_shares_of_drops_stand_next_to_shares_of_fetches() -> None:
    log = Log()
    leader_was_silent(log)
    log.add("broker_troubles", cluster_id="c", broker_id=1, kind="pause", from_time=at(10), until_time=at(16),
            what="Pause Full", source_file="broker-1/gc.log", source_line=7)  # fmt: skip
    own = log.found()
    first, second, third = brokers_on_page(own, own.clusters[0], FETCHES, {1: [("silent", "i0-1-1")]})
    assert first["row"] == {
        "broker": "1",
        "as leader: fetches served": "60 %", "drops made": "80 %: 4 healthy",
        "as follower: fetches sent": "20 %", "times dropped": "20 %: 1 behind",
        "silent": "once, 6 s", "JVM paused": "once, 6 s",
    }  # fmt: skip
    assert first["silences"] == ["00:00:10 for 6 s"]
    assert first["troubles"] == ["00:00:10 pause for 6 s: Pause Full [broker-1/gc.log:7]"]
    assert second["row"]["drops made"] == "20 %: 1 behind"
    assert third["row"]["times dropped"] == "40 %: 2 healthy"
    assert third["row"]["as leader: fetches served"] == "0 %"
    assert (first["incidents"], third["incidents"]) == ([("silent", "i0-1-1")], [])


def test_a_column_without_texts_is_left_out() -> None:
    log = Log()
    log.shrink(20, 1, 3, "genuine", "follower_slow")
    own = log.found()
    assert [[*one["row"]] for one in brokers_on_page(own, own.clusters[0], [], {})] == [
        ["broker", "drops made", "times dropped"]
    ] * 2

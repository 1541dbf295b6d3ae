"""The brokers' own shrinks with the verdicts, in sentences; all numbers by hand."""

import pytest

from isr_batch.incidents.incident_card import what_to_check
from isr_batch.incidents.incident_story import incident_story, link_in_story
from isr_batch.incidents.own_shrinks import unjudged_clusters
from isr_batch.incidents.sentences import cluster_headline, incidents_answer, incidents_worst_first
from isr_batch.report.cluster_timeline import TimelineTarget, cluster_timeline
from isr_batch.report.first_screen import drop_matrix_on_screen, figures_on_screen, lag_time_bound_on_screen
from tests.own_shrinks_log import KEY, RUN, Log, at, leader_was_silent


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_silent_leader_is_named_with_its_drops(log: Log) -> None:
    leader_was_silent(log)
    log.shrink(60, 2, 3, None)
    own = log.found()
    (cluster,) = own.clusters
    assert " ".join(cluster_headline(own, cluster)) == (
        "Of 6 followers that your brokers dropped, 4 were healthy: broker 1 was silent for 6 s at 00:00:10, then "
        "dropped 4. 1 was really stopped or behind: broker 1 at 00:00:10 (1). 1 cannot be judged. "
        "The replay agrees with the brokers on 5 of 6 changes."
    )
    first, unknown = own.incidents
    assert (first["fault_id"], first["spurious"], first["genuine"], first["silent_ms"]) == (1, 4, 1, 6000)
    assert incident_story(first) == (
        "Broker 1 was silent for 6 s; broker 2 dropped broker 1 from 1 ISR; broker 1 dropped 4 healthy followers "
        "(brokers 2 and 3)."
    )
    assert first["restored_us"] == int(at(18).timestamp() * 1e6)
    assert first["since_us"] == int(at(10).timestamp() * 1e6)
    assert unknown["fault_id"] is None
    assert incident_story(unknown) == "1 follower left an ISR; the logs do not say why."
    assert incidents_worst_first(reversed(own.incidents)) == [first, unknown]
    assert lag_time_bound_on_screen(own.incidents, cluster).startswith(
        "At these checks only a replica.lag.time.max.ms of more than 6,000 would have kept all 4 healthy followers "
        "in the ISR (it was 4,000)"
    )


def test_an_assumed_lag_time_is_no_fact(log: Log) -> None:
    """It is not reported as one, and does not merge two incidents."""
    for row in log.rows["leader_epochs"]:
        row |= {"replica_lag_time_max_ms": 30_000, "lag_time_source": "default"}
    leader_was_silent(log)
    log.shrink(31, 1, 3, "spurious", "slow_leader", lag_ms=4000)
    own = log.found()
    assert [one["spurious"] for one in own.incidents] == [4, 1]
    assert "(30,000, Kafka's default, is assumed)" in lag_time_bound_on_screen(own.incidents, own.clusters[0])
    assert "No log has replica.lag.time.max.ms: 30,000" in " ".join(cluster_headline(own, own.clusters[0]))


def test_a_removal_that_no_log_explains_is_not_the_controllers(log: Log) -> None:
    """Only server.log shows who removed a replica; without it, the replay may show that it was the leader."""
    for leader, follower, seconds in ((2, 3, 20.0), (2, 1, 30.0), (1, 3, 40.0)):
        log.add("observed_isr_changes", **KEY, leader_id=leader, replica_id=follower, change_time=at(seconds),
                kind="shrink", made_by="controller", source_file="state-change.log", source_line=7)  # fmt: skip
    log.add("shrink_verdicts", **KEY, **RUN, leader_id=2, replica_id=3, change_time=at(19.9), made_by="rule",
            verdict="genuine", primary_cause="follower_stopped", restored_time=at(25), lag_ms=5000)  # fmt: skip
    log.add("replay_check", **KEY, **RUN, leader_id=2, replica_id=3, kind="expand", status="matched",
            observed_time=at(25), replayed_time=at(25))  # fmt: skip

    def made() -> list[tuple[str, str]]:
        return [(row["made_by"], row["verdict"]) for row in log.found().drops.to_pylist()]

    assert made() == [("leader", "genuine"), ("unknown", "unknown"), ("controller", "excluded")]
    own = log.found()
    assert [(one["leader_id"], one["replica_id"]) for one in own.pairs] == [(2, 3)]
    assert [one["drops"] for one in own.lanes if one["side"] == "drops"] == [1]
    figures = {one["name"]: one["value"] for one in figures_on_screen(own.incidents, own.clusters[0])}
    assert (figures["dropped by leaders"], figures["left, by leader or controller"]) == ("1", "1")
    (unknown,) = (one for one in own.incidents if one["unknown"])
    assert what_to_check(unknown).startswith("server.log of the leaders, 00:00:30")
    assert cluster_headline(own, own.clusters[0])[:4] == [
        "Of 2 followers that your brokers dropped or may have dropped, none of the 1 that can be judged was healthy.",
        "1 was really stopped or behind: broker 3 at 00:00:14 (1, or its link to broker 2).",
        "1 was removed by the controller: broker 3 at 00:00:40 (1).",
        (
            "1 replica left an ISR at a time for which the leader's server.log is missing or not understood: it or the "
            "controller removed them."
        ),
    ]
    # server.log has a line about the ISR then that is not understood.
    log.add("shrink_evidence", **{name: KEY[name] for name in ("cluster_id", "topic", "partition_id")}, leader_id=1,
            replica_id=3, change_time=at(40), made_by="unknown")  # fmt: skip
    assert made()[2] == ("unknown", "unknown")
    log.rows["shrink_evidence"] = []
    assert any(
        said.startswith("1 of these drops was not logged by the leader: the replay of kafka-3.7 makes it just before")
        for said in cluster_headline(own, own.clusters[0])
    )
    # The controller took another partition's leadership from it then; up to 3.6 any change begins a term.
    term = {
        "cluster_id": "c",
        "topic": "other",
        "partition_id": 0,
        "leader_epoch": 1,
        "leader_id": 2,
        "assigned": [1, 2],
    }
    log.add("leader_epochs", **term, previous_leader_id=2, start_time=at(20), end_time=at(100))
    assert made()[:2] == [("leader", "genuine"), ("unknown", "unknown")]
    log.add("leader_epochs", **term, previous_leader_id=3, start_time=at(20), end_time=at(100))
    assert made()[0] == ("controller", "excluded")
    log.rows["leader_epochs"].pop()
    log.add("broker_events", cluster_id="c", broker_id=1, kind="fenced", event_time=at(29.5), end_time=at(29.5))
    assert made()[1] == ("controller", "excluded")
    log.add("controller_records", cluster_id="c", kind="partition", record_time=at(0), record_offset=1)
    assert made()[0] == ("controller", "excluded")


def test_missing_facts_are_named_with_the_option_to_state_them(log: Log) -> None:
    log.rows["coverage"] = []
    for broker in (1, 2):
        log.add("coverage", cluster_id="c", broker_id=broker, log="request", from_time=at(0), until_time=at(100))
    log.rows["leader_epochs"][0] |= {
        "lag_time_source": "default", "broker_version": "3.9", "broker_version_source": "inferred"
    }  # fmt: skip
    own = log.found()
    assert cluster_headline(own, own.clusters[0]) == [
        "kafka-3.7, replayed, dropped no follower.",
        "server.log of brokers 1 and 2 is missing: a removal that the replay makes too is attributed to them.",
        (
            "No log has replica.lag.time.max.ms: 4,000, Kafka's default, is assumed; add server.properties to the "
            "brokers' folders if it differs."
        ),
        "No log names the release (3.9 or later); state it with --release.",
    ]
    log.add("controller_records", cluster_id="c", kind="noted", broker_id=2)
    own = log.found()
    assert any(
        said.startswith("server.log of broker 1 is missing: ") for said in cluster_headline(own, own.clusters[0])
    )
    log.add("controller_records", cluster_id="c", kind="partition")
    own = log.found()
    assert own.clusters[0]["unlogged"] is None


def test_a_leader_with_many_silences_was_starved(log: Log) -> None:
    """To name the longest alone would say less than a lag time."""
    for number in range(12):
        begin = 10 + 2 * number
        log.add(
            "broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(begin), end_time=at(begin + 1.5)
        )
    for number in range(3):
        log.shrink(18 + 4 * number, 1, 3, "spurious", "slow_leader", lag_ms=8000)
    own = log.found()
    starved = "was starved from 00:00:10 to 00:00:33 (12 silences of up to 1.5 s)"
    assert incident_story(own.incidents[0]) == f"Broker 1 {starved}; it dropped 3 healthy followers (broker 3)."
    assert cluster_headline(own, own.clusters[0])[0] == (
        f"Of 3 followers that your brokers dropped, 3 were healthy: broker 1 {starved}, and dropped 3."
    )


def test_a_drop_that_cannot_be_judged_is_never_unhealthy(log: Log) -> None:
    """The request log was switched on after the incident, and covers one broker."""
    for seconds in (10, 11, 70):
        log.shrink(seconds, 1, 3, None)
    log.shrink(12, 2, 3, None)
    log.add("coverage", cluster_id="c", broker_id=1, log="request", from_time=at(30), until_time=at(40))
    evidence = {"suspect": "leader", "suspect_broker": 1, "strength": "strong", "spurious": "strong"}
    for seconds in (10, 11):
        log.add("shrink_evidence", cluster_id="c", topic="t", partition_id=0, leader_id=1, replica_id=3,
                change_time=at(seconds), **evidence)  # fmt: skip
    own = log.found()
    assert cluster_headline(own, own.clusters[0])[:2] == [
        (
            "None of the 4 followers that your brokers dropped can be judged by the replay (the request log begins at "
            "00:00:30, after 2 of them; the request log ends at 00:00:40, before 1 of them; no request log of their "
            "leader covers 1 of them)."
        ),
        "server.log alone points at broker 1 at 00:00:10 (2); 2 look spurious.",
    ]
    assert unjudged_clusters(own) == ["c"]
    assert incidents_answer(own, by_lines={"c": ["What server.log says."]})[1:] == ["  What server.log says."]
    log.shrink(35, 1, 2, "genuine", "follower_stopped")
    own = log.found()
    assert cluster_headline(own, own.clusters[0])[0] == (
        "Of 5 followers that your brokers dropped, none of the 1 that can be judged was healthy."
    )
    assert unjudged_clusters(own) == []


def test_a_drop_that_cannot_be_judged_points_where_server_log_points(log: Log) -> None:
    log.shrink(60, 2, 3, None)
    log.add("shrink_evidence", cluster_id="c", topic="t", partition_id=0, leader_id=2, replica_id=3, change_time=at(60),
            suspect="leader", suspect_broker=2)  # fmt: skip
    own = log.found()
    assert cluster_headline(own, own.clusters[0])[:2] == [
        "The follower that your brokers dropped cannot be judged by the replay.",
        "server.log alone points at broker 2 at 00:01:00 (1).",
    ]
    assert incident_story(own.incidents[0]) == (
        "Broker 2 is suspected: 1 drop cannot be judged, and server.log points at broker 2."
    )


def test_a_follower_that_one_leader_only_drops_may_be_the_link(log: Log) -> None:
    log.shrink(30, 1, 3, "genuine", "follower_slow")
    own = log.found()
    (incident,) = own.incidents
    assert link_in_story(incident) == "or its link to broker 1"
    assert " ".join(cluster_headline(own, own.clusters[0])).startswith(
        "Of 1 follower that your brokers dropped, none was healthy. 1 was really stopped or behind: broker 3 at "
        "00:00:25 (1, or its link to broker 1)."
    )
    assert incident_story(incident) == (
        "Broker 3 fetched, but fell behind; broker 1 dropped broker 3 from 1 ISR (suspect broker 3, or its link to "
        "broker 1)."
    )
    log.shrink(31, 2, 3, "genuine", "follower_slow")
    (both,) = log.found().incidents
    assert link_in_story(both) == ""


def test_a_leader_that_has_a_follower_back_long_after_others_is_named(log: Log) -> None:
    """More than a lag time after: a shorter time is what it takes to catch up."""
    log.shrink(20, 1, 3, "genuine", "follower_stopped", back_s=4)
    log.shrink(20, 2, 3, "genuine", "follower_stopped", back_s=8)
    log.shrink(50, 1, 3, "genuine", "follower_stopped", partition=1)
    log.shrink(50, 1, 3, "genuine", "follower_stopped", back_s=40)
    log.shrink(50, 2, 3, "genuine", "follower_stopped", back_s=2.5)
    first, second = log.found().incidents
    assert incident_story(first) == "Broker 3 stopped fetching; brokers 1 and 2 dropped broker 3 from 2 ISRs."
    assert incident_story(second) == (
        "Broker 3 stopped fetching; brokers 1 and 2 dropped broker 3 from 3 ISRs, which had broker 3 back after 2.5 s, "
        "but broker 1 only after 40 s (suspect broker 1, the link or a throttle)."
    )
    assert cluster_headline(log.found(), log.found().clusters[0])[1].endswith(
        "broker 3 at 00:00:15 (2), at 00:00:45 (3, back with broker 1 only after 40 s: that broker, the link or a "
        "throttle)."
    )
    log.rows["shrink_verdicts"][-1]["restored_time"] = None
    assert "suspect" not in incident_story(log.found().incidents[1])


def test_a_stopped_follower_is_at_fault_where_it_lacked_nothing_too(log: Log) -> None:
    """Unless its leader held it up, or it is dropped more than a lag time later."""
    log.shrink(20, 1, 3, "genuine", "follower_stopped", lag_ms=4100)
    log.shrink(24, 2, 3, "spurious", "caught_up", lag_ms=4100)
    log.shrink(22, 1, 3, "spurious", "slow_leader", partition=1, lag_ms=4100)
    log.shrink(24.1, 2, 3, "spurious", "caught_up", partition=1, lag_ms=4100)
    own = log.found()
    kinds = ("fault_id", "genuine", "spurious", "spurious_of_stopped")
    assert [[one[kind] for kind in kinds] for one in own.incidents] == [[3, 1, 1, 1], [1, 0, 1, 0], [2, 0, 1, 0]]
    assert " ".join(cluster_headline(own, own.clusters[0])).startswith(
        "Of 4 followers that your brokers dropped, 3 were healthy: broker 1 dropped 1 at 00:00:17 (broker 3: the "
        "leader held up its fetches); broker 2 dropped 1 at 00:00:20 (broker 3: it lacked nothing); 1 lacked nothing "
        "there, or kept pace, while away or behind elsewhere (broker 3). 1 was really stopped"
    )
    assert incident_story(own.incidents[0]) == (
        "Broker 3 stopped fetching from broker 1; broker 1 dropped broker 3 from 1 ISR (suspect broker 3, or its link "
        "to broker 1); one drop of broker 3 was spurious: it lacked nothing there, or kept pace."
    )
    # A follower that was slower than others at all its leaders did not stop, and is named with the time.
    slower = own.incidents[0] | {"genuine": 0, "stopped": 0, "spurious": 2, "spurious_of_stopped": 2}
    assert incident_story(slower) == "Broker 3 was dropped twice although it lacked nothing, or kept pace."
    assert cluster_headline(own._replace(incidents=[slower]), own.clusters[0])[0] == (
        "Of 2 followers that your brokers dropped, 2 were healthy: broker 3 was dropped twice although it lacked "
        "nothing, or kept pace, at 00:00:15."
    )


def test_a_leader_that_others_miss_and_that_started_again_is_named_with_its_times(log: Log) -> None:
    for seconds in (10, 40):
        log.shrink(seconds, 2, 1, "genuine", "follower_stopped")
        log.shrink(seconds + 1, 1, 3, "spurious", "keeping_pace")
    for seconds in (0, 60):
        log.add(
            "broker_events", cluster_id="c", broker_id=1, kind="started", event_time=at(seconds), end_time=at(seconds)
        )
    own = log.found()
    first, _, started, _ = cluster_headline(own, own.clusters[0])
    assert first == (
        "Of 4 followers that your brokers dropped, 2 were healthy: broker 1 stopped fetching at 00:00:05 and 00:00:35, "
        "then dropped 2 (they kept pace with the log)."
    )
    assert started == "Started in this time: broker 1 at 00:01:00."


def test_of_many_incidents_the_first_and_the_last_time_are_said(log: Log) -> None:
    for number in range(5):
        log.shrink(10 + 10 * number, 2, 3, "genuine", "follower_stopped")
    own = log.found()
    said = " ".join(cluster_headline(own, own.clusters[0]))
    assert "broker 3 between 00:00:05 and 00:00:45 in 5 incidents (5" in said
    log.rows["leader_epochs"][0]["end_time"] = at(100_000)
    own = log.found()
    assert "between 2026-01-01 00:00:05 and 2026-01-01 00:00:45" in " ".join(cluster_headline(own, own.clusters[0]))


def test_the_controller_is_no_leader_that_drops(log: Log) -> None:
    log.add("observed_isr_changes", **KEY, leader_id=1, replica_id=2, change_time=at(50), kind="shrink",
            made_by="controller", last_caught_up_time_ms=None)  # fmt: skip
    log.add("broker_events", cluster_id="c", broker_id=2, kind="shutting_down", event_time=at(50), end_time=at(50))
    for broker in (2, 3):
        log.add("coverage", cluster_id="c", broker_id=broker, log="server", from_time=at(0), until_time=at(100))
    own = log.found()
    assert " ".join(cluster_headline(own, own.clusters[0])) == (
        "Your brokers dropped no follower. 1 was removed by the controller: broker 2 at 00:00:50 (1, shut down)."
    )
    assert incident_story(own.incidents[0]) == "Broker 2 shut down; was removed from 1 ISR by the controller."
    assert own.pairs == []
    log.rows["broker_events"][0] |= {"kind": "stopping", "event_time": at(44), "end_time": at(44)}
    assert incident_story(log.found().incidents[0]) == "Broker 2 shut down; was removed from 1 ISR by the controller."


def test_without_logs_of_brokers_the_rules_shrinks_are_listed() -> None:
    log = Log()
    log.rows["coverage"] = []
    log.shrink(30, 1, 3, "spurious", "caught_up")
    log.rows["observed_isr_changes"] = log.rows["replay_check"] = []
    own = log.found()
    assert " ".join(cluster_headline(own, own.clusters[0])) == (
        "Of 1 follower that kafka-3.7, replayed, dropped, 1 was healthy: broker 1 dropped 1 at 00:00:25 (broker 3: "
        "it lacked nothing)."
    )


@pytest.mark.parametrize(("apart_s", "lag_ms", "incidents"), [(3.9, 10, 1), (4.1, 10, 2), (9.0, 9_500, 1)])
def test_drops_near_in_time_are_one_incident(log: Log, apart_s: float, lag_ms: int, incidents: int) -> None:
    """At most a lag time apart, or with a follower that was caught up no later than the drop before."""
    log.shrink(20, 1, 3, "genuine", "follower_stopped", lag_ms=10)
    log.shrink(20 + apart_s, 1, 3, "genuine", "follower_stopped", lag_ms=lag_ms, partition=1)
    assert len(log.found().incidents) == incidents


def test_the_matrix_has_leaders_in_rows_and_followers_in_columns(log: Log) -> None:
    leader_was_silent(log)
    assert drop_matrix_on_screen(log.found().pairs, "c") == {
        "brokers": ["1", "2", "3"],
        "rows": [
            {"leader": "1", "cells": [[], [("spurious", 2)], [("spurious", 2)]]},
            {"leader": "2", "cells": [[("genuine", 1)], [], []]},
        ],
    }


def test_the_timeline_equals_the_tables(log: Log) -> None:
    leader_was_silent(log)
    log.add("broker_events", cluster_id="c", broker_id=3, kind="started", event_time=at(40), end_time=at(40))
    for broker, until in ((1, 50), (2, 100), (3, 99.9)):
        log.add("coverage", cluster_id="c", broker_id=broker, log="request", from_time=at(0), until_time=at(until))
    own = log.found()
    drawn = cluster_timeline(own, own.clusters[0], {(1, 1): TimelineTarget("i0-1-1", "")})
    assert [(band["x"], band["width"], band["says"]) for band in drawn.unlogged] == [
        (50, 50, "broker 1: no request log from 00:00:50 to 00:01:40")
    ]
    assert [lane["broker"] for lane in drawn.lanes] == [1, 2, 3]
    (silence,) = drawn.silences
    assert (silence["x"], silence["width"]) == (10, 6)  # of 100 s
    assert silence["says"] == "00:00:10: broker 1 was silent for 6 s"
    assert {bar["place"] for bar in drawn.bars} == {"i0-1-1"}
    said = {bar["says"] for bar in drawn.bars}
    assert "00:00:16: broker 1 drops others; healthy: 4 drops" in said
    assert "00:00:14: broker 1 is dropped; behind: 1 drop" in said
    assert [(sign["sign"], sign["says"]) for sign in drawn.signs] == [
        ("▲", "00:00:40: broker 3 starts"),
        ("◆", "00:00:00: broker 2 becomes leader of 1 partition"),
    ]
    assert [tick["text"] for tick in drawn.ticks][:2] == ["00:00:15", "00:00:30"]
    assert drawn.verdicts == ["spurious", "genuine"]
    led = cluster_timeline(own, own.clusters[0], {(1, 1): TimelineTarget("", "isr-batch explain")})
    assert "00:00:16: broker 1 drops others; healthy: 4 drops. isr-batch explain" in {bar["says"] for bar in led.bars}


def test_no_drop_is_said_of_what_could_be_read(log: Log) -> None:
    own = log.found()
    nothing = "In the logs that could be read, your brokers dropped no follower"
    unseen = f"{nothing}; server.log of brokers 2 and 3 is missing"
    assert cluster_headline(own, own.clusters[0])[0] == f"{unseen}."
    log.add("quarantine", cluster_id="c", source_file="a.csv", rows_kept=False)
    log.add("quarantine", cluster_id="c", source_file="b.log", source_line=7, rows_kept=False)
    own = log.found()
    assert cluster_headline(own, own.clusters[0])[0] == f"{unseen} and 1 file was refused."
    log.shrink(10, 1, 2, "genuine", "follower_stopped")
    own = log.found()
    assert cluster_headline(own, own.clusters[0])[0] == "Of 1 follower that your brokers dropped, none was healthy."


def test_what_brokers_do_to_observers_is_no_incident(log: Log) -> None:
    log.shrink(20, 1, 3, None)
    assert [one["excluded"] + one["unknown"] for one in log.found().incidents] == [1]
    log.rows["leader_epochs"] = [term | {"observers": [3]} for term in log.rows["leader_epochs"]]
    own = log.found()
    assert own.incidents == []
    said = "1 ISR change that the brokers made to listed observers is left out, as no rule of Kafka makes it."
    assert said in cluster_headline(own, own.clusters[0])
    for isr, incidents, left_out in (([1, 2, 3], 1, 0), ([1, 2], 0, 1)):  # one that was promoted is replayed
        log.rows["leader_epochs"] = [term | {"isr_at_start": isr} for term in log.rows["leader_epochs"]]
        assert (len(log.found().incidents), log.found().clusters[0]["of_observers"]) == (incidents, left_out)
    log.shrink(60, 1, 2, None)
    assert [row["replica_id"] for row in log.found().drops.to_pylist()] == [2]

"""The broker at fault, by the fetches around a drop; brokers 1 to 3 lead a partition each, with a lag time of 4 s."""

from collections.abc import Iterable
from itertools import combinations, permutations, product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.incidents import absences
from isr_batch.incidents.absences import fetches_of_spans
from isr_batch.incidents.incident_card import what_to_check
from isr_batch.incidents.incident_story import incident_story
from isr_batch.incidents.own_shrinks import COLUMNS, OwnShrinks, own_shrinks_of_tables
from isr_batch.incidents.sentences import cluster_headline
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import contract_schema
from tests.own_shrinks_log import KEY, Log, at

BROKERS = (1, 2, 3)
PAIRS = [(follower, leader) for follower, leader in product(BROKERS, BROKERS) if follower != leader]
STOP_S, DROP_S = 20, 25
INSTANTS = ("arrival_us", "released_us", "completed_us")
Pair = tuple[int, int]


class Cluster(Log):
    """Partition N is led by broker N; a fetch takes 480 ms, and the next one comes 20 ms later."""

    def __init__(self, absent: Iterable[Pair], gone: Iterable[int] = (), unsent: Iterable[Pair] = ()) -> None:
        super().__init__()
        terms = self.rows["leader_epochs"]
        terms.clear()
        for leader in BROKERS:
            terms.append(
                KEY | {
                    "partition_id": leader, "leader_id": leader, "start_time": at(0), "end_time": at(100),
                    "assigned": list(BROKERS), "replica_lag_time_max_ms": 4000, "begins_mid_term": False,
                }
            )  # fmt: skip
        self.absent, self.gone, self.unsent = set(absent), set(gone), set(unsent)

    def drop(
        self, follower: int, leader: int, verdict: str = "genuine", cause: str = "follower_stopped", held_ms: int = 0
    ) -> None:
        lag_ms = 1000 * (DROP_S - STOP_S)
        self.shrink(DROP_S, leader, follower, verdict, cause, partition=leader, lag_ms=lag_ms, held_ms=held_ms)

    def fetches(self, spans: pa.Table) -> pa.Table:
        """Fetches until the followers stop, or do not get the next response; none from a broker that is gone."""
        found: list[dict[str, Any]] = []
        for span in spans.to_pylist():
            pair = span["replica_id"], span["leader_id"]
            for half_second in range(80):
                arrival_us = int(at(half_second / 2).timestamp() * 1e6)
                since_s = half_second / 2 - STOP_S
                missing = pair[0] in self.gone or (pair in self.absent and since_s >= 0)
                missing |= pair in self.unsent and since_s > 0
                released_us = completed_us = arrival_us + 480_000
                if pair in self.unsent and since_s == 0:
                    completed_us = int(at(DROP_S + 1).timestamp() * 1e6)
                if not missing and span["from_us"] <= completed_us and arrival_us <= span["until_us"]:
                    instants = (arrival_us, released_us, completed_us)
                    found.append(span | dict(zip(INSTANTS, instants, strict=True)))
        schema = pa.schema([*spans.schema, *(pa.field(name, pa.int64()) for name in INSTANTS)])
        return pa.Table.from_pylist(found, schema)

    def answered(self) -> OwnShrinks:
        tables = {
            name: pa.Table.from_pylist(rows, contract_schema(name, COLUMNS[name])) for name, rows in self.rows.items()
        }
        return own_shrinks_of_tables(tables, self.fetches)


def blamed(cluster: Cluster) -> list[tuple[str | None, int | None]]:
    return [(one["who"], one["fault_id"]) for one in cluster.answered().drops.to_pylist()]


def test_a_leader_that_all_followers_miss_could_not_be_reached() -> None:
    cluster = Cluster({(2, 1), (3, 1)})
    for follower in (2, 3):
        cluster.drop(follower, 1)
    own = cluster.answered()
    assert [(one["who"], one["fault_id"]) for one in own.drops.to_pylist()] == [("leader", 1), ("leader", 1)]
    said = cluster_headline(own, own.clusters[0])
    assert said[:2] == [
        "Of 2 followers that your brokers dropped, none was healthy.",
        (
            "2 were really behind: broker 1 could not be reached at 00:00:20 (2 drops of brokers 2 and 3, whose other "
            "fetches continued: suspect the network of broker 1)."
        ),
    ]
    assert incident_story(own.incidents[0]) == (
        "Broker 1 could not be reached; it dropped brokers 2 and 3 from 2 ISRs, whose other fetches continued: suspect "
        "the network of broker 1."
    )


def test_a_follower_that_all_leaders_miss_stopped() -> None:
    """By one drop: at its other leader nothing was written."""
    cluster = Cluster({(3, 1), (3, 2)})
    cluster.drop(3, 1)
    own = cluster.answered()
    assert incident_story(own.incidents[0]) == "Broker 3 stopped fetching; broker 1 dropped broker 3 from 1 ISR."


@pytest.mark.parametrize(
    ("unsent", "dropped", "points_at", "said"),
    [
        ([(2, 1), (3, 1)], [2, 3], "leader", "broker 1 did not get its responses through to brokers 2 and 3"),
        ([(3, 1), (3, 2)], [3], "follower", "broker 3 did not get the responses of broker 1"),
        ([(3, 1)], [3], "link", "broker 3 did not get the responses of broker 1"),
    ],
)
def test_responses_that_were_due_and_not_sent_were_not_delivered(
    unsent: list[Pair], dropped: list[int], points_at: str, said: str
) -> None:
    cluster = Cluster((), unsent=unsent)
    for follower in dropped:
        cluster.drop(follower, 1, "spurious", "slow_leader", held_ms=4500)
    own = cluster.answered()
    assert {(one["cause"], one["points_at"]) for one in own.drops.to_pylist()} == {("answer_not_delivered", points_at)}
    n = len(dropped)
    assert cluster_headline(own, own.clusters[0])[0].endswith(
        f" healthy: {said} at 00:00:20 ({n}; they were due while the leader served others: suspect the network, or a "
        "follower that did not read)."
    )
    assert f"B{said[1:]}: broker 1 dropped " in incident_story(own.incidents[0])
    # The leader stood still in that time, or held the requests themselves.
    cluster.add(
        "broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(STOP_S + 1), end_time=at(DROP_S)
    )
    assert {one["cause"] for one in cluster.answered().drops.to_pylist()} == {"slow_leader"}
    held = Cluster(())
    held.drop(3, 1, "spurious", "slow_leader", held_ms=4500)
    assert [one["cause"] for one in held.answered().drops.to_pylist()] == ["slow_leader"]


def test_between_two_that_others_reach_it_is_the_link() -> None:
    cluster = Cluster({(3, 1)})
    cluster.drop(3, 1)
    own = cluster.answered()
    assert [(one["who"], one["fault_id"]) for one in own.drops.to_pylist()] == [("link", 3)]
    assert cluster_headline(own, own.clusters[0])[1] == (
        "1 was really behind: broker 3 did not get through to broker 1 at 00:00:20 (1; its other fetches continued: "
        "suspect the link or a throttle)."
    )


def test_a_follower_that_was_there_all_the_time_is_slow_itself() -> None:
    cluster = Cluster(set())
    cluster.drop(3, 1, cause="follower_slow")
    assert blamed(cluster) == [(None, 3)]


def test_a_follower_that_had_been_gone_proves_nothing() -> None:
    """Broker 2 is down for long: that it misses leader 1 as well does not make it the leader's fault."""
    cluster = Cluster({(3, 1), (3, 2)}, gone={2})
    cluster.drop(3, 1)
    assert blamed(cluster) == [("follower", 3)]


def test_a_follower_without_other_leaders_proves_nothing() -> None:
    """The other leaders have no request log: two followers may have stopped at once."""
    cluster = Cluster({(2, 1), (3, 1)})
    cluster.add("coverage", cluster_id="c", broker_id=1, log="request", from_time=at(0), until_time=at(100))
    cluster.drop(3, 1)
    assert blamed(cluster) == [(None, 3)]
    cluster.add("coverage", cluster_id="c", broker_id=2, log="request", from_time=at(0), until_time=at(100))
    assert blamed(cluster) == [("leader", 1)]


def test_a_follower_that_stood_still_does_not_accuse_its_leader() -> None:
    """Broker 2 stands still while the link of broker 3 to their leader is broken: by server.log, it is the leader."""
    cluster = Cluster({(2, 1), (2, 3), (3, 1)})
    cluster.add("broker_events", cluster_id="c", broker_id=2, kind="silent", event_time=at(20), end_time=at(26))
    for follower in (2, 3):
        cluster.drop(follower, 1)
        cluster.add("shrink_evidence", cluster_id="c", topic="t", partition_id=1, leader_id=1, replica_id=follower,
                    change_time=at(DROP_S), suspect="leader", suspect_broker=1, strength="weak")  # fmt: skip
    assert [fault for _, fault in blamed(cluster)] == [2, 3]
    own = cluster.answered()
    assert "link" not in incident_story(own.incidents[0]), "it was silent, as its own log shows"
    cluster.rows["broker_events"] = []
    assert [fault for _, fault in blamed(cluster)] == [1, 1]


def test_a_leader_that_one_follower_could_not_reach_is_so_for_the_next_drop() -> None:
    """Broker 2 never fetches from it, which says nothing about the drop of broker 3; its own drop does."""
    cluster = Cluster({(3, 1)})
    fetches = cluster.fetches

    def without_one_pair(spans: pa.Table) -> pa.Table:
        found = fetches(spans)
        return found.filter(pc.or_(pc.not_equal(found["leader_id"], 1), pc.not_equal(found["replica_id"], 2)))

    cluster.fetches = without_one_pair  # type: ignore[method-assign]
    cluster.drop(3, 1)
    assert blamed(cluster) == [(None, 3)]
    cluster.drop(2, 1)
    assert blamed(cluster) == [("leader", 1), (None, 1)]


def test_a_deleted_partition_does_not_stand_for_a_pair() -> None:
    """No log shows that it was deleted; the fetches of other partitions of that leader go on."""
    cluster = Cluster({(3, 1)})
    for term in list(cluster.rows["leader_epochs"]):
        cluster.rows["leader_epochs"].append(term | {"topic": "a deleted one"})
    fetches = cluster.fetches

    def without_deleted(spans: pa.Table) -> pa.Table:
        return fetches(spans.filter(pc.equal(spans["topic"], "t")))

    cluster.fetches = without_deleted  # type: ignore[method-assign]
    cluster.drop(3, 1)
    assert blamed(cluster) == [("link", 3)]


def test_a_silent_leader_is_asked_nothing() -> None:
    cluster = Cluster({(2, 1), (3, 1)})
    cluster.add("broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(20), end_time=at(24.9))
    cluster.drop(2, 1, "spurious", "keeping_pace")
    assert blamed(cluster) == [(None, 1)]


@pytest.mark.parametrize("cause", ["caught_up", "keeping_pace", "unacked_only"])
def test_a_healthy_follower_that_stopped_everywhere_is_no_fault_of_its_leader(cause: str) -> None:
    cluster = Cluster({(3, 1), (3, 2)})
    cluster.drop(3, 1, "spurious", cause)
    assert blamed(cluster) == [("follower", 3)]


def test_a_large_log_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absences, "stored_bytes", lambda _lake, name: sizes.ABSENCE_BYTES + (name == "fetch_log"))
    assert fetches_of_spans(None) is None  # type: ignore[arg-type]
    monkeypatch.setattr(absences, "stored_bytes", lambda _lake, _name: sizes.ABSENCE_BYTES)
    assert fetches_of_spans(None) is not None  # type: ignore[arg-type]


def test_the_answer_knows_no_names() -> None:
    """Renaming brokers renames the blamed one; and the blamed broker is one of the two, never a third."""
    every = [absent for size in range(1, 1 + len(PAIRS)) for absent in combinations(PAIRS, size)]
    cases = [(frozenset(absent), pair) for absent in every for pair in absent]
    clusters = {}
    for number, (absent, pair) in enumerate(cases):
        clusters[f"c{number}"] = Cluster(absent)
        clusters[f"c{number}"].drop(*pair)
    blame = dict(zip(cases, blamed_at_once(clusters), strict=True))
    assert {who for who, _ in blame.values()} == {"leader", "follower", "link", None}
    for (absent, pair), (who, fault) in blame.items():
        assert fault in pair
        for names in permutations(BROKERS):
            other = dict(zip(BROKERS, names, strict=True))
            renamed = frozenset((other[each], other[its_leader]) for each, its_leader in absent)
            assert blame[renamed, (other[pair[0]], other[pair[1]])] == (who, other[fault])


def blamed_at_once(clusters: dict[str, Cluster]) -> list[tuple[str | None, int]]:
    """The blamed broker of each of many clusters with one drop, as one lake."""

    def fetches(spans: pa.Table) -> pa.Table:
        of = (spans.filter(pc.equal(spans["cluster_id"], name)) for name in clusters)
        return pa.concat_tables(cluster.fetches(each) for cluster, each in zip(clusters.values(), of, strict=True))

    tables = {
        name: pa.Table.from_pylist(
            [row | {"cluster_id": each} for each, cluster in clusters.items() for row in cluster.rows[name]],
            contract_schema(name, columns),
        )
        for name, columns in COLUMNS.items()
    }
    found = {row["cluster_id"]: (row["who"], row["fault_id"])
             for row in own_shrinks_of_tables(tables, fetches).drops.to_pylist()}  # fmt: skip
    return [found[name] for name in clusters]


def test_a_killed_broker_was_last_seen_at_its_last_fetch_and_not_when_its_session_ended() -> None:
    removed_s = 26

    def removal(absent: Iterable[Pair], **events_s: float) -> dict[str, Any]:
        cluster = Cluster(absent)
        cluster.add("coverage", cluster_id="c", broker_id=2, log="server", from_time=at(0), until_time=at(100))
        for leader in (1, 2):
            key = KEY | {"partition_id": leader, "leader_id": leader, "replica_id": 3}
            row = {"made_by": "controller", "last_caught_up_time_ms": None, "source_file": None, "source_line": None}
            cluster.add("observed_isr_changes", **key, **row, change_time=at(removed_s), kind="shrink")
            if back_s := events_s.get("back"):
                cluster.add("observed_isr_changes", **key, **row, change_time=at(back_s), kind="expand")
        for kind in ("started", "shutting_down"):
            if kind in events_s:
                time = at(events_s[kind])
                cluster.add("broker_events", cluster_id="c", broker_id=3, kind=kind, event_time=time, end_time=time)
        own = cluster.answered()
        assert "(2" in cluster_headline(own, own.clusters[0])[1]
        (incident,) = own.incidents
        assert (incident["seen_us"] is None) == ("last seen" not in cluster_headline(own, own.clusters[0])[1])
        return incident

    gone = {(3, 1), (3, 2)}
    killed = removal(gone)
    assert killed["since_us"] == killed["seen_us"] == at(STOP_S - 0.5).timestamp() * 1e6
    assert incident_story(killed) == "Broker 3 was last seen at 00:00:19; was removed from 2 ISRs by the controller."
    assert "whether the process died" in what_to_check(killed)
    # It was started again before its session ended, and fetched again without an ISR to rejoin.
    assert removal((), started=24.2)["seen_us"] == at(24).timestamp() * 1e6
    for fetched_on, events_s in (
        ((), {}), ((), {"started": 24.2, "back": 25}), (gone, {"shutting_down": 20}), ((), {"started": 0}),
    ):  # fmt: skip
        healthy = removal(fetched_on, **events_s)
        assert (healthy["seen_us"], healthy["since_us"]) == (None, at(removed_s).timestamp() * 1e6), events_s

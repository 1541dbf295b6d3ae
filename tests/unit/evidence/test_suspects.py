"""The suspected broker, how strongly and why, in clusters with a known fault."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from isr_batch.evidence.answer import _answer_about_storm, evidence_answer
from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.evidence.questions import answer_questions
from isr_batch.evidence.storms import storms
from tests.log_lines import SERVER_LOG_ONLY, epoch_ms, evidence_table, found_in, of_brokers, of_folder


def rows(lines: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = evidence_table(lines, "c").to_pylist()
    return found


def said(found: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    keys = ("leader_id", "replica_id", "suspect", "suspect_broker", "strength", "spurious")
    return {tuple(row[key] for key in keys) for row in found}


def shrink(partition: str, leader: int, isr: tuple[int, ...], lost: dict[int, float], behind: int = 1) -> str:
    """Line of 3.6 on: ``lost`` is when each replica was last caught up, in seconds."""
    after = ",".join(str(member) for member in isr if member not in lost)
    out = " ".join(
        f"(brokerId: {replica}, endOffset: {10 - behind}, lastCaughtUpTimeMs: {epoch_ms(at)})"
        for replica, at in lost.items()
    )
    return (
        f"[Partition {partition} broker={leader}] Shrinking ISR from {','.join(map(str, isr))} to {after}. "
        f"Leader: (highWatermark: 1, endOffset: 10). Out of sync replicas: {out}."
    )


def old(partition: str, leader: int, before: str, after: str) -> str:
    return f"[Partition {partition} broker={leader}] Shrinking ISR from {before} to {after}"


def expand(partition: str, leader: int, before: str, after: str) -> str:
    return f"[Partition {partition} broker={leader}] Expanding ISR from {before} to {after}"


def updated(partition: str, leader: int, isr: str, epoch: int) -> str:
    return f"[Partition {partition} broker={leader}] ISR updated to {isr}  and version updated to {epoch}"


def test_a_silent_leader_and_a_silent_follower_of_recorded_logs() -> None:
    found = rows(of_folder(SERVER_LOG_ONLY))
    assert said(found) == {
        (2, 1, "follower", 1, "strong", "none"), (1, 2, "leader", 1, "strong", "strong"),
        (1, 3, "leader", 1, "strong", "strong"), (1, 2, "link_or_follower", 2, "strong", "none"),
    }  # fmt: skip
    (reason,) = {row["reason"] for row in found if row["suspect"] == "leader"}
    assert reason == (
        "Broker 1 dropped 2 followers of 1 partition at one check; all were last caught up within 1 ms of each other; "
        "broker 2 was back after 215 ms; the check came 674 ms late by the schedule of its other checks; broker 2 "
        "dropped broker 1 at the same time: the sign of a leader that was silent."
    )
    both = next(row for row in found if row["suspect"] == "leader")
    assert both["evidence_lines"] == [
        f"broker-{name}" for name in ("1/server.log:4", "1/server.log:6", "2/server.log:4")
    ]  # fmt: skip


def test_a_leader_whose_dropped_followers_are_all_back_at_once_was_silent() -> None:
    lines = of_brokers(b1=[
        (100, shrink("t-0", 1, (1, 2, 3), {2: 60.0, 3: 60.3})), (100, shrink("t-1", 1, (1, 3, 2), {2: 60.1, 3: 60.3})),
        (100.4, updated("t-0", 1, "1,2,3", 9)),
    ])  # fmt: skip
    assert said(rows(lines)) == {(1, n, "leader", 1, "strong", "strong") for n in (2, 3)}


def test_a_return_that_a_later_line_shows_is_an_upper_bound() -> None:
    lines = of_brokers(b1=[
        (100, shrink("t-0", 1, (1, 2, 3), {2: 60.0, 3: 60.3})), (101.5, shrink("t-0", 1, (1, 2), {2: 90.0})),
    ])  # fmt: skip
    assert "; broker 2 was back after at most 1500 ms" in rows(lines)[0]["reason"]


def test_followers_that_went_missing_apart_are_no_strong_sign_of_a_silent_leader() -> None:
    lines = of_brokers(b1=[
        (100, shrink("t-0", 1, (1, 2, 3), {2: 50.0, 3: 60.3})), (100.4, updated("t-0", 1, "1,2,3", 9)),
    ])  # fmt: skip
    assert said(rows(lines)) == {(1, n, "leader", 1, "weak", "weak") for n in (2, 3)}


def test_a_silent_leader_of_a_release_that_prints_no_times() -> None:
    shrinks = [(100, old("t-0", 1, "1,2,3", "1")), (100.02, old("t-1", 1, "1,3,2", "1"))]
    never_back = said(rows(of_brokers(b1=shrinks)))
    assert never_back == {(1, n, "leader", 1, "weak", "weak") for n in (2, 3)}
    others = [(99, old("u-0", 2, "2,1,3", "2,3"))]
    seen_by_others = said(rows(of_brokers(b1=[*shrinks, (100.5, expand("t-0", 1, "1", "1,2"))], b2=others)))
    assert seen_by_others == {(1, n, "leader", 1, "strong", "strong") for n in (2, 3)} | {
        (2, 1, "follower", 1, "strong", "none")
    }


def test_a_follower_that_others_dropped_too_is_no_sign_of_a_silent_leader() -> None:
    """Broker 2 stands still; the check of broker 1 that drops it drops broker 3 as well, whose link is broken."""
    lines = of_brokers(
        b1=[(100, shrink("t-0", 1, (1, 2, 3), {2: 60.0, 3: 58.0}))], b3=[(101, shrink("t-1", 3, (3, 1, 2), {2: 60.1}))]
    )
    assert said(rows(lines)) == {
        (1, 2, "follower", 2, "strong", "none"), (3, 2, "follower", 2, "strong", "none"),
        (1, 3, "link_or_follower", 3, "weak", "none"),
    }  # fmt: skip


def test_a_storm_with_two_brokers_at_fault_names_both() -> None:
    first = [(100, shrink("t-0", 1, (1, 2, 3, 4), {2: 60.0, 3: 60.0}))]
    second = [
        (101, shrink("t-1", 4, (4, 1, 2, 3), {2: 60.1, 3: 60.2})),
        (101.1, shrink("t-2", 4, (4, 1, 3), {3: 60.2})),
    ]
    (storm,) = storms(evidence_table(of_brokers(b1=first, b4=second), "c"))
    assert (storm.broker, storm.also) == (3, [((2, ""), 2)])
    assert "this points at broker 3 (strong evidence), and 2 of them at broker 2; " in _answer_about_storm(storm)


def test_a_storm_names_the_link_of_another_follower_and_how_many_storms_are_left_out() -> None:
    """Broker 2 stands still, and only broker 1 drops broker 3; three other storms are as large or larger."""
    shrinks = [(100, shrink("t-0", 1, (1, 2, 3, 4), {2: 60.0})), (102, shrink("t-1", 1, (1, 2, 3, 4), {3: 55.0}))]
    later = [
        (at, shrink(f"t-{n}", 1, (1, 2, 3, 4), {2: at - 40.0})) for at in (300, 500, 700) for n in range(3)
    ]  # fmt: skip
    others = [(101, shrink("u-0", 4, (4, 1, 2, 3), {2: 60.1}))]
    evidence = evidence_table(of_brokers(b1=[*shrinks, *later], b4=others), "c")
    first, *_ = storms(evidence)
    assert (first.broker, first.also) == (2, [((3, "link_or_follower"), 1)])
    said = evidence_answer(evidence)
    assert ", and 1 of them at broker 3 or the link to it; " in said[1]
    assert said[3].endswith(" 1 more storm: see the report.")


def test_no_broker_is_suspected_where_the_server_log_of_another_may_clear_it() -> None:
    """Broker 1 drops both followers, by two checks or by one; what broker 3 dropped is not known.

    If it drops one of them and keeps the other, it is not to blame.
    """
    both = [(100, old("t-0", 1, "1,2,3", "1,2")), (102, old("t-1", 1, "1,2,3", "1,3"))]
    quiet = [(10, updated("u-0", 2, "2,1,3", 1))]
    for lines in (both, [(100, old("t-0", 1, "1,2,3", "1"))]):
        found = found_in(of_brokers(b1=lines, b2=quiet))
        found.server_us = {broker: found.span_us[broker] for broker in (1, 2)}
        evidence = evidence_rows(found, "c")
        for row in evidence.to_pylist():
            assert (row["suspect"], row["suspect_broker"], row["strength"]) == ("unknown", None, "none")
            assert "server.log of broker 3 is missing for this time, so it is not known whether" in row["reason"]
        assert "Which broker dropped out first is not known (some time before 16:0" in evidence_answer(evidence)[0]
        assert "None" not in " ".join(evidence_answer(evidence))
        assert answer_questions(evidence)[1].how_sure == "unknown"
    found = found_in(of_brokers(b1=both[1:], b2=quiet))
    found.server_us = {broker: found.span_us[broker] for broker in (1, 2)}
    (kept,) = evidence_rows(found, "c").to_pylist()
    assert (kept["suspect"], kept["suspect_broker"], kept["strength"]) == ("link_or_follower", 2, "weak")
    assert kept["reason"].endswith("server.log of broker 3 is missing for this time: others may have dropped it too.")


def test_a_silent_leader_is_suspected_without_the_logs_of_another() -> None:
    """The broker that dropped it at the same time shows that it was silent."""
    found = found_in(
        of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1"))], b2=[(99, old("u-0", 2, "2,1,3", "2,3"))])
    )  # fmt: skip
    found.server_us = dict(found.span_us)
    (others, *rows) = evidence_rows(found, "c").to_pylist()
    assert {(row["suspect"], row["suspect_broker"]) for row in rows} == {("leader", 1)}
    assert others["suspect"] == "follower"


def test_a_follower_that_all_leaders_drop_was_silent() -> None:
    lines = of_brokers(
        b1=[(100, shrink("t-0", 1, (1, 2, 3), {3: 60.0}))], b2=[(107, shrink("t-1", 2, (2, 1, 3), {3: 60.2}))]
    )
    found = rows(lines)
    assert said(found) == {(1, 3, "follower", 3, "strong", "none"), (2, 3, "follower", 3, "strong", "none")}
    assert {row["storm_time"] for row in found} == {found[0]["change_time"]}
    assert found[0]["reason"] == "Brokers 1 and 2 dropped broker 3 at about the same time: broker 3 was silent."
    assert found[0]["evidence_lines"] == ["b1/server.log:1", "b2/server.log:1"]


def test_a_follower_that_most_leaders_keep_is_weaker_evidence() -> None:
    quiet = [(10, updated("u-0", 4, "4,1,3", 1))]
    lines = of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1,2"))], b2=[(103, old("t-1", 2, "2,1,3", "2,1"))], b4=quiet)
    assert said(rows(lines)) == {(1, 3, "follower", 3, "weak", "none"), (2, 3, "follower", 3, "weak", "none")}


def test_one_pair_alone_is_ambiguous() -> None:
    kept = rows(of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1,2"))], b2=[(10, updated("u-0", 2, "2,1,3", 1))]))
    assert said(kept) == {(1, 3, "link_or_follower", 3, "strong", "none")}
    assert "the lines fit both" in kept[0]["reason"]
    only = said(rows(of_brokers(b1=[(100, old("t-0", 1, "1,3", "1"))])))
    assert only == {(1, 3, "link_or_follower", 3, "weak", "none")}
    each_other = rows(of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1,2"))], b3=[(101, old("t-1", 3, "3,1,2", "3,2"))]))
    assert said(each_other) == {
        (1, 3, "link_or_follower", 3, "weak", "none"), (3, 1, "link_or_follower", 1, "weak", "none")
    }  # fmt: skip
    assert "the link between the two" in each_other[0]["reason"]


def test_a_leader_that_drops_all_its_followers_by_several_checks_could_not_be_reached() -> None:
    """No check shows it alone. If another leader drops one of them, it is that one."""
    lines = [(100, old("t-0", 1, "1,2,3", "1,2")), (102, old("t-1", 1, "1,2,3", "1,3"))]
    found = rows(of_brokers(b1=lines))
    assert [(row["suspect"], row["suspect_broker"], row["strength"], row["spurious"]) for row in found] == [
        ("leader", 1, "weak", "none")
    ] * 2
    assert found[0]["reason"].startswith(
        "Broker 1 dropped all its followers at about the same time, and no other leader"
    )
    others = rows(of_brokers(b1=lines, b2=[(101, old("u-0", 2, "1,2,3", "1,2"))]))
    assert [row["suspect"] for row in others] == ["follower", "follower", "link_or_follower"]
    apart = rows(of_brokers(b1=[lines[0], (300, lines[1][1])]))
    assert {row["suspect"] for row in apart} == {"link_or_follower"}


def test_drops_far_apart_are_two_storms() -> None:
    found = rows(of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1,2"))], b2=[(500, old("t-1", 2, "2,1,3", "2,1"))]))
    assert said(found) == {
        (1, 3, "link_or_follower", 3, "strong", "none"), (2, 3, "link_or_follower", 3, "strong", "none")
    }  # fmt: skip
    assert len({row["storm_time"] for row in found}) == 2


def test_all_at_once_is_not_put_on_one_broker() -> None:
    lines = of_brokers(**{
        f"b{leader}": [(100, old(f"t-{leader}", leader, f"{leader},{others}", str(leader)))]
        for leader, others in ((1, "2,3"), (2, "1,3"), (3, "1,2"))
    })  # fmt: skip
    found = rows(lines)
    assert {(row["suspect"], row["strength"]) for row in found} == {("leader", "weak")}
    assert all(row["reason"].endswith("all were silent at once, or a clock was set.") for row in found)


def test_the_followers_own_lines_decide() -> None:
    lines = of_brokers(b1=[(100, old("t-0", 1, "1,2,3", "1,2"))], b3=[(90, "Stopping serving logs in dir /data/d1")])
    (row,) = rows(lines)
    assert (row["suspect"], row["strength"]) == ("follower", "strong")
    assert row["reason"] == "The log of broker 3 says that its log directory failed."
    assert row["evidence_lines"] == ["b1/server.log:1", "b3/server.log:1"]


def test_nothing_behind_is_spurious_on_its_face() -> None:
    (row,) = rows(of_brokers(b1=[(100, shrink("t-0", 1, (1, 2, 3), {3: 60.0}, behind=0))]))
    assert (row["records_behind"], row["spurious"], row["suspect"]) == (0, "strong", "link_or_follower")
    assert row["reason"].endswith("Broker 3 was 0 records behind: spurious on its face.")


def test_a_late_check_is_a_sign_of_a_leader_that_was_held_up() -> None:
    logs = [
        *((at, old("t-0", 1, "1,2,3", "1,2")) for at in (100, 130, 250)), (372.7, old("t-1", 1, "1,2", "1")),
    ]  # fmt: skip
    setting = pa.Table.from_pylist([{
        "broker_id": 1, "source_file": "b1/server.log", "source_line": 99, "stamp_us": None,
        "message": "\treplica.lag.time.max.ms = 10000",
    }], schema=of_brokers().schema)  # fmt: skip
    row = rows(pa.concat_tables([of_brokers(b1=logs), setting]))[-1]
    assert (row["check_late_ms"], row["suspect"], row["strength"]) == (2700, "leader", "weak")
    unknown = rows(of_brokers(b1=logs))[-1]
    assert (unknown["check_late_ms"], unknown["suspect"]) == (None, "link_or_follower")


def test_a_leader_that_wakes_up_may_drop_one_follower_here_and_another_there() -> None:
    rhythm = [(at, old("t-9", 1, "1,2,3", "1,2")) for at in (20, 40, 60)]
    waking = [
        (102.7, old("t-0", 1, "1,2,3", "1,2")), (102.71, old("t-1", 1, "1,2,3", "1,3")),
        (103.9, expand("t-0", 1, "1,2", "1,2,3")),
    ]  # fmt: skip
    setting = pa.Table.from_pylist([{
        "broker_id": 1, "source_file": "b1/server.log", "source_line": 99, "stamp_us": None,
        "message": "\treplica.lag.time.max.ms = 10000",
    }], schema=of_brokers().schema)  # fmt: skip

    def leaders(**others: Sequence[tuple[float, str]]) -> set[tuple[str, str]]:
        found = rows(pa.concat_tables([of_brokers(b1=[*rhythm, *waking], **others), setting]))
        return {(row["suspect"], row["strength"]) for row in found if row["leader_id"] == 1 and row["source_line"] > 3}

    assert leaders() == {("leader", "weak")}
    assert leaders(b2=[(100, old("u-0", 2, "2,1,3", "2,3"))]) == {("leader", "strong")}


def test_flapping_is_counted_in_checks_of_the_pair() -> None:
    lines = [(at, old(f"t-{n}", 1, "1,2,3", "1,2")) for at in (100, 200, 300) for n in range(3)]
    found = rows(of_brokers(b1=[*lines, (400, old("t-0", 1, "1,2,3", "1,3"))]))
    assert {(row["replica_id"], row["pair_checks"]) for row in found} == {(3, 3), (2, 1)}

"""One incident as a card, and as Markdown."""

from isr_batch.incidents.incident_card import IncidentCard, incident_card, incident_markdown
from isr_batch.incidents.own_shrinks import drops_of_incidents, incident_key
from isr_batch.report.first_screen import figures_on_screen
from tests.own_shrinks_log import KEY, Log, at, leader_was_silent


def cards_of(log: Log) -> list[IncidentCard]:
    own = log.found()
    drops = drops_of_incidents(own)
    return [incident_card(one, drops[incident_key(one)]) for one in own.incidents]


def test_a_card_answers_each_question() -> None:
    log = Log()
    leader_was_silent(log)
    for row in log.rows["shrink_verdicts"]:
        row["certainty"] = "certain"
    (card,) = cards_of(log)
    assert incident_markdown(card, "c", "shrink.svg") == (
        "**c: Broker 1 was silent for 6 s**\n"
        "\n"
        "- When: 2026-01-01 00:00:10 to 00:00:16 UTC\n"
        "- Dropped followers: 4 healthy, 1 behind\n"
        "- What: Broker 2 dropped broker 1 from 1 ISR; broker 1 dropped 4 healthy followers (brokers 2 and 3).\n"
        "- Why: The leader held up its fetches (4) and no fetch of the follower arrived any more (1).\n"
        "- How sure: All 5 are certain. The replay of kafka-3.7 drops the same followers, 1 ms apart at most.\n"
        "- Cost: 2 partitions; followers back in the ISR after 2 s.\n"
        "- Check next: On the host of broker 1, 00:00:10 to 00:00:16: gc.log and safepoints; stalls of the disk, CPU "
        "steal and limits, swap, a migrated machine (sar, dmesg).\n"
        "- Evidence: `broker-1/server.log:101, 102, 103 and 1 more`, `broker-2/server.log:100`\n"
        "- In full: `isr-batch explain --topic t --partition 0 --at 1767225616000 --rule kafka-3.7 --lake LAKE`\n"
        "\n"
        "![Broker 1 was silent for 6 s](<shrink.svg>)\n"
    )


def test_what_to_check_follows_what_happened() -> None:
    log = Log()
    log.shrink(20, 1, 3, "genuine", "follower_slow")
    log.shrink(40, 1, 2, "spurious", "caught_up")
    log.add("observed_isr_changes", **KEY, leader_id=2, replica_id=1, change_time=at(60), kind="shrink",
            made_by="controller", last_caught_up_time_ms=None, source_file=None, source_line=None)  # fmt: skip
    log.add("broker_events", cluster_id="c", broker_id=1, kind="fenced", event_time=at(60), end_time=at(60))
    log.shrink(80, 2, 3, None)
    log.shrink(95, 1, 3, "genuine", "follower_stopped")
    checks = [dict(card.rows)["Check next"] for card in cards_of(log)]
    assert checks[0].startswith("On the host of broker 3, 00:00:15 to 00:00:20: disk and CPU, replication throttles")
    assert checks[4].endswith("(sar, dmesg), or its network (ReplicaFetcher errors in its server.log).")
    assert checks[1] == "Nothing on this host: the rule dropped followers that were well."
    assert checks[2].startswith("On the host of broker 1, 00:01:00: whether the process died")
    assert checks[3] == "The request logs of the leaders, 00:01:20: without them no drop can be judged."


def test_names_of_others_are_no_markup() -> None:
    card = IncidentCard("Broker 1 *stopped*", "then", [("spurious", 1)], [("What", "a <b> | `x`")], ["a`b.log:1"], "")
    assert incident_markdown(card, "my_[cluster]\x1b").splitlines() == [
        "**my\\_\\[cluster\\]\\\\x1b: Broker 1 \\*stopped\\***", "", "- When: then UTC",
        "- Dropped followers: 1 healthy",
        "- What: a \\<b\\> \\| \\`x\\`", "- Evidence: ``a`b.log:1``",
    ]  # fmt: skip


def test_figures_name_a_culprit_only_where_most_drops_point_at_it() -> None:
    log = Log()
    leader_was_silent(log)
    own = log.found()
    shown = {one["name"]: (one["value"], one["remark"]) for one in figures_on_screen(own.incidents, own.clusters[0])}
    assert shown == {
        "dropped by leaders": ("5", ""), "healthy": ("4", "80 % of them"), "really behind": ("1", ""),
        "not judged": ("0", ""), "likely culprit": ("broker 1", "4 of 4 healthy"),
        "agrees with the brokers": ("100 %", "5 of 5 changes"),
    }  # fmt: skip
    other = Log()
    other.shrink(20, 1, 3, "spurious", "caught_up")
    other.shrink(60, 2, 3, "spurious", "caught_up")
    own = other.found()
    shown = {one["name"]: (one["value"], one["remark"]) for one in figures_on_screen(own.incidents, own.clusters[0])}
    assert shown["likely culprit"] == ("no single broker", "most at 1 (1), 2 (1)")

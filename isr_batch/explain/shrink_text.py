"""Describe one shrink in text, for the command `explain`. The module has the classes for its data and all sentences.

Times are microseconds since 1970. Table ``shrink_verdicts`` says which causes apply. The text shows with each cause the
numbers that decide it according to docs/verdicts.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from isr_batch.lake.tables.outputs import DEPENDS_ON, SHOWN_ERROR_MS
from isr_batch.phrases import brokers_text, count_of, from_asked_time, ms_text
from isr_batch.printable import printable
from isr_batch.shown_times import time_text_ms, zone_name
from udfs.kernel.causes import CAUSES, SPURIOUS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


NOT_NAMED = -1
"""Placeholder for the offset of a fetch whose offset is unknown, because its fetch session began before the log."""


@dataclass(frozen=True)
class FetchInText:
    """A fetch of the dropped follower, with columns of view ``fetches`` as fields."""

    arrival_us: int
    handled_us: int
    processed_us: int
    released_us: int
    completed_us: int
    fetch_offset: int
    leader_log_end_offset: int | None
    error_code: int

    @property
    def inside_us(self) -> int:
        """How long the leader held the fetch: in the queue, in processing, or in purgatory beyond the max wait."""
        return self.processed_us - self.arrival_us + self.completed_us - self.released_us

    @property
    def wait_us(self) -> int:
        """How long the fetch waited in purgatory, without the time beyond the request's max wait."""
        return self.released_us - self.processed_us


@dataclass(frozen=True)
class OtherRuleInText:
    """The decision of another rule run (a rule with its parameters) about a dropped follower.

    ``stand``: ``made`` (dropped the follower too: ``at_us``, ``primary_cause``), ``kept``, or ``out`` (dropped before).
    """

    run: str
    stand: str
    at_us: int | None = None
    primary_cause: str | None = None


@dataclass(frozen=True)
class DroppedFollower:
    """A follower that a shrink dropped. Fields that are not listed here are columns of table ``shrink_verdicts``.

    Attributes
    ----------
    true_log_end_offset : int, optional
        Offset below which the follower had all records, derived from its last successful fetch before the shrink.
    acknowledged_offset : int, optional
        Largest log end offset of the leader after an append with acks 0 or 1 before the shrink.
    appends, records, lacked_appends : int
        Appends and records since ``last_caught_up_time_ms``, and appends of the term whose records it lacked.
    fetches, next_arrival_us : tuple of FetchInText, int, optional
        Its last fetches before the shrink in chronological order, and when the first one after the shrink arrived.
    observed_us, observed_by : int, str, optional
        When, and by whom (leader, controller or unknown), the brokers dropped it, if within a lag time of the shrink.
    """

    replica_id: int
    made_by: str
    follower_log_end_offset: int | None
    last_caught_up_time_ms: int
    lag_ms: int | None
    true_log_end_offset: int | None
    true_lag_ms: int
    leader_held_ms: int | None
    leader_silent_ms: int | None
    causes: tuple[str, ...]
    verdict: str
    time_error_ms: int | None
    depends_on: str | None
    restored_us: int | None
    acknowledged_offset: int | None
    appends: int
    records: int
    lacked_appends: int
    fetches: tuple[FetchInText, ...]
    next_arrival_us: int | None
    observed_us: int | None
    observed_by: str | None
    stands: tuple[OtherRuleInText, ...]


@dataclass(frozen=True)
class ShrinkStory:
    """A shrink in a replay that dropped one or more followers, with the data that explains it.

    ``silences`` holds (broker, start, end) for the leader and the dropped followers. ``quiets`` holds start and end of
    times in which no follower fetched from the leader. ``from_asked_us``: time of the shrink minus the time asked for.
    """

    rule: str
    params_json: str
    lag_time_ms: int
    cluster_id: str
    topic: str
    partition_id: int
    leader_epoch: int
    leader_id: int
    term_start_us: int
    term_end_us: int
    min_insync_replicas: int
    broker_version: str | None
    change_us: int
    from_asked_us: int
    isr_before: tuple[int, ...]
    isr_after: tuple[int, ...]
    high_watermark: int | None
    leader_log_end_offset: int | None
    silences: tuple[tuple[int, int, int], ...]
    quiets: tuple[tuple[int, int], ...]
    dropped: tuple[DroppedFollower, ...]


def shrink_headline(story: ShrinkStory) -> str:
    """Return a headline: "RULE (or The controller) drops broker 2 from the ISR of orders-3 at TIME"."""
    who = brokers_text([follower.replica_id for follower in story.dropped])
    maker = "The controller" if story.dropped[0].made_by == "controller" else story.rule
    partition = f"{printable(story.topic)}-{story.partition_id}"
    return f"{maker} drops {who} from the ISR of {partition} at {time_text_ms(story.change_us)} {zone_name()}"


def shrink_lines(story: ShrinkStory) -> list[str]:
    """Return the explanation that ``isr-batch explain`` prints, as lines of text, the headline first."""
    leads = f"broker {story.leader_id} leads in epoch {story.leader_epoch}"
    least = f"min.insync.replicas {story.min_insync_replicas}"
    release = f", Kafka {story.broker_version}" if story.broker_version else ""
    lines = [
        shrink_headline(story),
        *from_asked_time(story.from_asked_us, "shrink"),
        "",
        f"Cluster {story.cluster_id}; {leads} since {time_text_ms(story.term_start_us)}{release}.",
        f"ISR {list(story.isr_before)} before, {list(story.isr_after)} after; {least}.",
        *_silences_text(story),
    ]
    for follower in story.dropped:
        lines += ["", *_follower_of_shrink_text(story, follower)]
    return lines


def _follower_of_shrink_text(story: ShrinkStory, follower: DroppedFollower) -> list[str]:
    """Return the lines on one dropped follower: its verdict, and then titled sections with the details."""
    return [
        f"Broker {follower.replica_id}: {follower.verdict}, {', '.join(follower.causes)}",
        *_uncertain_shrink_text(follower),
        *_shrink_text_section("Seen by the rule", _seen_text(story, follower)),
        *_shrink_text_section("Actual state", _truth_text(story, follower)),
        *_shrink_text_section(
            f"Last fetches of the follower, by the leader's clock, in {zone_name()}", _fetches_text(follower.fetches)
        ),
        *_shrink_text_section(
            "Causes; the first that applies decides (docs/verdicts.md)", _causes_text(story, follower)
        ),
        *_shrink_text_section("Outcome", [_restored_text(story, follower), _observed_text(story, follower)]),
        *_shrink_text_section("Other replayed rules", _others_text(story, follower)),
    ]


def _uncertain_shrink_text(follower: DroppedFollower) -> list[str]:
    """Say why the shrink is not certain, and by how much the check's time may be wrong; empty if neither matters."""
    lines = []
    if follower.depends_on is not None:
        lines.append(f"  Possible, not certain: it depends on {DEPENDS_ON[follower.depends_on]}")
    if follower.time_error_ms is not None and follower.time_error_ms >= SHOWN_ERROR_MS:
        lines.append(f"  The check may have run up to {ms_text(follower.time_error_ms)} earlier or later")
    return lines


def _shrink_text_section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"  {title}", *(f"    {line}" for line in lines)] if lines else []


def _silences_text(story: ShrinkStory) -> list[str]:
    """List the silences of the leader and of the dropped followers, and the times in which no follower fetched."""
    return [
        f"Broker {broker} was silent (it served no request) for {ms_text((end - start) / 1000)}, "
        f"from {time_text_ms(start)} to {time_text_ms(end)}."
        for broker, start, end in story.silences
    ] + [
        f"No follower fetched from broker {story.leader_id} for {ms_text((end - start) / 1000)}, "
        f"from {time_text_ms(start)} to {time_text_ms(end)}; the reason is unknown."
        for start, end in story.quiets
    ]


def _seen_text(story: ShrinkStory, follower: DroppedFollower) -> list[str]:
    """Describe the state that the rule used to decide: lastCaughtUpTimeMs, lag time and offsets."""
    caught_up_ms = follower.last_caught_up_time_ms
    if caught_up_ms <= 0:
        caught_up = f"lastCaughtUpTimeMs {caught_up_ms}: not caught up in this term"
    else:
        caught_up = f"lastCaughtUpTimeMs {caught_up_ms} ({time_text_ms(caught_up_ms * 1000)})"
        if follower.lag_ms is not None:
            caught_up += f", {ms_text(follower.lag_ms)} before the shrink"
    lines = [f"{caught_up}; replica.lag.time.max.ms is {ms_text(story.lag_time_ms)}"]
    if follower.made_by == "rule" and follower.lag_ms is not None and follower.lag_ms <= story.lag_time_ms:
        lines.append(f"that is within the lag time: {story.rule} has another criterion too, with {story.params_json}")
    if story.leader_log_end_offset is None:
        lines.append("no log names an offset of this partition: nothing was written to it")
    else:
        held = follower.follower_log_end_offset
        known = "unknown" if held is None or held < 0 else str(held)
        lines.append(
            f"log end offset: follower {known}, leader {story.leader_log_end_offset}; "
            f"high watermark {story.high_watermark}"
        )
    return lines


def _truth_text(story: ShrinkStory, follower: DroppedFollower) -> list[str]:
    """Describe the follower's actual state: its log end offset, the records that it lacked, and its next fetch."""
    held = follower.true_log_end_offset
    if story.leader_log_end_offset is None:
        lines = ["its log end offset is not logged, but its fetch returned no records: it lacked nothing then"]
    elif held is None:
        lines = ["it had not fetched in this term: its log end offset is unknown"]
    else:
        lacking = story.leader_log_end_offset - held
        lines = [
            f"it had all records below offset {held} and lacked {count_of(lacking, 'record')}; "
            f"true lag {ms_text(follower.true_lag_ms)}"
            if lacking > 0
            else f"it had all records below offset {held} and lacked nothing"
        ]
        if follower.follower_log_end_offset is not None and 0 <= follower.follower_log_end_offset < held:
            lines.append("the fetch that shows this had arrived, but the leader had not processed it yet")
    if follower.last_caught_up_time_ms > 0:
        lines.append(
            f"since lastCaughtUpTimeMs: {count_of(follower.appends, 'append')} of "
            f"{count_of(follower.records, 'record')}; it lacked {count_of(follower.lacked_appends, 'append')}"
        )
    lines.append(_alive_text(story, follower))
    if follower.next_arrival_us is not None:
        lines.append(
            f"its next fetch arrived {ms_text((follower.next_arrival_us - story.change_us) / 1000)} after the shrink"
        )
    if follower.made_by == "rule":
        lines.append(f"since it was last caught up, {_waiting_text(follower)}")
    return lines


def _waiting_text(follower: DroppedFollower) -> str:
    held, silent = follower.leader_held_ms, follower.leader_silent_ms
    if held is not None and silent is not None:
        return f"the leader held its fetches for {ms_text(held)} and was silent for another {ms_text(silent)}"
    return "; ".join((
        "how long the leader held its fetches is unknown, because the log names one instant of each"
        if held is None else f"the leader held its fetches for {ms_text(held)}",
        "how long the leader was silent is unknown"
        if silent is None else f"the leader was silent for {ms_text(silent)}",
    ))  # fmt: skip


def _alive_text(story: ShrinkStory, follower: DroppedFollower) -> str:
    if not follower.fetches:
        return "none of its fetches arrived in this term before the shrink"
    return f"its last fetch arrived {ms_text(_since_last_fetch_ms(story, follower))} before the shrink"


def _fetches_text(fetches: Sequence[FetchInText]) -> list[str]:
    if not fetches:
        return []
    titles = ("arrival", "handled", "processed", "completed", "offset", "leader LEO", "in leader", "wait")
    rows: list[tuple[str, ...]] = [titles]
    for fetch in fetches:
        failed = f" (error {fetch.error_code})" if fetch.error_code else ""
        rows.append((
            *(
                time_text_ms(at_us)[11:]
                for at_us in (fetch.arrival_us, fetch.handled_us, fetch.processed_us, fetch.completed_us)
            ),
            ("unknown" if fetch.fetch_offset == NOT_NAMED else str(fetch.fetch_offset)) + failed,
            "" if fetch.leader_log_end_offset is None else str(fetch.leader_log_end_offset),
            ms_text(fetch.inside_us / 1000),
            ms_text(fetch.wait_us / 1000),
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*table, "in leader: queued, processed, parked beyond the max wait, or being sent; wait: parked up to it"]


def _causes_text(story: ShrinkStory, follower: DroppedFollower) -> list[str]:
    """Return one line per cause, with "yes" if it applies or "no", and the numbers that decide it."""
    if follower.made_by == "controller":
        return ["yes  controller: the broker was fenced, shut down or reassigned; the rule had no part in it"]
    reasons = _reasons_text(story, follower)
    width = max(map(len, CAUSES))
    return [f"{'yes' if cause in follower.causes else 'no':4} {cause:{width}}  {reasons[cause]}" for cause in CAUSES]


def _reasons_text(story: ShrinkStory, follower: DroppedFollower) -> dict[str, str]:
    """Return for each cause the numbers that decide whether it applies, in words."""
    lag_time = ms_text(story.lag_time_ms)
    held = "at an unknown offset" if follower.true_log_end_offset is None else f"at {follower.true_log_end_offset}"
    last = f"last fetch {ms_text(_since_last_fetch_ms(story, follower))} ago" if follower.fetches else "no fetch"
    acknowledged = max(story.high_watermark or 0, follower.acknowledged_offset or 0)
    excused = "; but a cause above applies" if set(SPURIOUS) & set(follower.causes) else ""
    fetched = "it has fetched" if follower.true_log_end_offset is not None else "it has not fetched"
    return {
        "caught_up": f"its log ends {held}, the leader's at {story.leader_log_end_offset}",
        "keeping_pace": f"true lag {ms_text(follower.true_lag_ms)} and {last}; the limit of both is {lag_time}",
        "slow_leader": _blame_text(story, follower, lag_time),
        "unacked_only": f"acknowledged up to {acknowledged}, its log ends {held}; {last}, limit {lag_time}",
        "controller": "the leader dropped it, not the controller",
        "follower_stopped": f"{last}, lag time {lag_time}{excused}",
        "follower_slow": f"{last}, lag time {lag_time}{excused}",
        "unknown": "no follower fetched from the leader for a time, and it may have been silent"
        if follower.leader_silent_ms is None
        else f"{fetched} in this term, which is {ms_text((story.change_us - story.term_start_us) / 1000)} old",
    }


def _blame_text(story: ShrinkStory, follower: DroppedFollower, lag_time: str) -> str:
    """Say for how much of the time since the follower was last caught up the leader is to blame."""
    explained_ms = (follower.leader_held_ms or 0) + (follower.leader_silent_ms or 0)
    share = f"the leader accounts for {ms_text(explained_ms)} of the time since it was last caught up"
    if "slow_leader" in follower.causes:
        return f"{share}; at most {lag_time} remain{_not_delivered(story, follower)}"
    if explained_ms:
        return f"{share}; more than {lag_time} remain"
    known = None not in (follower.leader_held_ms, follower.leader_silent_ms)
    return "the leader accounts for none of the time" + ("" if known else ", as far as the log shows")


def _not_delivered(story: ShrinkStory, follower: DroppedFollower) -> str:
    """Say for how long responses to the follower were due, but not sent although the leader was not silent.

    Empty if that is at most half of the time that the leader is to blame for.
    """
    due = [(fetch.released_us, min(fetch.completed_us, story.change_us)) for fetch in follower.fetches]
    due_us = sum(max(0, until - since) for since, until in due)
    # A silent leader did not send responses.
    silences = [span for broker, *span in story.silences if broker == story.leader_id]
    silent_us = sum(max(0, min(until, end) - max(since, start)) for since, until in due for start, end in silences)
    ms = (due_us - silent_us) / 1000
    if ms * 2 <= (follower.leader_held_ms or 0) + (follower.leader_silent_ms or 0):
        return ""
    return (
        f"; answer_not_delivered: for {ms_text(ms)} its responses were due, while the leader served others: "
        "suspect the network, or a follower that did not read"
    )


def _since_last_fetch_ms(story: ShrinkStory, follower: DroppedFollower) -> float:
    return (story.change_us - follower.fetches[-1].arrival_us) / 1000


def _restored_text(story: ShrinkStory, follower: DroppedFollower) -> str:
    if follower.restored_us is None:
        return f"not back in the ISR by the end of the term's log, at {time_text_ms(story.term_end_us)}"
    away = ms_text((follower.restored_us - story.change_us) / 1000)
    return f"back in the ISR at {time_text_ms(follower.restored_us)}, {away} later"


def _observed_text(story: ShrinkStory, follower: DroppedFollower) -> str:
    """Say whether the brokers' logs contain this shrink too, and how much earlier or later."""
    if follower.observed_us is None:
        return "the brokers' logs have no shrink of this follower within one lag time of this one"
    maker = "" if follower.observed_by == "unknown" else f" by the {follower.observed_by},"
    return f"the brokers' logs have this shrink too,{maker} {_apart_text(follower.observed_us - story.change_us)}"


def _others_text(story: ShrinkStory, follower: DroppedFollower) -> list[str]:
    groups: dict[str, list[str]] = {}
    for stand in follower.stands:
        if stand.stand == "made":
            when = _apart_text((stand.at_us or 0) - story.change_us)
            title = f"make this shrink too, {when}, judged {stand.primary_cause}"
        else:
            title = "keep the follower in the ISR" if stand.stand == "kept" else "had dropped it already"
        groups.setdefault(title, []).append(stand.run)
    return [f"{title}: {', '.join(runs)}" for title, runs in groups.items()]


def _apart_text(by_us: int) -> str:
    """Format a time difference in microseconds, such as "20 ms later" or "at the same time"."""
    if abs(by_us) < 500:  # noqa: PLR2004 (less than what is shown)
        return "at the same time"
    return f"{ms_text(abs(by_us) / 1000)} {'later' if by_us > 0 else 'earlier'}"

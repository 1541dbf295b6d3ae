"""One shrink told in words: the facts that a story is made of, and all of its sentences.

Instants are microseconds since the epoch. Which cause holds is what ``shrink_verdicts`` says; the numbers beside it
are those that docs/verdicts.md decides it by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from udfs.kernel.causes import CAUSES, SPURIOUS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


NOT_NAMED = -1
"""Offset of a fetch that no line names: its session is older than the log."""


@dataclass(frozen=True)
class Fetch:
    """A row of view ``fetches``."""

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
        """Time in the leader's queues, in its hands, or parked longer than asked."""
        return self.processed_us - self.arrival_us + self.completed_us - self.released_us

    @property
    def wait_us(self) -> int:
        """Time parked, as far as the follower asked for it."""
        return self.released_us - self.processed_us


@dataclass(frozen=True)
class Stand:
    """What another replayed run did: ``made`` the same shrink, ``kept`` the follower, or had it ``out`` already."""

    run: str
    stand: str
    at_us: int | None = None
    primary_cause: str | None = None


@dataclass(frozen=True)
class Dropped:
    """A follower that the shrink took out of the ISR.

    Attributes
    ----------
    true_log_end_offset : int, optional
        What its last fetch before the shrink asked for; None when it had not fetched in the term.
    acknowledged_offset : int, optional
        End of the last append with acks 0 or 1 before the shrink.
    appends, records, lacked_appends : int
        Since ``last_caught_up_time_ms``, and those appends of the term that ended beyond its own log.
    fetches : tuple of Fetch
        Its last ones that arrived before the shrink, in order.
    next_arrival_us : int, optional
        Arrival of the first one after it.
    observed_us : int, optional
        When the brokers themselves dropped it, if they did within a lag time, and ``observed_by`` whom.
    """

    replica_id: int
    made_by: str
    follower_log_end_offset: int | None
    last_caught_up_time_ms: int
    lag_ms: int | None
    true_log_end_offset: int | None
    true_lag_ms: int
    leader_held_ms: int
    leader_silent_ms: int
    causes: tuple[str, ...]
    verdict: str
    restored_us: int | None
    acknowledged_offset: int | None
    appends: int
    records: int
    lacked_appends: int
    fetches: tuple[Fetch, ...]
    next_arrival_us: int | None
    observed_us: int | None
    observed_by: str | None
    stands: tuple[Stand, ...]


@dataclass(frozen=True)
class Story:
    """A shrink by a rule, of one follower or of several at once."""

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
    isr_before: tuple[int, ...]
    isr_after: tuple[int, ...]
    high_watermark: int | None
    leader_log_end_offset: int | None
    silences: tuple[tuple[int, int], ...]
    dropped: tuple[Dropped, ...]


def utc(at_us: int) -> str:
    """An instant as people read it, cut to milliseconds."""
    return (_EPOCH + timedelta(microseconds=at_us)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def headline(story: Story) -> str:
    """Who drops whom from where, and when."""
    who = _brokers([follower.replica_id for follower in story.dropped])
    maker = "The controller" if story.dropped[0].made_by == "controller" else story.rule
    return f"{maker} drops {who} from the ISR of {story.topic}-{story.partition_id} at {utc(story.change_us)} UTC"


def tell(story: Story) -> str:
    """Tell the whole story, with line ends."""
    leads = f"broker {story.leader_id} leads in epoch {story.leader_epoch}"
    least = f"min.insync.replicas {story.min_insync_replicas}"
    release = f", Kafka {story.broker_version}" if story.broker_version else ""
    lines = [
        headline(story),
        "",
        f"Cluster {story.cluster_id}; {leads} since {utc(story.term_start_us)}{release}.",
        f"ISR {list(story.isr_before)} before, {list(story.isr_after)} after; {least}.",
        *_silences(story),
    ]
    for follower in story.dropped:
        lines += ["", *_follower(story, follower)]
    return "\n".join(lines) + "\n"


def _follower(story: Story, follower: Dropped) -> list[str]:
    return [
        f"Broker {follower.replica_id}: {follower.verdict}, {', '.join(follower.causes)}",
        *_section("What the rule saw", _seen(story, follower)),
        *_section("What was true", _true(story, follower)),
        *_section("Its last fetches, by the leader's clock, in UTC", _fetches(follower.fetches)),
        *_section("Causes, the first that holds decides (docs/verdicts.md)", _causes(story, follower)),
        *_section("What came of it", [_restored(story, follower), _observed(story, follower)]),
        *_section("Other replayed rules", _others(story, follower)),
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"  {title}", *(f"    {line}" for line in lines)] if lines else []


def _silences(story: Story) -> list[str]:
    return [
        f"Broker {story.leader_id} did nothing for anybody for {_ms((end - start) / 1000)}, "
        f"from {utc(start)} to {utc(end)}."
        for start, end in story.silences
    ]


def _seen(story: Story, follower: Dropped) -> list[str]:
    caught_up_ms = follower.last_caught_up_time_ms
    if caught_up_ms <= 0:
        caught_up = f"lastCaughtUpTimeMs {caught_up_ms}: not caught up in this term"
    else:
        caught_up = f"lastCaughtUpTimeMs {caught_up_ms} ({utc(caught_up_ms * 1000)})"
        if follower.lag_ms is not None:
            caught_up += f", {_ms(follower.lag_ms)} before"
    lines = [f"{caught_up}; replica.lag.time.max.ms is {_ms(story.lag_time_ms)}"]
    if follower.made_by == "rule" and follower.lag_ms is not None and follower.lag_ms <= story.lag_time_ms:
        lines.append(f"that is within the limit: {story.rule} goes by something else as well, with {story.params_json}")
    if story.leader_log_end_offset is None:
        lines.append("no line of the log names an offset of this partition: nothing was written to it")
    else:
        held = follower.follower_log_end_offset
        known = "not known" if held is None or held < 0 else str(held)
        lines.append(
            f"log end offset of the follower {known}, of the leader {story.leader_log_end_offset}; "
            f"high watermark {story.high_watermark}"
        )
    return lines


def _true(story: Story, follower: Dropped) -> list[str]:
    held = follower.true_log_end_offset
    if story.leader_log_end_offset is None:
        lines = ["what it held is not named, but it was answered without records: it lacked nothing then"]
    elif held is None:
        lines = ["it had not fetched in this term: nobody knows what it held"]
    else:
        lacking = story.leader_log_end_offset - held
        lines = [
            f"it held everything below {held} and lacked {_count(lacking, 'record')}; "
            f"true lag {_ms(follower.true_lag_ms)}"
            if lacking > 0
            else f"it held everything below {held} and lacked nothing"
        ]
        if follower.follower_log_end_offset is not None and 0 <= follower.follower_log_end_offset < held:
            lines.append("the fetch that says so had arrived, but its leader had not recorded it yet")
    if follower.last_caught_up_time_ms > 0:
        lines.append(
            f"since lastCaughtUpTimeMs {_count(follower.appends, 'append')} of {_count(follower.records, 'record')}; "
            f"it lacked {_count(follower.lacked_appends, 'append')}"
        )
    lines.append(_alive(story, follower))
    if follower.next_arrival_us is not None:
        lines.append(
            f"its next fetch arrived {_ms((follower.next_arrival_us - story.change_us) / 1000)} after the shrink"
        )
    if follower.made_by == "rule":
        lines.append(
            f"since it was last caught up its leader held its fetches for {_ms(follower.leader_held_ms)} "
            f"and was silent for {_ms(follower.leader_silent_ms)} besides"
        )
    return lines


def _alive(story: Story, follower: Dropped) -> str:
    if not follower.fetches:
        return "no fetch of it arrived in this term before the shrink"
    return f"its last fetch arrived {_ms(_since_last_fetch_ms(story, follower))} before the shrink"


def _fetches(fetches: Sequence[Fetch]) -> list[str]:
    if not fetches:
        return []
    titles = ("arrival", "handled", "recorded", "completed", "offset", "leader LEO", "in leader", "wait")
    rows: list[tuple[str, ...]] = [titles]
    for fetch in fetches:
        failed = f" (error {fetch.error_code})" if fetch.error_code else ""
        rows.append((
            *(
                utc(at_us)[11:]
                for at_us in (fetch.arrival_us, fetch.handled_us, fetch.processed_us, fetch.completed_us)
            ),
            ("not named" if fetch.fetch_offset == NOT_NAMED else str(fetch.fetch_offset)) + failed,
            "" if fetch.leader_log_end_offset is None else str(fetch.leader_log_end_offset),
            _ms(fetch.inside_us / 1000),
            _ms(fetch.wait_us / 1000),
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*table, "in leader: queued, worked on, parked longer than asked, or being sent; wait: parked as asked"]


def _causes(story: Story, follower: Dropped) -> list[str]:
    if follower.made_by == "controller":
        return ["yes  controller: fenced, shut down or reassigned; whatever the rule thinks"]
    reasons = _reasons(story, follower)
    width = max(map(len, CAUSES))
    return [f"{'yes' if cause in follower.causes else 'no':4} {cause:{width}}  {reasons[cause]}" for cause in CAUSES]


def _reasons(story: Story, follower: Dropped) -> dict[str, str]:
    lag_time = _ms(story.lag_time_ms)
    held = "at a place unknown" if follower.true_log_end_offset is None else f"at {follower.true_log_end_offset}"
    last = f"last fetch {_ms(_since_last_fetch_ms(story, follower))} ago" if follower.fetches else "no fetch"
    acknowledged = max(story.high_watermark or 0, follower.acknowledged_offset or 0)
    excused = "; but a cause above holds" if set(SPURIOUS) & set(follower.causes) else ""
    fetched = "it has fetched" if follower.true_log_end_offset is not None else "it has not fetched"
    return {
        "caught_up": f"its log ends {held}, the leader's at {story.leader_log_end_offset}",
        "keeping_pace": f"true lag {_ms(follower.true_lag_ms)} and {last}; neither may be more than {lag_time}",
        "slow_leader": _blame(follower, lag_time),
        "unacked_only": f"acknowledged up to {acknowledged}, its log ends {held}; {last}, {lag_time} at most",
        "controller": "its leader dropped it",
        "follower_stopped": f"{last}, lag time {lag_time}{excused}",
        "follower_slow": f"{last}, lag time {lag_time}{excused}",
        "unknown": f"{fetched} in this term, {_ms((story.change_us - story.term_start_us) / 1000)} old",
    }


def _blame(follower: Dropped, lag_time: str) -> str:
    explained_ms = follower.leader_held_ms + follower.leader_silent_ms
    share = f"{_ms(explained_ms)} of the time since it was last caught up are the leader's"
    if "slow_leader" in follower.causes:
        return f"{share}; at most {lag_time} are left"
    return f"{share}; more than {lag_time} are left" if explained_ms else "none of the time is the leader's"


def _since_last_fetch_ms(story: Story, follower: Dropped) -> float:
    return (story.change_us - follower.fetches[-1].arrival_us) / 1000


def _restored(story: Story, follower: Dropped) -> str:
    if follower.restored_us is None:
        return f"not back in the ISR when the term's log ends, at {utc(story.term_end_us)}"
    away = _ms((follower.restored_us - story.change_us) / 1000)
    return f"back in the ISR at {utc(follower.restored_us)}, {away} later"


def _observed(story: Story, follower: Dropped) -> str:
    if follower.observed_us is None:
        return "the brokers' logs have no shrink of it within a lag time of this one"
    apart = _apart(follower.observed_us - story.change_us)
    return f"the brokers' logs have it as well, by the {follower.observed_by}, {apart}"


def _others(story: Story, follower: Dropped) -> list[str]:
    groups: dict[str, list[str]] = {}
    for stand in follower.stands:
        if stand.stand == "made":
            when = _apart((stand.at_us or 0) - story.change_us)
            title = f"make it as well, {when}, judged {stand.primary_cause}"
        else:
            title = "keep the follower" if stand.stand == "kept" else "had dropped it before"
        groups.setdefault(title, []).append(stand.run)
    return [f"{title}: {', '.join(runs)}" for title, runs in groups.items()]


def _apart(by_us: int) -> str:
    if abs(by_us) < 500:  # noqa: PLR2004 (less than what is shown)
        return "at the same time"
    return f"{_ms(abs(by_us) / 1000)} {'later' if by_us > 0 else 'earlier'}"


def _ms(value: float) -> str:
    return f"{round(value):,} ms"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids[:-1]))} and {ids[-1]}"

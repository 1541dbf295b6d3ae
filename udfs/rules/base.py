"""The class `Rule`, whose attributes are small compiled functions and settings, and defaults for these functions.

The functions take records of ``udfs.records``. They may change ``follower`` and ``leader``, but only read ``fetch``
(FETCH_STATE) and ``params`` (one int64 field per parameter). ``now_ms`` is the leader's clock.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from udfs.jit import kernel
from udfs.records import NEVER_US

Function = Callable[..., Any]

NOTHING, SHOW, TRY_TO_JOIN, ADVANCE_HIGH_WATERMARK = 0, 1, 2, 4
"""The leader's next steps, as bits, which a rule's function for a fetch returns. SHOW: write changed state to the
timelines. TRY_TO_JOIN: add the follower to the ISR if `Rule.may_join` allows it. ADVANCE_HIGH_WATERMARK: advance the
high watermark if possible."""

SHRINK_ISR, KEEP_ISR, GIVE_UP_LEADERSHIP = 0, 1, 2
"""Decisions of a check that finds members out of sync: drop them, keep them, or give up leadership."""


@dataclass(frozen=True)
class Param:
    """A parameter of a rule. Compiled code sees its value as an int64.

    Attributes
    ----------
    says : str
        Meaning of the parameter, in one line.
    default : int, optional
        None if the default comes from the log, the broker's configuration or the rule.
    choices : tuple of str
        Names of the values 0, 1, ...; empty if the parameter is a number.
    least : int
        Smallest valid number.
    """

    says: str
    default: int | None = None
    choices: tuple[str, ...] = ()
    least: int = 0

    def value(self, given: object) -> int:
        """Convert a value as users write it, a number or the name of a choice (such as true), to the rule's int64.

        Raises
        ------
        ValueError
            If the value is invalid. The message names the valid values.
        """
        text = str(given).strip().lower()
        if self.choices and text in (*self.choices, *(str(i) for i in range(len(self.choices)))):
            return self.choices.index(text) if text in self.choices else int(text)
        if not self.choices and re.fullmatch(r"-?\d{1,18}", text) and int(text) >= self.least:
            return int(text)
        wanted = " or ".join(self.choices) or f"a whole number from {self.least} on"
        message = f"{wanted} is wanted, not {given!r}"
        raise ValueError(message)

    def name_of(self, value: int) -> int | str:
        """Convert the rule's int64 to what users write: the name of a choice, or the number."""
        return self.choices[value] if self.choices else value


NO_YES = ("false", "true")
COMMON_PARAMS = {
    "replica_lag_time_max_ms": Param("lag time, in ms; by default the broker's", least=1),
    "min_insync_replicas": Param("number of replicas; by default the topic's or the broker's setting", least=1),
    "check_period_ms": Param("time between two checks (isr-expiration); by default that of the rule", least=1),
    "check_phase_ms": Param("time of one check, in ms since 1970; by default what the log shows", least=-(10**18)),
    "isr_write_latency_ms": Param(
        "ms until an ISR write is answered; by default what the log shows, 0 before Kafka 2.7"
    ),
}
"""Parameters that every rule has."""

CONTINUOUS = 0
"""Value of ``checks_per_lag_time`` for a rule without periodic checks, which drops a follower as soon as it is
overdue."""


@kernel
def nothing(_follower, _leader, _fetch, _params):
    """Return NOTHING: the rule does not act when a fetch arrives, or is read, recorded or answered."""
    return NOTHING


@kernel
def never_frozen(_leader, _params):
    """Return true: the high watermark may always advance."""
    return True


@kernel
def after_shrink(expanding, _params):
    """Whether the high watermark may advance when an ISR write is answered: only if the write was a shrink.

    At an expansion, the follower's fetch has already advanced it.
    """
    return not expanding


@kernel
def after_any_write(_expanding, _params):
    """Return true: the high watermark may advance when any ISR write is answered.

    This is for leaders that do not wait for the response before they go on.
    """
    return True


@kernel
def never_spares(_followers, _p, _leader_at, _leader, _now_ms, _params):
    """Return false: a follower that is out of sync is dropped, whatever the state of the other followers."""
    return False


@kernel
def always_shrink(_leader, _remaining, _params):
    """Return SHRINK_ISR: every member that is out of sync is dropped."""
    return SHRINK_ISR


@kernel
def never_outvoted(_followers, _p, _leader_at, _leader):
    """Return false: the high watermark waits for every follower for which `Rule.holds_high_watermark` is true."""
    return False


@kernel
def at_high_watermark(_followers, _leader_at, leader, _params):
    """Return the high watermark: an append with acks=all is acknowledged once every ISR member has it."""
    return leader.high_watermark


@kernel
def never_gives_up(_fetch, _params):
    """Return NEVER_US: the leader never gives up leadership."""
    return NEVER_US


@kernel
def never_overdue(_follower, _leader, _fetch, _params):
    """Return NEVER_US: no follower is dropped between periodic checks."""
    return NEVER_US


@kernel
def always_acts(_quiet, _leader, _params):
    """Return true: the rule may act at any fetch, so the replay may not skip any part of the log."""
    return True


@kernel
def never_acts(_quiet, _leader, _params):
    """Return false: the replay may skip quiet stretches of the log, since the rule only drops followers that lag."""
    return False


NO_LAG = NEVER, AT_LOG_END, AT_HIGH_WATERMARK, HAS_ALL_ACKNOWLEDGED, LACKS_NOTHING = (
    "never", "at log end", "at high watermark", "has all acknowledged", "lacks nothing",
)  # fmt: skip
"""Values of ``Rule.no_lag_while``, which says when a follower's lag is 0: never; while its log ends at the leader's log
end; while it ends at the high watermark; while it has every acknowledged record; while it lacks no record. If the
leader's log is empty, even a follower that has not fetched yet lacks no record."""

_SINCE = "the time since the follower was last caught up, "
_NO_LAG_SAID = {
    NEVER: f"{_SINCE}which grows between two fetches even if the follower lacks no record.",
    AT_LOG_END: f"{_SINCE}but 0 while its log ends where the leader's does.",
    AT_HIGH_WATERMARK: f"{_SINCE}but 0 while its log ends at the high watermark.",
    HAS_ALL_ACKNOWLEDGED: f"{_SINCE}but 0 while it has every acknowledged record.",
    LACKS_NOTHING: "the time since the leader appended the first record that the follower lacks; 0 if it lacks none.",
}
_CAUGHT_UP_SAID = {
    "arrival": "when its latest fetch arrived. While the follower lacks records, this time is when the leader appended "
    "the first of them.",
    "handled": "when an I/O thread of the leader picked up its latest fetch. The leader stores this time only after it "
    "has read its log for the fetch.",
    "processed": "when the leader recorded its latest fetch.",
    "completed": "when the leader answered its latest fetch. A fetch that is not answered yet does not change this "
    "time.",
}

KINDS = ("released", "proposed", "elsewhere", "reference")
"""Origins of rules: Kafka's releases, proposals for Kafka, other systems and forks; "reference" is only for
comparison."""


@dataclass(frozen=True)
class Rule:
    """A rule: the functions that the replay calls, and attributes. The docstring of its module describes the rule.

    Every rule must meet two conditions while all followers are in the ISR. The high watermark waits for every follower
    and may advance. And the lag time, checks and the latency of writes only affect the results of ``out_of_sync`` and
    ``overdue_at_ms``.

    Attributes
    ----------
    id : str
        The name that users give.
    in_force : str
        First and last Kafka release that decided in this way; or "proposed" or "rejected" (for Kafka), "elsewhere", or
        "reference".
    year : int
        Year of the first release, of the proposal, or of the source.
    source : str
        KIP, JIRA issue, or release.
    begin_term : ``(follower, leader, in_isr, leader_is_new, now_ms, params)``
        Resets the state of a follower when the leader begins a term.
    on_arrival, on_read, on_recorded, on_completed : ``(follower, leader, fetch, params) -> int``
        Called at the four instants of a fetch. Arrival: it is received from the socket. Read: an I/O thread picks it up
        from the queue and reads the log. Recorded: the leader updates the follower's state (since 0.8.2 after the
        read). Completed: it is answered. Each returns the leader's next steps, as bits.
    on_append : ``(follower, leader, fetch, params) -> int``
        Called when the leader's log has grown. The result is not used.
    may_join, out_of_sync, holds_high_watermark : ``(follower, leader, fetch, now_ms, params) -> bool``
        May this follower join the ISR? Should this member be dropped from the ISR? Must the high watermark wait for
        this follower?
    spares : ``(followers, p, leader_at, leader, now_ms, params) -> bool``
        Given that the follower at position ``p`` is out of sync: should it be kept because of the state of the other
        replicas? ``followers`` contains the state of all replicas, by position in the assignment. The leader's own
        entry, at ``leader_at``, must not be read.
    at_shrink : ``(leader, remaining, params) -> int``
        Decision of a check that would leave ``remaining`` members, including the leader: SHRINK_ISR, KEEP_ISR or
        GIVE_UP_LEADERSHIP.
    outvoted : ``(followers, p, leader_at, leader) -> bool``
        Given that the high watermark waits for the follower at position ``p``: may it still advance past this
        follower's log end, because of the other replicas' log ends?
    overdue_at_ms : ``(follower, leader, fetch, params) -> int``
        First millisecond at which a member is out of sync if nothing happens until then. For continuous rules only.
    may_advance : ``(leader, params) -> bool``
        May the high watermark advance at present, whatever the followers' log ends?
    acknowledged_end : ``(followers, leader_at, leader, params) -> int``
        Up to which offset are appends with acks=all acknowledged, given the log ends at present? What is acknowledged
        stays acknowledged.
    advances_on_commit : ``(expanding, params) -> bool``
        May the high watermark advance when an ISR write is answered? ``expanding`` says whether the write adds a
        replica. If it may not after a shrink, it advances when the shrink is requested.
    gives_up_at_us : ``(fetch, params) -> int``
        Time at which the leader gives up leadership because of this fetch, or NEVER_US.
    acts_in_quiet : ``(quiet, leader, params) -> bool``
        May the rule change the ISR in a quiet stretch (``udfs.kernel.quiet``), or does its state after the stretch
        depend on more than each follower's latest fetch? In such a stretch all followers are in the ISR, and none is
        behind by the lag time.
    checks_per_lag_time : int
        Number of runs of isr-expiration per replica.lag.time.max.ms; CONTINUOUS if there are no such runs.
    isr_write_in_background : bool
        Whether the leader goes on while its ISR write is in flight (releases since 2.7). The replay then takes the
        duration of the write from the brokers' logs, if they show it.
    knows_as : str
        Id of another rule that keeps the same state of followers. As long as fetches are regular (read without error,
        the leader's log no shorter than before), ``on_recorded`` of both rules changes a follower in the same way, and
        the high watermark is the same. Rule runs of both then share their state. If all functions of two rules are the
        same, this attribute is not needed.
    caught_up_by : str
        Which instant of a fetch from the log end becomes the follower's lastCaughtUpTimeMs: "arrival", "handled",
        "processed" or "completed". It is used to derive this time, because timelines contain no row for such fetches.
    no_lag_while : str
        When a follower's lag is 0 instead of the time since it was last caught up: one of NO_LAG.
    params : dict
        The rule's own parameters, beyond COMMON_PARAMS.
    on_request : bool
        Whether the rule is replayed only if the user names it, and not as part of ``all``. Such a rule answers one
        question about another rule.
    """

    id: str
    in_force: str
    year: int
    source: str
    begin_term: Function
    on_recorded: Function
    may_join: Function
    out_of_sync: Function
    holds_high_watermark: Function
    checks_per_lag_time: int
    on_arrival: Function = nothing
    on_read: Function = nothing
    on_completed: Function = nothing
    on_append: Function = nothing
    spares: Function = never_spares
    at_shrink: Function = always_shrink
    outvoted: Function = never_outvoted
    overdue_at_ms: Function = never_overdue
    may_advance: Function = never_frozen
    acknowledged_end: Function = at_high_watermark
    advances_on_commit: Function = after_shrink
    gives_up_at_us: Function = never_gives_up
    acts_in_quiet: Function = always_acts
    isr_write_in_background: bool = False
    knows_as: str = ""
    caught_up_by: str = "handled"
    no_lag_while: str = AT_LOG_END
    params: dict[str, Param] = field(default_factory=dict)
    on_request: bool = False
    doc: str = ""

    def but(self, *, id: str, in_force: str, year: int, source: str, **differences: Any) -> "Rule":  # noqa: A002
        """Return a copy of this rule in which some functions and attributes are replaced, such as for a proposal.

        All others are inherited. The author of the copy has to check that the inherited ``acts_in_quiet`` and
        ``knows_as`` are right for it too, or replace them.

        Parameters
        ----------
        id, in_force, year, source
            Attributes that every rule has.
        **differences
            Other functions and attributes to replace. ``params`` are added to those of this rule.
        """
        differences["params"] = {**self.params, **differences.get("params", {})}
        return replace(self, id=id, in_force=in_force, year=year, source=source, **differences)

    def param(self, name: str) -> Param | None:
        """Return the parameter called ``name``, of this rule or common to all; None if it does not exist."""
        return self.params.get(name) or COMMON_PARAMS.get(name)

    @property
    def kind(self) -> str:
        """Origin of the rule: one of KINDS."""
        if self.in_force[:1].isdigit():
            return "released"
        return "proposed" if self.in_force == "rejected" else self.in_force

    @property
    def series(self) -> str:
        """Description of the columns last_caught_up_time_ms and lag_ms under this rule, in a few sentences."""
        begun = " ".join((inspect.getdoc(self.begin_term) or "").split())
        begun = begun[:1].lower() + begun[1:]
        return (
            f"Lag in ms: {_NO_LAG_SAID[self.no_lag_while]} "
            "While the follower is at the log end, its last-caught-up time is "
            f"{_CAUGHT_UP_SAID[self.caught_up_by]} At the start of every term, even if the leader stays the same, "
            f"{begun}"
        )

    @property
    def summary(self) -> str:
        """The first sentence of the rule's description, without its name."""
        return self.doc.split("\n\n")[0].replace("\n", " ").split(": ", 1)[-1]

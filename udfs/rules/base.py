"""What a rule is: a few small functions, and some facts about it.

All functions are compiled, and take records of ``udfs.records``: ``follower`` and ``leader`` are the
rule's own to change, ``fetch`` (FETCH_STATE) and ``params`` (one int64 field a parameter) are to be
read only. ``now_ms`` is the leader's clock.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from udfs.jit import kernel

Function = Callable[..., Any]

TRY_TO_JOIN, ADVANCE_HIGH_WATERMARK = 1, 2
"""What a leader does after a fetch, as bits."""

COMMON_PARAMS = (
    "replica_lag_time_max_ms",
    "min_insync_replicas",
    "check_period_ms",
    "check_phase_ms",
    "isr_write_latency_ms",
)
"""Parameters that every rule has. The first two default to the broker's own configuration, the third
to what the rule says, the fourth to what the log shows, the last to 0, or to what the log shows for a
rule that writes in the background."""

CONTINUOUS = 0
"""``checks_per_lag_time`` of a rule without a periodic check: it acts at the very instant."""


@kernel
def nothing(_follower, _leader, _fetch, _params):
    """The rule does not look at this stage of a fetch."""
    return 0


@kernel
def always(_leader, _params):
    """The high watermark is never frozen."""
    return True


@kernel
def never_overdue(_follower, _leader, _fetch, _params):
    """A rule with a periodic check has no instant of its own."""
    return 2**62


@dataclass(frozen=True)
class Rule:
    """One rule. Its module's docstring tells its story; this is what the replay calls.

    Attributes
    ----------
    id : str
        As users name it.
    in_force : str
        Releases that decided so, or "proposed".
    source : str
        KIP, JIRA, release.
    begin_term : ``(follower, leader, in_isr, leader_is_new, now_ms, params)``
        The leader takes up a term: what it forgets and what it grants.
    on_arrival, on_recorded, on_completed : ``(follower, leader, fetch, params) -> int``
        Three instants of a fetch: request read from the socket; follower state recorded, after an io
        thread has read the log (where every Kafka release updates its state); answered. Returns bits
        of what the leader then does.
    on_append : ``(follower, leader, fetch, params) -> int``
        The leader's log has grown; the result is not used.
    may_join, out_of_sync, holds_high_watermark : ``(follower, leader, fetch, now_ms, params) -> bool``
        Expand the ISR by this follower? Shrink it by this member? Must the high watermark wait for it?
    overdue_at_ms : ``(follower, leader, fetch, params) -> int``
        First ms at which a member is out of sync if nothing happens; for continuous rules only.
    may_advance : ``(leader, params) -> bool``
        May the high watermark move at all?
    checks_per_lag_time : int
        Runs of isr-expiration in replica.lag.time.max.ms; CONTINUOUS for none.
    isr_write_in_background : bool
        The leader goes on while its ISR write is under way (releases since 2.7); its duration is then the
        broker's, where the log shows it.
    params : dict
        The rule's own parameters and their defaults, beyond COMMON_PARAMS.
    """

    id: str
    in_force: str
    source: str
    begin_term: Function
    on_recorded: Function
    may_join: Function
    out_of_sync: Function
    holds_high_watermark: Function
    checks_per_lag_time: int
    on_arrival: Function = nothing
    on_completed: Function = nothing
    on_append: Function = nothing
    overdue_at_ms: Function = never_overdue
    may_advance: Function = always
    isr_write_in_background: bool = False
    params: dict[str, int] = field(default_factory=dict)
    doc: str = ""

    def __post_init__(self) -> None:
        """Take the story from the module that defines the rule."""
        if not self.doc:
            frame = inspect.stack()[2].frame
            object.__setattr__(self, "doc", inspect.cleandoc(frame.f_globals.get("__doc__") or ""))

    @property
    def summary(self) -> str:
        """First sentence of the story."""
        return self.doc.split("\n\n")[0].replace("\n", " ").split(": ", 1)[-1]

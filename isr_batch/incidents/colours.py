"""The colours of all pages and pictures. Each has one meaning, and the colour-blind can distinguish them.

Orange: a healthy follower. Blue: a follower that was behind. Greys: removed by the controller, or not judged. Red: a
silent broker. Violet: the leader's part. Lines of followers have three other hues.
"""

from typing import Final

VERDICT_COLOURS: Final = {"spurious": "#e08214", "genuine": "#3f7fb5", "excluded": "#bdbdbd", "unknown": "#737373"}
"""Colours of dropped followers, by verdict."""
CAUSE_COLOURS: Final = {
    "caught_up": "#7f3b08",
    "keeping_pace": "#b35806",
    "slow_leader": "#e08214",
    "unacked_only": "#fdb863",
    "controller": "#bdbdbd",
    "follower_stopped": "#2166ac",
    "follower_slow": "#67a9cf",
    "unknown": "#737373",
}
"""Colours of causes, in the colour family of their verdict: spurious are orange to brown, genuine blue, the rest grey.
"""
INK: Final = "#252525"
SILENT: Final = "#b2182b"
LEADER: Final = "#7b3294"
FOLLOWER: Final = "#1b9e77"
FOLLOWER_LINES: Final = (FOLLOWER, "#c51b7d", "#8a8a00")
"""Colours of the followers in one picture, in order; with more followers they are reused, dashed."""
SUSPECT_COLOURS: Final = {
    "leader": LEADER, "follower": FOLLOWER, "link or follower": "#d6c84a", "controller": VERDICT_COLOURS["excluded"],
    "unknown": INK,
}  # fmt: skip
"""Colours for the suspect of a shrink by server.log: leader, follower, link, controller, or not known."""
PHASE_COLOURS: Final = {"queue": "#a56fc0", "work": LEADER, "wait": "#c9b3d6", "overdue or sent": "#4a1d5c"}
"""Colours of the phases of a fetch in the leader."""
MEMBER_COLOURS: Final = (INK, "#6b6b6b", "#b5b5b5")
"""Colours of bars for ISR membership: by the brokers, under the explained rule, under other rules."""
AGE_COLOURS: Final = {0.0: "#f2f6fa", 0.1: "#bcd5ea", 0.5: "#86b4d9", 1.0: "#2f6ea5", 2.0: "#0b2f57"}
"""Colours for how long ago a follower was caught up, by the lower limit in lag times; from 1 on they are dark."""

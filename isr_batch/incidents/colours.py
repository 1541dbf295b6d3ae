"""The colours of all pages and pictures. Each has one meaning, and they are distinct for the colour-blind too.

Orange: a follower that was well. Blue: one that was behind. Greys: removed by the controller, not judged. Red: a broker
that was silent. Violet: what a leader did. The lines of followers have three other hues.
"""

from typing import Final

VERDICT_COLOURS: Final = {"spurious": "#e08214", "genuine": "#3f7fb5", "excluded": "#bdbdbd", "unknown": "#737373"}
"""Dropped followers."""
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
"""The same colour families: spurious causes are orange to brown, genuine ones blue, the rest grey."""
SILENT: Final = "#b2182b"
LEADER: Final = "#7b3294"
FOLLOWER: Final = "#1b9e77"
FOLLOWER_LINES: Final = (FOLLOWER, "#c51b7d", "#8a8a00")
"""Followers in one picture; reused, with dashes, if there are more."""
SUSPECT_COLOURS: Final = {
    "leader": LEADER, "follower": FOLLOWER, "link or follower": "#d6c84a", "controller": VERDICT_COLOURS["excluded"],
}  # fmt: skip
"""Brokers that the lines of server.log point at."""
PHASE_COLOURS: Final = {"queue": "#a56fc0", "work": LEADER, "wait": "#c9b3d6", "overdue or sent": "#4a1d5c"}
"""Phases of a fetch in the leader."""
INK: Final = "#252525"
MEMBER_COLOURS: Final = (INK, "#6b6b6b", "#b5b5b5")
"""Memberships of the ISR: the brokers' own, the rule's, and those of other rules."""
AGE_COLOURS: Final = {0.0: "#f2f6fa", 0.1: "#bcd5ea", 0.5: "#86b4d9", 1.0: "#2f6ea5", 2.0: "#0b2f57"}
"""Times since caught up, by lower limit in lag times; from 1 on they are dark."""

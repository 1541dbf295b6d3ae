"""The colours of all pages and pictures. A colour always means the same, and colour-blind readers can distinguish all.

Orange stands for a healthy follower, blue for one that was behind, grey for one that the controller removed or that
cannot be judged. Red stands for a silent broker, violet for what the leader does. The lines of followers have three
other hues.
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
"""Colours of causes. They are orange to brown if the verdict is spurious, blue if it is genuine, and else grey."""
INK: Final = "#252525"
SILENT: Final = "#b2182b"
LEADER: Final = "#7b3294"
FOLLOWER: Final = "#1b9e77"
FOLLOWER_LINES: Final = (FOLLOWER, "#c51b7d", "#8a8a00")
"""Colours of the first three followers in a picture. Further followers have the same colours with dashed lines."""
SUSPECT_COLOURS: Final = {
    "leader": LEADER, "follower": FOLLOWER, "link or follower": "#d6c84a", "controller": VERDICT_COLOURS["excluded"],
    "unknown": INK,
}  # fmt: skip
"""Colours of shrinks by the suspect that server.log points at."""
PHASE_COLOURS: Final = {"queue": "#a56fc0", "work": LEADER, "wait": "#c9b3d6", "overdue or sent": "#4a1d5c"}
"""Colours of the phases of a fetch in the leader, in chronological order."""
MEMBER_COLOURS: Final = (INK, "#6b6b6b", "#b5b5b5")
"""Colours of bars that show membership in the ISR of the brokers, of the explained rule, and of other rules."""
AGE_COLOURS: Final = {0.0: "#f2f6fa", 0.1: "#bcd5ea", 0.5: "#86b4d9", 1.0: "#2f6ea5", 2.0: "#0b2f57"}
"""Colours for the time since a follower was caught up. The keys are the lower limits, in lag times. From one lag time
on, the colours are dark."""

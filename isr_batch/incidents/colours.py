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
"""Colours of causes, similar to the colour of their verdict: orange to brown for spurious, blue for genuine, grey for
the rest."""
SILENT: Final = "#b2182b"
LEADER: Final = "#7b3294"
FOLLOWER: Final = "#1b9e77"
FOLLOWER_LINES: Final = (FOLLOWER, "#c51b7d", "#8a8a00")
"""Colours of the followers in a picture, in order. If there are more followers, the colours are reused with dashed
lines."""
SUSPECT_COLOURS: Final = {
    "leader": LEADER, "follower": FOLLOWER, "link or follower": "#d6c84a", "controller": VERDICT_COLOURS["excluded"],
}  # fmt: skip
"""Colours of shrinks by the suspect that server.log suggests: leader, follower, link, controller."""
PHASE_COLOURS: Final = {"queue": "#a56fc0", "work": LEADER, "wait": "#c9b3d6", "overdue or sent": "#4a1d5c"}
"""Colours of the phases of a fetch in the leader."""
INK: Final = "#252525"
MEMBER_COLOURS: Final = (INK, "#6b6b6b", "#b5b5b5")
"""Colours of bars for ISR membership: according to the brokers, under the explained rule, under other rules."""
AGE_COLOURS: Final = {0.0: "#f2f6fa", 0.1: "#bcd5ea", 0.5: "#86b4d9", 1.0: "#2f6ea5", 2.0: "#0b2f57"}
"""Colours for how long ago a follower was caught up. Keys are lower limits in lag times; from 1 on, colours are dark.
"""

"""Patterns of a Shrinking line.

=============  ==========================================================================================
release        a shrink in server.log
=============  ==========================================================================================
0.8 - 0.11     ``Partition [t,0] on broker 1: Shrinking ISR for partition [t,0] from 1,2 to 1``
1.0 - 2.1      ``[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1``
2.2 - 3.5      with ``Leader: (highWatermark, endOffset)`` and the end offset of each dropped replica
3.6 -          with ``lastCaughtUpTimeMs`` of each
=============  ==========================================================================================

Since 3.0 the offset and the time may be ``unknown``. Readers of the first form convert it to the second.
The patterns are for `re`, RE2 and DuckDB: without lookaround.
"""

from typing import Final

# A number that Kafka cannot have printed does not match. A number is not followed by a digit; `END` ensures that at the
# end of a pattern.
INT: Final = r"(?:1\d{9}|20\d{8}|\d{1,9})"
LONG: Final = r"\d{1,18}"
INTS: Final = rf"{INT}(?:, ?{INT})*"
END: Final = r"(?:\D|$)"

# For an ISR member without state in the leader (since 3.0).
_NUMBER = rf"(?:-?{LONG}|unknown)"
SHRINK: Final = (
    rf"\[Partition (\S+)-({INT}) broker=({INT})\] Shrinking ISR (?:for partition \S+ )?from ({INTS}) to ((?:{INTS})?)"
    rf"(?:\. Leader: \(highWatermark: (-?{LONG}), endOffset: (-?{LONG})\)\. Out of sync replicas: "
    rf"((?:\(brokerId: {INT}, endOffset: {_NUMBER}(?:, lastCaughtUpTimeMs: {_NUMBER})?\) ?)+)\."
    r"|(?: \([\w.$]+\))?\s*$)"
)
"""Groups: topic, partition, leader, ISR before and after; since 2.2 the leader's high watermark and log end offset, and
the replicas that were out of sync. Before 2.2 nothing but the logger follows."""
OUT_OF_SYNC: Final = rf"\(brokerId: ({INT}), endOffset: ({_NUMBER})(?:, lastCaughtUpTimeMs: ({_NUMBER}))?\)"
"""Groups of one of those replicas: its id, log end offset, and when it was last caught up."""

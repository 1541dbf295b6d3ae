r"""Patterns of the log lines that isr-batch parses (not requests): one per wording that some Kafka release uses.

=============  ==========================================================================================
release        a shrink in server.log (`SHRINK`)
=============  ==========================================================================================
0.8 - 0.11     ``Partition [t,0] on broker 1: Shrinking ISR for partition [t,0] from 1,2 to 1``
1.0 - 2.1      ``[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1``
2.2 - 3.5      also ``Leader: (highWatermark, endOffset)`` and the end offset of each dropped replica
3.6 -          also ``lastCaughtUpTimeMs`` of each dropped replica
=============  ==========================================================================================

Since 3.0, an offset or a time may be ``unknown``.

=============  ====================================================  ==============================================
release        the start of a term in state-change.log               start offset of the term
=============  ====================================================  ==============================================
0.9 - 0.10.2   TRACE: ``Broker 1 received LeaderAndIsr request``     not logged
               (`RECEIVED`), then ``stopped fetchers as part of
               become-leader request`` (`LEADS`)
0.11 - 2.4     the same; since 1.0 ``[Broker id=1] Received ...``    server.log: ``starts at Leader Epoch``
                                                                     (`START_OFFSET`); 2.4.1: with high watermark
2.5 -          ``Leader t-0 starts at leader epoch`` (`LEADER`)      in that line
=============  ====================================================  ==============================================

The patterns must be valid in RE2 (Arrow, DuckDB) as well as in `re`, so they have no lookaround. Before lines are
matched, partitions and brokers in them are converted to the form since 1.0 (macro ``in_new_words`` of
`isr_batch.broker_lines.log_sql`).
"""

import re
from typing import Final, NamedTuple

from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE

LAG_TIME, MIN_ISR = "replica.lag.time.max.ms", "min.insync.replicas"
"""Settings whose values are parsed from server.log, which shows them when a broker starts or creates a log."""
LAG_TIME_MS, OLD_LAG_TIME_MS = 30_000, 10_000
"""Kafka's defaults of `LAG_TIME`: since release 2.5 (KIP-537), and before it."""


class Wording(NamedTuple):
    """One way in which some releases write a line.

    Attributes
    ----------
    text : str
        A regular expression with one group per column. ``<<`` and ``>>`` mark the part that is the same for all
        partitions and brokers. Lines are first searched for this part, which is fast, and then matched as a whole.
    columns : str
        Names and types of the columns, ``name TYPE, ...``, in the order of the groups.
    """

    text: str
    columns: str

    @property
    def pattern(self) -> str:
        """The regular expression for a line: `text`, in which ``<<`` becomes ``(?:`` and ``>>`` becomes ``)``."""
        return self.text.replace("<<", "(?:").replace(">>", ")")

    @property
    def mark(self) -> str:
        """The part of `text` between ``<<`` and ``>>``. A line that does not match it cannot match `pattern`."""
        return self.text[self.text.index("<<") + 2 : self.text.index(">>")]


class Form:
    """A kind of log line, such as a leader's Shrinking line, with its wordings in all releases.

    Parameters
    ----------
    log : str
        Kind of log: SERVER or STATE_CHANGE.
    *wordings : Wording
        Tried in this order: the first wording that matches is used. A column that only another wording has is null.
    """

    def __init__(self, log: str, *wordings: Wording) -> None:
        self.log, self.wordings = log, wordings
        self.mark = "|".join(wording.mark for wording in wordings)
        self.pattern = "|".join(wording.pattern for wording in wordings)
        """Regular expression that matches a line in any of the wordings. To parse many lines, use
        `isr_batch.broker_lines.log_sql.rows_of`."""

    def read(self, line: str) -> dict[str, str] | None:
        """Parse one line. Returns a dict from column name to matched text, or None if no wording matches."""
        for wording in self.wordings:
            if found := re.search(wording.pattern, line):
                names = (column.partition(" ")[0] for column in wording.columns.split(", "))
                return dict(zip(names, found.groups(), strict=True))
        return None


# These patterns do not match a number that overflows its Kafka type. So that they do not match its first digits either,
# no digit may follow; `END` ensures this at the end of a pattern.
INT: Final = r"(?:1\d{9}|20\d{8}|\d{1,9})"
LONG: Final = r"\d{1,18}"
INTS: Final = rf"{INT}(?:, ?{INT})*"
END: Final = r"(?:\D|$)"
# Since 3.0, "unknown" is printed for an ISR member about which the leader has no state.
_NUMBER = rf"(?:-?{LONG}|unknown)"
_PARTITION = rf"(\S+)-({INT})"
_LEADERS = rf"\[Partition {_PARTITION} broker=({INT})\] "
_OF_PARTITION = "topic VARCHAR, partition_id INTEGER"
_OF_LEADER = f"{_OF_PARTITION}, leader_id INTEGER"

# server.log: the ISR

SHRINK: Final = Form(
    SERVER,
    Wording(
        rf"{_LEADERS}<<Shrinking ISR>> (?:for partition \S+ )?from ({INTS}) to ((?:{INTS})?)"
        rf"(?:\. Leader: \(highWatermark: (-?{LONG}), endOffset: (-?{LONG})\)\. Out of sync replicas: "
        rf"((?:\(brokerId: {INT}, endOffset: {_NUMBER}(?:, lastCaughtUpTimeMs: {_NUMBER})?\) ?)+)"
        r"(?:\.|(?: \([\w.$]+\))?\s*$)"
        # Before 2.2 nothing but the logger follows.
        r"|(?: \([\w.$]+\))?\s*$)",
        f"{_OF_LEADER}, isr_before INTEGER[], isr_after INTEGER[], high_watermark BIGINT, "
        "leader_log_end_offset BIGINT, printed VARCHAR",
    ),
)
"""A leader's line about a shrink, logged since 0.8. ``printed`` is the text that lists the out-of-sync replicas; it is
null before 2.2."""
OUT_OF_SYNC: Final = rf"\(brokerId: ({INT}), endOffset: ({_NUMBER})(?:, lastCaughtUpTimeMs: ({_NUMBER}))?\)"
"""Pattern of one dropped replica in a Shrinking line. The groups are its id, its log end offset, and the time at which
it was last caught up."""

CAUGHT_UP: Final = r"lastCaughtUpTimeMs: (1\d{12})\b"
"""The lastCaughtUpTimeMs in a Shrinking line. It is in UTC, whatever the time zone of the line's own timestamp."""

EXPAND: Final = Form(
    SERVER,
    Wording(
        rf"{_LEADERS}<<Expanding ISR>> (?:for partition \S+ )?from ({INTS}) to ({INTS}){END}",
        f"{_OF_LEADER}, isr_before INTEGER[], isr_after INTEGER[]",
    ),
)
"""A leader's line about an expand in a ZooKeeper cluster. Leaders that send AlterPartition requests log `ISR_UPDATED`
instead."""

ISR_UPDATED: Final = Form(
    SERVER,
    Wording(
        rf"{_LEADERS}<<ISR updated >>(?:from AlterIsr )?to \[?({INTS})\b\]?( \(under-min-isr\)|  and)?"
        rf".*ersion updated to \[?({INT}){END}",
        f"{_OF_LEADER}, isr INTEGER[], under VARCHAR, partition_epoch INTEGER",
    ),
)
"""A leader's line about an accepted ISR write, logged since 2.7. ``under`` shows whether the ISR is under min ISR: "
(under-min-isr)" if it is, "  and" (two spaces) if it is not, and null in releases that do not log this."""

WRITE_FAILED: Final = Form(
    SERVER,
    Wording(
        rf"{_LEADERS}(<<Cached zkVersion |(?:Controller f|F)ailed to (?:update ISR|alter partition) to "
        r"|Failed to enqueue ISR change>>)(?:.*\bPending(Shrink|Expand)Isr\b)?",
        f"{_OF_LEADER}, failure VARCHAR, pending VARCHAR",
    ),
)
"""A leader's line about a refused ISR write. If it begins with "Cached zkVersion", ZooKeeper refused the write,
otherwise the controller did (AlterPartition). At INFO, the latter is only logged if the controller rejected the
replicas or returned an unexpected error."""

# state-change.log: terms

LEADER: Final = Form(
    STATE_CHANGE,
    Wording(
        rf"Leader {_PARTITION} .*?<<starts at leader epoch>> ({INT}) from offset ({LONG}) "
        rf"with (?:partition epoch ({INT}), )?high watermark ({LONG}),? ISR \[((?:{INTS})?)\]"
        rf"(?:.* Previous leader (None|Some\((?:(-?{INT})\))?))?",
        f"{_OF_PARTITION}, leader_epoch INTEGER, start_offset BIGINT, partition_epoch INTEGER, "
        "start_high_watermark BIGINT, isr INTEGER[], tells_previous BOOLEAN, previous_leader_id INTEGER",
    ),
)
"""A leader's line about the start of its term, logged since 2.5. From 2.5 to 2.8, it shows neither the partition epoch
nor the previous leader, and ``tells_previous`` is false. If ``tells_previous`` is true and previous_leader_id is null,
there was no previous leader."""

FOLLOWER: Final = Form(
    STATE_CHANGE,
    Wording(
        rf"Follower {_PARTITION} <<starts at leader epoch>> ({INT}){END}", f"{_OF_PARTITION}, leader_epoch INTEGER"
    ),
)

_SKIPPED = f"S<<kipped the become-leader>> state change for {_PARTITION} .*"
STILL_LEADER: Final = Form(
    STATE_CHANGE,
    # up to 4.1
    Wording(
        rf"{_SKIPPED}leader=({INT}), leaderEpoch=({INT}), isr=\[((?:{INTS})?)\], "
        rf"(?:partitionEpoch|zkVersion)=({INT}), replicas=\[((?:{INTS})?)\]",
        f"{_OF_LEADER}, leader_epoch INTEGER, isr INTEGER[], partition_epoch INTEGER, replicas INTEGER[]",
    ),
    # since 4.2
    Wording(
        rf"{_SKIPPED}PartitionRegistration\(replicas=\[((?:{INTS})?)\].*, isr=\[((?:{INTS})?)\].*, leader=({INT}), "
        rf".*leaderEpoch=({INT}), partitionEpoch=({INT}){END}",
        f"{_OF_PARTITION}, replicas INTEGER[], isr INTEGER[], leader_id INTEGER, leader_epoch INTEGER, "
        "partition_epoch INTEGER",
    ),
)
"""A broker's line about a partition whose state changed while this broker stayed its leader."""
REGISTRATION: Final = Form(
    STATE_CHANGE,
    Wording(
        rf"<<become-leader state change for>> {_PARTITION} .*PartitionRegistration\(replicas=\[((?:{INTS})?)\].*, "
        rf"isr=\[((?:{INTS})?)\].*, elr=\[((?:{INTS})?)\], lastKnownElr=\[((?:{INTS})?)\], leader=(-?{INT}), "
        rf".*leaderEpoch=({INT}), partitionEpoch=",
        f"{_OF_PARTITION}, replicas INTEGER[], isr INTEGER[], elr INTEGER[], last_known_elr INTEGER[], "
        "leader_id INTEGER, leader_epoch INTEGER",
    ),
)
"""A leader's line about a state of its partition that shows the partition's ELR (KIP-966), logged since 4.2."""
TOPIC_ID: Final = Form(
    STATE_CHANGE,
    Wording(rf"{_PARTITION} <<with topic id >>(?:Some\()?([\w-]{{22}})\b", f"{_OF_PARTITION}, topic_id VARCHAR"),
)

RECEIVED: Final = Form(
    STATE_CHANGE,
    Wording(
        r"<<eceived LeaderAndIsr request>> (?:LeaderAndIsr)?PartitionState\("
        rf"(?:topicName='([^']*)', partitionIndex=({INT}), )?controllerEpoch=\d+, leader=(-?{INT}), "
        rf"leaderEpoch=({INT}), isr=\[?((?:{INTS})?)\]?, (?:zkVersion|partitionEpoch)=({INT}), "
        rf"replicas=\[?({INTS}){END}",
        "state_topic VARCHAR, state_partition INTEGER, leader_id INTEGER, leader_epoch INTEGER, isr INTEGER[], "
        "partition_epoch INTEGER, replicas INTEGER[]",
    ),
)
"""A LeaderAndIsr request from the controller of a ZooKeeper cluster, logged (TRACE) before the broker acts on it."""
LEADS: Final = r"topped fetchers as part of become-leader request|kipped the become-leader state change after marking"
FOLLOWS: Final = r"tarting the become-follower transition"
FOR_PARTITION: Final = rf"for partition {_PARTITION}{END}"
FROM_CONTROLLER: Final = rf"controller ({INT}) epoch ({INT}){END}"
CORRELATION: Final = rf"correlation ?[iI]d ({INT}){END}"

START_OFFSET: Final = Form(
    SERVER,
    Wording(
        rf"\[Partition \S+ broker=\d+\] {_PARTITION} <<starts at [Ll]eader [Ee]poch>> ({INT}) from offset ({LONG})"
        rf"(?: with high watermark ({LONG}){END}|{END})",
        f"{_OF_PARTITION}, leader_epoch INTEGER, start_offset BIGINT, start_high_watermark BIGINT",
    ),
)
"""A leader's line with the start offset of its term, in server.log from 0.11 to 2.4."""

# server.log: logs of partitions, processes, settings

CREATED: Final = Form(
    SERVER,
    Wording(
        rf"<<Created log for partition>> {_PARTITION} in (?:.*[{{ ]min\.insync\.replicas(?:=| -> )({INT}){END})?",
        f"{_OF_PARTITION}, min_insync_replicas INTEGER",
    ),
)
TOPIC_CONFIGURED: Final = Form(
    SERVER,
    Wording(
        rf"<<Updating topic (\S+) with new configuration : >>(?:.*\bmin\.insync\.replicas -> ({INT}){END})?",
        "topic VARCHAR, min_insync_replicas INTEGER",
    ),
)
"""A KRaft broker's line with all settings of a topic. It is logged when one of the settings changes or the topic is
deleted."""
DELETED: Final = Form(
    SERVER,
    Wording(rf"Log for partition {_PARTITION} is renamed to .* and <<is scheduled for deletion>>{END}", _OF_PARTITION),
)
"""A broker's line about the deletion of its replica, logged since 1.0 when the topic is deleted or the partition
reassigned. If the broker was the leader, its term is over."""

VERSION: Final = Form(SERVER, Wording(r"<<Kafka version ?: >>(\S+)", "version VARCHAR"))
STARTED: Final = r"kafka\.Log4jController`? MBean"
STARTING: Final = r"Transition from SHUTDOWN to STARTING|\] INFO starting \(kafka\.server\.KafkaServer\)"
_LIFECYCLE = r"\[BrokerLifecycleManager id=\d+\]"
OWN_STATES: Final = {
    "fenced": rf"{_LIFECYCLE} Successfully registered broker",
    "unfenced": rf"{_LIFECYCLE} The broker has been unfenced",
    "shutting_down": rf"{_LIFECYCLE} Beginning controlled shutdown|\] INFO Terminating process due to signal",
}
"""States that a KRaft broker logs about itself, each with the pattern of its lines. A broker that has just registered
is fenced. When a broker stops, it always logs the signal, but not always the controlled shutdown. ZooKeeper brokers log
the signal too."""
ZOOKEEPER_STOPS: Final = r"\] INFO \[Kafka ?Server (?:id=)?\d+\],? shutting down \(kafka\.server\.KafkaServer"
"""Pattern of the line that a ZooKeeper broker writes when it begins to shut down."""
CHECKS_SCHEDULED: Final = r"\[LogDirFailureHandler\]: Starting|\[ExpirationReaper-\d+(-Produce)?\], Starting"
"""Pattern of the line that a broker writes within milliseconds of scheduling isr-expiration: that of the thread which
handles failed disks or, up to 0.11, that of the replica manager's purgatory. The times of its checks are computed from
the line's timestamp."""
SETTING: Final = Form(
    SERVER,
    Wording(
        r"<<^\t(replica\.lag\.time\.max\.ms|min\.insync\.replicas) = >>(\d{1,18})$", "setting VARCHAR, number BIGINT"
    ),
)
"""A line with one of the settings that a broker logs when it starts. The line has no timestamp."""

# server.log: reasons why a follower could not fetch

_FETCHER_SAYS = r"\[Replica ?Fetcher[^\]]*\],?:? "
TROUBLES: Final = {
    "record_too_large": r"greater than replica\.fetch\.max\.bytes|RecordTooLarge|too large to fit in the fetch size",
    "log_dir_failed": r"Stopping serving (?:logs|replicas) in dir|ERROR .*LogDirFailureChannel"
    r"|in (?:the )?failed log director|KafkaStorageException",
    "corrupt_record": r"Found invalid messages|CorruptRecordException|Found a corrupt",
    "fetcher_died": rf"{_FETCHER_SAYS}Error due to|Unexpected error occurred (?:during|while) (?:processing|fetch)",
    "not_connected": rf"{_FETCHER_SAYS}.*Connection to node \S+ .*could not be established",
    "fetch_failed": rf"{_FETCHER_SAYS}(?:Error in response for fetch request|Error sending fetch request"
    r"|Error in fetch |Error for partition |Node \d+ disconnected"
    r"|Current offset \d+ for partition \S+ (?:is )?out of range)",
    "stale_epoch": rf"{_FETCHER_SAYS}(?:Partition \S+ has an older epoch|Received UNKNOWN_TOPIC"
    r"|Partition \S+ marked as failed)",
    "truncated": r"Truncating (?:log \S+ )?to offset ",
}
"""Reasons why a follower could not fetch, each with the pattern of its lines. A line that matches several patterns has
the first of these reasons."""
FETCHER: Final = rf"\[ReplicaFetcher replicaId=({INT}), leaderId=({INT})|\[ReplicaFetcherThread-\d+-({INT}){END}"
OF_PARTITION: Final = rf"\b[Pp]artition (\S+?)-({INT})(?:[\s,;.:]|$)"

# server.log: troubles of the broker that writes the line

_DISK = r"(?:reading|writing|appending|flushing|rolling|loading|deleting)"
OWN_TROUBLES: Final = {
    "session_expired": r"\[ZooKeeperClient [^\]]*\] Session expired|zookeeper state changed \(Expired\)",
    "heartbeat_failed": r"\] Unable to send a heartbeat because|name=heartbeat\] Disconnecting from node \d+ due to "
    r"|\] Broker \d+ sent a heartbeat request but received error",
    "log_dir_failed": rf"Stopping serving (?:logs|replicas) in dir|\] ERROR Error while {_DISK} .* in dir ",
    "out_of_memory": r"\bjava\.lang\.OutOfMemoryError\b",
}
"""Troubles that may stop a whole broker, or show that it was stopped, each with the pattern of its lines: lost
ZooKeeper sessions, failed KRaft heartbeats, failed disks, lack of memory."""
_NOT_ENOUGH = "NotEnoughReplicasException: "
NOT_ENOUGH_REPLICAS: Final = Form(
    SERVER,
    Wording(
        rf"<<{_NOT_ENOUGH}>>.*current ISR (?:: ({INT})|\w+\(({INTS})\)) is insufficient to satisfy the min\.isr "
        rf"requirement of ({INT}) for partition {_PARTITION}"
        rf"(?:, live replica\(s\) broker\.id are : \w+\(({INTS})\)|\s*$)",
        f"members INTEGER, isr_members INTEGER[], min_insync_replicas INTEGER, {_OF_PARTITION}, live INTEGER[]",
    ),
    # up to 1.1; some releases print the two numbers in the wrong order
    Wording(
        rf"<<{_NOT_ENOUGH}>>.*insync replicas for partition \[?(\S+?)[-,]({INT})\]? is \[({INT})\], below required "
        rf"minimum \[({INT})\]",
        f"{_OF_PARTITION}, members INTEGER, min_insync_replicas INTEGER",
    ),
)
"""A leader's line about a produce request that it refused because the ISR was under min ISR. It shows the size of the
ISR even in a log without lines at INFO. Since 2.0, it lists the ISR's members; since 2.6, their number and the live
replicas."""
WITHOUT_STAMP: Final = rf"{OWN_TROUBLES['out_of_memory']}|{_NOT_ENOUGH}"
"""Pattern of the lines of interest that may have no timestamp: exceptions, which continue the log entry before them.
"""

# lines of interest

OLD_WORDS: Final = (
    (r"\bpartition \[([^\],]+),(\d+)\]", r"partition \1-\2"),
    (r"Partition \[([^\],]+),(\d+)\] on broker (\d+):", r"[Partition \1-\2 broker=\3]"),
)
"""How partitions and brokers are written in log lines: a pattern of the form before 1.0, and its replacement, the form
since 1.0."""
WRITER: Final = (
    r"\[(?:Partition \S+ broker|Broker id|BrokerServer id|KafkaServer id|ReplicaManager broker|ReplicaFetcher replicaId"
    r"|BrokerLifecycleManager id|ReplicaFetcherManager on broker|ReplicaAlterLogDirsManager on broker)[= ](\d{1,9})\b"
    r"|\b(?:broker|node)\.id = (\d{1,9})\b|Partition \[[^\]]+\] on broker (\d{1,9}):"
    r"|\] [A-Z]+ Broker (\d{1,9}) (?:received|handling|cached)|\[(?:Kafka Server|GroupCoordinator) (\d{1,9})\]"
)
"""Pattern of the part of a line that names the broker that wrote it. One of its groups matches the broker's id."""

ISR_LINE: Final = (
    r"\] INFO (?:.*\bISR\b.*\(kafka\.cluster\.Partition\)\s*$|\[?Partition \S+ (?:on )?broker[ =]\d+\]?:? .*\bISR\b)"
)
"""Pattern of any line at INFO in which a leader mentions the ISR of its partition. Up to 4.4, these are lines of the
forms `SHRINK`, `EXPAND`, `ISR_UPDATED` and `WRITE_FAILED`; later releases may write others."""

FORMS: Final = {name: value for name, value in globals().items() if isinstance(value, Form)}
SERVER_LINES: Final = "|".join((
    *(form.mark for form in FORMS.values() if form.log == SERVER), ISR_LINE, "Log4jController", STARTING,
    CHECKS_SCHEDULED, *OWN_STATES.values(), ZOOKEEPER_STOPS, *TROUBLES.values(), *OWN_TROUBLES.values(),
))  # fmt: skip
"""Pattern of the lines of interest in server.log. Other lines are skipped."""
STATE_CHANGE_LINES: Final = "|".join(
    (*(form.mark for form in FORMS.values() if form.log == STATE_CHANGE), LEADS, FOLLOWS)
)
"""Pattern of the lines of interest in state-change.log. Other lines are skipped."""

"""Parse the lines of interest of server.log and state-change.log: broker starts, settings, terms and ISR changes."""

import pyarrow as pa

from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE
from isr_batch.broker_lines.line_forms import OF_INTEREST as EVIDENCE
from isr_batch.broker_lines.log_sql import RAW_CHARACTERS, SOURCE, columns_of, groups, matches
from isr_batch.broker_lines.server_log_zookeeper import OF_INTEREST, STATE_CHANGES_OF_INTEREST
from isr_batch.broker_lines.shrink_line import END, INT, INTS, LONG, OUT_OF_SYNC, SHRINK
from isr_batch.broker_lines.vendors import vendor_release
from isr_batch.lake.arrow_sql import ArrowSql, quoted

_PARTITION = rf"(\S+)-({INT})"

_ISR_UPDATED = (
    rf"\[Partition {_PARTITION} broker=\d+\] ISR updated (?:from AlterIsr )?to \[?({INTS})\b"
    rf".*ersion updated to \[?({INT}){END}"
)
# 2.5 to 2.8 have neither the partition epoch nor the leader before.
_LEADER = (
    rf"Leader {_PARTITION} .*?starts at leader epoch ({INT}) from offset ({LONG}) with (?:partition epoch ({INT}), )?"
    rf"high watermark ({LONG}),? ISR \[((?:{INTS})?)\](?:.* Previous leader (?:None|Some\((-?{INT})\)))?"
)
_TELLS_PREVIOUS = r" Previous leader (?:None|Some\()"
_FOLLOWER = rf"Follower {_PARTITION} starts at leader epoch ({INT}){END}"
_STILL_LEADER = (
    rf"Skipped the become-leader state change for {_PARTITION} .*leader=({INT}), leaderEpoch=({INT}), "
    rf"isr=\[((?:{INTS})?)\], partitionEpoch=({INT}), replicas=\[((?:{INTS})?)\]"
)
# 4.2 on: a PartitionRegistration, whose members have another order.
_STILL_LEADER_NOW = (
    rf"Skipped the become-leader state change for {_PARTITION} .*PartitionRegistration\(replicas=\[((?:{INTS})?)\].*, "
    rf"isr=\[((?:{INTS})?)\].*, leader=({INT}), .*leaderEpoch=({INT}), partitionEpoch=({INT}){END}"
)
_REGISTRATION = (
    rf"become-leader state change for {_PARTITION} .*PartitionRegistration\(replicas=\[((?:{INTS})?)\].*, "
    rf"isr=\[((?:{INTS})?)\].*, elr=\[((?:{INTS})?)\], lastKnownElr=\[((?:{INTS})?)\], leader=(-?{INT}), "
    rf".*leaderEpoch=({INT}), partitionEpoch="
)
_TOPIC_ID = rf"{_PARTITION} with topic id (?:Some\()?([\w-]{{22}})\b"
_MIN_ISR_OF_LOG = rf"Created log for partition {_PARTITION} in .*[{{ ]min\.insync\.replicas(?:=| -> )({INT}){END}"

_DELETED = rf"Log for partition {_PARTITION} is renamed to .* and is scheduled for deletion{END}"

_STARTED = r"kafka\.Log4jController`? MBean"
_STARTING = r"Transition from SHUTDOWN to STARTING|\] INFO starting \(kafka\.server\.KafkaServer\)"
# isr-expiration is scheduled right after; up to 0.11 there is nothing nearer than the purgatory of the replica manager.
_CHECKS_SCHEDULED = r"\[LogDirFailureHandler\]: Starting|\[ExpirationReaper-\d+(-Produce)?\], Starting"
VERSION = r"Kafka version ?: (\S+)"
_SAME_START_US = 60_000_000
_WRITE_TAKES_AT_MOST_US = 5_000_000

SETTING = r"^\t(replica\.lag\.time\.max\.ms|min\.insync\.replicas) = (\d{1,18})$"
"""A line of the settings that a broker prints when it starts; it has no timestamp."""
SERVER_LINES = (
    r"Shrinking ISR|ISR updated |Log4jController|Kafka version ?: |Created log for partition|is scheduled for deletion"
    f"|{_STARTING}|{_CHECKS_SCHEDULED}|{OF_INTEREST}|{EVIDENCE}"
)
"""Marks of the lines of interest in server.log."""
STATE_CHANGE_LINES = (
    f"{STATE_CHANGES_OF_INTEREST}|starts at leader epoch|kipped the become-leader|with topic id |{EVIDENCE}"
)
"""Marks of the lines of interest in state-change.log."""


def shrink_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the Shrinking ISR lines; ``dropped`` is a list with a struct per replica that was out of sync.

    Parameters
    ----------
    sql : ArrowSql
    server : pa.Table
        Lines of server.log: broker_id, source_file, source_line, stamp_us, message.
    """
    columns = (
        "topic VARCHAR, partition_id INTEGER, leader_id INTEGER, before VARCHAR, after VARCHAR, "
        "high_watermark BIGINT, leader_log_end_offset BIGINT, printed VARCHAR"
    )
    replica = "replica_id INTEGER, follower_log_end_offset BIGINT, last_caught_up_time_ms BIGINT"
    dropped = ", ".join(
        f"{name} := TRY_CAST(replica.{name} AS {type_})"  # not a number: not printed, or unknown
        for name, type_ in (column.split(" ") for column in replica.split(", "))
    )
    return sql(
        f"""
        WITH split AS ({_split("server", "Shrinking ISR", SHRINK, columns)}), lines AS (
            SELECT {SOURCE}, {columns_of("g", columns)} FROM split
        )
        SELECT {SOURCE}, topic, partition_id, high_watermark, leader_log_end_offset,
            int_list(before) AS isr_before, int_list(after) AS isr_after,
            CASE WHEN printed IS NULL THEN list_transform(
                list_without(int_list(before), int_list(after)),
                lambda replica: struct_pack(replica_id := replica, follower_log_end_offset := CAST(NULL AS BIGINT),
                    last_caught_up_time_ms := CAST(NULL AS BIGINT)))
            ELSE list_transform(
                {groups("printed", OUT_OF_SYNC, replica).replace("regexp_extract(", "regexp_extract_all(", 1)},
                lambda replica: struct_pack({dropped})) END AS dropped
        FROM lines
        """,
        server=server,
    )


def _split(table: str, words: str, pattern: str, columns: str) -> str:
    """Select the groups ``g`` of the lines with these words that the pattern matches in the form of newer releases."""
    return f"""
        SELECT {SOURCE}, {groups("said", pattern, columns)} AS g
        FROM (SELECT {SOURCE}, in_new_words(message) AS said FROM {table} WHERE contains(message, {quoted(words)}))
        WHERE {matches("said", pattern)}"""


def unreadable_lines(sql: ArrowSql, server: pa.Table, state_changes: pa.Table) -> pa.Table:
    """List the lines about a shrink or a term that have an unknown form: log, source_file, source_line, reason, raw."""
    term = r"\] (Leader|Follower) \S+ .*starts at leader epoch"
    raw = f"substring(message, 1, {RAW_CHARACTERS}) AS raw"
    return sql(
        f"""
        SELECT '{SERVER}' AS log, source_file, source_line, 'Shrinking ISR line of an unknown form' AS reason, {raw}
        FROM server
        WHERE contains(message, 'Shrinking ISR') AND NOT {matches("in_new_words(message)", SHRINK)}
        UNION ALL
        SELECT '{STATE_CHANGE}', source_file, source_line, 'leader or follower line of an unknown form', {raw}
        FROM state_changes
        WHERE {matches("message", term)} AND NOT {matches("message", f"{_LEADER}|{_FOLLOWER}")}
            OR contains(message, 'kipped the become-leader') AND contains(message, 'artitionEpoch=')
                AND NOT {matches("message", f"{_STILL_LEADER}|{_STILL_LEADER_NOW}")}
        """,
        server=server,
        state_changes=state_changes,
    )


def isr_updated_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the "ISR updated" lines of a leader: topic, partition_id, isr, partition_epoch."""
    columns = "topic VARCHAR, partition_id INTEGER, isr VARCHAR, partition_epoch INTEGER"
    return _lines(sql, server, _ISR_UPDATED, columns)


def _lines(sql: ArrowSql, table: pa.Table, pattern: str, columns: str, more: str = "") -> pa.Table:
    """Parse the lines that a pattern matches; those of replicas become lists."""
    lists = [name for name in ("isr", "replicas", "elr", "last_known_elr") if f"{name} VARCHAR" in columns]
    replaced = f" REPLACE ({', '.join(f'int_list({name}) AS {name}' for name in lists)})" if lists else ""
    return sql(
        f"""
        SELECT *{replaced} FROM (
            SELECT {SOURCE}, {columns_of("g", columns)}{more} FROM (
                SELECT {SOURCE}, message, {groups("message", pattern, columns)} AS g FROM lines
                WHERE {matches("message", pattern)}))
        """,
        lines=table,
    )


def isr_write_times(sql: ArrowSql, shrinks: pa.Table, updates: pa.Table, led: pa.Table) -> pa.Table:
    """Compute the median time from a Shrinking line to the line with its ISR: broker_id, isr_write_ms.

    That is an "ISR updated" line, or, where a shrink begins a new term (KRaft up to 3.6), the line of this term.
    """
    written = "SELECT broker_id, topic, partition_id, stamp_us, isr FROM"
    return sql(
        f"""
        WITH took AS (
            SELECT s.broker_id, min(u.stamp_us - s.stamp_us) AS took_us
            FROM shrinks s JOIN ({written} updates UNION ALL {written} led) u ON s.broker_id = u.broker_id
                AND s.topic = u.topic AND s.partition_id = u.partition_id AND list_sort(s.isr_after) = list_sort(u.isr)
                AND u.stamp_us - s.stamp_us BETWEEN 0 AND {_WRITE_TAKES_AT_MOST_US}
            GROUP BY s.broker_id, s.topic, s.partition_id, s.stamp_us
        )
        SELECT broker_id, CAST(round(median(took_us) / 1000) AS BIGINT) AS isr_write_ms FROM took GROUP BY broker_id
        """,
        shrinks=shrinks,
        updates=updates,
        led=led,
    )


def leader_lines(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Parse starts of terms as leader; with ``tells_previous``, a null previous_leader_id means no previous leader."""
    columns = (
        "topic VARCHAR, partition_id INTEGER, leader_epoch INTEGER, start_offset BIGINT, partition_epoch INTEGER, "
        "start_high_watermark BIGINT, isr VARCHAR, previous_leader_id INTEGER"
    )
    return _lines(
        sql, state_changes, _LEADER, columns, more=f", {matches('message', _TELLS_PREVIOUS)} AS tells_previous"
    )


def follower_lines(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Parse the starts of terms as follower: topic, partition_id, leader_epoch."""
    return _lines(sql, state_changes, _FOLLOWER, "topic VARCHAR, partition_id INTEGER, leader_epoch INTEGER")


def deletion_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the lines of a broker that no longer has a replica: topic, partition_id.

    Its topic was deleted, or the partition was reassigned (1.0 on). A leader that prints it has stopped leading.
    """
    return _lines(sql, server, _DELETED, "topic VARCHAR, partition_id INTEGER")


def still_leader_lines(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Parse the state changes after which a leader stayed leader: isr, replicas, partition_epoch, leader_epoch."""
    columns = (
        "topic VARCHAR, partition_id INTEGER, leader_id INTEGER, leader_epoch INTEGER, isr VARCHAR, "
        "partition_epoch INTEGER, replicas VARCHAR"
    )
    now = (
        "topic VARCHAR, partition_id INTEGER, replicas VARCHAR, isr VARCHAR, leader_id INTEGER, leader_epoch INTEGER, "
        "partition_epoch INTEGER"
    )
    before = _lines(sql, state_changes, _STILL_LEADER, columns)
    return pa.concat_tables([before, _lines(sql, state_changes, _STILL_LEADER_NOW, now).select(before.column_names)])


def registration_lines(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """Parse what a leader's lines show of KIP-966 (4.2 on): replicas, isr, elr, last_known_elr, who leads."""
    columns = (
        "topic VARCHAR, partition_id INTEGER, replicas VARCHAR, isr VARCHAR, elr VARCHAR, last_known_elr VARCHAR, "
        "leader_id INTEGER, leader_epoch INTEGER"
    )
    return _lines(sql, state_changes, _REGISTRATION, columns)


def topic_ids(sql: ArrowSql, state_changes: pa.Table) -> pa.Table:
    """List the topic ids in the lines: topic_id, topic."""
    columns = "topic VARCHAR, partition_id INTEGER, topic_id VARCHAR"
    return _lines(sql, state_changes, _TOPIC_ID, columns).select(["topic_id", "topic"])


def min_isr_of_logs(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Parse the min.insync.replicas logged when a partition's log was created: topic, min_insync_replicas."""
    columns = "topic VARCHAR, partition_id INTEGER, min_insync_replicas INTEGER"
    return sql(
        f"""
        WITH split AS ({_split("server", "Created log for partition", _MIN_ISR_OF_LOG, columns)})
        SELECT topic, max(min_insync_replicas) AS min_insync_replicas
        FROM (SELECT {columns_of("g", columns)} FROM split) GROUP BY topic
        """,
        server=server,
    )


def process_starts(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Find the times at which broker processes started: broker_id, stamp_us."""
    return sql(
        f"""
        WITH marks AS (
            SELECT broker_id, stamp_us, source_line, {matches("message", _STARTED)} AS first FROM server
            WHERE {matches("message", f"{_STARTED}|{_STARTING}")}
        )
        SELECT broker_id, stamp_us FROM marks
        WINDOW of_broker AS (PARTITION BY broker_id ORDER BY stamp_us, source_line)
        QUALIFY first OR NOT coalesce(
            lag(first) OVER of_broker AND stamp_us - lag(stamp_us) OVER of_broker <= {_SAME_START_US}, false)
        """,
        server=server,
    )


def process_lines(sql: ArrowSql, server: pa.Table, settings: pa.Table) -> pa.Table:
    """Describe each process: broker_version, startup_us (when isr-expiration was scheduled, or some ms later)."""
    facts = sql(
        f"""
        SELECT broker_id, process_of(starts_us, stamp_us) AS process,
            max(nullif(regexp_extract(message, {quoted(VERSION)}, 1), '')) AS broker_version,
            min(stamp_us) FILTER ({matches("message", _CHECKS_SCHEDULED)}) AS startup_us
        FROM server JOIN settings USING (broker_id)
        WHERE message IS NOT NULL AND stamp_us IS NOT NULL
        GROUP BY ALL
        """,
        server=server,
        settings=settings,
    )
    printed = facts["broker_version"].to_pylist()
    named = pa.array([vendor_release(version) if version else None for version in printed], pa.string())
    return facts.set_column(facts.schema.get_field_index("broker_version"), "broker_version", named)

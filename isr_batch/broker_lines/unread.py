"""Find lines that isr-batch should parse but cannot, because their wording is unknown, as in a future release."""

from typing import Final, NamedTuple

import pyarrow as pa

from isr_batch.broker_lines.forms import (
    EXPAND,
    FOLLOWER,
    ISR_LINE,
    ISR_UPDATED,
    LEADER,
    OF_PARTITION,
    SHRINK,
    STILL_LEADER,
    WRITE_FAILED,
)  # fmt: skip
from isr_batch.broker_lines.kinds import SERVER, STATE_CHANGE
from isr_batch.broker_lines.log_sql import RAW_CHARACTERS, SOURCE, columns_of, groups, matches
from isr_batch.lake.arrow_sql import ArrowSql


class MustBeRead(NamedTuple):
    """A kind of line that is reported if it matches no known form.

    Attributes
    ----------
    log : str
        Kind of log: SERVER or STATE_CHANGE.
    reason : str
        Reason to report in table quarantine.
    resembles : str
        Pattern of all lines of this kind, even in unknown wordings.
    read : str
        Pattern of the lines of this kind whose wording is known.
    refused : bool
        Whether a line in an unknown wording is refused. If false, it is only reported.
    """

    log: str
    reason: str
    resembles: str
    read: str
    refused: bool = True


_LEADERS_ISR = (SHRINK.mark, *(form.pattern for form in (EXPAND, ISR_UPDATED, WRITE_FAILED, LEADER)))
_ABOUT_TERM = "leader or follower line of an unknown form"
UNREAD_SHRINK: Final = MustBeRead(SERVER, "Shrinking ISR line of an unknown form", SHRINK.mark, SHRINK.pattern)
UNREAD_ISR: Final = MustBeRead(SERVER, "ISR line of an unknown form", ISR_LINE, "|".join(_LEADERS_ISR), refused=False)
"""Lines in which a leader mentions an ISR, and that match no known form. They may report shrinks in the wording of a
new release."""
MUST_BE_READ: Final = (
    UNREAD_SHRINK, UNREAD_ISR,
    MustBeRead(
        STATE_CHANGE, _ABOUT_TERM, r"\] (?:Leader|Follower) \S+ .*starts at leader epoch",
        f"{LEADER.pattern}|{FOLLOWER.pattern}",
    ),
    MustBeRead(
        STATE_CHANGE, _ABOUT_TERM, r"kipped the become-leader.*(?:artitionEpoch|zkVersion)=", STILL_LEADER.pattern
    ),
)  # fmt: skip


def unread_lines(sql: ArrowSql, lines: pa.Table, lines_of: MustBeRead) -> pa.Table:
    """Return the lines of one kind, ``lines_of``, that are in an unknown wording.

    The columns are broker_id, source_file, source_line, stamp_us and message.
    """
    return sql(
        f"""
        SELECT {SOURCE}, message FROM lines
        WHERE {matches("message", lines_of.resembles)}
            AND NOT {matches("in_new_words(message)", lines_of.read)}
        """,
        lines=lines,
    )


def unreadable_lines(sql: ArrowSql, server: pa.Table, state_changes: pa.Table) -> pa.Table:
    """Return the lines of all kinds in `MUST_BE_READ` that are in an unknown wording, as rows for table quarantine.

    ``server`` and ``state_changes`` are the lines of server.log and state-change.log.

    Returns
    -------
    pa.Table
        log, source_file, source_line, reason, raw, rows_kept.
    """
    found = [
        sql(
            f"""
            SELECT '{lines_of.log}' AS log, source_file, source_line, '{lines_of.reason}' AS reason,
                substring(message, 1, {RAW_CHARACTERS}) AS raw, {not lines_of.refused} AS rows_kept
            FROM unread
            """,
            unread=unread_lines(sql, server if lines_of.log == SERVER else state_changes, lines_of),
        )
        for lines_of in MUST_BE_READ
    ]
    return pa.concat_tables(found)


def unread_isr_lines(sql: ArrowSql, server: pa.Table) -> pa.Table:
    """Return the lines of ``server`` (server.log) in which leaders mention an ISR in an unknown wording.

    The columns are broker_id, source_file, source_line, stamp_us, topic and partition_id. The last two are null if the
    line names no partition.
    """
    partition = "topic VARCHAR, partition_id INTEGER"
    return sql(
        f"""
        WITH unread AS (FROM of_isr UNION FROM of_shrinks), split AS (
            SELECT *, {groups("in_new_words(message)", OF_PARTITION, partition)} AS p FROM unread)
        SELECT {SOURCE}, {columns_of("p", partition)} FROM split
        """,
        of_isr=unread_lines(sql, server, UNREAD_ISR),
        of_shrinks=unread_lines(sql, server, UNREAD_SHRINK),
    )

"""Account for every log line: in each kind of log, the lines read must be the sum of used, skipped and refused ones."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.unread import MUST_BE_READ
from isr_batch.errors import AccountError
from isr_batch.ingest.folder import log_folder
from isr_batch.ingest.folder.log_folder import LogFolder
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.ingest.requests.leader_and_isr import LEADER_AND_ISR
from isr_batch.ingest.requests.request_log import DUPLICATE, FILE, FOLLOWER_FETCH, PRODUCE, REFUSED

READ, USED, SKIPPED = "read", "used", "skipped"


@dataclass(frozen=True)
class Tally:
    """The number of lines of one kind of log that had the same outcome for the same reason.

    Attributes
    ----------
    log : str
        Kind of log.
    became : str
        Outcome: read, used, skipped or refused.
    what : str
        Kind of line or, for refused lines, the reason.
    lines : int
    """

    log: str
    became: str
    what: str
    lines: int


def total_lines(account: Iterable[Tally], became: str) -> int:
    """Return the number of lines with the outcome ``became``, such as `SKIPPED`, in all kinds of log."""
    return sum(tally.lines for tally in account if tally.became == became)


def refused_as_bad(account: Iterable[Tally]) -> int:
    """Return the number of refused lines. Lines that were refused as duplicates are not counted."""
    return sum(tally.lines for tally in account if tally.became == REFUSED and tally.what != DUPLICATE)


def require_balance(account: Iterable[Tally]) -> None:
    """Raise an error if a line was lost or counted twice.

    The number of lines read comes from counting newlines in the files, and the other numbers from the parsed rows.

    Raises
    ------
    AccountError
        If for some kind of log, the lines read are not the sum of the other outcomes. The message shows both numbers.
    """
    account = list(account)
    for log in dict.fromkeys(tally.log for tally in account):
        of_log = [tally for tally in account if tally.log == log]
        read = total_lines(of_log, READ)
        parts = [tally for tally in of_log if tally.became != READ]
        there = sum(tally.lines for tally in parts)
        if read != there:
            breakdown = " + ".join(f"{tally.lines} {tally.became} ({tally.what})" for tally in parts) or "none"
            raise AccountError(
                f"{read} lines of {log} logs were read, but {there} accounted for: {breakdown}",
                "nothing was written; this is a bug, unless a file was replaced while it was being read",
            )


def line_account(found: LogFolder, by_file: pa.Table, lines: LinesOfInterest, refused_lines: pa.Table) -> list[Tally]:
    """Count the lines of each kind of log that were read, used, skipped and refused.

    Return one `Tally` per kind of log, outcome and reason.

    Parameters
    ----------
    found : LogFolder
        The files. Their fingerprints contain the numbers of lines read.
    by_file : pa.Table
        Numbers of lines in request logs: the result of `isr_batch.ingest.requests.request_summary.requests_by_file`.
    lines : LinesOfInterest
        Lines of interest in the other logs, and the numbers of their other lines.
    refused_lines : pa.Table
        Refused lines of the other logs: log, source_file, source_line (null for a whole file), reason and rows_kept.
    """
    refused: Counter[tuple[str, str]] = Counter()
    classes: Counter[str] = Counter()
    for row in by_file.to_pylist():
        if row["kind"] == REFUSED:
            refused[log_folder.REQUEST, row["reason"]] += row["lines"]
        elif row["kind"] != FILE:
            classes[row["kind"]] += row["lines"]
    lost = pc.and_(pc.is_valid(refused_lines["source_line"]), pc.invert(refused_lines["rows_kept"]))
    single = refused_lines.filter(lost)
    counted = single.group_by(["log", "reason"]).aggregate([("source_line", "count")])
    for row in counted.to_pylist():
        refused[row["log"], row["reason"]] += row["source_line_count"]
    came: Counter[str] = Counter()
    for row in lines.files.to_pylist():
        came[row["kind"]] += row["lines"]

    unknown_forms = {lines_of.reason for lines_of in MUST_BE_READ}
    account = []
    for kind in log_folder.KINDS:
        of_kind = found.of_kind(kind)
        if not of_kind:
            continue
        account.append(Tally(kind, READ, "", sum(file.held.lines for file in of_kind if file.held)))
        if kind == log_folder.REQUEST:
            account += _request_tallies(classes)
        else:
            bad_lines = {reason: n for (log, reason), n in refused.items() if log == kind}
            used = lines.used[kind] - sum(n for reason, n in bad_lines.items() if reason in unknown_forms)
            account.append(Tally(kind, USED, "of interest", used))
            account.append(Tally(kind, SKIPPED, "of no interest", came[kind] - used - sum(bad_lines.values())))
        account += [Tally(kind, REFUSED, reason, n) for (log, reason), n in sorted(refused.items()) if log == kind]
    return account


def _request_tallies(classes: Mapping[str, int]) -> list[Tally]:
    """Return the tallies of used and skipped requests. ``classes`` contains the number of requests by kind."""
    used = (FOLLOWER_FETCH, PRODUCE, LEADER_AND_ISR)
    tallies = [
        Tally(log_folder.REQUEST, USED if kind in used else SKIPPED, kind, count) for kind, count in classes.items()
    ]
    return sorted(tallies, key=lambda tally: (tally.became != USED, tally.what))

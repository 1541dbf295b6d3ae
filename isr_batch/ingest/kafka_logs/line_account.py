"""Account for every log line: read = used + skipped + refused, for each kind of log."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.errors import AccountError
from isr_batch.ingest.kafka_logs import log_folder
from isr_batch.ingest.kafka_logs.log_folder import LogFolder
from isr_batch.ingest.kafka_logs.request_log import DUPLICATE, FILE, FOLLOWER_FETCH, PRODUCE, REFUSED

UNKNOWN_FORMS = ("Shrinking ISR line of an unknown form", "leader or follower line of an unknown form")
"""Reasons of `server_log.unreadable_lines`: lines of a known kind that could not be read."""

READ, USED, SKIPPED = "read", "used", "skipped"


@dataclass(frozen=True)
class Tally:
    """Count of lines of one kind of log with one outcome; ``what`` is their class, or why they were refused."""

    log: str
    became: str
    what: str
    lines: int


def total(account: Iterable[Tally], became: str) -> int:
    """Sum the lines of all logs with an outcome."""
    return sum(tally.lines for tally in account if tally.became == became)


def refused_as_bad(account: Iterable[Tally]) -> int:
    """Count the lines that could not be read; duplicates of lines that were read are not counted."""
    return sum(tally.lines for tally in account if tally.became == REFUSED and tally.what != DUPLICATE)


def require_balance(account: Iterable[Tally]) -> None:
    """Fail if a line was lost or counted twice.

    ``read`` is counted in the bytes of the files before parsing; the other counts are taken from the results.

    Raises
    ------
    AccountError
        With both sides.
    """
    account = list(account)
    for log in dict.fromkeys(tally.log for tally in account):
        of_log = [tally for tally in account if tally.log == log]
        read = total(of_log, READ)
        parts = [tally for tally in of_log if tally.became != READ]
        there = sum(tally.lines for tally in parts)
        if read != there:
            breakdown = " + ".join(f"{tally.lines} {tally.became} ({tally.what})" for tally in parts) or "none"
            raise AccountError(
                f"{read} lines of {log} logs were read, but {there} accounted for: {breakdown}",
                "nothing was written; this is a bug, unless a file was replaced while it was being read",
            )


def account_of(
    found: LogFolder,
    raw: dict[str, DataFrame],
    requests: DataFrame,
    of_interest: dict[str, DataFrame],
    quarantine: DataFrame,
) -> list[Tally]:
    """Count the lines of all logs.

    Parameters
    ----------
    found : LogFolder
        Its files' fingerprints say how many lines there are.
    raw : dict of str to DataFrame
        Lines of the other logs by kind, as `isr_batch.ingest.kafka_logs.lines.read_lines` gives them.
    requests : DataFrame
        Lines of the request logs, with ``kind``.
    of_interest : dict of str to DataFrame
        Lines of the other logs that are of a kind that is read.
    quarantine : DataFrame
        All that was refused or is doubtful, with ``rows_kept``.
    """
    kind_of = {file.name: file.kind for file in found.files}
    refused: Counter[tuple[str, str]] = Counter()
    lines = quarantine.where("source_line IS NOT NULL AND NOT rows_kept").groupBy("source_file", "reason").count()
    for row in lines.collect():
        refused[kind_of[row["source_file"]], row["reason"]] += row["count"]

    account = []
    for kind in log_folder.KINDS:
        of_kind = found.of_kind(kind)
        if not of_kind:
            continue
        account.append(Tally(kind, READ, "", sum(file.held.lines for file in of_kind if file.held)))
        if kind == log_folder.REQUEST:
            account += _classes_of_requests(requests)
        else:
            # Only lines of interest are kept after parsing, so all lines are counted in the raw frame.
            came = raw[kind].where("source_line IS NOT NULL").count()
            bad = {reason: n for (log, reason), n in refused.items() if log == kind}
            unreadable = sum(n for reason, n in bad.items() if reason in UNKNOWN_FORMS)
            used = of_interest[kind].count() - unreadable
            account.append(Tally(kind, USED, "of interest", used))
            account.append(Tally(kind, SKIPPED, "of no interest", came - used - sum(bad.values())))
        account += [Tally(kind, REFUSED, reason, n) for (log, reason), n in sorted(refused.items()) if log == kind]
    return account


def _classes_of_requests(requests: DataFrame) -> list[Tally]:
    classes = requests.where(~F.col("kind").isin(FILE, REFUSED)).groupBy("kind").count().collect()
    used = (FOLLOWER_FETCH, PRODUCE)
    return sorted(
        (
            Tally(log_folder.REQUEST, USED if row["kind"] in used else SKIPPED, row["kind"], row["count"])
            for row in classes
        ),
        key=lambda tally: (tally.became != USED, tally.what),
    )

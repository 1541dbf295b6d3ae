"""Export the brokers' drops, with their verdicts, as CSV for a spreadsheet."""

import csv
import io
import unicodedata
from typing import Final

from isr_batch.incidents.listing import listed_explain_command
from isr_batch.incidents.own_shrinks import OwnShrinks, Row
from isr_batch.phrases import utc_text
from isr_batch.printable import printable

HEAD: Final = (
    "cluster", "time_utc", "earliest_utc", "topic", "partition", "leader", "follower", "made_by", "verdict", "cause",
    "certainty", "since_caught_up_ms", "back_after_ms", "points_at_broker", "points_at", "incident", "explained_by",
)  # fmt: skip
"""Columns of the file, which has one row per follower that left an ISR. The incidents of each broker are numbered from
1. If the follower left at an unknown time before the line at ``time_utc``, it left after ``earliest_utc``.
"""


FORMULA: Final = frozenset("=+-@\N{MINUS SIGN}")
"""Characters with which a formula begins in a spreadsheet. Full-width forms count too, and so do blanks before them."""


def verdicts_csv(own: OwnShrinks, lake: str) -> str:
    """Return all followers that the brokers dropped, with the verdicts, as CSV sorted by cluster and time.

    Parameters
    ----------
    own : OwnShrinks
    lake : str
        Value of ``--lake`` in the ``isr-batch explain`` commands of the last column.

    Returns
    -------
    str
        CSV as in RFC 4180 with all fields quoted, except that lines end in LF instead of CRLF. Unknown values are
        empty, and no cell can be a formula.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    lines.writerow(HEAD)
    lines.writerows(map(_csv_text_guarded, _csv_cells(one, lake)) for one in own.drops.to_pylist())
    return text.getvalue()


def _csv_text_guarded(cell: object) -> object:
    """Put an apostrophe before text that a spreadsheet would evaluate as a formula, such as a malicious topic name."""
    if not isinstance(cell, str):
        return cell
    first = unicodedata.normalize("NFKC", cell.strip()[:1])
    return f"'{printable(cell)}" if first in FORMULA else printable(cell)


def _csv_cells(one: Row, lake: str) -> list[object]:
    """Return the cells of a drop in the order of `HEAD`."""
    back = None if one["restored_us"] is None else (one["restored_us"] - one["change_us"]) // 1000
    known = one["fault_id"] is not None
    time, earliest = (
        None if us is None else f"{utc_text(us)}.{us // 1000 % 1000:03}"
        for us in (one["change_us"], one["earliest_us"])
    )
    return [
        one["cluster_id"], time, earliest, one["topic"],
        one["partition_id"], one["leader_id"], one["replica_id"], one["made_by"], one["verdict"], one["cause"],
        one["certainty"], one["lag_ms"], back, one["fault_id"], one["points_at"], one["incident"] if known else None,
        listed_explain_command(one | {"example_us": one["change_us"]}, lake) if one["rule"] else None,
    ]  # fmt: skip

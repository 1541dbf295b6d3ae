"""Hash the names of input data files by day, which shows whether a derived table must be computed again for a day."""

import hashlib
import re
from collections import defaultdict
from datetime import date

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG

_DAY = re.compile(r"/event_date=(\d{4}-\d\d-\d\d)/")


def day_of_file(path: str) -> date | None:
    """Return the day in a data file's path (``event_date=...``), which is that of its rows; None without a day."""
    match = _DAY.search(path)
    return date.fromisoformat(match[1]) if match else None


def files_by_day(lake: Lake) -> dict[date, str]:
    """Return, for each day, a hash of the names of its data files of fetches and appends.

    A file never changes, so names identify the rows. The exception is a table that may have deletion vectors, which
    delete rows without writing a new data file. For such a table, its version is hashed as well.
    """
    names = defaultdict(list)
    for table in (FETCH_LOG, APPEND_LOG):
        gone = "" if lake.is_plain(table.name) else f" in version {lake.version(table.name)}"
        for path in lake.files(table.name):
            if day := day_of_file(path):
                names[day].append(path.rpartition("/")[2] + gone)
    return {day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest() for day, of_day in names.items()}


def made_from(lake: Lake, name: str, column: str) -> dict[date, str]:
    """Return, for each day of a derived table, the hash of the input files from which the day's rows were computed.

    The table stores this hash in ``column``; `files_by_day` computed it when the rows were computed. If `files_by_day`
    still returns the same hash for a day, the rows of this day are up to date.
    """
    columns = ["event_date", column]
    if lake.has(name) and lake.direct(name) is None:
        return dict(lake.read(name).select(columns).distinct().collect())
    rows = read_columns(lake, name, columns).group_by(columns).aggregate([])
    return dict(zip(*(rows[name].to_pylist() for name in columns), strict=True))

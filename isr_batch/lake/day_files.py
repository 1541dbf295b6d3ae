"""Find the data files of a table by day, and the files from which the rows of a derived table were made."""

import hashlib
import re
from collections import defaultdict
from datetime import date

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG

_DAY = re.compile(r"/event_date=(\d{4}-\d\d-\d\d)/")


def day_of_file(path: str) -> date | None:
    """Return the day of a data file's rows, which is in its path; None if the path has no day."""
    match = _DAY.search(path)
    return date.fromisoformat(match[1]) if match else None


def files_by_day(lake: Lake) -> dict[date, str]:
    """Return, for each day, a hash of the names of its data files of fetches and appends.

    The content of a file never changes. But a deletion vector can delete rows of a file without a new file; if the
    table may have deletion vectors, its version is hashed as well.
    """
    names = defaultdict(list)
    for table in (FETCH_LOG, APPEND_LOG):
        gone = "" if lake.is_plain(table.name) else f" in version {lake.version(table.name)}"
        for path in lake.files(table.name):
            if day := day_of_file(path):
                names[day].append(path.rpartition("/")[2] + gone)
    return {day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest() for day, of_day in names.items()}


def made_from(lake: Lake, name: str, column: str) -> dict[date, str]:
    """Return, for each day of a derived table, the hash of the files from which its rows were made.

    ``column`` is the column of the table with this hash, which `files_by_day` has computed.
    """
    columns = ["event_date", column]
    if lake.has(name) and lake.direct(name) is None:
        return dict(lake.read(name).select(columns).distinct().collect())
    rows = read_columns(lake, name, columns).group_by(columns).aggregate([])
    return dict(zip(*(rows[name].to_pylist() for name in columns), strict=True))

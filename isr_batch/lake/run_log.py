"""Write the table run_log: one row per command that ran on a lake, whether it succeeded or not."""

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from isr_batch import __version__
from isr_batch.errors import BUG_EXIT_CODE, explained_error
from isr_batch.kernel_sources import digest_of_results
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import INPUT_TABLES
from isr_batch.lake.tables.outputs import RUN_LOG
from isr_batch.printable import printable, without_credentials

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunCounts:
    """Numbers of rows that a step of a command read, wrote and refused."""

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0

    def __add__(self, other: "RunCounts") -> "RunCounts":
        """Return the sums of two steps' counts."""
        return RunCounts(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.rows_quarantined + other.rows_quarantined,
        )


class Run:
    """Sums up the counts of a running command's steps, for the command's row in ``run_log``."""

    def __init__(self) -> None:
        self.counts = RunCounts()

    def add(self, counts: RunCounts) -> None:
        """Add the counts of a finished step to those of the command."""
        self.counts += counts


def new_run_id() -> str:
    """Return a new ``run_id``: the current time in UTC, and random digits. Ids sort in chronological order."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def is_still_valid(lake: Lake, run_id: str, command: str, config_hash: str) -> bool:
    """Whether the results of the run ``run_id`` are still valid, so that ``command`` need not run again.

    The run must have been of the same command, with the same settings (``config_hash``) and the current code. It must
    have succeeded, and the input tables must not have changed since.
    """
    columns = ("command", "config_hash", "code_version", "status", "input_table_versions")
    rows = read_columns(lake, RUN_LOG.name, columns, {"run_id": run_id}).to_pylist()
    now = {"command": command, "config_hash": config_hash, "code_version": _code_version(), "status": "done"}
    versions = _versions_of_input(lake)
    return any(row.items() >= now.items() and dict(row["input_table_versions"]) == versions for row in rows)


def _code_version() -> str:
    # The version number alone does not change with every change of the source code.
    return f"{__version__}+{digest_of_results()}"


def _versions_of_input(lake: Lake) -> dict[str, int]:
    """Return {input table: its Delta version}."""
    return {table.name: lake.version(table.name) for table in INPUT_TABLES if lake.has(table.name)}


def _end_of_run(error: Exception | SystemExit) -> tuple[int, str]:
    """Return the exit code and the message to record for a command that ended with this exception."""
    if isinstance(error, SystemExit):
        return int(error.code or 0), "stopped by a signal"
    explanation = explained_error(error)
    return explanation.exit_code if explanation else BUG_EXIT_CODE, without_credentials(str(explanation or error))[
        :2000
    ]


@contextmanager
def write_run_log(lake: Lake, command: str, window: str | None, config_hash: str) -> Iterator[Run]:
    """Run a block that executes a command, and then add the command's row to ``run_log``, even after an error.

    Yields the `Run`, which collects the block's counts. An error is only recorded if the lake already contains an input
    table, because a mistyped path must not become a lake.
    """
    run = Run()
    started, clock = datetime.now(UTC), time.monotonic()

    def write(exit_code: int, message: str | None) -> None:
        """Append the row of this command to ``run_log``."""
        versions = _versions_of_input(lake)
        row = {
            "run_id": lake.run_id,
            "started_time": started,
            "command": command,
            "window": window,
            "input_table_versions": list(versions.items()),
            "code_version": _code_version(),
            "config_hash": config_hash,
            "rows_in": run.counts.rows_in,
            "rows_out": run.counts.rows_out,
            "rows_quarantined": run.counts.rows_quarantined,
            "seconds": time.monotonic() - clock,
            "status": "failed" if exit_code else "done",
            "exit_code": exit_code,
            "message": message,
        }
        if versions or not exit_code:
            with ArrowSql() as sql:
                SmallTables(lake, sql).append_once(RUN_LOG, row, lake.run_id)

    try:
        yield run
    except (Exception, SystemExit) as error:
        try:
            write(*_end_of_run(error))
        except Exception as another:  # noqa: BLE001 the error that is raised matters more
            why = explained_error(another) or f"{type(another).__name__}: {another}"
            logger.warning("run_log: the failed run could not be recorded: %s", printable(str(why)))
        raise
    write(0, None)

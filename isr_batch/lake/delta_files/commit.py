"""Commit files to a Delta table without Spark, and retry if another process commits first."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from isr_batch.errors import RETRIES, write_conflict_error
from isr_batch.lake.ddl import constraints_since
from isr_batch.lake.delta_files.open import DirectTable
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.tables.contract import Table

Actions = Sequence[AddAction | RemoveAction]


def commit(
    to: DirectTable,
    table: Table,
    actions_on: Callable[[DeltaTable], Actions],
    transactions: Sequence[Transaction] = (),
) -> None:
    """Commit added and removed files to a Delta table as one version. After a conflict, try again.

    Parameters
    ----------
    to : DirectTable
    table : Table
        Contract of the table.
    actions_on : callable
        Called with the table's current version, before each attempt. Returns the actions to commit. Without actions,
        nothing is committed.
    transactions : sequence of Transaction
        Application transactions (``txn`` actions) to record with the commit.

    Raises
    ------
    WriteConflictError
        If another process committed first at every attempt.
    """
    for attempt in range(RETRIES + 1):
        to.was_written()  # read the log again: another process may have committed
        there = to.log()
        renew_constraints(table, there)
        actions = list(actions_on(there))
        if not actions:
            return
        try:
            there.create_write_transaction(
                actions, "append", there.schema(), list(table.partitioned_by),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": to.metadata()}, app_transactions=list(transactions) or None
                ),
            )  # fmt: skip
        except CommitFailedError as error:
            if attempt == RETRIES:
                raise write_conflict_error(table.name) from error
        else:
            to.was_written()
            return


def renew_constraints(table: Table, there: DeltaTable) -> None:
    """Add the constraints that a table lacks because an earlier version of isr-batch created it."""
    if later := constraints_since(table, there.metadata().configuration):
        there.alter.set_table_properties(later, raise_if_not_exists=False)


def added(file: FileOfWorker, table: Table, *, moved: bool = False) -> AddAction:
    """Return the ``add`` action of Delta's log for a file that this process or a worker has written.

    ``moved`` means that the commit changes no data: the rows come from files that the same commit removes.
    """
    instants = {column.name for column in table.columns if column.type == "TIMESTAMP"}
    least, most = ({name: _instant_in_commit(value, up) if name in instants else value for name, value in of.items()}
                   for of, up in ((file.least, 0), (file.most, 999)))  # fmt: skip
    statistics = {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}
    day = dict.fromkeys(table.partitioned_by, file.day)
    return AddAction(file.path, file.size_bytes, day, now_ms(), not moved, json.dumps(statistics))


def removed(file: Mapping[str, Any], *, moved: bool = False) -> RemoveAction:
    """Return the ``remove`` action of Delta's log for a file, given as listed by `data_files`.

    ``moved`` means that the commit changes no data: the same commit adds the rows in another file.
    """
    of = {name.removeprefix("partition."): value for name, value in file.items() if name.startswith("partition.")}
    return RemoveAction(file["path"], not moved, now_ms(), file["size_bytes"], of or None)


def now_ms() -> int:
    """Return the current time in epoch milliseconds, the unit of actions in Delta's log."""
    return int(time.time() * 1000)


def _instant_in_commit(us: int, up: int) -> str:
    """Return an instant, in epoch microseconds, as text for the statistics in Delta's log.

    Statistics are in whole milliseconds. The instant is rounded down if ``up`` is 0, and up if it is 999.
    """
    return f"{np.datetime64((us + up) // 1000, 'ms')}Z"

"""Commit files to a Delta table without Spark, with retries if others commit first."""

import time
from collections.abc import Callable, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from isr_batch.errors import write_conflict_error
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_writes import RETRIES, renew_constraints
from isr_batch.lake.tables.contract import Table

Actions = Sequence[AddAction | RemoveAction]


def commit(
    lake: Lake,
    table: Table,
    store: Store,
    actions_on: Callable[[DeltaTable], Actions],
    transactions: Sequence[Transaction] = (),
) -> None:
    """Commit files to a Delta table as one version; nothing is committed without actions.

    Parameters
    ----------
    lake : Lake
    table : Table
    store : Store
        Where the table lies.
    actions_on : callable
        Returns the actions for a version; called again after a conflict.
    transactions : sequence of Transaction
        Keys that the commit leaves in the table's log.

    Raises
    ------
    WriteConflictError
        When others write to the same files.
    """
    for attempt in range(RETRIES + 1):
        lake.was_written(table.name)  # perhaps by others: a conflict is detected here
        there = lake.log(table.name) or store.table()
        renew_constraints(lake, table, there)
        actions = list(actions_on(there))
        if not actions:
            return
        try:
            there.create_write_transaction(
                actions, "append", there.schema(), list(table.partitioned_by),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": lake.metadata()}, app_transactions=list(transactions) or None
                ),
            )  # fmt: skip
        except CommitFailedError as error:
            if attempt == RETRIES:
                raise write_conflict_error(table.name) from error
        else:
            lake.was_written(table.name)
            return


def now_ms() -> int:
    """Return the current time for an action in Delta's log, in epoch milliseconds."""
    return int(time.time() * 1000)

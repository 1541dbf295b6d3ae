"""Errors that a person can act on, each with the exit code that a schedule can act on.

Whatever is raised and is not one of these is a bug: the command line shows its traceback and
exits with 70.
"""

from typing import ClassVar


class IsrBatchError(Exception):
    """Base of every expected failure; never raised itself.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    hint : str
        What to do about it; empty when the message says it already.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(IsrBatchError):
    """When options, settings or names given by the user are wrong; nothing was done."""

    exit_code = 2


class StorageError(IsrBatchError):
    """When the machine lets nothing more be written, or a file not be read; a person has to see to it."""

    exit_code = 2


class NoInputError(IsrBatchError):
    """When the folder, the tables or the chosen days hold nothing to work on."""

    exit_code = 3


class QualityGateError(IsrBatchError):
    """When results were written but should not be relied on: too much in quarantine, or a replay unlike the broker."""

    exit_code = 4


class SchemaError(IsrBatchError):
    """When a table is not what it should be: other columns or types than its contract's, or a damaged file."""

    exit_code = 5


class WriteConflictError(IsrBatchError):
    """When other writers kept changing the table while this one retried; running again may help."""

    exit_code = 6


class AccountError(IsrBatchError):
    """When lines got lost or were counted twice on the way, which is a bug; nothing was written."""

    exit_code = 70


BUG_EXIT_CODE = 70

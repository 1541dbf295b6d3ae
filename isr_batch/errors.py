"""Errors that a user can act on, each with an exit code for schedulers.

Any other exception is a bug: the command line shows its traceback and exits with 70.
"""

import os
import re
from traceback import walk_tb
from typing import ClassVar, Final

from isr_batch.printable import without_credentials
from isr_batch.store_faults import store_fault

_LINE_END_OF_NAME: Final = re.compile(r"\n(?!  )")
"""Matches a line end that is part of a path. All lines of a message but the first are indented, so a line end without
an indent after it can only come from a path."""


class IsrBatchError(Exception):
    """Base class of all errors that a user can act on. Only subclasses are raised.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    hint : str
        The remedy; empty if the message already names it.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = _LINE_END_OF_NAME.sub(r"\\x0a", without_credentials(message))
        self.hint = without_credentials(hint)
        super().__init__(self.message)


class UsageError(IsrBatchError):
    """Raised if an option, a setting or a name that the user gave is wrong; nothing was changed."""

    exit_code = 2


class StorageError(IsrBatchError):
    """Raised if a disk, store or process fails: no space, no permission, no memory, or a file that cannot be read."""

    exit_code = 2


class NoInputError(IsrBatchError):
    """Raised if the folder, the tables or the chosen days contain no input."""

    exit_code = 3


class NothingToReplayError(NoInputError):
    """Raised if the logs contain no follower fetch; lines of server.log alone may still answer some questions."""


class QualityGateError(IsrBatchError):
    """Raised if results are unreliable: too many input rows were refused, or the replay differs from the brokers."""

    exit_code = 4


class SchemaError(IsrBatchError):
    """Raised if a table's columns or types differ from its contract in docs/tables.md, or a file is damaged."""

    exit_code = 5


class WriteConflictError(IsrBatchError):
    """Raised if other writers changed the table during every attempt to write it; a later run may succeed."""

    exit_code = 6


RETRIES: Final = 3
"""How often a write is tried again after another writer's commit was faster."""


def write_conflict_error(name: str) -> WriteConflictError:
    """Return the error for a table ``name`` that other writers changed during every attempt to write it."""
    return WriteConflictError(
        f"other writers kept changing {name} while it was being written",
        "nothing was lost: repeat the command when they have finished",
    )


class AccountError(IsrBatchError):
    """Raised if an ingest lost input lines or counted them twice, which is a bug; nothing was written."""

    exit_code = 70


BUG_EXIT_CODE = 70
RULE_FILE: Final = "ISR_BATCH_RULE_FILE"
"""Environment variable with the path of a user's rule file. ``udfs.rules`` has the same constant, but importing it is
slow."""
MOST_SAID: Final = 600
"""Maximum number of characters that are shown of a message of numba's compiler."""

_NOTHING_HALF = "no table has half a commit, and incomplete days are not marked as done"
_NO_ROOM = re.compile(r"No space left on device|File too large|Disk quota exceeded")
_NOT_ALLOWED = re.compile(r"Permission denied|Read-only file system")
_NOT_READ = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)[.:]?\s|"
    r"SchemaError: (\S+) cannot be read: it is damaged"
)
_OTHER_TYPE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH\] Encountered error while reading file (\S+?)\. .*? column \[(.*?)\]\. "
    r"Expected Spark type (.+?), actual Parquet type (\w+)|Illegal Parquet type: (.+?)\. SQLSTATE"
)
_NO_MEMORY = re.compile(
    r"java\.lang\.OutOfMemoryError|Out of Memory Error|std::bad_alloc|\b[Cc]annot allocate memory|"
    r"can't start new thread|(?:launch|spawn) worker thread|failed to map segment"
)
_OF_SYSTEM = re.compile(r"^.*(?:Exception|Error): .*|.*\[Errno \d+\].*|.*\(os error \d+\).*", re.MULTILINE)


def unreadable_file_error(path: str) -> SchemaError:
    """Return the error, with a remedy, for a table's data file that is damaged or missing."""
    return SchemaError(
        f"{path} cannot be read: it is damaged or missing",
        "nothing was computed from it. In a lake: restore the file from a copy; or, for a table of results, move that "
        "table's folder away and run `isr-batch replay` again; for an input table, ingest the logs into a new lake. "
        "Elsewhere: repair the file",
    )


def _file_error(text: str) -> IsrBatchError | None:
    """Return the error to report if Spark's error text is about a file that it cannot read; None for any other text."""
    if other := _OTHER_TYPE.search(text):
        file, column, wanted, found, illegal = other.groups()
        hint = "write all files with one type, timestamps with coerce_timestamps='us', as Spark reads no nanoseconds"
        if illegal:
            return UsageError(f"Spark cannot read the Parquet type {illegal}", hint)
        return SchemaError(f"{file}: {column} is {found} in Parquet, and {wanted} in other files", hint)
    damaged = _NOT_READ.search(text)
    return unreadable_file_error(damaged[1] or damaged[2]) if damaged else None


def out_of_memory_error(*, in_java: bool) -> StorageError:
    """Return the error for too little memory. The remedy is a larger heap if ``in_java``, else a larger machine."""
    setting = "raise spark.driver_memory (`isr-batch config show`)" if in_java else "give the machine or container more"
    return StorageError(
        "out of memory",
        f"{setting}, or fewer days (--date) or rules (--rules) at a time, then repeat the command: {_NOTHING_HALF}",
    )


def explained_error(error: BaseException) -> IsrBatchError | None:
    """Return the error to report for an exception that a user can act on, such as a full disk; None for a bug."""
    if isinstance(error, IsrBatchError):
        return error
    text = f"{type(error).__name__}: {error}"
    if fault := _disk_error(str(error)) or store_fault(text):
        return StorageError(*fault)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return out_of_memory_error(in_java="java.lang." in text)
    if unread := _file_error(text):
        return unread
    if (file := os.environ.get(RULE_FILE)) and _is_of_numba(error):
        said = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        return UsageError(
            f"{file} cannot be compiled: {said[:MOST_SAID]}",
            "functions of a rule use numbers and the fields of udfs/records.py, and no objects: docs/add-a-rule.md",
        )
    return _system_error(error)


def _is_of_numba(error: BaseException) -> bool:
    """Whether an error passed through numba. An unknown field of a record, for example, is a KeyError inside numba."""
    return type(error).__module__.startswith("numba.") or any(name.startswith("numba.") for name in _modules_of(error))


def _is_of_ended_java(error: BaseException) -> bool:
    """Whether an error shows that Py4J lost its connection to Java or received an incomplete response."""
    if type(error).__module__.startswith("py4j."):
        return type(error).__name__ == "Py4JNetworkError"
    *_, last = "", *_modules_of(error)
    return isinstance(error, OSError | LookupError) and last.startswith("py4j.")


def _modules_of(error: BaseException) -> list[str]:
    """Return the modules through which an error passed; the last one raised it."""
    return [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]


def _system_error(error: BaseException) -> IsrBatchError | None:
    """Return the error to report if Spark's Java process ended, or if an operation on a file failed; else None."""
    if _is_of_ended_java(error):
        return StorageError(
            "Spark's Java process ended, or was stopped, before the work was done",
            f"its own messages are above; without any, the machine may have run out of memory: {_NOTHING_HALF}",
        )
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return UsageError(f"the name {error.object} is not UTF-8", "give it another name")
    if isinstance(error, OSError) and error.filename:
        return StorageError(f"{error.filename}: {error.strerror}", "check the path, then repeat the command")
    return None


def _disk_error(text: str) -> tuple[str, str] | None:
    """Return message and hint if an error text is about a full disk or missing permissions, else None."""
    for line in _OF_SYSTEM.findall(text):
        fault_line = line.strip().removeprefix("Caused by: ")
        if _NO_ROOM.search(line):
            return (
                f"a disk is full, or a quota is exceeded: {fault_line}",
                f"free space for the lake and for spark.local.dir, then repeat the command: {_NOTHING_HALF}",
            )
        if _NOT_ALLOWED.search(line):
            return (
                f"no permission to read or write a file: {fault_line}",
                "give this user access to it, then repeat the command",
            )
    return None

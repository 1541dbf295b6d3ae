"""What a machine does to a run: a full disk, files that may not be read or are damaged; told by what to do about it."""

import re

from isr_batch.errors import IsrBatchError, SchemaError, StorageError

_NO_ROOM = re.compile(r"No space left on device|File too large|Disk quota exceeded")
_NOT_ALLOWED = re.compile(r"Permission denied|Read-only file system")
_NOT_READ = re.compile(
    r"(?:\[FAILED_READ_FILE\.\w+\] Encountered error while reading file|UnreadableFileError:) (\S+?)[.:]?\s"
)
_OF_SYSTEM = re.compile(r"^.*(?:Exception|Error): .*|.*\[Errno \d+\].*", re.MULTILINE)


def explained(error: Exception) -> IsrBatchError | None:
    """Tell a fault of the machine from a bug, by what the system and Spark say; None is a bug."""
    if isinstance(error, IsrBatchError):
        return error
    for line in _OF_SYSTEM.findall(str(error)):
        told = line.strip().removeprefix("Caused by: ")
        if _NO_ROOM.search(line):
            return StorageError(
                f"a disk is full, or a limit reached: {told}",
                "make room for the lake and for Spark's local folders (spark.local.dir), then run the same command "
                "again: no table has half a commit, and what is not complete is not marked as done",
            )
        if _NOT_ALLOWED.search(line):
            return StorageError(
                f"a file may not be read or written: {told}",
                "give this user the right to it, then run the same command again",
            )
    if damaged := _NOT_READ.search(str(error)):
        return SchemaError(
            f"{damaged[1]} cannot be read: it is damaged, or gone",
            "nothing was made of it. In a lake: bring the file back, or move its table away and write it again; "
            "else mend the file",
        )
    if isinstance(error, OSError) and error.filename:
        return StorageError(f"{error.filename}: {error.strerror}", "look at the path, then run the same command again")
    return None

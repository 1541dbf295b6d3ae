"""Check that only this user can have written files with code that is about to run."""

import os
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_only_ours(path: Path) -> bool:
    """Whether only this user and root can have written a file, or can write into a folder.

    Raises
    ------
    OSError
        If the path does not exist.
    """
    status = path.stat()
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & OTHERS_WRITE

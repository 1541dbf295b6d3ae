"""Check that no other user can have written a file, before code in it is run."""

import os
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_only_ours(path: Path) -> bool:
    """Whether only this user and root can write to a file or folder: one of them owns it, and no others may write.

    Raises
    ------
    OSError
        If the path does not exist.
    """
    status = path.stat()
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & OTHERS_WRITE

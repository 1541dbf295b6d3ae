"""Files with code to be run: only accepted if no other user can have written them."""

import os
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_only_ours(path: Path) -> bool:
    """Whether only this user and root can have written a file, or can write into a folder.

    Raises
    ------
    OSError
        When it does not exist.
    """
    status = path.stat()
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & OTHERS_WRITE


def keep_to_ourselves(folder: Path) -> None:
    """Take from others the right to write into a folder of this user's.

    Raises
    ------
    OSError
        When it is not there, or not ours to change.
    """
    if not is_only_ours(folder):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~OTHERS_WRITE)

"""Where a file or a folder lies: on this machine, or behind a scheme that Spark knows."""

import re
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_address(place: str) -> bool:
    """Whether this begins with a scheme, such as ``s3://``, or ``dbfs:/`` with a single slash."""
    return _SCHEME.match(place) is not None


def absolute_address(place: str) -> str:
    """An address as it is; a path from this process's folder: the JVM's, on a cluster, is another one."""
    return place if is_address(place) else str(Path(place).resolve())

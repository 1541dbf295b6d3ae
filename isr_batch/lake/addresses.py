"""Where a file or a folder lies: on this machine, or behind a scheme that Spark knows."""

import re
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAME = re.compile(r"(`[^`]+`|\w+)(\.(`[^`]+`|\w+)){1,2}")


def is_address(place: str) -> bool:
    """Whether this begins with a scheme, such as ``s3://``, or ``dbfs:/`` with a single slash."""
    return _SCHEME.match(place) is not None


def is_glob(place: str) -> bool:
    """Whether this is a pattern of paths."""
    return bool(set("*?[") & set(place))


def is_table_name(place: str) -> bool:
    """Whether this can be the name of a table in a catalog, as ``schema.table`` or ``catalog.schema.table``."""
    return _NAME.fullmatch(place) is not None and not place.lower().endswith((".parquet", ".csv", ".gz"))


def absolute_address(place: str) -> str:
    """Return an address unchanged, and a path made absolute: on a cluster, the JVM has another working folder."""
    return place if is_address(place) else str(Path(place).resolve())

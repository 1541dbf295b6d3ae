"""Check and normalise locations of lakes and inputs: local paths, or addresses with a scheme such as ``s3://``."""

import re
from pathlib import Path

from isr_batch.errors import UsageError
from isr_batch.printable import without_credentials

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAME = re.compile(r"(`[^`]+`|\w+)(\.(`[^`]+`|\w+)){1,2}")

_NO_DELTA = re.compile(r"[\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that delta-rs refuses in a path or misreads as a slash or as the end of the address."""


def require_no_credentials(place: str) -> None:
    """Raise if an address contains credentials. Other users could see them, and tables and logs would store them.

    Raises
    ------
    UsageError
        If the address contains credentials.
    """
    if is_address(place) and without_credentials(place) != place:
        raise UsageError(
            f"an address must not have credentials in it: {place}",
            "give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in Spark's configuration",
        )


def require_delta_path(place: str) -> None:
    """Raise if no Delta table can be at this path or address.

    Raises
    ------
    UsageError
        If it contains credentials or a character that delta-rs cannot handle.
    """
    require_no_credentials(place)
    if found := _NO_DELTA.search(place):
        raise UsageError(f"{place} cannot be the path of a Delta table: it has {found[0]!a}", "give it another name")


def is_address(place: str) -> bool:
    """Whether a location begins with a scheme, such as ``s3://``, or ``dbfs:/`` with a single slash."""
    return _SCHEME.match(place) is not None


def is_glob(place: str) -> bool:
    """Whether a location is a glob pattern."""
    return bool(set("*?[") & set(place))


def is_table_name(place: str) -> bool:
    """Whether a text may be the name of a table in a catalog: ``schema.table`` or ``catalog.schema.table``."""
    return _NAME.fullmatch(place) is not None and not place.lower().endswith((".parquet", ".csv", ".gz"))


def absolute_address(place: str) -> str:
    """Return a path as an absolute path, because Spark's JVM may run in another folder. Addresses stay unchanged."""
    return place if is_address(place) else str(Path(place).resolve())

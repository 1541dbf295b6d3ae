"""Keep pyarrow from importing pandas: no command needs it, and it takes a third of a small command's time."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """An import finder that reports pandas as not installed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 the interface's
        target: ModuleType | None = None,  # noqa: ARG002 the interface's
    ) -> ModuleSpec | None:
        """Refuse to import pandas; leave all other modules to other finders (see `MetaPathFinder.find_spec`)."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
        return None


def use_arrow_alone() -> None:
    """Let Arrow look for pandas now, and not find it, so that Arrow does not import pandas later.

    Arrow imports pandas when it converts the first Python value, to recognise pandas' objects. After this call, Arrow
    does not recognise single null values of pandas; conversion of frames works as before. Therefore only commands call
    this function. If pandas is already imported, nothing changes.
    """
    hides = _NoPandas()
    sys.meta_path.insert(0, hides)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(hides)

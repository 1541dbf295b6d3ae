"""Keep pyarrow from importing pandas: no command needs it, and its import is a third of a small command's time."""

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
        """Refuse the import of pandas (`MetaPathFinder.find_spec`); leave all other modules to other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
        return None


def use_arrow_alone() -> None:
    """Let Arrow look for pandas now and not find it, so that it does not import pandas later.

    Arrow imports pandas when it converts the first Python value, to recognise pandas' objects. After this call, Arrow
    does not know single nulls of pandas; conversion of frames works as before. So only commands call it. If pandas is
    imported already, nothing changes.
    """
    hides = _NoPandas()
    sys.meta_path.insert(0, hides)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(hides)

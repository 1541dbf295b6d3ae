"""Keep pyarrow from importing pandas. No command needs pandas, and importing it takes a third of a small command."""

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
        """Raise ModuleNotFoundError for pandas. For every other module return None, so that other finders are asked."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
        return None


def use_arrow_alone() -> None:
    """Keep Arrow from importing pandas in this process: make it look for pandas once, and not find it.

    Without this, Arrow imports pandas when it converts its first Python value, in order to recognise pandas' objects.
    Afterwards Arrow no longer recognises single null values of pandas. Therefore call this only in a process that runs
    an ``isr-batch`` command, not when users' Python code imports isr_batch. Conversion of frames still works. If pandas
    is already imported, nothing changes.
    """
    hides = _NoPandas()
    sys.meta_path.insert(0, hides)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(hides)

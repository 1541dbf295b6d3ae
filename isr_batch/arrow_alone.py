"""Keep pyarrow from importing pandas: no command needs it, and its import is a third of a small command's time."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """An import finder for which pandas is not installed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 the interface's
        target: ModuleType | None = None,  # noqa: ARG002 the interface's
    ) -> ModuleSpec | None:
        """Implement `MetaPathFinder.find_spec`."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
        return None


def use_arrow_alone() -> None:
    """Make Arrow look for pandas now, while it cannot be found.

    Arrow imports pandas when it converts the first Python value, to recognise its objects. After this, it does not
    know single nulls of pandas, so that only commands do this; conversion of frames works as before. Where pandas is
    imported already, nothing changes.
    """
    hides = _NoPandas()
    sys.meta_path.insert(0, hides)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(hides)

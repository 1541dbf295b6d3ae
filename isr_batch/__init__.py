"""Replay Kafka fetch logs through every ISR rule, and say which shrinks were spurious."""

from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"
_HERE = Path(__file__).resolve().parent.parent


def _require_own(name: str) -> None:
    """Refuse to run with a foreign package that has the name of one of ours."""
    found = find_spec(name)
    origin = found.origin if found else None
    if origin is not None and Path(origin).resolve().parent.parent != _HERE:
        message = (
            f"{Path(origin).parent} is another package named {name}, and hides that of isr-batch in {_HERE}: "
            f"uninstall or rename it, or put {_HERE} first on PYTHONPATH"
        )
        raise ImportError(message, name=name)


# Both names are ones that anybody may have chosen.
_require_own("udfs")
_require_own("pipelines")

"""Replay Kafka fetch logs through every ISR rule, and say which shrinks were spurious."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isr_batch.api.analysis import Analysis
    from isr_batch.api.analyze import analyze
    from isr_batch.api.analyze import open_lake as open  # noqa: A004
    from isr_batch.api.group import (
        SHRINKS,
        SHRINKS_DDL,
        broker_facts,
        shrink_udf,
        shrink_udf_pandas,
    )
    from isr_batch.api.replayed import BrokerFacts
    from isr_batch.errors import IsrBatchError, NoInputError, QualityGateError, SchemaError, UsageError

__version__ = "0.1.0"
__all__ = [
    "SHRINKS",
    "SHRINKS_DDL",
    "Analysis",
    "BrokerFacts",
    "IsrBatchError",
    "NoInputError",
    "QualityGateError",
    "SchemaError",
    "UsageError",
    "analyze",
    "broker_facts",
    "open",
    "shrink_udf",
    "shrink_udf_pandas",
]
_MODULES = {
    "isr_batch.api.analysis": ("Analysis",),
    "isr_batch.api.analyze": ("analyze", "open"),
    "isr_batch.api.group": ("SHRINKS", "SHRINKS_DDL", "broker_facts", "shrink_udf", "shrink_udf_pandas"),
    "isr_batch.api.replayed": ("BrokerFacts",),
    "isr_batch.errors": ("IsrBatchError", "NoInputError", "QualityGateError", "SchemaError", "UsageError"),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}
_HERE = Path(__file__).resolve().parent.parent


def __getattr__(name: str) -> object:
    """Return a public name, and import its module only now. Most code that imports this package uses no public name."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), "open_lake" if name == "open" else name)


def __dir__() -> list[str]:
    """Return all names of this package, including public names that are not imported yet."""
    return [*globals(), *_NAMES]


def _require_own(name: str) -> None:
    """Raise an ImportError if Python would import another package called ``name`` instead of ours."""
    found = find_spec(name)
    origin = found.origin if found else None
    if origin is not None and Path(origin).resolve().parent.parent != _HERE:
        message = (
            f"{Path(origin).parent} is another package named {name}, and hides that of isr-batch in {_HERE}: "
            f"uninstall or rename it, or put {_HERE} first on PYTHONPATH"
        )
        raise ImportError(message, name=name)


# Another installed package may be named udfs or pipelines too.
_require_own("udfs")
_require_own("pipelines")

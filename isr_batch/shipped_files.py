"""Find the sample logs and example configurations that come with isr-batch, in a checkout or in an installed wheel."""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
_CHECKOUT: Final = _PACKAGE.parent
_WHEEL: Final = _PACKAGE / "shipped"


def shipped(name: str) -> Path:
    """Return the path of a folder of the repository, such as ``data/samples``, in this installation.

    Parameters
    ----------
    name : str
        The folder's path relative to the repository.
    """
    of_checkout = _CHECKOUT / name
    return of_checkout if (_CHECKOUT / "pyproject.toml").is_file() and of_checkout.exists() else _WHEEL / name


def examples(name: str) -> str:
    """Return the path of a shipped folder to show in a message, relative if it is inside the working directory."""
    folder = shipped(name)
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)

"""Store the machine code of compiled functions on disk, so that later processes on this machine need not compile.

This uses numba's own cache. numba only detects changes in the file of the function itself. Therefore the name of the
cache folder contains a hash of all source files that the function may call. The cache consists of pickles, which can
run any code when they are loaded, so only the user may have access to the folder.

An installed package may also include machine code that runs on any processor (`make wheel`), in a folder of the same
name next to its sources.
"""

import gc
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from numba import config
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile

import udfs
from isr_batch.errors import RULE_FILE
from isr_batch.kernel_sources import ROOMS, digest_of

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).parent / "kernels"
"""Folder of the machine code that came with the package."""
ANY_PROCESSOR = "generic", ""
"""Values of `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` with which numba compiles machine code for any processor."""


class SourcesLocator:
    """Chooses the folder in which numba stores the machine code of a function (`NUMBA_CACHE_LOCATOR_CLASSES`)."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module

    @classmethod
    def from_function(cls, function: Callable[..., object], _file: str) -> Self | None:
        """Return the locator of the folder for a function's machine code. numba calls it (see its cache locators).

        It is the first of these folders to which only this user has access: one in numba's configured cache folder, one
        next to the sources, one in the user's cache.

        Returns
        -------
        SourcesLocator or None
            If all of them are unsuitable, the locator of the folder that came with the package. None if the package
            does not contain that folder.
        """
        room = next((room for room in ROOMS if function.__module__.startswith(f"{udfs.__name__}.{room}.")), "")
        # Machine code with a user's rule gets its own folder, so that it does not replace the code of other commands.
        kind = room or ("trial" if RULE_FILE in os.environ else "replay")
        name = f"isr-batch-{kind}-{digest_of(room)[:32]}"
        for parent in _cache_folders():
            if is_ours_alone(parent / name):
                return cls(parent / name, function.__module__)
        return cls(SHIPPED / name, function.__module__) if (SHIPPED / name).is_dir() else None

    def ensure_cache_path(self) -> None:
        """Create the folder if it does not exist. Raise a PermissionError if other users have access to it."""
        if not is_ours_alone(self.folder):
            raise PermissionError(self.folder)

    def get_cache_path(self) -> str:
        """Return the folder for numba's index and machine code."""
        return str(self.folder)

    def get_source_stamp(self) -> str:
        """Return the folder's name, which contains the hash of the sources. numba uses it to find outdated code."""
        return self.folder.name

    def get_disambiguator(self) -> str:
        """Return the function's module, which distinguishes functions of the same name."""
        return self.module


def _cache_folders() -> Iterator[Path]:
    """Yield the folders in which a cache folder may be, in order of preference."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    beside = Path(udfs.__file__).parent / "__pycache__"
    if beside.parent.is_dir():
        yield beside
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "isr-batch"


def is_ours_alone(folder: Path) -> bool:
    """Return whether a cache folder is safe to use: it is this user's, and no other user has access to it.

    If the folder does not exist, it is created, and folders for other hashes of the sources are removed.
    """
    try:
        if not folder.exists():
            for old in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077 and os.access(folder, os.W_OK)


class _MachineCode(FunctionCache):  # type: ignore[misc]  # numba comes without types
    """The stored machine code of one function, in the user's folder or shipped with the package."""

    def load_overload(self, sig: object, target_context: Any) -> object:  # noqa: ANN401
        """Load the machine code for argument types ``sig``.

        numba's own method first fills ``target_context`` with all functions that numba knows. That takes 0.2 s, and is
        only needed to compile. Compiling does it itself.
        """
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def _load_overload(self, sig: object, target_context: Any) -> object:  # noqa: ANN401
        """Load the machine code for argument types ``sig`` from the user's folder, or else from the package."""
        own = super()._load_overload(sig, target_context)
        if own is not None or not SHIPPED.is_dir():  # no shipped code, as in a zip
            return own
        stamp = self._impl.locator.get_source_stamp()
        (triple, *_), code = self._index_key(sig, target_context.codegen())[1:]
        shipped = IndexDataCacheFile(str(SHIPPED / stamp), self._impl.filename_base, stamp)
        found = shipped.load((sig, (triple, *ANY_PROCESSOR), code))
        return found and self._impl.rebuild(target_context, found)

    def _save_overload(self, sig: object, data: object) -> None:
        """Save machine code, unless the locator chose the folder that came with the package."""
        if SHIPPED not in Path(self.cache_path).parents:
            super()._save_overload(sig, data)


class _CompileListener(event.Listener):  # type: ignore[misc]  # numba comes without types
    """Logs when numba compiles a function that is not in the cache."""

    def __init__(self) -> None:
        self.collecting: list[bool] = []

    def on_start(self, event: event.Event) -> None:
        """Log that a function is compiled, and stop garbage collection, which would prolong compiling by a fifth."""
        module = str(event.data["dispatcher"].py_func.__module__)
        if not self.collecting and module.startswith(f"{udfs.__name__}."):
            _say_compiling(next((what for of, what in _COMPILED.items() if module.startswith(of)), _OTHERS))
        self.collecting.append(gc.isenabled())
        gc.disable()

    def on_end(self, event: event.Event) -> None:  # noqa: ARG002
        """Turn garbage collection on again, if it was on when this compilation started."""
        if self.collecting.pop():
            gc.enable()


_COMPILED = {
    "udfs.request_log": "what reads request logs, once after an install or an upgrade: some seconds",
    "udfs.kernel.replay": "all rules, once after an install or an upgrade: half a minute or more, before the first row",
    "udfs.simulation": "the simulation, once after an install or an upgrade: a minute or more",
}
"""The message for each separately compiled part of ``udfs``: what is compiled, and how long it takes. The key is a
prefix of the module name of the function that is compiled first."""
_OTHERS = "kernels, once after an install or an upgrade: some seconds"


@lru_cache
def _say_compiling(what: str) -> None:
    """Log that ``what`` is being compiled, unless this was logged before."""
    logger.info("compiling %s", what)


@lru_cache
def _listen_for_compiling() -> None:
    """Register a listener that logs when numba compiles a function. Further calls do nothing."""
    event.register("numba:compile", _CompileListener())


def keep_compiled_by_numba(functions: Sequence[Callable[..., object]]) -> None:
    """Make functions that numba compiles load their machine code from the cache on disk, and save new code there.

    If no folder is suitable, a warning is logged, and each process compiles the functions again.
    """
    _listen_for_compiling()
    others, config.CACHE_LOCATOR_CLASSES = config.CACHE_LOCATOR_CLASSES, f"{__name__}.{SourcesLocator.__name__}"
    try:
        for function in functions:
            kernel: Any = getattr(function, "compiled", function)
            kernel._cache = _MachineCode(kernel.py_func)  # noqa: SLF001  # `enable_caching` takes no class
    except RuntimeError as error:
        logger.warning(
            "compiled kernels cannot be cached, so each process compiles them again (half a minute): %s", error
        )
    finally:
        config.CACHE_LOCATOR_CLASSES = others

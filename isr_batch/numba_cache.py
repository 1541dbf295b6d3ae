"""Cache the machine code of compiled functions on disk, for later processes of this machine.

numba's own cache takes functions that close over compiled functions for new ones in every process, and does not see
a change in another file. Here the key is the source of all that a function may call.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import CPUCodegen

import udfs
from isr_batch.own_files import is_only_ours, keep_to_ourselves

logger = logging.getLogger(__name__)

ROOMS = ("request_log",)
"""Rooms of ``udfs`` that no replay uses: a change there compiles no rule again."""


class _Index(IndexDataCacheFile):  # type: ignore[misc]  # numba comes without types
    """Index of an entry point's machine code. One that names a class that is gone is of other sources, and void.

    Both are pickles, which run what they say: those that others may have written are as good as none.
    """

    def _load_index(self) -> dict[object, str]:
        try:
            if not is_only_ours(Path(self._index_path)):
                return {}
            return super()._load_index()  # type: ignore[no-any-return]
        except (AttributeError, ImportError, FileNotFoundError):
            return {}

    def _load_data(self, name: str) -> object:
        if not is_only_ours(Path(self._data_path(name))):
            raise PermissionError(name)
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        with super()._open_for_write(filepath) as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the user's mask
            yield file


class _SourceCache(FunctionCache):  # type: ignore[misc]  # numba comes without types
    """Overloads of an entry point, in numba's location: next to the sources, or in the user's cache folder."""

    def __init__(self, function: Callable[..., object], sources: str) -> None:
        super().__init__(function)
        self._impl.locator.ensure_cache_path()
        keep_to_ourselves(Path(self._cache_path))
        self._cache_file = _Index(self._cache_path, self._impl.filename_base, sources)

    def load_overload(self, sig: object, target_context: object) -> object:
        """As numba's; what it does not find is compiled next, which is said once a process."""
        found = super().load_overload(sig, target_context)
        if found is None:
            _say_compiling()
        return found

    def _index_key(self, sig: object, codegen: CPUCodegen) -> tuple[object, object]:
        return sig, codegen.magic_tuple()


@lru_cache
def _say_compiling() -> None:
    logger.info("compiling kernels, once after an install or an upgrade: a minute or two")


@lru_cache
def digest_of(room: str = "") -> str:
    """Hash the sources of ``udfs`` as a key of numba's cache: without `ROOMS`, or one of these and what all share."""
    digest = hashlib.sha256()
    for source in _sources_in(files(udfs), room):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources_in(folder: Traversable, room: str) -> Iterator[Traversable]:
    """Python files of a package, which spark-submit may have sent as a zip."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name == room if room else entry.name not in ROOMS:
                yield from _sources_in(entry, "")
        elif entry.name.endswith(".py"):
            yield entry


def keep_compiled(functions: Sequence[Callable[..., object]], sources: str) -> None:
    """Let entry points load their machine code from numba's cache, and save what they compile.

    Where no folder can be written, they compile as they would without.

    Parameters
    ----------
    functions : sequence of compiled functions
    sources : str
        As `digest_of` gives it.
    """
    try:
        for function in functions:
            kernel: Any = function
            # numba's cache=True puts its own cache in the same place.
            kernel._cache = _SourceCache(kernel.py_func, sources)  # noqa: SLF001
    except (OSError, RuntimeError) as error:
        logger.warning("compiled kernels are not kept, which takes a minute in each process: %s", error)

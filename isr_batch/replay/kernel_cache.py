"""Kernels compiled once a machine: their machine code on disk, for every process that comes later.

numba's own cache takes functions that close over compiled functions for new ones in every process. Here the key is
the source of all of ``udfs``, so that a change anywhere in it compiles anew.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import CPUCodegen

import udfs
from udfs.kernel.replay import kernels
from udfs.simulation.loop import simulation

logger = logging.getLogger(__name__)


class _SourceCache(FunctionCache):  # type: ignore[misc]  # numba comes without types
    """Overloads of an entry point, in numba's place for them: beside the sources, else in the user's cache folder."""

    def __init__(self, function: Callable[..., object], sources: str) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, sources)

    def _index_key(self, sig: object, codegen: CPUCodegen) -> tuple[object, object]:
        return sig, codegen.magic_tuple()


@lru_cache(maxsize=1)
def digest_of_sources() -> str:
    """A hash of all of ``udfs``: machine code, and states that it has left, are of these sources alone."""
    digest = hashlib.sha256()
    for source in _sources_in(files(udfs)):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources_in(folder: Traversable) -> Iterator[Traversable]:
    """Python files of a package, which spark-submit may have sent as a zip."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources_in(entry)
        elif entry.name.endswith(".py"):
            yield entry


@lru_cache(maxsize=1)
def keep_compiled() -> None:
    """Let the entry points of this process load their machine code, and save what they compile.

    Where no folder can be written, they compile as they would without.
    """
    try:
        sources = digest_of_sources()
        for function in (*kernels(), simulation()):
            kernel: Any = function
            # numba's cache=True puts its own cache in the same place.
            kernel._cache = _SourceCache(kernel.py_func, sources)  # noqa: SLF001
    except (OSError, RuntimeError) as error:
        logger.info("compiled kernels are not kept: %s", error)

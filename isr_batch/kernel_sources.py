"""Hash the source code. Compiled kernels, stored replay states and results are only reused for the same hash."""

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import udfs
from isr_batch.errors import RULE_FILE

ROOMS = ("request_log",)
"""Subpackages of ``udfs`` that replays do not use. A change in them does not recompile any rule."""


@lru_cache
def digest_of(room: str = "") -> str:
    """Return a hash of the sources on which compiled functions depend.

    ``room`` is one of `ROOMS`, the subpackages of ``udfs`` that are hashed separately. Without it, the hash is of all
    other sources of ``udfs`` and of the user's rule file.
    """
    digest = hashlib.sha256()
    for source in _sources_in(files(udfs), room):
        digest.update(source.read_bytes())
    if not room and (file := os.environ.get(RULE_FILE)):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


@lru_cache
def digest_of_results() -> str:
    """Return a hash, in twelve hex digits, of the sources of ``isr_batch`` and ``udfs`` that affect results."""
    digest = hashlib.sha256(digest_of().encode())
    for source in _sources_in(files("isr_batch"), "", (".py", ".sql")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _sources_in(folder: Traversable, room: str, ends: tuple[str, ...] = (".py",)) -> Iterator[Traversable]:
    """Yield the source files of a package and its subpackages, except `ROOMS`; with ``room``, only of this subpackage.

    ``ends`` are the file endings. The package may be inside a zip that spark-submit sent.
    """
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name == room if room else entry.name not in ROOMS:
                yield from _sources_in(entry, "", ends)
        elif entry.name.endswith(ends):
            yield entry

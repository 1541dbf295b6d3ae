"""Hash the source code; machine code, stored replay states and results are valid only for the same hash."""

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
"""Subpackages of ``udfs`` that no replay uses: a change in them compiles no rule again."""


@lru_cache
def digest_of(room: str = "") -> str:
    """Return a hash of the sources of ``udfs`` without `ROOMS`, or of one of `ROOMS` and the sources that it shares."""
    digest = hashlib.sha256()
    for source in _sources_in(files(udfs), room):
        digest.update(source.read_bytes())
    if not room and (file := os.environ.get(RULE_FILE)):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


@lru_cache
def digest_of_results() -> str:
    """Return a hash of the sources of ``isr_batch`` and ``udfs`` that results depend on, in twelve hex digits."""
    digest = hashlib.sha256(digest_of().encode())
    for source in _sources_in(files("isr_batch"), "", (".py", ".sql")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _sources_in(folder: Traversable, room: str, ends: tuple[str, ...] = (".py",)) -> Iterator[Traversable]:
    """Yield the files of a package with these endings; a zip that spark-submit has sent is read as well."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name == room if room else entry.name not in ROOMS:
                yield from _sources_in(entry, "", ends)
        elif entry.name.endswith(ends):
            yield entry

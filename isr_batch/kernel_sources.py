"""Hash the sources of ``udfs``: machine code and stored states of replays are valid only for the same hash."""

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
"""Subpackages of ``udfs`` that no replay uses: after a change there, no rule is compiled again."""


@lru_cache
def digest_of(room: str = "") -> str:
    """Hash the sources of ``udfs`` that a kernel may use: all except `ROOMS`, or one of `ROOMS` and what it shares."""
    digest = hashlib.sha256()
    for source in _sources_in(files(udfs), room):
        digest.update(source.read_bytes())
    if not room and (file := os.environ.get(RULE_FILE)):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def _sources_in(folder: Traversable, room: str) -> Iterator[Traversable]:
    """List the Python files of a package, which spark-submit may have sent as a zip."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name == room if room else entry.name not in ROOMS:
                yield from _sources_in(entry, "")
        elif entry.name.endswith(".py"):
            yield entry

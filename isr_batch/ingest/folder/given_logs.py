"""Copy logs from streams (such as kubectl's output) or from an object store into one folder, for ``--logs``."""

import errno
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa
from pyarrow import fs

from isr_batch.errors import IsrBatchError, NoInputError, UsageError
from isr_batch.ingest.log_files.archives import MAX_MEMBERS
from isr_batch.ingest.log_files.limits import MAX_UNPACKED_BYTES
from isr_batch.lake.addresses import is_address, require_no_credentials

STDIN = "-"
_NAMED = re.compile(r"([\w][\w.-]*)=(.+)")
_HOW = "give one folder, or streams: --logs - or --logs kafka-0=FILE --logs kafka-1=FILE"
_DECORATION = re.compile("\x1b\\[[0-9;]*m|↳")
"""Pattern of the colour codes and arrows in error messages of delta-rs."""
_NO_LIBRARY = re.compile(r"dlopen|lib(?:hdfs|jvm)\.|(?i:classpath)|NoClassDefFound")
_FROM_HDFS = (
    "Arrow needs Java and Hadoop's libhdfs for HDFS: set JAVA_HOME, HADOOP_HOME and CLASSPATH (`hadoop classpath "
    "--glob`), or copy the logs with `hdfs dfs -get`"
)
_COPIED_BYTES = 1 << 22
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _GivenLogsBudget:
    """How many bytes and files may still be copied. The limits are the same as for unpacking an archive."""

    def __init__(self) -> None:
        self.bytes, self.files = MAX_UNPACKED_BYTES, MAX_MEMBERS

    def copy(self, stream: IO[bytes] | Any, to: Path) -> None:  # noqa: ANN401 pyarrow's streams have no type
        """Copy a stream to the file ``to``, and raise an error if a limit is exceeded."""
        self.files -= 1
        if self.files < 0:
            raise UsageError(f"there are more than {MAX_MEMBERS:,} files", _IN_PARTS)
        with to.open("wb") as written:
            while chunk := stream.read(_COPIED_BYTES):
                self.bytes -= len(chunk)
                if self.bytes < 0:
                    raise UsageError(f"the logs have more than {MAX_UNPACKED_BYTES >> 30} GiB", _IN_PARTS)
                written.write(chunk)


_IN_PARTS = "copy them to a folder and give that, or give parts of them one after the other"


@contextmanager
def given_logs(places: Sequence[str]) -> Iterator[Path]:
    """Return a context manager that yields a folder with the logs given by ``--logs``.

    Logs from streams or stores are copied to a temporary folder, which is deleted when the context ends.

    Parameters
    ----------
    places : sequence of str
        Either one folder, one address in an object store, or ``-`` for stdin; or several ``NAME=FILE``. FILE is then a
        file, a pipe or ``-``, and NAME the broker or container that wrote the log.

    Raises
    ------
    UsageError
        If the places cannot be combined.
    NoInputError
        When a file or an address cannot be read.
    """
    streams = [_stream(place) for place in places]
    if len(places) == 1 and streams == [None] and not is_address(places[0]):
        yield Path(places[0])
        return
    if len(places) != 1 and None in streams:
        raise UsageError(f"--logs {', '.join(places)}: these cannot be combined", _HOW)
    named = [stream for stream in streams if stream]
    if sum(source == STDIN for _, source in named) > 1 or len({name for name, _ in named}) < len(named):
        raise UsageError("each stream needs its own name, and only one can be stdin", _HOW)
    budget = _GivenLogsBudget()
    with tempfile.TemporaryDirectory(prefix="isr-batch-logs-") as top:
        folder = Path(top) / (PurePosixPath(places[0]).name if not named else "logs")
        folder.mkdir()
        if named:
            for name, source in named:
                _copy_stream(source, folder / name, budget)
        else:
            _copy_store(places[0], folder, budget)
        try:
            yield folder
        except IsrBatchError as error:  # the copy is gone when the message is read
            error.message = error.message.replace(str(folder), shown_places(places))
            raise


def shown_places(places: Sequence[str]) -> str:
    """Return the values of ``--logs`` as text for a message, with stdin instead of ``-``."""
    return ", ".join("stdin" if place == STDIN else place for place in places)


def _stream(place: str) -> tuple[str, str] | None:
    """Return (name, source) of a stream, given as ``NAME=SOURCE`` or ``-`` (stdin); None for a folder or an address."""
    if place == STDIN:
        return "stdin", STDIN
    found = None if Path(place).exists() or is_address(place) else _NAMED.fullmatch(place)
    return (found[1], found[2]) if found else None


def _copy_stream(source: str, folder: Path, budget: _GivenLogsBudget) -> None:
    """Copy a stream, a path or stdin, to ``stdout.log`` in a new folder. ``budget`` limits the bytes to copy."""
    folder.mkdir()
    to = folder / "stdout.log"
    if source == STDIN:
        budget.copy(sys.stdin.buffer, to)
        return
    try:
        with Path(source).open("rb") as stream:
            budget.copy(stream, to)
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise NoInputError(f"{source} cannot be read: {error.strerror}", _HOW) from error


def _copy_store(address: str, folder: Path, budget: _GivenLogsBudget) -> None:
    """Copy all files below an address in an object store, using the credentials in the environment.

    ``budget`` limits the bytes to copy.
    """
    from isr_batch.lake.delta_files.stores import store_of  # imports Spark, which logs in a folder do not need

    require_no_credentials(address)
    try:
        store = store_of(address, lambda _: None)
    except UsageError as error:
        raise UsageError(f"logs cannot be read: {error.message}", _HOW) from error
    try:
        if store.is_folder and not Path(store.uri).is_dir():
            raise NoInputError(f"there is no folder {address}", _HOW)
        files = store.files() if not address.startswith("hdfs:") else fs.FileSystem.from_uri(address)[0]
        top = fs.FileSystem.from_uri(address)[1] if address.startswith("hdfs:") else ""
        every = files.get_file_info(fs.FileSelector(top, recursive=True))
        folders = {"", *(info.path for info in every if info.type == fs.FileType.Directory)}
        for info in every:
            name = PurePosixPath(info.path).relative_to(top) if top else PurePosixPath(info.path.lstrip("/"))
            is_folder = info.size == 0 and info.path in folders  # an empty object that consoles write for a folder
            if info.type == fs.FileType.File and not is_folder and ".." not in name.parts:
                to = folder / name
                to.parent.mkdir(parents=True, exist_ok=True)
                with files.open_input_stream(info.path, compression=None) as stream:
                    budget.copy(stream, to)
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        reason = _DECORATION.sub("", str(error)).strip().splitlines()[-1].strip()[:200]
        how = _FROM_HDFS if _NO_LIBRARY.search(reason) else "check the address and the credentials"
        raise NoInputError(f"{address} cannot be read: {reason}", how) from error

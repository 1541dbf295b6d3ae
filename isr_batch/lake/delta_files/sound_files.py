"""Verify data files: a flipped bit must be an error, not a wrong figure.

Pages have checksums within the file, which all readers verify. A footer has none, and reading a damaged one may return
anything or crash the process. Object stores and HDFS verify their own data. In a local folder each file has its
checksums next to it, where Hadoop's local file system writes and verifies those of Spark's files.
"""

import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from isr_batch.lake.delta_files.stores import Store

WRITTEN: Final = {"write_page_checksum": True}
READ: Final = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}
FORMAT: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
    coerce_int96_timestamp_unit="us",
)
CHUNK: Final = 1 << 16
"""Bytes that have a checksum; Hadoop takes 512, and reads any number."""
_MAGIC, _HEAD = b"crc\0", 8
_TAIL: Final = 8
"""Length of the footer, and Parquet's mark."""


class UnsoundFileError(pa.ArrowInvalid):  # type: ignore[misc]
    """A file differs from what was written."""


def checksums_beside(file: Path) -> Path:
    """Path of the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


def write_checksums(store: Store, path: str) -> None:
    """Write the checksums of a complete file."""
    if not store.is_folder:
        return
    file = Path(store.uri, path)
    with file.open("rb") as stream:
        sums = [zlib.crc32(chunk).to_bytes(4, "big") for chunk in iter(lambda: stream.read(CHUNK), b"")]
    checksums_beside(file).write_bytes(b"".join([_MAGIC, CHUNK.to_bytes(4, "big"), *sums]))


def require_sound_footer(store: Store, path: str) -> None:
    """Fail if the end of a file differs from what was written; older files have no checksums.

    Raises
    ------
    UnsoundFileError, OSError
        When it differs, or the file is gone.
    """
    file = Path(store.uri, path)
    if not store.is_folder or not checksums_beside(file).exists():
        return
    sums = checksums_beside(file).read_bytes()
    chunk = int.from_bytes(sums[len(_MAGIC) : _HEAD], "big")
    size = file.stat().st_size
    if sums[: len(_MAGIC)] != _MAGIC or not chunk or len(sums) != _HEAD + 4 * -(-size // chunk):
        raise UnsoundFileError("its length differs from its checksums")
    with file.open("rb") as stream:
        stream.seek(max(0, size - _TAIL))
        footer = int.from_bytes(stream.read(4), "little") + _TAIL
        for number in range(max(0, size - footer) // chunk, -(-size // chunk)):
            stream.seek(number * chunk)
            if zlib.crc32(stream.read(chunk)) != int.from_bytes(sums[_HEAD + 4 * number :][:4], "big"):
                raise UnsoundFileError("its checksum differs")

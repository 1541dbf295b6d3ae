"""Write and verify checksums of data files, so that a flipped bit causes an error instead of a wrong number.

Parquet pages contain checksums, which all readers here verify. Footers contain none, and a reader of a damaged footer
may return wrong values or crash. Object stores and HDFS verify their own data. In a local folder, a second file next to
each data file contains the checksums of the whole data file. Its name and format are those of Hadoop's local file
system, which writes and verifies such files for Spark.
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
"""Number of bytes per checksum. Hadoop writes a checksum per 512 bytes, but reads files with any number."""
_MAGIC, _HEAD = b"crc\0", 8
_TAIL: Final = 8
"""Size in bytes of the end of a Parquet file, which contains the footer's length and the magic number."""


class UnsoundFileError(pa.ArrowInvalid):  # type: ignore[misc]
    """Raised if the content of a file has changed since it was written."""


def checksums_beside(file: Path) -> Path:
    """Return the path of the file with the checksums of ``file``: ``.NAME.crc`` in the same folder."""
    return file.with_name(f".{file.name}.crc")


def write_checksums(store: Store, path: str) -> None:
    """Write the checksums of a complete data file to the file next to it. Outside local folders, do nothing."""
    if not store.is_folder:
        return
    file = Path(store.uri, path)
    with file.open("rb") as stream:
        sums = [zlib.crc32(chunk).to_bytes(4, "big") for chunk in iter(lambda: stream.read(CHUNK), b"")]
    checksums_beside(file).write_bytes(b"".join([_MAGIC, CHUNK.to_bytes(4, "big"), *sums]))


def require_sound_footer(store: Store, path: str) -> None:
    """Verify the footer of a data file in a local folder. A file of an earlier release, without checksums, is accepted.

    Raises
    ------
    UnsoundFileError, OSError
        If the footer or the file's length has changed since the file was written, or if the file was deleted.
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

"""Let workers and delta-rs access tables in local folders, on HDFS, and in object stores.

Spark gets endpoints and credentials from Hadoop's configuration. delta-rs does not read this configuration, so this
module converts it to delta-rs' options.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.errors import PySparkException

from isr_batch.errors import UsageError
from isr_batch.lake.addresses import is_address

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Setting = Callable[[str], str | None]
"""Function that returns the value of a setting in Hadoop's configuration by its name; None if it is not set."""

WITHOUT: Final = "--timelines none replays without timelines; `isr-batch timeline` computes those of one partition"
S3: Final = ("s3", "s3a", "s3n")
"""Schemes that Spark accepts for addresses on S3."""
_AZURE: Final = ("abfs", "abfss")
_HDFS: Final = ("hdfs", "viewfs")
DIRECT: Final = (*S3, *_HDFS)
"""Schemes of stores in which small tables are read and committed with delta-rs instead of Spark. These stores are
tested with real servers."""


@dataclass(frozen=True)
class Store:
    """Location of a table, and the options that delta-rs needs to access it without Spark.

    Attributes
    ----------
    uri : str
        Folder or address in the form that delta-rs accepts.
    options : dict of str
        Options for delta-rs. They may contain credentials, so they must never be printed.
    """

    uri: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_s3(self) -> bool:
        """Whether the table is on S3 or an S3-compatible store."""
        return self.uri.startswith("s3:")

    @property
    def is_folder(self) -> bool:
        """Whether the table is in a local folder."""
        return not is_address(self.uri)

    def has_table(self) -> bool:
        """Whether there is a Delta table at this location."""
        return deltalake.DeltaTable.is_deltatable(self.uri, self.options or None)

    def is_reached(self) -> bool:
        """Whether delta-rs can reach the store. If not, the type of the error is logged, without credentials."""
        try:
            self.has_table()
        except (OSError, DeltaError) as error:
            logger.info("%s is left to Spark, as delta-rs does not reach it: %s", self.uri, type(error).__name__)
            return False
        return True

    def table(self) -> deltalake.DeltaTable:
        """Return the newest version of the table's Delta log.

        Raises
        ------
        TableNotFoundError
            If the table does not exist.
        UsageError
            If the store cannot be reached.
        """
        if self.is_folder:
            return deltalake.DeltaTable(self.uri)
        try:
            return deltalake.DeltaTable(self.uri, storage_options=self.options or None)
        except TableNotFoundError:
            raise
        except (OSError, DeltaError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise UsageError(
                f"Spark reaches {self.uri}, but delta-rs, which writes timelines, does not: {reason[:200]}",
                f"it uses the credentials in Hadoop's configuration and in the environment; {WITHOUT}",
            ) from error

    def files_of_log(self) -> object:
        """Return a value that changes with each commit to a table in a local folder, to see whether a cache is stale.

        For other stores the value is always None, because listing the log would cost a request.
        """
        log = Path(self.uri, "_delta_log")
        if not self.is_folder or not log.is_dir():
            return None
        folder = log.stat()  # if a table was deleted and created again, its log files may have the same names as before
        return folder.st_ino, folder.st_mtime_ns, sorted(file.name for file in log.iterdir())

    def files(self) -> "FileSystem":
        """Return a file system whose root is the table's folder, for reading and writing."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

        if self.is_folder:
            return SubTreeFileSystem(self.uri, LocalFileSystem())
        return PyFileSystem(DeltaStorageHandler(self.uri, self.options or None))

    def address(self, path: str) -> str:
        """Return the full address of a file, for messages. ``path`` is relative to the table's folder."""
        return f"{self.uri}/{path}"


def hadoop_setting(spark: "SparkSession", name: str) -> str | None:
    """Return a setting of Hadoop's configuration; None if it is not set, or if the session is of Spark Connect."""
    try:
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 there is no public way
    except (AttributeError, PySparkException):
        return None
    hidden = hadoop.getPassword(name)  # which also looks in credential providers
    return None if hidden is None else "".join(hidden)


def log_store(spark: "SparkSession", scheme: str) -> str | None:
    """Return the class name of the log store configured for a scheme, if it is safe; else None.

    Delta's own log store for S3 is unsafe: it only allows one writer.
    """
    name = spark.conf.get(f"spark.delta.logStore.{scheme}.impl", None)
    return None if name and name.endswith(".S3SingleDriverLogStore") else name


def store_of(location: str, setting: Setting) -> Store:
    """Convert an address that Spark uses, and Hadoop's settings for it, to a `Store`.

    Parameters
    ----------
    location : str
        Address with its scheme, such as ``file:/tmp/lake/replica_states``.
    setting : callable
        Returns a setting of Hadoop's configuration by name.

    Raises
    ------
    UsageError
        If delta-rs cannot access the address.
    """
    if "%" in location:
        raise UsageError(f"delta-rs cannot open a path with a %: {location}", f"rename the folder; {WITHOUT}")
    if location.startswith("file:"):
        return Store(re.sub("^file:/+", "/", location))
    address = urlsplit(location)
    if address.scheme in S3:
        return Store(f"s3://{address.netloc}{address.path}", _options_of_s3(address.netloc, setting))
    if address.scheme in _AZURE:
        return Store(location, _options_of_azure(address.netloc, setting))
    if address.scheme in (*_HDFS, "gs"):
        return Store(location)
    raise UsageError(f"this process has no access to {address.scheme}: addresses, such as {location}", WITHOUT)


def _options_of_s3(bucket: str, setting: Setting) -> dict[str, str]:
    """Convert Hadoop's settings for an S3 bucket to options for delta-rs."""

    def of_bucket(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    given = {
        "aws_access_key_id": of_bucket("access.key"),
        "aws_secret_access_key": of_bucket("secret.key"),
        "aws_session_token": of_bucket("session.token"),
        "aws_region": of_bucket("endpoint.region"),
    }
    endpoint = of_bucket("endpoint")
    if endpoint:
        secure = (of_bucket("connection.ssl.enabled") or "true") == "true"
        url = endpoint if "://" in endpoint else f"http{'s' if secure else ''}://{endpoint}"
        given |= {"aws_endpoint_url": url, "allow_http": str(url.startswith("http:")).lower()}
    given["aws_virtual_hosted_style_request"] = "false" if of_bucket("path.style.access") == "true" else None
    return {name: value for name, value in given.items() if value}


def _options_of_azure(netloc: str, setting: Setting) -> dict[str, str]:
    """Convert Hadoop's settings for an Azure storage account to options for delta-rs."""
    host = netloc.rpartition("@")[2]
    key = setting(f"fs.azure.account.key.{host}")
    return {"azure_storage_account_name": host.partition(".")[0]} | ({"azure_storage_account_key": key} if key else {})

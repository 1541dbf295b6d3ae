"""An S3 server on loopback, with the settings for Spark, delta-rs and Arrow.

It is moto's, in a separate environment, because its boto3 needs an older dateutil than the tests:
``pip install "moto[s3,server]"``, and ``MOTO_SERVER=PATH/bin/moto_server``.
"""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which

from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

from isr_batch.lake.delta_files.stores import Store, store_of

MOTO = which(os.environ.get("MOTO_SERVER", "moto_server"))
INSTALL = 'it needs moto\'s server: pip install "moto[s3,server]" elsewhere, and MOTO_SERVER=PATH/bin/moto_server'
BUCKET = "bucket"
SECRET = "do-not-show-this"  # noqa: S105 of a server that takes any
_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0", "software.amazon.awssdk:bundle:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.0",
)  # fmt: skip
_EXCLUDED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
_STARTS_S = 60


def free_port() -> int:
    """A free port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Keep a server with an empty bucket while it is needed; gives its address.

    Raises
    ------
    RuntimeError
        When it does not start.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(MOTO), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            until = time.monotonic() + _STARTS_S
            while not _makes_bucket(url):
                if server.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"no S3 server: {log.read_text()[-2000:]}\n{INSTALL}")
                time.sleep(0.5)
            yield url
        finally:
            server.terminate()


def _makes_bucket(url: str) -> bool:
    with suppress(OSError):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"))  # noqa: S310 loopback
        return True
    return False


def s3a_settings(endpoint: str) -> dict[str, str]:
    """Settings of Hadoop's S3A, from which delta-rs gets its own as well."""
    given = {
        "endpoint": endpoint, "endpoint.region": "us-east-1", "path.style.access": "true", "access.key": "key",
        "secret.key": SECRET, "connection.ssl.enabled": "false", "attempts.maximum": "2", "retry.limit": "2",
    }  # fmt: skip
    return {f"fs.s3a.{name}": value for name, value in given.items()}


def submit_arguments(endpoint: str, **options: str) -> str:
    """Give PYSPARK_SUBMIT_ARGS of a session that knows S3A, with further options of Spark."""
    options = {f"spark.hadoop.{name}": value for name, value in s3a_settings(endpoint).items()} | options
    given = [f"--conf {name}={value}" for name, value in options.items()]
    return f"--packages {','.join(_PACKAGES)} --exclude-packages {_EXCLUDED} {' '.join(given)} pyspark-shell"


def store_on(endpoint: str, address: str) -> Store:
    """How delta-rs reaches an address on the server."""
    return store_of(address, s3a_settings(endpoint).get)


def upload(folder: Path, endpoint: str, address: str) -> None:
    """Copy a folder to an address on the server."""
    server = S3FileSystem(
        access_key="key", secret_key=SECRET, region="us-east-1", endpoint_override=endpoint.partition("://")[2],
        scheme="http",
    )  # fmt: skip
    to = address.partition("://")[2]
    copy_files(str(folder), to, source_filesystem=LocalFileSystem(), destination_filesystem=server)

"""HDFS on loopback: a name node and a data node, in a separate process.

It needs ``org.apache.hadoop:hadoop-client-minicluster:3.5.0`` from Maven: ``HDFS_MINICLUSTER=PATH`` of its jar.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

JAR = os.environ.get("HDFS_MINICLUSTER")
INSTALL = "it needs org.apache.hadoop:hadoop-client-minicluster:3.5.0 from Maven: HDFS_MINICLUSTER=PATH of its jar"
_SOURCE = Path(__file__).parent / "MiniHdfs.java"
_SPARKS_JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def running(jar: str, folder: Path) -> Iterator[str]:
    """Keep an empty file system, whose blocks are in a folder, while it is needed; gives its address.

    Raises
    ------
    RuntimeError
        When it does not start.
    """
    command = ["java", "-cp", f"{_SPARKS_JARS}/*:{jar}", str(_SOURCE), str(folder / "hdfs")]
    log = folder / "hdfs.log"
    # It ends when its standard input does.
    with (
        log.open("w") as err,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True) as server,
    ):
        assert server.stdout
        port = server.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"no HDFS: {log.read_text()[-2000:]}\n{INSTALL}")
        yield f"hdfs://127.0.0.1:{port}"

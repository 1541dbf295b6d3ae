"""Create a Spark home next to PySpark's commands, so that they work no matter which Python is first on PATH.

By default, ``.venv/bin/spark-submit`` asks the first ``python3`` on PATH where Spark is, and runs the job with this
Python. Unless the environment is activated, this is the system's Python, in which neither Spark nor this package is
installed. However, PySpark's commands first look for a folder ``spark-distribution`` next to them.
``python -m isr_batch.spark_home`` (`make setup` runs it) creates this folder. It contains links to PySpark's own files,
and settings that name the driver's Python and enable Delta, so that ``spark-sql`` can read a lake, too.
"""

import sys
from pathlib import Path
from typing import Final

import pyspark

_PARTS: Final = ("bin", "sbin", "jars", "python")
_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # A metastore would create a database in the working folder.
    "spark.sql.catalogImplementation": "in-memory",
    # By default, 50 tasks read Delta's log, which takes seconds per table, and a query may read several tables.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def make_spark_home(scripts: Path, python: Path) -> Path:
    """Create the folder ``spark-distribution`` next to PySpark's commands, and return its path.

    Parameters
    ----------
    scripts : Path
        Folder that contains ``spark-submit``.
    python : Path
        Python interpreter for the drivers of jobs, unless a job's configuration names another one.
    """
    home, brought = scripts / "spark-distribution", Path(pyspark.__file__).parent
    for folder in ("conf", "warehouse"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        link = home / part
        link.unlink(missing_ok=True)
        link.symlink_to(brought / part)
    # When it starts, Spark creates a folder for tables without a location; by default in the working folder.
    settings = {"spark.pyspark.driver.python": python, "spark.sql.warehouse.dir": home / "warehouse", **_SETTINGS}
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (home / "conf/spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return home


if __name__ == "__main__":
    interpreter = Path(sys.executable)  # do not resolve it: only the link is inside the environment
    sys.stdout.write(f"{make_spark_home(interpreter.parent, interpreter)}\n")

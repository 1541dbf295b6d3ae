"""Make a Spark home next to PySpark's commands, so that they work with any Python first on PATH.

``.venv/bin/spark-submit`` asks the first ``python3`` on PATH where Spark is, and runs the job with it. Unless the
environment is activated, that is the system's, which has no Spark. But PySpark's commands first look for a folder
``spark-distribution`` next to them. ``python -m isr_batch.spark_home`` (`make setup`) makes it: links to PySpark's
files, and the one setting that names the Python of the driver.
"""

import sys
from pathlib import Path
from typing import Final

import pyspark

_PARTS: Final = ("bin", "sbin", "jars", "python")


def make_spark_home(scripts: Path, python: Path) -> Path:
    """Make the folder.

    Parameters
    ----------
    scripts : Path
        Folder with ``spark-submit``.
    python : Path
        Runs drivers of jobs that name none.
    """
    home, brought = scripts / "spark-distribution", Path(pyspark.__file__).parent
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        link = home / part
        link.unlink(missing_ok=True)
        link.symlink_to(brought / part)
    (home / "conf/spark-defaults.conf").write_text(f"spark.pyspark.driver.python {python}\n", encoding="utf-8")
    return home


if __name__ == "__main__":
    interpreter = Path(sys.executable)  # not resolved: the link is what belongs to the environment
    sys.stdout.write(f"{make_spark_home(interpreter.parent, interpreter)}\n")

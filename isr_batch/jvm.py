"""JVM options for a local Spark session, so that it starts fast for small inputs.

In a short run, the JIT compiler takes a third of the time, and class loading takes half of the start-up. Therefore
small inputs run without the C2 compiler and the parallel garbage collector. Classes are loaded from an archive (class
data sharing) that `isr_batch.jvm_archive` writes. A JVM ignores an archive that does not match it.
"""

import os
import shlex
import shutil
from pathlib import Path
from typing import Final

LITTLE: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
NO_PERF_DATA: Final = "-XX:-UsePerfData"
NO_WORD: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""JVM options that suppress the warning about an archive that does not match this JVM. The JVM would print it to
standard output, between the results of a command."""
_GIVEN: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def jvm_options(*, little: bool) -> str:
    """Return the options for the JVM of a local Spark session.

    Parameters
    ----------
    little : bool
        Whether the input is small. If so, the C2 compiler and the parallel collector are turned off.
    """
    # The JVM refuses to start with two garbage collectors, so the user's own options win.
    given = any("-XX:" in os.environ.get(name, "") for name in _GIVEN)
    found = [NO_PERF_DATA, *([LITTLE] if little and not given else [])]
    if class_archive().exists():
        found += [shlex.join([f"-XX:SharedArchiveFile={class_archive()}"]), NO_WORD]
    return " ".join(found)


def java_command() -> str | None:
    """Return the path of the Java that Spark would use; None if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


def class_archive() -> Path:
    """Return the path of the archive of Java classes with which Spark's JVM starts faster, in Spark's folder.

    The archive may not exist yet: `isr_batch.jvm_archive` writes it.
    """
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return Path(home) / "isr-batch-classes.jsa"

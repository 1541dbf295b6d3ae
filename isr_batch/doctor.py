"""Check whether this machine can run isr-batch, and suggest a remedy for each problem (``isr-batch doctor``)."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from isr_batch.errors import UsageError
from isr_batch.jvm import java_command
from isr_batch.memory import memory_bytes
from isr_batch.settings import Settings

MIN_JAVA: Final = 17
# A run needs this memory in addition to the JVM's heap, for the driver and for one Python worker per core.
PYTHON_MEMORY_GB: Final = 1.0
MIN_DISK_GB: Final = 2.0
"""Minimum free disk space for Spark's temporary files, enough to spill a few million fetches."""


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check of the machine. ``what_to_do`` is the remedy, or empty if it found no problem."""

    check: str
    found: str
    what_to_do: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check found no problem."""
        return not self.what_to_do

    def as_row(self) -> dict[str, object]:
        """Return the check as a row of the table that ``isr-batch doctor`` prints."""
        return asdict(self) | {"ok": "ok" if self.ok else "NO"}


def examine_machine(settings: Settings) -> list[DoctorCheck]:
    """Run all checks of the machine, and return their results. Spark is not started."""
    checks: list[Callable[[], DoctorCheck]] = [
        _check_python,
        _check_java,
        _spark,
        _check_pins,
        _check_delta_jars,
        _check_numba,
        lambda: _check_memory(settings.spark.driver_memory),
        _check_time_zone,
        _check_disk,
        lambda: _check_writable("working folder", Path.cwd()),
        lambda: _check_writable("scratch folder", _scratch_of_spark()),
    ]
    return [check() for check in checks]


def require_healthy_machine(checks: Iterable[DoctorCheck]) -> None:
    """Raise an error if any of the checks found a problem.

    Raises
    ------
    UsageError
        If there are problems; the message lists the failed checks.
    """
    wrong = [check.check for check in checks if not check.ok]
    if wrong:
        raise UsageError(f"checks failed: {', '.join(wrong)}")


def _check_python() -> DoctorCheck:
    """Check that the Python version is between 3.11 and 3.13."""
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    what_to_do = "" if fits else "make the environment with Python 3.11, 3.12 or 3.13"
    return DoctorCheck("python", platform.python_version(), what_to_do)


def _check_java() -> DoctorCheck:
    """Check that Java is installed and not older than `MIN_JAVA`."""
    home, java = os.environ.get("JAVA_HOME"), java_command()
    install = f"install Java {MIN_JAVA} or newer, or point JAVA_HOME at one"
    if not java:
        return DoctorCheck("java", "none" if not home else f"none in JAVA_HOME {home}", install)
    seen = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    number = re.search(r'version "(\d+)', seen)
    fits = number is not None and int(number[1]) >= MIN_JAVA
    return DoctorCheck("java", seen.partition("\n")[0], "" if fits else install)


def _spark() -> DoctorCheck:
    """Check that SPARK_HOME, if set, contains the same version of Spark as the installed PySpark."""
    home = os.environ.get("SPARK_HOME")
    wanted = version("pyspark")
    if not home:
        return DoctorCheck("spark", f"pyspark {wanted}")
    found = [jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")]
    seen = f"{', '.join(found) or 'none'} in SPARK_HOME {home}"
    return DoctorCheck("spark", seen, "" if found == [wanted] else f"unset SPARK_HOME, or point it at Spark {wanted}")


def _check_time_zone() -> DoctorCheck:
    """Check that TZ, if set, names a known time zone. Python and Java would resolve an unknown name differently."""
    name = os.environ.get("TZ", "")
    if not name:
        return DoctorCheck("time zone", f"{time.tzname[0]}; all times here are UTC")
    try:
        ZoneInfo(name.removeprefix(":"))
    except (KeyError, ValueError, OSError):  # no such zone, an illegal name, or a folder of zones
        return DoctorCheck("time zone", f"TZ={name} is not a known time zone", "set TZ=UTC, or install tzdata")
    return DoctorCheck("time zone", f"TZ={name}; all times here are UTC")


def _scratch_of_spark() -> Path:
    """Return the folder for Spark's temporary files."""
    return Path(os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir())


def _check_disk() -> DoctorCheck:
    """Check that the disk for Spark's temporary files has enough free space."""
    folder = _scratch_of_spark()
    try:
        free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        return DoctorCheck("disk", f"{folder}: {error.strerror}", "point SPARK_LOCAL_DIRS at an existing folder")
    what_to_do = "" if free >= MIN_DISK_GB else f"make room in {folder}, or point SPARK_LOCAL_DIRS at a larger disk"
    return DoctorCheck("disk", f"{free:.1f} GB free for scratch in {folder}", what_to_do)


def _check_pins() -> DoctorCheck:
    """Check that packages with a pinned version are installed in this version."""
    try:
        pins = [re.fullmatch(r"([\w-]+)==([\w.]+).*", text) for text in requires("isr-batch") or []]
    except PackageNotFoundError:
        return DoctorCheck("pinned packages", "isr-batch is run from its folder, not installed", "")
    found = {pin[1]: (version(pin[1]), pin[2]) for pin in pins if pin}
    wrong = [f"{name} {has} instead of {wants}" for name, (has, wants) in found.items() if has != wants]
    seen = ", ".join(f"{name} {has}" for name, (has, _) in found.items())
    return DoctorCheck("pinned packages", seen, f"`make setup`: {', '.join(wrong)}" if wrong else "")


def _check_delta_jars() -> DoctorCheck:
    """Check that Delta's jars are in Spark's folder, so that no session has to download them."""
    from isr_batch.session import delta_jars  # imports Spark, which may be missing

    jars = delta_jars()
    return DoctorCheck(
        "delta jars",
        ", ".join(jar.name for jar in jars) or "none: each start downloads them",
        "" if jars else "`python -m isr_batch.session --fetch-jars` fetches them once",
    )


def _check_numba() -> DoctorCheck:
    """Check that numba can compile a function."""
    import numba  # importing it takes a second

    try:
        answer = numba.njit(lambda x: x + 1)(41)
    except Exception as error:  # noqa: BLE001 (any error of LLVM is reported)
        return DoctorCheck("numba", str(error).partition("\n")[0], "reinstall numba and llvmlite: `make clean setup`")
    return DoctorCheck("numba", f"{numba.__version__} compiles", "" if answer == 42 else "numba miscalculates")  # noqa: PLR2004


def _check_memory(driver_memory: str) -> DoctorCheck:
    """Check that the machine has enough memory for a driver's heap of this size (such as ``4g``) and for Python."""
    total = memory_bytes() / 2**30
    heap = float(driver_memory[:-1]) / (1024 if driver_memory[-1] in "mM" else 1)
    needed = heap + PYTHON_MEMORY_GB
    return DoctorCheck(
        "memory",
        f"{total:.1f} GB, spark.driver_memory {driver_memory}",
        "" if total >= needed else f"set spark.driver_memory below {max(total - PYTHON_MEMORY_GB, 0.5):.1f}g",
    )


def _check_writable(name: str, folder: Path) -> DoctorCheck:
    """Check that this user may write to a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return DoctorCheck(name, str(folder))
    except OSError as error:
        return DoctorCheck(name, f"{folder}: {error.strerror}", "give write access to it, or work in another folder")

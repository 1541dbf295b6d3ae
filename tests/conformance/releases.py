"""Kafka's releases, each in a separate class loader in the JVM of the test run."""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = Path(__file__).parent / "java"
SILENT = -1

COMMON = ("com.yammer.metrics:metrics-core:2.2.0", "org.slf4j:slf4j-api:1.7.36", "org.slf4j:slf4j-nop:1.7.36")
SCALA_2_11 = ("org.scala-lang:scala-library:2.11.12", "com.typesafe.scala-logging:scala-logging_2.11:3.9.0")
SCALA_2_13 = (
    "org.scala-lang:scala-library:2.13.16",
    "org.scala-lang.modules:scala-java8-compat_2.13:1.0.2",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.5",
)
UNTIL_2_1 = (
    "log4j:log4j:1.2.17",
    "com.101tec:zkclient:0.10",
    "org.apache.zookeeper:zookeeper:3.4.14",
    *(f"com.fasterxml.jackson.core:jackson-{part}:2.9.10" for part in ("core", "databind", "annotations")),
)
FROM_3_0 = ("commons-validator:commons-validator:1.7", "org.pcollections:pcollections:4.0.1")
FROM_4_0 = ("org.apache.logging.log4j:log4j-api:2.24.3", "org.apache.logging.log4j:log4j-core:2.24.3")


def modules(release: str) -> tuple[str, ...]:
    """Only the classes that the Partition of a release needs: a broker takes several times as many."""
    parts, libraries = parts_and_libraries(release)
    return (*(f"org.apache.kafka:{part}:{release}" for part in parts), *libraries)


def parts_and_libraries(release: str) -> tuple[list[str], list[str]]:
    version = tuple(int(part) for part in release.split("."))
    libraries = [*COMMON, *(SCALA_2_13 if version >= (2, 4) else SCALA_2_11 + UNTIL_2_1)]
    parts = ["kafka_2.13" if version >= (2, 4) else "kafka_2.11", "kafka-clients"]
    if version >= (3,):
        parts += [f"kafka-{part}" for part in ("server-common", "metadata", "raft", "storage", "storage-api")]
        libraries += FROM_3_0
    if version >= (3, 7):
        parts.append("kafka-server")
    if version >= (4,):
        libraries += FROM_4_0
    return parts, libraries


def built_jars(folder: Path) -> list[Path]:
    """Jars of Kafka below the folder of a build, such as a checkout after ``./gradlew jar``."""
    jars = [jar for jar in sorted(folder.rglob("*.jar")) if BUILT.match(jar.name)]
    if not any(jar.name.startswith("kafka_") for jar in jars):
        pytest.fail(f"{folder} has no kafka_2.13-VERSION.jar: run ./gradlew jar in a checkout of Kafka")
    return jars


BUILT = re.compile(r"kafka(_2\.13|-clients|-[a-z-]+)-(\d+\.\d+\.\d+)(-SNAPSHOT)?\.jar$")


class Releases:
    """Loads classes of releases; their jars come from Maven by the client that Spark brings, configured as Spark is."""

    def __init__(self, spark: "SparkSession") -> None:
        """Take the JVM of the session; nothing is fetched yet."""
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = spark._jvm
        self._given = {
            name: spark.conf.get(f"spark.jars.{name}", None) for name in ("ivy", "ivySettings", "repositories")
        }
        self._is_in_reach = False
        self.jar = functools.cache(self._jar)
        self.loader = functools.cache(self._loader)

    @functools.cached_property
    def _maven(self) -> Any:
        """Spark's own resolveMavenCoordinates would leave out scala-library, so this is the client beneath it."""
        nowhere = self._jvm.java.io.PrintStream(self._jvm.java.io.OutputStream.nullOutputStream())
        spark = getattr(getattr(self._jvm.org.apache.spark.util, "MavenUtils$"), "MODULE$")
        repositories, cache = (self._jvm.scala.Option.apply(self._given[name]) for name in ("repositories", "ivy"))
        if self._given["ivySettings"]:
            settings = spark.loadIvySettings(self._given["ivySettings"], repositories, cache, nowhere)
        else:
            settings = spark.buildIvySettings(repositories, cache, False, nowhere)
        self._jvm.org.apache.ivy.util.Message.setDefaultLogger(
            self._jvm.org.apache.ivy.util.DefaultMessageLogger(SILENT)
        )
        return self._jvm.org.apache.ivy.Ivy.newInstance(settings)

    def _jar(self, module: str) -> Path:
        """Jar of ``group:artifact:version``, without what it depends on."""
        name = self._jvm.org.apache.ivy.core.module.id.ModuleRevisionId.newInstance(*module.split(":"))
        options = self._jvm.org.apache.ivy.core.resolve.ResolveOptions()
        options.setTransitive(False)
        options.setOutputReport(False)
        options.setLog("quiet")
        options.setConfs(self._array(self._jvm.java.lang.String, ["default"]))
        report = self._maven.resolve(name, options, False)
        files = [artifact.getLocalFile() for artifact in report.getAllArtifactsReports()]
        if report.hasError() or not files or files[0] is None:
            # The client says "not found" in either case.
            if not self._is_in_reach:
                pytest.skip(f"Maven is out of reach: {module}")
            pytest.fail(f"Maven lacks {module}")
        self._is_in_reach = True
        return Path(files[0].getPath())

    def _loader(self, release: str | Path) -> Any:
        """Loader of our drivers, compiled against the release; above it are the release and Java, but not Spark."""
        if isinstance(release, Path):
            jars = built_jars(release)
            version = next(found[2] for jar in jars if (found := BUILT.match(jar.name)) and found[1] == "_2.13")
            jars += [self.jar(module) for module in parts_and_libraries(version)[1]]
        else:
            jars = [self.jar(module) for module in modules(release)]
        urls = self._array(self._jvm.java.net.URL, [self._jvm.java.net.URL(jar.as_uri()) for jar in jars])
        platform = self._jvm.java.lang.ClassLoader.getPlatformClassLoader()
        sources = self._array(self._jvm.java.io.File, [self._jvm.java.io.File(str(JAVA))])
        return self._jvm.org.codehaus.janino.JavaSourceClassLoader(
            self._jvm.java.net.URLClassLoader(urls, platform), sources, "UTF-8"
        )

    def _array(self, java_class: Any, values: list[Any]) -> Any:
        array = self._gateway.new_array(java_class, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def driver(self, release: str | Path, name: str) -> "Driver":
        """Return a new object of the class in ``java/<name>.java``."""
        return Driver(self, self.loader(release).loadClass(name))

    def objects(self, *values: object) -> Any:
        """Java's array of them."""
        return self._array(self._jvm.java.lang.Object, list(values))


class Driver:
    """An object of a class that several loaders have: py4j takes classes of one name for one class, Java does not."""

    def __init__(self, releases: Releases, java_class: Any) -> None:
        """Call the class's only constructor, which takes nothing."""
        self._releases = releases
        self._methods = {method.getName(): method for method in java_class.getMethods()}
        self._object = java_class.getConstructors()[0].newInstance(releases.objects())

    def call(self, name: str, *arguments: object) -> Any:
        """Call a method."""
        return self._methods[name].invoke(self._object, self._releases.objects(*arguments))

"""The releases of Kafka, in the JVM of the session."""

from typing import TYPE_CHECKING

import pytest

from tests.conformance.releases import Releases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def releases(spark_session: "SparkSession") -> Releases:
    return Releases(spark_session)

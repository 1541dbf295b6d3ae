"""Check that a lake exists, before any work begins, so that a mistyped name is reported at once."""

from pyspark.errors import AnalysisException

from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake.ddl import quoted_for_spark
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES


def require_catalog_schema(lake: Lake) -> None:
    """Raise if the schema of a lake in a catalog does not exist. Lakes outside a catalog are not checked.

    Raises
    ------
    UsageError
        If Spark does not find the catalog or the schema.
    """
    if not lake.catalog:
        return
    name = ".".join(map(quoted_for_spark, lake.root.split(".")))
    try:
        known = lake.spark.catalog.databaseExists(name)
    except AnalysisException:
        known = False
    if not known:
        raise UsageError(
            f"Spark knows no schema {lake.root}",
            f"CREATE SCHEMA {lake.root} creates it; or check --catalog CAT.SCHEMA and spark.sql.catalog.CAT",
        )


def require_tables(lake: Lake) -> None:
    """Raise if a lake does not contain any table, which usually means that its address is mistyped.

    Raises
    ------
    NoInputError
        If the lake has no table of isr-batch.
    """
    if not any(map(lake.has, TABLES)):
        raise NoInputError(
            f"{lake.root} has no tables",
            f"isr-batch run --logs DIR {'--catalog' if lake.catalog else '--lake'} {lake.root} creates them",
        )

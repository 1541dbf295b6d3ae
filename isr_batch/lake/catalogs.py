"""Lakes in a schema of a catalog."""

from pyspark.errors import AnalysisException

from isr_batch.errors import UsageError
from isr_batch.lake.lake import Lake


def require_catalog_schema(lake: Lake) -> None:
    """Find a mistyped catalog or schema before work begins.

    Raises
    ------
    UsageError
        When Spark knows no such schema.
    """
    if not lake.catalog:
        return
    name = ".".join(f"`{part.replace('`', '``')}`" for part in lake.root.split("."))
    try:
        known = lake.spark.catalog.databaseExists(name)
    except AnalysisException:
        known = False
    if not known:
        raise UsageError(
            f"Spark knows no schema {lake.root}",
            f"CREATE SCHEMA {lake.root} creates it; or check --catalog CAT.SCHEMA and spark.sql.catalog.CAT",
        )

"""Expand runs of identical fetches, to query single fetches."""

from pyspark.sql import DataFrame

from isr_batch.lake.sql_files import sql_texts


def single_fetches(rows: DataFrame) -> DataFrame:
    """Rows of ``fetch_log`` with one row per fetch: the columns of view ``fetches``."""
    text = sql_texts()["fetches"].replace("fetch_log", "{fetch_log}")
    return rows.sparkSession.sql(text, fetch_log=rows)

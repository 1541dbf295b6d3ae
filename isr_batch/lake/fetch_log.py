"""Expand rows of ``fetch_log``, which may be runs of identical fetches, to one row per fetch."""

from pyspark.sql import DataFrame

from isr_batch.lake.sql_files import sql_texts


def single_fetches(rows: DataFrame) -> DataFrame:
    """Return one row per fetch, with the columns of the view ``fetches``, given rows of ``fetch_log``."""
    text = sql_texts()["fetches"].replace("fetch_log", "{fetch_log}")
    return rows.sparkSession.sql(text, fetch_log=rows)

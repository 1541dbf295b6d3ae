"""Expand the rows of ``fetch_log`` to one row per fetch. A row may stand for a run of fetches."""

from pyspark.sql import DataFrame

from isr_batch.lake.sql_files import sql_texts


def single_fetches(rows: DataFrame) -> DataFrame:
    """Expand rows of ``fetch_log`` to one row per fetch, with the columns of the view ``fetches``."""
    text = sql_texts()["fetches"].replace("fetch_log", "{fetch_log}")
    return rows.sparkSession.sql(text, fetch_log=rows)

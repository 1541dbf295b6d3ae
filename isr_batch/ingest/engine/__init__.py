"""Run the operations of an ingest on its rows, in this process or in Spark's workers."""

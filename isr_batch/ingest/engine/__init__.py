"""Process the rows of an ingest, in this process or in Spark's workers."""
